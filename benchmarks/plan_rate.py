"""How long a plan over the whole GPU catalog takes: processor and wall time of the command, and where it goes.

Run: python benchmarks/plan_rate.py [repetitions]

For each plan, and for each with prefill and decode on pools of their own tried as well, the least processor time (user +
system) and the wall time beside it of so many runs of the command, 5 by default, each in a process of its own with
Python's start and every import; and of the search alone in this process, with the options that there were, and those
whose times were worked out.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from dataclasses import replace

from capplan.questions.plan import plan_of
from capplan.questions.plan_request import PlanRequest
from capplan.questions.pools import PoolsChoice

TOGETHER = (
    PlanRequest(model="llama3.1-70b", isl=2000, osl=500, request_rate=5, ttft=1, tpot=0.05),
    PlanRequest(model="deepseek-r1", isl=4000, osl=1000, request_rate=5, ttft=2, tpot=0.05),
)
PLANS = (*TOGETHER, *(replace(request, pools=(PoolsChoice(),)) for request in TOGETHER))


def arguments(request: PlanRequest) -> list[str]:
    """The command that asks for a plan."""
    words = ["plan", "--model", request.model, "--isl", f"{request.isl:g}", "--osl", f"{request.osl:g}"]
    words += ["--request-rate", f"{request.request_rate:g}"]
    words += ["--ttft", f"{request.ttft:g}s", "--tpot", f"{1e3 * (request.tpot or 0):g}ms"]
    return words + [word for pools in request.pools for word in ("--disaggregate", pools.label)]


def command_seconds(request: PlanRequest) -> tuple[float, float]:
    """(processor, wall) seconds of one run of the command."""
    script = f"import sys; from capplan.cli.app import run; sys.exit(run({arguments(request)!r}))"
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-c", script], stdout=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def main() -> None:
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    for request in PLANS:
        processor, wall = min(command_seconds(request) for _ in range(repetitions))
        start = time.process_time()
        result = plan_of(request).result
        search = time.process_time() - start
        print(f"capplan {' '.join(arguments(request))}")
        print(f"  {processor:.2f} s of processor time, {wall:.2f} s by the clock (the best of {repetitions})")
        print(f"  the search alone {search:.2f} s: {result.options:,} options, {result.worked_out} worked out")


if __name__ == "__main__":
    main()
