"""Predictions as a CSV file, one line a row of the measured file."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from capplan.describe.files import whole, writing
from capplan.questions.validate_rows import ValidatedFigure, ValidatedRow

COLUMNS = (
    "id", "pred_ttft_ms", "pred_ttft_low_ms", "pred_ttft_high_ms", "pred_tpot_ms", "pred_tpot_low_ms",
    "pred_tpot_high_ms", "admitted_batch", "refused",
)  # fmt: skip

METRIC_COLUMNS = ("metric", "measured", "predicted", "predicted_low", "predicted_high", "aside")
"""Further columns where any row measured something else than TTFT or TPOT."""

_NAMES = {"ttft": ("ttft_ms", "mean_ttft_ms", "median_ttft_ms"), "tpot": ("tpot_ms", "mean_tpot_ms", "median_tpot_ms")}


def write_predictions(path: Path, rows: Sequence[ValidatedRow]) -> None:
    """Write every prediction.

    Raises:
        UsageError: the file cannot be written.
    """
    plain = {name for names in _NAMES.values() for name in names}
    others = any(figure.metric not in plain for row in rows for figure in row.figures)
    with writing(path, "--out"), whole(path) as part, part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow((*COLUMNS, *(METRIC_COLUMNS if others else ())))
        for row in rows:
            writer.writerow((*_line(row), *(_metric(row) if others else ())))


def _line(row: ValidatedRow) -> list[str]:
    cells = [row.id]
    for names in _NAMES.values():
        cells += _figure(row.figure(*names))
    return [*cells, _number(row.admitted_batch), row.refused]


def _figure(figure: ValidatedFigure | None) -> list[str]:
    if figure is None:
        return ["", "", ""]
    return [_number(figure.predicted), _number(figure.predicted_low), _number(figure.predicted_high)]


def _metric(row: ValidatedRow) -> list[str]:
    """The row's measured figure, where it has one alone."""
    measured = [figure for figure in row.figures if figure.measured is not None]
    if len(measured) != 1:
        return ["", "", "", "", "", row.aside]
    return [measured[0].metric, _number(measured[0].measured), *_figure(measured[0]), row.aside]


def _number(value: Any) -> str:
    return "" if value is None else f"{value:.6g}"
