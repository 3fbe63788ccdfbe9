"""How an engine's log looks beside capplan's figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from capplan.questions.answer import Answer
from capplan.questions.import_log import LogComparison
from capplan.questions.log_comparison import LogRow
from capplan.report.tables import Column, Facts, Section, Table, View
from capplan.report.units import show_bytes

_FOLLOWS_FROM = {
    "exact": "the model",
    "budget": "the budget",
    "pool": "the log's pool",
    "tokens": "the log's blocks",
    "context": "the context",
    None: "",
}


def import_log_view(answer: Answer[LogComparison]) -> View:
    """The verdicts, what the log says of its settings, and one line a figure."""
    result, inputs = answer.result, answer.inputs
    version = result.engine_version or "version not printed"
    headline = (
        f"{inputs['model']} in a log of {result.engine} ({version}):"
        f" {result.agreeing} of {result.compared} figures agree"
    )
    sections: list[Section] = []
    facts = [("rules of", f"{inputs['engine']} {inputs['engine_version']}")]
    if result.refused is not None:
        facts.append(("the engine", f"refuses to start (line {result.refused.line})"))
    if result.fits is not None:
        facts.append(("capplan", "fits" if result.fits else "does not fit"))
    sections.append(Facts(facts))
    if result.settings:
        told = [(one.name, f"{one.value}  (line {one.line})") for one in result.settings]
        sections.append(Facts(told, title="Settings that the log tells"))
    sections.append(_rows(result.rows))
    return View(headline, tuple(sections))


class _Lines(Table):
    """Raw values in base units; shown by the unit of their row."""

    def cells(self) -> list[list[str]]:
        """Every row as shown."""
        return [_shown(row) for row in self.rows]


def _rows(rows: tuple[LogRow, ...]) -> Table:
    columns = [
        Column("line", "line", "integer"),
        Column("figure", "name"),
        Column("of", "rank"),
        Column("unit", "unit"),
        Column("log", "logged", "number"),
        Column("capplan", "predicted", "number"),
        Column("at least", "predicted_low", "number"),
        Column("at most", "predicted_high", "number"),
        Column("difference", "difference", "percent"),
        Column("follows from", "basis"),
        Column("", "agrees"),
    ]
    return _Lines(columns, [[getattr(row, column.name) for column in columns[:-1]] + [row.agrees] for row in rows])


def _shown(row: Sequence[Any]) -> list[str]:
    line, name, rank, unit, *values, difference, basis, agrees = row
    logged, predicted, low, high = (_show(value, unit) for value in values)
    interval = values[2] != values[3]
    return [
        str(line),
        name,
        rank.split(" pid=")[0],
        "" if unit == "B" else unit,
        logged,
        predicted,
        low if interval else "",
        high if interval else "",
        "" if difference is None else f"{100 * difference:+.2f} %",
        _FOLLOWS_FROM[basis],
        {True: "agrees", False: "differs", None: ""}[agrees],
    ]


def _show(value: int | float | None, unit: str) -> str:
    if value is None:
        return "–"
    if unit == "B":
        return show_bytes(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
