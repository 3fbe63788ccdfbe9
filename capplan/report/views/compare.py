"""How documents look side by side, and what a change costs."""

from __future__ import annotations

from decimal import Decimal
from itertools import chain, count, islice, product
from string import ascii_uppercase

from capplan.cost.amounts import shown_usd
from capplan.questions.answer import Answer
from capplan.questions.compare import ComparedFigure, Comparison
from capplan.questions.cost_diff import CostDiff
from capplan.report.tables import Column, Section, Table, View

_BASE = {"ms": ("s", Decimal("0.001"))}
"""Units that are no base units: the base unit, and how much of it one is."""


def compare_view(answer: Answer[Comparison]) -> View:
    """Figures side by side, the best of each marked, and the settings that differ."""
    result = answer.result
    letters = letters_of(result)
    columns = [Column("figure", "figure"), *(Column(letter, letter.lower(), "shown") for letter in letters)]
    columns += [Column("B - A", "difference", "shown"), Column("B / A", "ratio", "ratio")]
    rows = [
        [figure.name, *_values(figure), _shown(figure.difference, figure.unit), figure.ratio]
        for figure in result.figures
    ]
    sections: list[Section] = [Table(columns, rows, title="Figures (* the best)")]
    if result.settings:
        names = [Column("setting", "setting"), *(Column(letter, letter.lower()) for letter in letters)]
        sections.append(Table(names, [[name, *values] for name, values in result.settings.items()], title="Settings"))
    titles = ", ".join(f"{letter} = {name}" for letter, name in zip(letters, result.documents, strict=True))
    return View(titles, sections)


def compare_table(answer: Answer[Comparison]) -> Table:
    """Figures as numbers in base units, with the document that is best in each."""
    result = answer.result
    letters = letters_of(result)
    columns = [
        Column("figure", "figure"),
        Column("unit", "unit"),
        *(Column(letter, letter.lower(), "number4") for letter in letters),
        Column("B - A", "difference", "number4"),
        Column("B / A", "ratio", "ratio"),
        Column("best", "best"),
    ]
    rows = []
    for figure in result.figures:
        unit, size = _BASE.get(figure.unit, (figure.unit, Decimal(1)))
        numbers = [None if value is None else value * size for value in (*figure.values, figure.difference)]
        best = letters[figure.best] if figure.best is not None else None
        rows.append([figure.name, unit, *numbers, figure.ratio, best])
    return Table(columns, rows)


def letters_of(result: Comparison) -> list[str]:
    """A letter for each document, as spreadsheets count them: A, B, ... Z, AA, AB, ..."""
    names = chain.from_iterable(product(ascii_uppercase, repeat=size) for size in count(1))
    return ["".join(name) for name in islice(names, len(result.documents))]


def diff_view(answer: Answer[CostDiff]) -> View:
    """One row a line of the bill, the whole last."""
    result = answer.result
    columns = [
        Column("", "change"),
        Column("line", "name"),
        Column("", "detail"),
        Column("before", "before", "usd"),
        Column("after", "after", "usd"),
        Column("Δ a month", "delta_per_month", "signed_usd"),
    ]
    rows = [
        [line.change, line.name, line.detail, line.before, line.after, line.delta_per_month] for line in result.lines
    ]
    rows.append(["", "a month", "", result.before, result.after, result.delta_per_month])
    share = f" ({100 * result.delta_share:+.1f} %)" if result.delta_share is not None else ""
    headline = f"{_signed(result.delta_per_month)} a month{share}"
    if result.tokens_before is not None and result.tokens_after is not None:
        headline += f"; 1M tokens {shown_usd(result.tokens_before)} -> {shown_usd(result.tokens_after)}"
    return View(headline, (Table(columns, rows),))


def _values(figure: ComparedFigure) -> list[str | None]:
    shown = [_shown(value, figure.unit) for value in figure.values]
    return [f"{text} *" if place == figure.best and text is not None else text for place, text in enumerate(shown)]


def _shown(value: Decimal | None, unit: str) -> str | None:
    if value is None:
        return None
    if unit == "USD":
        return shown_usd(value) if value >= 0 else f"-{shown_usd(-value)}"
    return f"{value:,.4g} {unit}".strip() if abs(value) < 1000 else f"{value:,.1f} {unit}".strip()


def _signed(amount: Decimal) -> str:
    return f"{'+' if amount >= 0 else '-'}{shown_usd(abs(amount))}"
