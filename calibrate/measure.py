"""From a case to a sample: prepare it, check it against float64, time it."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import torch

from calibrate.device import Device, conditions
from calibrate.kernels.kernel import Call, Case, Kernel, Setting, error_of
from calibrate.samples import Sample
from calibrate.timer import time_call

MOST_SETS = 256
"""Buffers that rotate at most: 256 of a quarter of a MiB are twice the cache of a large CPU."""

CACHES_COVERED = 8.0
"""The rotated buffers together are this many times the last-level cache, so that neither it nor the tables of pages
that lead to memory still hold what was read before: a model's weights are larger still."""

MEMORY_SHARE = 0.25
"""Share of the free memory that one case's buffers may take."""


def buffers_of(kernel: Kernel, case: Case, device: Device) -> int:
    """How many sets of buffers rotate: enough to leave the cache cold, as memory allows; one leaves it warm."""
    if case.cache == "warm":
        return 1
    size = max(1, kernel.set_bytes(case))
    wanted = math.ceil(CACHES_COVERED * device.cache_bytes / size) + 1
    fitting = int(MEMORY_SHARE * device.free_bytes() / size)
    return max(1, min(wanted, fitting, MOST_SETS))


def too_large(kernel: Kernel, case: Case, device: Device) -> bool:
    """Whether not even two sets of buffers have room."""
    return 2 * kernel.set_bytes(case) > MEMORY_SHARE * device.free_bytes()


def measure(
    kernel: Kernel, case: Case, device: Device, *, budget: float = 0.3, seed: int = 0, held_out: bool = False
) -> Sample:
    """Check and time one case.

    A wrong result is no exception: the sample says so, and no fit uses it.

    Args:
        kernel: what.
        case: which call.
        device: where.
        budget: seconds of timed repeats.
        seed: of the random inputs.
        held_out: whether the sample is to be kept away from fits.
    """
    started, begin = datetime.now(UTC), device.spent_seconds()
    state = conditions(device)
    sets = buffers_of(kernel, case, device)
    with torch.inference_mode():
        call = kernel.prepare(case, Setting(device, sets, seed))
        error = checked(call, sets) / call.tolerance
        timing = time_call(call.run, device, sets=sets, budget=budget)
    work = kernel.work(case)
    return Sample(
        kind="kernel",
        name=case.kernel,
        key=dict(case.key),
        shape={axis: float(size) for axis, size in case.shape.items()},
        cache=case.cache,
        seconds=timing.seconds,
        low=timing.low,
        high=timing.high,
        repeats=timing.repeats,
        marked=timing.marked,
        held_out=held_out,
        flops=work.flops,
        bytes=work.bytes,
        error=min(error, 1e9),
        problem="" if error <= 1 else _wrong(error),
        conditions=state,
        started=started.isoformat(timespec="seconds"),
        spent=device.spent_seconds() - begin,
    )


def checked(call: Call, sets: int) -> float:
    """The largest difference to the reference over the first and the last set of buffers, each run from a reset."""
    errors = []
    for index in sorted({0, sets - 1}):
        call.reset()
        output = call.run(index)
        errors.append(error_of(*call.expected(index, output)))
    call.reset()
    return max(errors)


def _wrong(error: float) -> str:
    amount = "no finite numbers" if math.isinf(error) else f"{error:.3g} times the tolerance"
    return f"the result differs from its float64 reference by {amount}"


def sample_identity(case: Case) -> str:
    """The identity that the sample of a case will have."""
    shape: dict[str, Any] = {axis: float(size) for axis, size in case.shape.items()}
    return Sample("kernel", case.kernel, case.key, shape, case.cache, 1.0, 1.0, 1.0, (1.0,)).identity
