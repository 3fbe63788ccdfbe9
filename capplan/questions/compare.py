"""Plans, costs or estimates side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from capplan.errors import UsageError
from capplan.questions.answer import Answer
from capplan.questions.documents import Document, read_document

Better = Literal["lower", "higher", "neither"]

FIGURES: tuple[tuple[str, tuple[str, ...], str, Better], ...] = (
    ("GPUs", ("gpus",), "", "lower"),
    ("replicas", ("replicas",), "", "neither"),
    ("TTFT", ("ttft_ms", "mean_ttft_ms"), "ms", "lower"),
    ("TPOT", ("tpot_ms", "mean_tpot_ms"), "ms", "lower"),
    ("request", ("e2e_ms", "mean_e2el_ms"), "ms", "lower"),
    ("requests in time", ("request_capacity",), "1/s", "higher"),
    ("tokens of a replica", ("total_token_throughput",), "1/s", "higher"),
    ("utilisation", ("utilisation",), "", "neither"),
    ("1,000 tokens", ("cost_per_1k_tokens",), "USD", "lower"),
    ("1M tokens", ("cost_per_1m_tokens",), "USD", "lower"),
    ("1M input tokens", ("cost_per_1m_input_tokens",), "USD", "lower"),
    ("1M output tokens", ("cost_per_1m_output_tokens",), "USD", "lower"),
    ("a GPU-hour", ("price_per_gpu_hour",), "USD", "lower"),
    ("an hour", ("cost_per_hour",), "USD", "lower"),
    ("a month", ("cost_per_month",), "USD", "lower"),
)
"""Figures that documents may share: what they are called here, their keys, their unit, and which way is better."""


@dataclass(frozen=True)
class ComparedFigure:
    """One figure of all documents.

    Args:
        name: what it is.
        unit: its unit; USD for money.
        values: of each document, in order; null: it has none.
        difference: the second less the first.
        ratio: the second over the first.
        best: the document that is best in it, counted from 0; null: neither is.
    """

    name: str
    unit: str
    values: tuple[Decimal | None, ...]
    difference: Decimal | None
    ratio: float | None
    best: int | None


@dataclass(frozen=True)
class Comparison:
    """Documents side by side.

    Args:
        documents: what is compared.
        settings: inputs in which they differ, by name, each with one value a document.
        figures: figures that at least two have.
    """

    documents: tuple[str, ...]
    settings: dict[str, tuple[str, ...]]
    figures: tuple[ComparedFigure, ...]


def compare(references: Sequence[str]) -> Answer[Comparison]:
    """Two or more documents of ``plan``, ``cost`` or ``estimate`` side by side.

    Args:
        references: files, with ``#row`` for one of several plans.

    Raises:
        CapplanError: fewer than two, or a file that is no such document.
    """
    if len(references) < 2:
        raise UsageError("what shall be compared?", where="compare", hint="give two files that --json printed")
    documents = [read_document(reference) for reference in references]
    figures = tuple(figure for figure in (_figure(documents, *entry) for entry in FIGURES) if figure is not None)
    return Answer(
        command="compare",
        inputs={"documents": list(references)},
        result=Comparison(tuple(references), _settings(documents), figures),
        sources=tuple(references),
    )


def _figure(
    documents: list[Document], name: str, keys: tuple[str, ...], unit: str, better: Better
) -> ComparedFigure | None:
    values = tuple(_first(document, keys) for document in documents)
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return None
    first, second = values[0], values[1]
    both = first is not None and second is not None
    difference = second - first if both else None  # type: ignore[operator]
    ratio = float(second / first) if both and first else None  # type: ignore[operator]
    best = None
    if better != "neither" and len(set(known)) > 1:
        best = values.index(min(known) if better == "lower" else max(known))
    return ComparedFigure(name, unit, values, difference, ratio, best)


def _first(document: Document, keys: tuple[str, ...]) -> Decimal | None:
    return next((value for key in keys if (value := document.number(key)) is not None), None)


def _settings(documents: list[Document]) -> dict[str, tuple[str, ...]]:
    """What the documents were asked or built of that is not the same in all."""
    described = [_described(document) for document in documents]
    names = dict.fromkeys(name for one in described for name in one)
    rows = {name: tuple(one.get(name, "") for one in described) for name in names}
    return {name: values for name, values in rows.items() if len(set(values)) > 1}


def _described(document: Document) -> dict[str, str]:
    plain = {
        name: f"{value:g}" if isinstance(value, float) else str(value)
        for source in (document.inputs, {"gpu": document.figures.get("gpu"), "engine": document.figures.get("engine")})
        for name, value in source.items()
        if isinstance(value, (str, int, float)) and name not in ("emit", "row")
    }
    for section in ("parallel", "formats", "settings"):
        values = document.figures.get(section)
        if isinstance(values, dict):
            plain |= {name: str(value) for name, value in values.items()}
    return plain
