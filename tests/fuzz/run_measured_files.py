"""Read generated bad logs, result files and tables, and say what went wrong.

Run: python tests/fuzz/run_measured_files.py [count] [seed]     (10,000 cases by default)
"""

from __future__ import annotations

import contextlib
import io
import math
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from measured_files import Case, cases
from run_weight_files import MOST_MEBIBYTES, MOST_SECONDS, peak_mebibytes

from capplan.cli.app import run
from capplan.errors import CapplanError
from capplan.measured.bench_results import read_bench_results
from capplan.measured.engine_logs import read_engine_log
from capplan.measured.metric_names import is_metric
from capplan.measured.table_mapping import read_mapping
from capplan.measured.tables import read_table


def read(case: Case, folder: Path) -> str:
    """Read a case as capplan does, and check what was read; says how it ended."""
    path = folder / "case"
    path.write_bytes(case.data)
    if case.kind == "log":
        read_log(path, case)
    elif case.kind == "result":
        for result in read_bench_results(path):
            sound(result.metrics)
    elif case.kind == "table":
        read_rows(path, case, folder)
    else:
        return run_command(path, case)
    return "read"


def read_log(path: Path, case: Case) -> None:
    log = read_engine_log(path)
    lines = case.data.split(b"\n")
    for figure in log.figures:
        words = figure.text.split()[0].encode()
        if b"\x1b" not in case.data and "\ufffd" not in figure.text and words not in lines[figure.line - 1]:
            raise AssertionError(f"{figure.name} does not stand on line {figure.line}")
    if not log.figures and log.refusal is None:
        raise AssertionError("read a log without a figure")


def read_rows(path: Path, case: Case, folder: Path) -> None:
    mapping = None
    if case.mapping is not None:
        (folder / "mapping.yaml").write_bytes(case.mapping)
        mapping = read_mapping(folder / "mapping.yaml")
    for row in read_table(path, mapping):
        sound(row.metrics)
        if not (row.model and row.gpu and row.engine and row.concurrency > 0 and 0 < row.mean_length <= 1):
            raise AssertionError(f"accepted {row}")


def sound(metrics: object) -> None:
    if not isinstance(metrics, dict):
        raise AssertionError(f"metrics are {type(metrics)}")
    for name, value in metrics.items():
        if not (is_metric(name) or is_metric(name.removeprefix("std_"))):
            raise AssertionError(f"{name} is no metric")
        if not (isinstance(value, float) and math.isfinite(value) and value >= 0):
            raise AssertionError(f"{name} = {value!r}")


def run_command(path: Path, case: Case) -> str:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(["import-log", str(path), *case.arguments])
    if code not in range(5) or "Traceback" in err.getvalue() + out.getvalue():
        raise AssertionError(f"exit code {code}: {err.getvalue()[:200]}")
    if code == 0 and not out.getvalue().strip():
        raise AssertionError("exit code 0 and no output")
    return f"exit {code}"


def failures(count: int, seed: int, folder: Path, tally: Counter[str] | None = None) -> Iterator[str]:
    """What is wrong with the way that capplan took each case."""
    peak = peak_mebibytes()
    for index, case in enumerate(cases(seed, count)):
        start = time.process_time()
        about = f"case {index} ({case.kind}, {len(case.data)} bytes)"
        outcome = "escaped"
        try:
            outcome = read(case, folder)
        except CapplanError as error:
            outcome = error.kind
        except BaseException as error:
            yield f"{about}: {type(error).__name__}: {error}"[:300]
        seconds = time.process_time() - start
        if tally is not None:
            tally[f"{case.kind} {outcome}"] += 1
        if seconds > MOST_SECONDS:
            yield f"{about}: took {seconds:.1f} s"
        grown = peak_mebibytes() - peak
        if grown > MOST_MEBIBYTES:
            yield f"{about}: memory grew by {grown} MiB"
            peak = peak_mebibytes()


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 20261130
    tally: Counter[str] = Counter()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        found = list(failures(count, seed, Path(folder), tally))
    for line in found[:50]:
        print(line)
    seconds = time.perf_counter() - start
    print(f"{count} cases in {seconds:.0f} s: {len(found)} failures; {dict(sorted(tally.items()))}")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
