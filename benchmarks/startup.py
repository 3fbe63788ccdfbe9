"""CPU time of one answer against that of importing its libraries, side by side.

Run: python benchmarks/startup.py [repetitions]

Prints the median user + system time of ``capplan kv --model llama2-70b --seq 65536 --json`` and of a bare
``import typer, yaml; from pydantic import BaseModel`` in the same interpreter, alternating, and their ratio; and
whether numpy or torch was imported on the way.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys

QUESTION = ["kv", "--model", "llama2-70b", "--seq", "65536", "--json"]
ANSWER = [sys.executable, "-c", f"import sys; from capplan.cli.app import run; sys.exit(run({QUESTION!r}))"]
BARE = [sys.executable, "-c", "import typer, yaml; from pydantic import BaseModel"]
IMPORTS = f"import sys; from capplan.cli.app import run; run({QUESTION!r}); print(sorted(sys.modules), file=sys.stderr)"


def cpu_seconds(command: list[str]) -> float:
    """User and system time of one run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 31
    pairs = [(cpu_seconds(ANSWER), cpu_seconds(BARE)) for _ in range(repetitions)]
    answer, bare = (statistics.median(side) for side in zip(*pairs, strict=True))
    modules = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True).stderr
    heavy = [name for name in ("numpy", "torch", "rich", "pydantic") if f"'{name}'" in modules]
    print(f"capplan {' '.join(QUESTION)}: {1000 * answer:.0f} ms CPU (median of {repetitions})")
    print(f"import typer, yaml, pydantic:   {1000 * bare:.0f} ms CPU")
    print(f"ratio {answer / bare:.2f}; heavy imports: {', '.join(heavy) or 'none'}")


if __name__ == "__main__":
    main()
