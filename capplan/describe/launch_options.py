"""What each serving engine can be told: its options as its own sources define them, in ``engine_options/*.csv``.

The tables are made by ``tools/engine_options.py``; each row names the version and file that it is from.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from capplan.errors import UsageError, did_you_mean

ValueKind = Literal["flag", "switch", "integer", "number", "text", "list", "json", "choice", "field", "config"]

_FOLDER = Path(__file__).parent / "engine_options"


@dataclass(frozen=True)
class LaunchOption:
    """One option.

    Args:
        name: its first spelling.
        spellings: every spelling.
        kind: what kind of value it takes; a switch has a form with ``--no-`` too.
        choices: values that it is limited to; empty: any.
        source: engine, version and file.
    """

    name: str
    spellings: tuple[str, ...]
    kind: ValueKind
    choices: tuple[str, ...]
    source: str

    def accepts(self, value: str | None) -> bool:
        """Whether the option takes such a value; None stands for none."""
        if self.kind in ("flag", "switch"):
            return value is None
        if value is None:
            return False
        if self.kind == "integer":
            return value.lstrip("-").isdigit()
        if self.kind == "number":
            return _is_number(value)
        return not self.choices or value in self.choices


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@cache
def launch_options(engine: str) -> dict[str, LaunchOption]:
    """The options of an engine by every spelling; fields of Python classes and keys of YAML files stand under theirs.

    Raises:
        UsageError: no table of that engine.
    """
    engines = sorted(path.stem for path in _FOLDER.glob("*.csv"))
    if engine not in engines:
        raise UsageError(
            f"the options of {engine[:40]!r} are not known; those of {', '.join(engines)} are",
            where="--engine",
            hint=did_you_mean(engine, engines),
        )
    table: dict[str, LaunchOption] = {}
    with (_FOLDER / f"{engine}.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            kind: ValueKind = row["kind"]  # type: ignore[assignment]
            spellings = (row["option"], *row["aliases"].split())
            if kind == "switch":
                spellings += tuple(f"--no-{name[2:]}" for name in spellings if name.startswith("--"))
            option = LaunchOption(row["option"], spellings, kind, tuple(row["choices"].split()), row["source"])
            table |= dict.fromkeys(spellings, option)
    return table
