"""Run generated bad inputs through capplan in this process and say what went wrong.

Run: python tests/fuzz/run_bad_inputs.py [count] [seed]     (10,000 cases by default)
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from bad_inputs import Case, cases

from capplan.cli.app import run

MOST_SECONDS = 2.0
EXIT_CODES = {0, 1, 2, 3, 4}


def failures(count: int, seed: int, folder: Path, tally: Counter[str] | None = None) -> Iterator[str]:
    """What is wrong with the way that capplan took each case."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        for index, case in enumerate(cases(seed, count)):
            problem, code = judge(case, folder)
            if tally is not None:
                tally[f"{case.kind} exit {code}"] += 1
            if problem:
                yield f"case {index} ({case.kind}) {case.argv!r}: {problem}"
    finally:
        os.chdir(before)


def judge(case: Case, folder: Path) -> tuple[str, int | None]:
    """A complaint, or nothing, and the exit code."""
    for name, content in case.files.items():
        (folder / name).write_bytes(content)
    out, err = io.StringIO(), io.StringIO()
    start = time.process_time()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(case.argv)
    except BaseException as error:
        return f"escaped as {type(error).__name__}: {error}", None
    seconds = time.process_time() - start
    text = err.getvalue()
    if code not in EXIT_CODES:
        return f"exit code {code}: {text.strip()[:300]}", code
    if "Traceback" in text or "Traceback" in out.getvalue():
        return "a traceback", code
    if seconds > MOST_SECONDS:
        return f"took {seconds:.1f} s", code
    if case.hopeless and code == 0:
        return f"answered where there is no answer: {out.getvalue()[:200]}", code
    if "--json" in case.argv and out.getvalue().strip():
        try:
            json.loads(out.getvalue())
        except ValueError as error:
            if "-h" not in case.argv:
                return f"not JSON: {error}: {out.getvalue()[:100]}", code
    return "", code


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 20261130
    tally: Counter[str] = Counter()
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        found = list(failures(count, seed, Path(folder), tally))
    for line in found[:50]:
        print(line)
    print(f"{count} cases in {time.process_time() - start:.0f} s: {len(found)} failures; {dict(sorted(tally.items()))}")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
