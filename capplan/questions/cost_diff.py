"""What a change costs: two documents line by line, as an infrastructure cost diff."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from capplan.errors import InvalidFileError
from capplan.questions.answer import Answer
from capplan.questions.documents import Document, figure_of, read_document

Change = Literal["+", "-", "~", "="]

ZERO = Decimal(0)

INCREASED = 1
"""Exit code where the month becomes dearer than was allowed."""


@dataclass(frozen=True)
class _Line:
    """One line of a bill: which, and dollars a month."""

    detail: str
    month: Decimal


@dataclass(frozen=True)
class DiffLine:
    """One line of a month's bill, before and after.

    Args:
        change: added, removed, changed or equal.
        name: of what.
        detail: which, before and after.
        before: dollars a month; null: not there.
        after: likewise.
        delta_per_month: dollars.
    """

    change: Change
    name: str
    detail: str
    before: Decimal | None
    after: Decimal | None
    delta_per_month: Decimal


@dataclass(frozen=True)
class CostDiff:
    """Two documents line by line.

    Args:
        currency: of every amount.
        lines: of both bills.
        before: dollars a month.
        after: dollars a month.
        delta_per_month: dollars.
        delta_share: that over what it was; null: it was nothing.
        tokens_before: dollars for a million tokens; null: not known.
        tokens_after: likewise.
    """

    currency: str
    lines: tuple[DiffLine, ...]
    before: Decimal
    after: Decimal
    delta_per_month: Decimal
    delta_share: float | None
    tokens_before: Decimal | None
    tokens_after: Decimal | None


def cost_diff(before: str, after: str, *, fail_above: Decimal | None = None) -> Answer[CostDiff]:
    """The change of a month's bill between two documents of ``cost`` or ``plan``.

    Args:
        before: a file, with ``#row`` for one of several plans.
        after: likewise.
        fail_above: dollars a month by which it may grow; more makes the exit code 1.

    Raises:
        CapplanError: a file that is no such document.
    """
    old, new = read_document(before), read_document(after)
    lines = tuple(_lines(_bill(old), _bill(new)))
    was, now = (_total(document) for document in (old, new))
    delta = now - was
    return Answer(
        command="diff",
        inputs={"before": before, "after": after, "fail_above": fail_above},
        result=CostDiff(
            "USD",
            lines,
            was,
            now,
            delta,
            float(delta / was) if was else None,
            old.number("cost_per_1m_tokens"),
            new.number("cost_per_1m_tokens"),
        ),
        sources=(before, after),
        exit_code=INCREASED if fail_above is not None and delta > fail_above else 0,
    )


def _lines(old: dict[str, _Line], new: dict[str, _Line]) -> Iterable[DiffLine]:
    for name in dict.fromkeys((*old, *new)):
        was, now = old.get(name), new.get(name)
        before, after = was.month if was else None, now.month if now else None
        details = list(dict.fromkeys(line.detail for line in (was, now) if line and line.detail))
        change: Change = "+" if was is None else "-" if now is None else "=" if was == now else "~"
        yield DiffLine(change, name, " -> ".join(details), before, after, (after or ZERO) - (before or ZERO))


def _total(document: Document) -> Decimal:
    total = document.number("cost_per_month")
    if total is None:
        raise InvalidFileError(
            "there is no cost of a month in it", where=document.name, hint="cost --json, plan --json"
        )
    return total


def _bill(document: Document) -> dict[str, _Line]:
    """The lines of a month by name, without the sums; a plan has one, what it hires."""
    figures = document.figures
    if document.command == "plan":
        hired = f"{document.number('gpus') or 0:g} × {figures.get('gpu')}"
        where = f" at {figures['provider']}" if figures.get("provider") else ""
        return {"GPUs": _Line(f"{hired}{where}", _total(document))}
    lines = figures.get("lines")
    return {
        str(line.get("name")): _Line(
            str(line.get("detail") or ""), figure_of(line, "cost_per_month", document.name) or ZERO
        )
        for line in (lines if isinstance(lines, list) else [])
        if isinstance(line, dict) and line.get("section") != "total"
    }
