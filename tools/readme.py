"""Renew the answers in README.md. Run: python tools/readme.py [--check].

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

README = Path(__file__).parents[1] / "README.md"
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
    text = README.read_text(encoding="utf-8")
    new = renewed(text)
    if "--check" in sys.argv:
        if new != text:
            sys.exit("README.md shows an answer that capplan no longer gives; run: python tools/readme.py")
        return
    README.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
