"""Where the parts of a drawn chart stand: title, plot, axes and legend, so that no text is cut off or overlaps."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace

from capplan.report.charts import BarChart, Chart, Scale, show_tick

FONT_SIZE = 12.5
TITLE_SIZE = 16.0
LINE, TITLE_LINE = 16, 21
"""From one line of text to the next."""

GAP = 18
"""Between the plot and the legend."""

BAR_ROW, BARS = 38, 132
"""From one bar to the next, and of all of them, at least."""

BAR_SHARE, BAR = 0.63, 56
"""Height of a bar: its share of that, and the most."""

NAME_SHARE = 0.22
"""Share of the width that names before bars may take."""

SWATCH = 30
"""Room for a line or a mark before a name in the legend."""

_WIDTHS = {**dict.fromkeys("ijl|!,.:;'", 0.34), **dict.fromkeys("ftr()[]-/ ", 0.42), **dict.fromkeys("mwMW%@×—", 0.98)}
_CAPITAL, _OTHER, _BOLD = 0.74, 0.64, 1.1
"""Widths of characters in ems: those of DejaVu Sans, the widest of the fonts that are asked for."""


@dataclass(frozen=True)
class Layout:
    """One way to arrange a chart; lengths in pixels of its own size.

    Args:
        name: tells the parts of several drawings on one page apart.
        width: of the whole.
        plot_height: of the plot.
        legend: width of the legend beside the plot; 0: it stands below.
    """

    name: str
    width: int
    plot_height: int
    legend: int


WIDE = Layout("wide", 830, 412, 206)
NARROW = Layout("narrow", 400, 300, 0)


@dataclass(frozen=True)
class Entry:
    """One line of the legend: which series, part or limit its swatch shows, if any, and where it stands."""

    series: int | None
    lines: tuple[str, ...]
    x: float
    y: float


@dataclass(frozen=True)
class Frame:
    """A chart's places.

    Args:
        layout: the arrangement.
        title: its lines.
        left: where the plot begins.
        right: where it ends.
        top: its upper edge.
        bottom: its lower edge.
        height: of the whole.
        x_ticks: values at the horizontal axis.
        y_ticks: values at the vertical axis.
        legend: its lines.
        rows: the lines of the name before each bar, where there are bars.
    """

    layout: Layout
    title: tuple[str, ...]
    left: float
    right: float
    top: float
    bottom: float
    height: float
    x_ticks: tuple[float, ...]
    y_ticks: tuple[float, ...]
    legend: tuple[Entry, ...]
    rows: tuple[tuple[str, ...], ...] = ()

    def across(self, place: float) -> float:
        """The x of a place from 0 to 1 on the horizontal axis."""
        return self.left + place * (self.right - self.left)

    def down(self, place: float) -> float:
        """The y of a place from 0 to 1 on the vertical axis."""
        return self.bottom - place * (self.bottom - self.top)


def text_width(text: str, size: float = FONT_SIZE, *, bold: bool = False) -> float:
    """About how wide a text is, rather too wide than too narrow."""
    ems = sum(_WIDTHS.get(letter, _CAPITAL if letter.isupper() else _OTHER) for letter in text)
    return ems * size * (_BOLD if bold else 1.0)


def wrapped(text: str, width: float, size: float = FONT_SIZE, *, bold: bool = False) -> tuple[str, ...]:
    """Lines of a text that are no wider than `width`, broken between words; within them only where one is too long."""
    whole = all(text_width(word, size, bold=bold) <= width for word in text.split())
    most = max(1, len(text))
    while True:
        lines = tuple(textwrap.wrap(text, most, break_on_hyphens=not whole, break_long_words=not whole))
        widest = max((text_width(line, size, bold=bold) for line in lines), default=0.0)
        if widest <= width or most == 1:
            return lines
        most = max(1, min(most - 1, int(most * width / widest) + 1))


def frame_of(chart: Chart, x: Scale, y: Scale, layout: Layout) -> Frame:
    """The places of everything that a chart of lines and points shows."""
    y_ticks = tuple(y.ticks())
    left = 34 + max(text_width(show_tick(value)) for value in y_ticks)
    names = [series.name for series in chart.series]
    return _frame(chart, layout, left, layout.plot_height, x, y_ticks, names)


def bars_frame_of(chart: BarChart, x: Scale, layout: Layout) -> Frame:
    """The places of everything that a chart of bars shows: their names stand before them."""
    rows = tuple(wrapped(bar.name, NAME_SHARE * layout.width) for bar in chart.bars)
    left = 24 + max((text_width(line) for lines in rows for line in lines), default=0.0)
    height = max(BARS, len(rows) * max(BAR_ROW, *(LINE * len(lines) + 10 for lines in rows)))
    return replace(_frame(chart, layout, left, height, x, (), list(chart.legend)), rows=rows)


def _frame(
    chart: Chart | BarChart,
    layout: Layout,
    left: float,
    plot_height: float,
    x: Scale,
    y_ticks: tuple[float, ...],
    names: Sequence[str],
) -> Frame:
    """Title above, the plot, its axis and label below it, the legend beside or below both."""
    right = layout.width - (layout.legend or 22)
    widest = max(text_width(show_tick(value)) for value in x.ticks())
    x_ticks = tuple(x.ticks(max(2, int((right - left) / (widest + 12)))))
    title = wrapped(chart.title, layout.width - left - 8, TITLE_SIZE, bold=True)
    top = 25 + TITLE_LINE * len(title)
    bottom = top + plot_height
    below = bottom + 62
    begins, at = (right + GAP, top + 8.0) if layout.legend else (16.0, below + 8.0)
    legend = _legend(names, chart.notes, begins, at, layout.width - begins - 6)
    end = max((entry.y + LINE * len(entry.lines) for entry in legend), default=0.0)
    return Frame(layout, title, left, right, top, bottom, max(below, end + 4), x_ticks, y_ticks, legend)


def _legend(names: Sequence[str], notes: Sequence[str], left: float, at: float, width: float) -> tuple[Entry, ...]:
    entries = []
    for index, name in enumerate(names):
        lines = wrapped(name, width - SWATCH)
        entries.append(Entry(index, lines, left, at))
        at += LINE * len(lines) + 6
    for note in notes:
        lines = wrapped(note, width)
        entries.append(Entry(None, lines, left, at))
        at += LINE * len(lines) + 4
    return tuple(entries)
