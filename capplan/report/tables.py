"""An answer as sections for people: facts and tables, in the terminal, in a pipe, as CSV or as Markdown.

A table keeps the raw values; each column knows how to show its own. Rich draws them on a terminal; in a pipe the same
cells are aligned plain text, and neither needs the other.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from capplan.cost.amounts import shown_usd
from capplan.report.units import show_bytes, show_count, show_integer, show_seconds

LEAST_WIDTH = 20
"""Characters that a terminal is taken to have, at least: some tell of none."""

Show = Callable[[Any], str]

SHOWN_AS: dict[str, Show] = {
    "text": str,
    "bytes": show_bytes,
    "count": show_count,
    "integer": show_integer,
    "seconds": show_seconds,
    "gib": lambda value: f"{value:,.2f} GiB",
    "bandwidth": lambda value: f"{value / 1e9:,.0f} GB/s",
    "flops": lambda value: f"{value / 1e12:,.1f} TFLOP/s",
    "usd": shown_usd,
    "shown": str,
    "dollars": lambda value: shown_usd(Fraction(value)),
    "signed_usd": lambda value: f"{'+' if value >= 0 else '-'}{shown_usd(abs(value))}",
    "quantity": lambda value: f"{value:,.2f}",
    "number": lambda value: f"{value:,g}",
    "number4": lambda value: f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}",
    "ratio": lambda value: f"{value:.2f}",
    "times": lambda value: f"{value:.2f}x",
    "percent": lambda value: f"{100 * value:.1f} %",
}


@dataclass(frozen=True)
class Column:
    """A column: its title, the name of its raw values in CSV, and how a value is shown."""

    title: str
    name: str
    kind: str = "text"

    def show(self, value: Any) -> str:
        """A value as people read it; what is unknown is a dash."""
        return "–" if value is None else SHOWN_AS[self.kind](value)

    @property
    def numeric(self) -> bool:
        """Whether the column is aligned to the right."""
        return self.kind != "text"


@dataclass(frozen=True)
class Table:
    """Rows of raw values under columns."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    title: str = ""

    def cells(self) -> list[list[str]]:
        """Every row as shown."""
        return [[column.show(value) for column, value in zip(self.columns, row, strict=True)] for row in self.rows]


@dataclass(frozen=True)
class Facts:
    """A few named values, one a line."""

    pairs: Sequence[tuple[str, str]]
    title: str = ""


Section = Table | Facts


@dataclass(frozen=True)
class View:
    """An answer for people: a headline, and sections; `main` is the table that CSV and Markdown carry."""

    headline: str
    sections: Sequence[Section] = field(default_factory=tuple)
    verbatim: str = ""
    """A text that is printed as it is, instead of everything else."""

    @property
    def main(self) -> Table | None:
        """The first table."""
        return next((section for section in self.sections if isinstance(section, Table)), None)


