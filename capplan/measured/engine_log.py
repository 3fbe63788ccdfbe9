"""One start of an engine as its log tells it, and the figures that it printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from capplan.describe.deployment import Engine
from capplan.measured.log_engine import Repeat
from capplan.measured.log_lines import LogLine
from capplan.measured.log_settings import LogSetting
from capplan.measured.log_template import Printed

GREATEST_BINDS = frozenset({"weight_bytes", "activation_bytes", "non_torch_bytes", "graph_bytes", "needed_bytes"})
"""Figures of which the greatest of all ranks binds; of pools, blocks and tokens it is the least."""


@dataclass(frozen=True, slots=True)
class LogFigure:
    """A figure that the engine printed.

    Args:
        name: what it is; sizes end in ``_bytes``.
        printed: the number, and how exactly it was printed.
        rank: the rank, process or device that it is about; empty when the log doesn't say.
        line: its line in the log.
        text: the line's words.
        repeat: what a second such line of the same rank means.
    """

    name: str
    printed: Printed
    rank: str
    line: int
    text: str
    repeat: Repeat = "once"


@dataclass(frozen=True)
class EngineLog:
    """One start of an engine, as its log tells it.

    Args:
        path: of the log.
        engine: whose log it is.
        version: of the engine, when printed.
        first_line: where the start begins.
        settings: by name, vLLM's flags in snake case.
        figures: in the order of the log.
        refusal: the line by which the engine gave up, when it did.
    """

    path: Path
    engine: Engine
    version: str | None
    first_line: int
    settings: dict[str, LogSetting]
    figures: tuple[LogFigure, ...]
    refusal: LogLine | None = None

    def all_of(self, name: str) -> tuple[LogFigure, ...]:
        """Every figure of a name."""
        return tuple(figure for figure in self.figures if figure.name == name)

    def binding(self, name: str) -> LogFigure | None:
        """The figure of the rank that binds, in its finest printing; None when the log has none."""
        figures = self.all_of(name)
        return binding(name, figures) if figures else None

    def setting(self, name: str) -> int | float | str | bool | None:
        """The value of a setting; None when the log doesn't say."""
        found = self.settings.get(name)
        return None if found is None else found.value


def binding(name: str, figures: Sequence[LogFigure]) -> LogFigure:
    """Of figures of one name the one of the rank that binds, in its finest printing.

    Where a rank printed several that all count (a draft model's weights beside the model's), its first is meant.
    """
    finest: dict[str, LogFigure] = {}
    for figure in figures:
        known = finest.setdefault(figure.rank, figure)
        if figure.printed.half_digit < known.printed.half_digit and figure.printed.overlaps(known.printed):
            finest[figure.rank] = figure
    choose = max if name in GREATEST_BINDS else min
    return choose(finest.values(), key=lambda figure: figure.printed.value)
