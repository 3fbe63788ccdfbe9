"""What a reader must know of one engine's logs: its lines, its settings, where a start begins, which rank speaks."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from capplan.describe.deployment import Engine
from capplan.measured.log_settings import LogSetting
from capplan.measured.log_template import Template, template

Repeat = Literal["once", "ranks", "last", "each"]


@dataclass(frozen=True)
class Line:
    """A line that holds figures.

    Args:
        template: its words and figures.
        repeat: what a second one by the same speaker means. ``once``: it must say the same. ``ranks``: it must, unless
            several ranks are at work, of which each may have its own. ``last``: it replaces the first. ``each``: it is
            about something else (a second pool, a draft model), and both count.
    """

    template: Template
    repeat: Repeat = "once"


def line(text: str, repeat: Repeat = "once") -> Line:
    """A line by its template."""
    return Line(template(text), repeat)


@dataclass(frozen=True)
class LogEngine:
    """One engine's logs.

    Args:
        name: of the engine.
        title: as the engine writes itself.
        lines: the lines that hold figures; of their words, ``rank`` is who speaks, ``version`` the engine's version,
            and any other is a setting.
        tells: what stands in a line that holds further settings.
        settings: the settings of such a line.
        starts: what stands in a line that begins a start of the engine.
        speaker: who speaks, in the first group that matches.
        refusals: what stands in a line by which the engine gives up starting.
    """

    name: Engine
    title: str
    lines: tuple[Line, ...]
    tells: tuple[str, ...]
    settings: Callable[[str, int], list[LogSetting]]
    starts: tuple[str, ...]
    speaker: re.Pattern[str]
    refusals: tuple[str, ...] = ()

    def speaker_of(self, text: str) -> str:
        """Who speaks in a line; empty when the line doesn't say."""
        match = self.speaker.search(text[:200])
        return next((group for group in match.groups() if group), "") if match else ""
