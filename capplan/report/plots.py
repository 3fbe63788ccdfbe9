"""Where a chart goes: into an SVG, HTML or PNG file, or onto the terminal."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from capplan.describe.files import suffix_of, whole, writing
from capplan.errors import UsageError
from capplan.report.charts import Drawing
from capplan.report.svg import to_html, to_svg

FLAG = "--plot"
_WRITERS: dict[str, Callable[[Drawing], str]] = {".svg": to_svg, ".html": to_html}
PNG_SCALE = 2
"""Pixels of a PNG for each unit of the drawing."""

COLUMNS, LEAST_COLUMNS, MOST_COLUMNS = 80, 40, 120
"""Width of a drawing of characters where the terminal does not tell its own, and the ends of what is drawn into."""


def check_target(target: str) -> None:
    """Refuse a file that no chart can be written to.

    Raises:
        UsageError: a name of another format, or a PNG without the library that draws it.
    """
    suffix = suffix_of(target)
    if suffix not in (*_WRITERS, ".png"):
        raise UsageError(
            f"{target[:60]!r} is not a file that a plot can be written to",
            where=FLAG,
            hint="name a .svg, .html or .png file, or - for the terminal",
        )
    if suffix == ".png":
        _cairosvg()


def save_chart(chart: Drawing, target: str) -> None:
    """Write a chart to a file whose name says the format: ``.svg``, ``.html`` or ``.png``.

    Raises:
        UsageError: another format, a file that cannot be written, a PNG without the library that draws it, or a chart
            without anything to draw.
    """
    check_target(target)
    writer = _WRITERS.get(suffix_of(target))
    content = to_png(chart) if writer is None else _drawn(chart, writer).encode("utf-8")
    with writing(target, FLAG), whole(Path(target)) as part:
        part.write_bytes(content)


def to_png(chart: Drawing) -> bytes:
    """The chart as a PNG, on light ground.

    Raises:
        UsageError: the library that draws it is not installed.
    """
    cairosvg = _cairosvg()
    text = _drawn(chart, lambda shown: to_svg(shown, dark=False))
    drawn: bytes = cairosvg.svg2png(bytestring=text.encode("utf-8"), scale=PNG_SCALE)
    return drawn


def _cairosvg() -> Any:
    try:
        import cairosvg
    except (ImportError, OSError):
        raise UsageError(
            "a PNG needs cairosvg, which is not installed",
            where=FLAG,
            hint="pip install 'capplan[plot]', or name a .svg or .html file",
        ) from None
    return cairosvg


def draw_chart(chart: Drawing, *, plain: bool) -> str:
    """The chart for the terminal, as wide as that is; 80 columns in a pipe.

    Raises:
        UsageError: there is nothing to draw.
    """
    from capplan.report.terminal import to_terminal

    columns = min(max(LEAST_COLUMNS, shutil.get_terminal_size((COLUMNS, 24)).columns), MOST_COLUMNS)
    return _drawn(chart, lambda shown: to_terminal(shown, columns=columns, plain=plain))


def _drawn(chart: Drawing, draw: Callable[[Drawing], str]) -> str:
    try:
        return draw(chart)
    except ValueError as error:
        raise UsageError(str(error), where=FLAG, hint="the answer says why") from None
