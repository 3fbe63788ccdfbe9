"""Measures collectives between the processes that torchrun starts: NCCL between GPUs, gloo between CPU processes.

``torchrun --nproc-per-node 4 -m calibrate.collectives --backend gloo --samples collectives.jsonl``

A collective takes as long as its slowest rank. The result of every one is compared with what the ranks' inputs, which
every rank can make again, add up to in float64.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from calibrate.alpha_beta import fit_alpha_beta
from calibrate.device import Device, conditions, open_device, provenance
from calibrate.kernels.kernel import error_of, some_of
from calibrate.random_numbers import random_normal
from calibrate.repeats import Timing, mark
from calibrate.samples import Recorder, Sample, recording
from capplan.errors import CapplanError, UsageError

SIZES = tuple(1 << power for power in range(10, 27, 2))
"""Bytes of the whole vector: 1 KiB to 64 MiB."""

REPEATS = 9
TOLERANCE = 1e-4

Tensor = Any

_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
_reduce_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
"""Their names since torch 2.13, and before."""


@dataclass(frozen=True)
class Group:
    """This process among the others.

    Args:
        rank: its number.
        ranks: how many there are.
        device: what it computes on.
        library: ``nccl`` or ``gloo``.
    """

    rank: int
    ranks: int
    device: Device
    library: str


@dataclass(frozen=True)
class Exchange:
    """One collective on one message, made ready.

    Args:
        run: does it, and returns what this rank got.
        expected: the elements from one place to another of what it must get, in float64.
        reset: restores what a run changes.
    """

    run: Callable[[], Tensor]
    expected: Callable[[int, int], Tensor]
    reset: Callable[[], Any] = lambda: None


def inputs(group: Group, rank: int, count: int) -> Tensor:
    """The numbers that a rank puts in: every rank can make them."""
    return random_normal(group.device.torch_name, 1000 + rank, (count,), torch.float32)


def all_reduce(group: Group, count: int) -> Exchange:
    """Every rank gets the sum of all vectors."""
    own, total = inputs(group, group.rank, count), inputs(group, group.rank, count)

    def run() -> Tensor:
        dist.all_reduce(total)
        return total

    def expected(start: int, end: int) -> Tensor:
        return sum(inputs(group, rank, count)[start:end].double() for rank in range(group.ranks))

    return Exchange(run, expected, lambda: total.copy_(own))


def all_gather(group: Group, count: int) -> Exchange:
    """Every rank gets the vectors of all, one after the other; `count` elements come out."""
    part = count // group.ranks
    own = inputs(group, group.rank, part)
    whole = torch.full((part * group.ranks,), torch.nan, device=group.device.torch_name)

    def run() -> Tensor:
        _gather(whole, own)
        return whole

    def expected(start: int, end: int) -> Tensor:
        return torch.cat([inputs(group, rank, part) for rank in range(group.ranks)])[start:end].double()

    return Exchange(run, expected)


def reduce_scatter(group: Group, count: int) -> Exchange:
    """Every rank gets its part of the sum of all vectors of `count` elements."""
    part = count // group.ranks
    own = inputs(group, group.rank, part * group.ranks)
    mine = torch.full((part,), torch.nan, device=group.device.torch_name)

    def run() -> Tensor:
        _reduce_scatter(mine, own)
        return mine

    def expected(start: int, end: int) -> Tensor:
        shift = group.rank * part
        return sum(
            inputs(group, rank, part * group.ranks)[shift + start : shift + end].double() for rank in range(group.ranks)
        )

    return Exchange(run, expected)


def all_to_all(group: Group, count: int) -> Exchange:
    """Every rank sends a part of its vector of `count` elements to each."""
    part = count // group.ranks
    own = inputs(group, group.rank, part * group.ranks)
    received = torch.full((part * group.ranks,), torch.nan, device=group.device.torch_name)

    def run() -> Tensor:
        dist.all_to_all_single(received, own)
        return received

    def expected(start: int, end: int) -> Tensor:
        shift = group.rank * part
        parts = [inputs(group, rank, part * group.ranks)[shift : shift + part] for rank in range(group.ranks)]
        return torch.cat(parts)[start:end].double()

    return Exchange(run, expected)


COLLECTIVES: dict[str, Callable[[Group, int], Exchange]] = {
    "all_reduce": all_reduce,
    "all_gather": all_gather,
    "reduce_scatter": reduce_scatter,
    "all_to_all": all_to_all,
}


def measure_collective(group: Group, name: str, size: int, repeats: int = REPEATS) -> Sample | None:
    """One collective on one size, checked and timed; None where the library doesn't have it."""
    started, begin = datetime.now(UTC), time.perf_counter()
    state = conditions(group.device)
    try:
        exchange = COLLECTIVES[name](group, size // 4)
        exchange.reset()
        output = exchange.run()
    except (RuntimeError, ValueError, NotImplementedError) as error:
        print(f"{group.library} refuses {name}: {str(error).splitlines()[0][:100]}", file=sys.stderr)
        return None
    group.device.synchronise()
    start, end = some_of(output.numel())
    difference = agreed(group, error_of(output[start:end], exchange.expected(start, end)))
    timing = timed(group, exchange, repeats)
    return Sample(
        kind="collective",
        name=name,
        key={"collective": name, "gpus": group.ranks, "library": group.library},
        shape={"bytes": float(size)},
        cache="cold",
        seconds=timing.seconds,
        low=timing.low,
        high=timing.high,
        repeats=timing.repeats,
        marked=timing.marked,
        bytes=float(size),
        error=min(difference / TOLERANCE, 1e9),
        problem="" if difference <= TOLERANCE else "the result differs from the sum of the ranks' inputs",
        conditions=state,
        started=started.isoformat(timespec="seconds"),
        spent=time.perf_counter() - begin,
    )


def timed(group: Group, exchange: Exchange, repeats: int) -> Timing:
    """Seconds of the slowest rank, repeat by repeat."""
    taken = []
    exchange.reset()
    for _ in range(repeats):
        dist.barrier()
        group.device.synchronise()
        begin = time.perf_counter()
        exchange.run()
        group.device.synchronise()
        taken.append(agreed(group, time.perf_counter() - begin))
    return mark(taken)


def agreed(group: Group, value: float) -> float:
    """The largest of the ranks' values."""
    box = torch.tensor([min(value, 1e30)], dtype=torch.float64, device=group.device.torch_name)
    dist.all_reduce(box, op=dist.ReduceOp.MAX)
    return float(box)


def run(group: Group, recorder: Recorder | None, sizes: Sequence[int], names: Sequence[str]) -> list[Sample]:
    """Every collective on every size; the first rank writes the samples."""
    found = []
    for name in names:
        for size in sizes:
            sample = measure_collective(group, name, size)
            if sample is None:
                break
            found.append(sample)
            if recorder is not None:
                recorder.add(sample)
    return found


def check_started_by_torchrun() -> None:
    """Return if there are other processes to exchange with.

    Raises:
        UsageError: there are none.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        raise UsageError(
            "collectives are measured between two processes or more, and this is the only one",
            where="calibrate.collectives",
            hint="torchrun --nproc-per-node 2 -m calibrate.collectives --samples collectives.jsonl",
        )


@contextmanager
def joined(backend: str, device_name: str) -> Iterator[Group]:
    """This process in torchrun's group, which is left at the end."""
    check_started_by_torchrun()
    local = int(os.environ.get("LOCAL_RANK", "0"))
    library = backend if backend != "auto" else ("nccl" if torch.cuda.is_available() else "gloo")
    wanted = device_name if device_name != "auto" else (f"cuda:{local}" if library == "nccl" else "cpu")
    device = open_device(wanted, threads=1 if wanted == "cpu" else None)
    if library == "nccl" and device.kind == "cpu":
        raise UsageError("NCCL exchanges between GPUs", where="--backend", hint="--backend gloo")
    dist.init_process_group(library)
    try:
        yield Group(dist.get_rank(), dist.get_world_size(), device, library)
    finally:
        dist.destroy_process_group()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the collectives of a torchrun group and print α and β."""
    parser = argparse.ArgumentParser(prog="python -m calibrate.collectives", description=main.__doc__)
    parser.add_argument("--backend", choices=("auto", "nccl", "gloo"), default="auto")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda:N")
    parser.add_argument("--samples", type=Path, default=Path("collectives.jsonl"), help="file of raw samples")
    parser.add_argument("--resume", action="store_true", help="add to a file of samples that is there")
    parser.add_argument("--most-bytes", type=int, default=SIZES[-1], help="largest message")
    parser.add_argument("--collective", action="append", choices=tuple(COLLECTIVES), help="one of them [all]")
    given = parser.parse_args(arguments)
    try:
        if given.most_bytes < SIZES[0]:
            raise UsageError(f"the smallest message has {SIZES[0]} bytes", where="--most-bytes", hint="such as 1048576")
        with joined(given.backend, given.device) as group:
            return _measured(group, given)
    except CapplanError as error:
        print(f"error: {error.message}\n  where: {error.where}\n  hint:  {error.hint}", file=sys.stderr)
        return error.exit_code


def _measured(group: Group, given: argparse.Namespace) -> int:
    sizes = [size for size in SIZES if size <= given.most_bytes]
    names = given.collective or list(COLLECTIVES)
    if group.rank:
        run(group, None, sizes, names)
        return 0
    with recording(given.samples, provenance(group.device), {"collectives": True}, resume=given.resume) as recorder:
        found = run(group, recorder, sizes, names)
    for line in fit_alpha_beta(found):
        print(
            f"{line.collective} of {line.ranks}: α {line.alpha * 1e6:.1f} µs, β {line.beta / 1e9:.3f} GB/s, "
            f"median error {100 * line.median_error:.1f} %, {line.points} sizes"
        )
    wrong = [sample for sample in found if sample.problem]
    for sample in wrong:
        print(f"wrong: {sample.identity}: {sample.problem}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
