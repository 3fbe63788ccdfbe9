"""The working of an answer, made from the objects that the answer itself is made of."""

from __future__ import annotations

from collections.abc import Sequence

from capplan.questions.answer import Explained
from capplan.report.tables import SHOWN_AS, Column, Table

_SHOWN_UNITS = {"B": "bytes", "s": "seconds", "parameters": "count"}


def explanation_table(lines: Sequence[Explained]) -> Table:
    """One row a step: formula, numbers, exact result, the same in a readable unit."""
    columns = [Column("step", "step"), Column("formula", "formula"), Column("numbers", "numbers")]
    columns += [Column("result", "value"), Column("", "shown")]
    rows = [[line.name, line.formula, line.numbers, exact(line), readable(line)] for line in lines]
    if any(line.source for line in lines):
        columns.append(Column("source", "source"))
        rows = [[*row, line.source] for row, line in zip(rows, lines, strict=True)]
    return Table(columns, rows, title="How it comes about")


def exact(line: Explained) -> str:
    """The value in its base unit, unrounded where it is whole."""
    value = f"{line.value:,}" if isinstance(line.value, int) else f"{line.value:.6g}"
    return f"{value} {line.unit}".strip()


def readable(line: Explained) -> str:
    """The value in a unit for people, where there is one."""
    kind = _SHOWN_UNITS.get(line.unit)
    return f"= {SHOWN_AS[kind](line.value)}" if kind else ""
