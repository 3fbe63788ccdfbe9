"""Renew the answers in README.md and in docs/. Run: python tools/readme.py [--check] [FILE.md ...].

An answer stands between ``<!-- answer: COMMAND -->`` and ``<!-- end -->`` as a code block.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
from pathlib import Path

from capplan.cli.app import run

ROOT = Path(__file__).parents[1]
ANSWER = re.compile(r"(<!-- answer: (?P<command>.*?) -->\n).*?(<!-- end -->)", re.S)


def renewed(text: str) -> str:
    """The text with every answer as capplan prints it today."""

    def answer(match: re.Match[str]) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = run(shlex.split(match["command"]))
        if code not in (0, 1):
            raise SystemExit(f"capplan {match['command']} exits with {code}")
        lines = "\n".join(line.rstrip() for line in out.getvalue().rstrip().splitlines())
        return f"{match[1]}```\n{lines}\n```\n{match[3]}"

    return ANSWER.sub(answer, text)


def main() -> None:
    """Write, or compare with ``--check``."""
    named = [Path(name).resolve() for name in sys.argv[1:] if name != "--check"]
    stale = []
    for path in named or [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        new = renewed(text)
        if new != text and "--check" not in sys.argv:
            path.write_text(new, encoding="utf-8")
        elif new != text:
            stale.append(path.name)
    if stale:
        sys.exit(f"{', '.join(stale)} show answers that capplan no longer gives; run: python tools/readme.py")


if __name__ == "__main__":
    main()