def to_csv(table: Table) -> str:
    """Raw values in base units, RFC 4180."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([column.name for column in table.columns])
    writer.writerows([["" if value is None else value for value in row] for row in table.rows])
    return buffer.getvalue().rstrip("\n")


def to_markdown(table: Table) -> str:
    """A pipe table with the shown values."""
    lines = ["| " + " | ".join(column.title for column in table.columns) + " |"]
    lines.append("|" + "|".join("--:" if column.numeric else "---" for column in table.columns) + "|")
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in table.cells()]
    return "\n".join(lines)


def to_text(view: View) -> str:
    """Aligned plain text, for a pipe."""
    blocks = [view.headline]
    for section in view.sections:
        lines = [section.title] if section.title else []
        if isinstance(section, Facts):
            width = max((len(name) for name, _ in section.pairs), default=0)
            lines += [f"{name:<{width}}  {value}" for name, value in section.pairs]
        else:
            lines += _aligned(section)
        blocks.append("\n".join(lines))
    return "\n\n".join(block for block in blocks if block)


def _aligned(table: Table) -> list[str]:
    cells = [[column.title for column in table.columns], *table.cells()]
    widths = [max(len(row[index]) for row in cells) for index in range(len(table.columns))]
    lines = []
    for row in cells:
        parts = [
            f"{cell:>{width}}" if column.numeric else f"{cell:<{width}}"
            for cell, width, column in zip(row, widths, table.columns, strict=True)
        ]
        lines.append("  ".join(parts).rstrip())
    return lines


def parts_of(table: Table, width: int) -> list[Table]:
    """The table, or, where its numbers and words have no room, its columns in several tables below one another.

    Each part begins with the columns that tell the rows apart, if those leave half of the width to others, else with
    the first.
    """
    least, count = _least_widths(table), len(table.columns)
    if sum(least) <= room(count, width) or count < 2:
        return [table]
    keys = _keys(table)
    if sum(least[:keys]) > width // 2:
        keys = 1
    parts: list[list[int]] = []
    for place in range(keys, count):
        if not parts or sum(least[at] for at in (*parts[-1], place)) > room(len(parts[-1]) + 1, width):
            parts.append(list(range(keys)))
        parts[-1].append(place)
    columns, rows = table.columns, table.rows
    return [Table([columns[at] for at in part], [[row[at] for at in part] for row in rows]) for part in parts]


def column_widths(table: Table, width: int) -> list[int]:
    """Characters of each column: as many as its cells want, or what is left to share after all least widths."""
    least, wanted = _least_widths(table), _whole_widths(table)
    spare = room(len(least), width) - sum(least)
    more = [whole - few for whole, few in zip(wanted, least, strict=True)]
    if sum(more) <= spare:
        return wanted
    if spare < 0:
        widest = max(range(len(least)), key=least.__getitem__)
        return [max(1, few + spare) if place == widest else few for place, few in enumerate(least)]
    return [few + spare * want // sum(more) for few, want in zip(least, more, strict=True)]


def room(columns: int, width: int) -> int:
    """Characters that so many drawn columns leave for their cells: two at the edges, three between any two."""
    return width - 2 - 3 * (columns - 1)


def _least_widths(table: Table) -> list[int]:
    """The fewest characters of each column in which no number and no word is broken."""
    rows = table.cells()
    widths = []
    for place, column in enumerate(table.columns):
        cells = [row[place] for row in rows]
        pieces = cells if column.numeric else [word for cell in cells for word in cell.split()]
        widths.append(max(map(len, [*column.title.split(), *pieces]), default=0))
    return widths


def _whole_widths(table: Table) -> list[int]:
    rows = [[column.title for column in table.columns], *table.cells()]
    return [max(len(row[place]) for row in rows) for place in range(len(table.columns))]


def _keys(table: Table) -> int:
    """How many of the first columns it takes to tell all rows apart."""
    for count in range(1, len(table.columns)):
        if len({tuple(map(str, row[:count])) for row in table.rows}) == len(table.rows):
            return count
    return 1


def to_rich(view: View, notes: Sequence[tuple[str, str]], *, color: bool) -> str:
    """A view drawn for the terminal, as wide as that is."""
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    console = Console(no_color=not color, highlight=False)
    console.width = max(LEAST_WIDTH, console.width)
    console.begin_capture()
    if view.headline:
        console.print(Text(view.headline, style="bold"))
    for section in view.sections:
        console.print()
        if section.title:
            console.print(Text(section.title, style="bold"))
        if isinstance(section, Facts):
            grid = RichTable.grid(padding=(0, 2))
            for name, value in section.pairs:
                grid.add_row(Text(name, style="cyan"), Text(value))
            console.print(grid)
            continue
        for part in parts_of(section, console.width):
            drawn = RichTable(box=_box(), header_style="cyan", pad_edge=False)
            for column, width in zip(part.columns, column_widths(part, console.width), strict=True):
                side: Any = "right" if column.numeric else "left"
                drawn.add_column(column.title, justify=side, overflow="fold", width=width)
            for row in part.cells():
                drawn.add_row(*(Text(cell) for cell in row))
            console.print(drawn)
    if notes:
        console.print()
    for label, note in notes:
        console.print(Text.assemble((f"{label}: ", "yellow" if label == "warning" else "dim"), (note, "dim")))
    return console.end_capture().rstrip("\n")


def _box() -> Any:
    from rich import box

    return box.SIMPLE_HEAD
