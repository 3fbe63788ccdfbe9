"""README and the pages of docs/: every command that they show has the flags that it is shown with, every link a file."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from functools import cache
from pathlib import Path

import pytest

from capplan.cli.app import COMMANDS, run

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
GROUPS = ("models", "prices", "gpus", "profiles", "calibrate")


def shown_commands(text: str) -> list[list[str]]:
    """Command lines of code blocks, continued lines joined, without comments, redirections and prompts."""
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", text, re.S | re.M)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    found = [re.sub(r"^\$ |\s+#\s.*$|\s>\s.*$", "", line) for line in lines]
    answers = re.findall(r"<!-- answer: (.*?) -->", text)
    return [shlex.split(line)[1:] for line in found if line.startswith("capplan ")] + [shlex.split(a) for a in answers]


@cache
def flags_of(command: tuple[str, ...]) -> frozenset[str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert run([*command, "--help"]) == 0
    return frozenset(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", out.getvalue()))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_commands_have_the_flags_that_they_are_shown_with(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    for words in shown_commands(page.read_text(encoding="utf-8")):
        if not words or words[0].startswith("-"):
            continue
        assert words[0] in COMMANDS, words
        plain = len(words) > 1 and not words[1].startswith("-")
        command = tuple(words[: 2 if words[0] in GROUPS and plain else 1])
        flags = {word.partition("=")[0] for word in words if re.match(r"--?[A-Za-z]", word)}
        assert flags <= flags_of(command), (words, flags - flags_of(command))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_what_is_no_command_is_left_out() -> None:
    text = "```\n$ capplan kv --seq 8 \\\n   --explain   # all of it\ncapplan fit --json > x.json\nelse\n```\n<!-- answer: cost -->"
    assert shown_commands(text) == [["kv", "--seq", "8", "--explain"], ["fit", "--json"], ["cost"]]
