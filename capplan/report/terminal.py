"""A chart in the terminal: lines of braille dots (or of plain characters), a mark for each series, a legend below.

Where several lines have no marks, each has a letter on it: colours are not to be counted on.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import ceil
from string import ascii_uppercase

from capplan.report.charts import BarChart, Chart, Drawing, Scale, Series, scales, show_tick

COLUMNS, ROWS = 80, 22
MARKS = "●■◆▲○□◇△"
PLAIN_MARKS = "o#x*+@%&"

FILLS = {"solid": "█▓▒", "free": "·", "lacking": "/"}
PLAIN_FILLS = {"solid": "#=+", "free": ".", "lacking": "/"}
"""What parts of bars are filled with."""

LETTERS = 3
"""Letters along a line that has no marks."""

TICK_COLUMNS = 8
"""Columns that a value at the axis takes, space included."""

_BRAILLE = 0x2800
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bit of each dot of a braille character, by row and column."""


class Canvas:
    """Characters of a plot; each holds 2 x 4 dots in braille, or one in plain characters."""

    def __init__(self, columns: int, rows: int, *, plain: bool) -> None:
        self.columns, self.rows, self.plain = columns, rows, plain
        self.across, self.down = (1, 1) if plain else (2, 4)
        self._dots = [[0] * columns for _ in range(rows)]
        self._marks: dict[tuple[int, int], str] = {}

    def dot(self, x: float, y: float) -> None:
        """Set the dot at a place from 0 to 1 on both axes."""
        column, row = self._place(x, self.columns * self.across), self._place(1 - y, self.rows * self.down)
        if 0 <= column < self.columns * self.across and 0 <= row < self.rows * self.down:
            bit = 1 if self.plain else _DOTS[row % 4][column % 2]
            self._dots[row // self.down][column // self.across] |= bit

    def line(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Dots from one place to another."""
        longest = max(
            abs(end[0] - start[0]) * self.columns * self.across, abs(end[1] - start[1]) * self.rows * self.down
        )
        steps = max(1, ceil(1.5 * longest))
        for step in range(steps + 1):
            part = step / steps
            self.dot(start[0] + part * (end[0] - start[0]), start[1] + part * (end[1] - start[1]))

    def mark(self, x: float, y: float, character: str) -> None:
        """A character at a place, over whatever is there."""
        column, row = self._place(x, self.columns), self._place(1 - y, self.rows)
        if 0 <= column < self.columns and 0 <= row < self.rows:
            self._marks[row, column] = character

    def lines(self) -> Iterator[str]:
        """The rows of characters, from the top."""
        for row, cells in enumerate(self._dots):
            yield "".join(self._marks.get((row, column), self._cell(bits)) for column, bits in enumerate(cells))

    def _cell(self, bits: int) -> str:
        if not bits:
            return " "
        return "." if self.plain else chr(_BRAILLE + bits)

    @staticmethod
    def _place(part: float, size: int) -> int:
        return min(size - 1, int(part * size)) if 0 <= part <= 1 else -1


def to_terminal(chart: Drawing, *, columns: int = COLUMNS, rows: int = ROWS, plain: bool = False) -> str:
    """The chart in `columns` columns.

    Args:
        chart: what to draw.
        columns: width in characters, labels included.
        rows: height of the plot itself.
        plain: use ASCII alone.

    Raises:
        ValueError: there is nothing to draw.
    """
    if isinstance(chart, BarChart):
        return _bars_to_terminal(chart, columns, plain=plain)
    x, y = scales(chart)
    labels = {_row(y.place(value), rows): show_tick(value) for value in y.ticks(rows // 2)}
    gutter = max(map(len, labels.values())) + 1
    canvas = Canvas(columns - gutter - 1, rows, plain=plain)
    letters = _letters(chart)
    for index, series in enumerate(chart.series):
        _draw(canvas, series, x, y, mark_of(index, plain=plain))
    for number, (index, letter) in enumerate(letters.items()):
        _write(canvas, _places(chart.series[index], x, y), letter, (number + 1) / (len(letters) + 1))
    bar, corner, rule = ("|", "+", "-") if plain else ("│", "└", "─")
    lines = [*textwrap.wrap(chart.title, columns), *textwrap.wrap(chart.y.label, columns)]
    for row, text in enumerate(canvas.lines()):
        lines.append(f"{labels.get(row, ''):>{gutter}}{bar}{text}".rstrip())
    lines.append(" " * gutter + corner + rule * canvas.columns)
    lines.append(_x_labels(x, canvas.columns, gutter))
    lines += [f"{line:>{columns}}" for line in textwrap.wrap(chart.x.label, columns)]
    notes = [line for note in chart.notes for line in textwrap.wrap(note, columns)]
    return "\n".join([*lines, *_legend(chart, letters, columns, plain=plain), *notes])


def _bars_to_terminal(chart: BarChart, columns: int, *, plain: bool) -> str:
    """Bars of characters, a letter in each part, limits pointed at from below."""
    x, fills = chart.scale, PLAIN_FILLS if plain else FILLS
    letters = dict(zip((part.name for part in chart.kinds), ascii_uppercase, strict=False))
    solid = [part.name for part in chart.kinds if part.look == "solid"]
    filled = {name: fills["solid"][number % len(fills["solid"])] for number, name in enumerate(solid)}
    looks = {part.name: filled.get(part.name) or fills[part.look] for part in chart.kinds}
    lines = textwrap.wrap(chart.title, columns)
    for bar in chart.bars:
        cells, end = [" "] * columns, 0.0
        for part in bar.parts:
            start, end = end, end + part.value
            first, last = round(x.place(start) * columns), round(x.place(end) * columns)
            if last > first:
                cells[first:last] = looks[part.name] * (last - first)
                cells[(first + last - 1) // 2] = letters.get(part.name, looks[part.name])
        lines += [*textwrap.wrap(bar.name, columns), "".join(cells).rstrip()]
    pointer = "^" if plain else "▲"
    if chart.limits:
        places = {min(columns - 1, round(x.place(value) * columns)) for _, value in chart.limits}
        lines.append("".join(pointer if place in places else " " for place in range(columns)).rstrip())
    lines += [_x_labels(x, columns, -1), *(f"{line:>{columns}}" for line in textwrap.wrap(chart.x.label, columns))]
    swatches = [f"{letters.get(part.name, '')}{looks[part.name]}" for part in chart.kinds]
    swatches += [pointer] * len(chart.limits)
    names = [f"{swatch} {name}" for swatch, name in zip(swatches, chart.legend, strict=True)]
    notes = [line for note in chart.notes for line in textwrap.wrap(note, columns)]
    return "\n".join([*lines, *_in_lines(names, columns), *notes])


def mark_of(index: int, *, plain: bool) -> str:
    """The character of a series."""
    marks = PLAIN_MARKS if plain else MARKS
    return marks[index % len(marks)]


def _letters(chart: Chart) -> dict[int, str]:
    """A letter for each line without marks, if there are several, by its place among the series."""
    bare = [index for index, series in enumerate(chart.series) if series.line and series.mark == "none"]
    return dict(zip(bare, ascii_uppercase, strict=False)) if len(bare) > 1 else {}


def _places(series: Series, x: Scale, y: Scale) -> list[tuple[float, float]]:
    return [(x.place(a), y.place(b)) for a, b in series.points if x.holds(a) and y.holds(b)]


def _draw(canvas: Canvas, series: Series, x: Scale, y: Scale, mark: str) -> None:
    places = _places(series, x, y)
    if series.line:
        for start, end in pairwise(places):
            canvas.line(start, end)
    if series.mark != "none":
        for place in places:
            canvas.mark(*place, mark)


def _write(canvas: Canvas, places: Sequence[tuple[float, float]], letter: str, shift: float) -> None:
    """A letter some times along a line; `shift` from 0 to 1 keeps those of different lines apart."""
    if not places:
        return
    lengths = [abs(b[0] - a[0]) + abs(b[1] - a[1]) for a, b in pairwise(places)]
    for number in range(LETTERS):
        left = (number + shift) / LETTERS * sum(lengths)
        at = places[0]
        for (start, end), length in zip(pairwise(places), lengths, strict=True):
            part = min(1.0, left / length) if length else 1.0
            at = (start[0] + part * (end[0] - start[0]), start[1] + part * (end[1] - start[1]))
            if left <= length:
                break
            left -= length
        canvas.mark(*at, letter)


def _row(place: float, rows: int) -> int:
    return min(rows - 1, int((1 - place) * rows))


def _x_labels(x: Scale, columns: int, gutter: int) -> str:
    """The values of the axis below it, each in the middle of its place, those that would touch left out."""
    width = gutter + 1 + columns
    line = [" "] * width
    free = 0
    for value in x.ticks(max(2, columns // TICK_COLUMNS)):
        text = show_tick(value)
        middle = gutter + 1 + min(columns - 1, int(x.place(value) * columns))
        start = min(max(0, middle - len(text) // 2), width - len(text))
        if start >= free:
            line[start : start + len(text)] = text
            free = start + len(text) + 1
    return "".join(line).rstrip()


def _legend(chart: Chart, letters: dict[int, str], columns: int, *, plain: bool) -> list[str]:
    """The names of the series, as many a line as there is room for."""
    stroke = "." if plain else "⠤⠤"
    names = [
        f"{letters.get(index, stroke) if series.mark == 'none' else mark_of(index, plain=plain)} {series.name}"
        for index, series in enumerate(chart.series)
    ]
    return _in_lines(names, columns)


def _in_lines(names: Sequence[str], columns: int) -> list[str]:
    """Names beside one another, as many a line as there is room for."""
    lines = [""]
    for name in names:
        joined = f"{lines[-1]}   {name}" if lines[-1] else name
        if len(joined) <= columns:
            lines[-1] = joined
        else:
            lines += textwrap.wrap(name, columns, subsequent_indent="  ")
    return [line for line in lines if line]
