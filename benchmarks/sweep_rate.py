"""How many full estimates a second a sweep makes: memory, TTFT, TPOT and cost of every load on every deployment.

Run: python benchmarks/sweep_rate.py [--model NAME ...] [--side N]

For each model, on H100 and H200 with everything that its links allow: seconds to lay out the deployments (budget, price,
server: once for each), rows a second that are computed and thrown away, and that are written to CSV and Parquet. Then
the peak memory of a process that writes a sweep, and one that writes ten times as many rows. Processor seconds are
given beside the clock's: on a machine that others use only they say what the work costs.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from capplan.questions.sweep import deployments, sweep_chunks
from capplan.questions.sweep_request import SweepRequest
from capplan.report.sweep_files import write_sweep

MODELS = ("llama3.1-70b", "deepseek-r1")
GPUS = ("h100", "h200")


def grid(model: str, side: int) -> SweepRequest:
    """`side` x `side` lengths and four times as many concurrencies."""
    return SweepRequest(
        model=model,
        isl=tuple(range(256, 256 + 331 * side, 331)),
        osl=tuple(range(32, 32 + 67 * side, 67)),
        concurrency=tuple(range(1, 1 + 3 * 4 * side, 3)),
        gpus=GPUS,
    )


def timed(work: Callable[[], int]) -> tuple[int, float, float]:
    """(rows, seconds by the clock, processor seconds)."""
    clock, processor = time.perf_counter(), time.process_time()
    rows = work()
    return rows, time.perf_counter() - clock, time.process_time() - processor


def line(name: str, work: Callable[[], int]) -> None:
    """Measure and print."""
    rows, clock, processor = timed(work)
    print(f"  {name:<18} {rows:>10,} rows {clock:7.2f} s {rows / clock:>10,.0f}/s by the clock", end="")
    print(f" {rows / processor:>10,.0f}/s of processor time")


def peak_mib(request: SweepRequest) -> float:
    """Peak memory of a process of its own that writes the sweep to CSV."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(written_mib, (request,))


def written_mib(request: SweepRequest) -> float:
    """Write the sweep and tell this process's peak memory."""
    with tempfile.TemporaryDirectory() as folder:
        write_sweep(request, Path(folder) / "rows.csv")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def rows_written(request: SweepRequest, path: Path) -> int:
    """Write the sweep."""
    return write_sweep(request, path).rows


def measure(request: SweepRequest) -> None:
    """Every rate of one sweep."""
    laid, clock, processor = timed(lambda: len(deployments(request).fitting))
    print(f"{request.model} on {', '.join(GPUS)}: {laid} deployments x {request.grid.size:,} loads")
    print(f"  laid out in {clock:.2f} s, {processor:.2f} s of processor time")
    line("computed", lambda: sum(chunk.rows for chunk in sweep_chunks(request)))
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("csv", "parquet"):
            path = Path(folder) / f"rows.{kind}"
            line(f"written to {kind}", partial(rows_written, request, path))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", default=MODELS)
    parser.add_argument("--side", type=int, default=16)
    options = parser.parse_args()
    for model in options.model:
        measure(grid(model, options.side))
    one = replace(grid(options.model[0], 16), gpus=("h100",), tensor_parallel=(4, 8), max_num_seqs=256)
    ten = replace(one, isl=tuple(range(256, 256 + 33 * 160, 33)))
    for request in (one, ten):
        rows = len(deployments(request).fitting) * request.grid.size
        print(f"peak memory with {rows:,} rows to CSV: {peak_mib(request):,.0f} MiB")


if __name__ == "__main__":
    main()
