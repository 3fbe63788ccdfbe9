"""How an error table looks, and the measured figures beside the predicted."""

from __future__ import annotations

from pathlib import Path

from capplan.questions.answer import Answer
from capplan.questions.validate import TPOT, TTFT, ValidateResult
from capplan.questions.validate_rows import ValidatedRow
from capplan.questions.validate_scores import Score
from capplan.report.charts import Axis, Chart, Series
from capplan.report.tables import Column, Section, Table, View

_SCORES = (
    Column("n", "n", "integer"),
    Column("refused", "refused", "integer"),
    Column("MAPE", "mape", "percent"),
    Column("median", "median_ape", "percent"),
    Column("p90", "p90_ape", "percent"),
    Column("bias", "bias", "percent"),
    Column("≤10 %", "within_10", "percent"),
    Column("≤20 %", "within_20", "percent"),
    Column("≤30 %", "within_30", "percent"),
    Column("in 80 %", "interval_coverage", "percent"),
)
_TITLES = {"tpot": "TPOT", "ttft": "TTFT"}
MOST_GROUPS = 60
"""Groups that a view shows; CSV and JSON have all."""


def validate_view(answer: Answer[ValidateResult]) -> View:
    """The errors of all rows, of each group, and what was refused."""
    result, inputs = answer.result, answer.inputs
    headline = f"{inputs['file']}: {result.rows} rows, {result.scored} of them scored, {result.refused} refused"
    sections: list[Section] = [_overall(result)]
    if result.groups and inputs["by"]:
        sections.append(_groups(result, tuple(inputs["by"])))
    for reason, scores in result.aside.items():
        sections.append(_named(scores, f"Scored apart: {reason}"))
    if result.refusals:
        columns = [Column("rows", "rows", "integer"), Column("why", "reason"), Column("such as", "ids")]
        lines = [[item.rows, item.reason, ", ".join(item.ids[:3])] for item in result.refusals]
        sections.append(Table(columns, lines, title="Refused: counted as misses"))
    return View(headline, tuple(sections))


def _overall(result: ValidateResult) -> Table:
    """TPOT and TTFT as the result has them, then every other figure."""
    rows = [[title, *_cells(getattr(result, name))] for name, title in _TITLES.items() if getattr(result, name).n]
    rows += [[name, *_cells(item)] for name, item in result.metrics.items() if name not in (*TPOT, *TTFT)]
    return Table([Column("figure", "figure"), *_SCORES], rows)


def _named(scores: dict[str, Score], title: str) -> Table:
    return Table(
        [Column("figure", "figure"), *_SCORES], [[name, *_cells(item)] for name, item in scores.items()], title
    )


def _groups(result: ValidateResult, by: tuple[str, ...]) -> Table:
    """One line a group and figure."""
    rows = []
    for group in result.groups[:MOST_GROUPS]:
        labels = [group.group[name] for name in by]
        named = {_TITLES[name]: getattr(group, name) for name in _TITLES}
        named |= {name: item for name, item in group.metrics.items() if name not in (*TPOT, *TTFT)}
        rows += [[*labels, name, *_cells(item)] for name, item in named.items() if item.n]
    columns = [*(Column(name, name) for name in by), Column("figure", "figure"), *_SCORES]
    more = len(result.groups) - MOST_GROUPS
    return Table(
        columns, rows, title="By " + ", ".join(by) + (f" (of {len(result.groups)} groups)" if more > 0 else "")
    )


def _cells(item: Score) -> list[float | int | None]:
    return [getattr(item, column.name) for column in _SCORES]


def validate_table(answer: Answer[ValidateResult]) -> Table:
    """One line a row and figure: what CSV and Markdown carry."""
    columns = [
        Column("id", "id"),
        Column("figure", "metric"),
        Column("measured", "measured", "number4"),
        Column("predicted", "predicted", "number4"),
        Column("10 %", "predicted_low", "number4"),
        Column("90 %", "predicted_high", "number4"),
        Column("error", "error", "percent"),
        Column("running", "admitted_batch", "number4"),
        Column("counts", "scored"),
        Column("refused", "refused"),
    ]
    names = ("metric", "measured", "predicted", "predicted_low", "predicted_high", "error")
    rows = [
        [
            row.id,
            *(getattr(figure, name) for name in names),
            row.admitted_batch,
            str(figure.scored).lower(),
            row.refused,
        ]
        for row in answer.result.predictions
        for figure in row.figures
    ]
    return Table(columns, rows)


def validate_chart(answer: Answer[ValidateResult]) -> Chart:
    """Predicted over measured, on the same logarithmic axes: times where there are any, else rates."""
    rows = answer.result.predictions
    times = [_scatter("TPOT", rows, TPOT, "circle"), _scatter("TTFT", rows, TTFT, "square")]
    shown = [series for series in times if series.points]
    label = "ms"
    if not shown:
        metrics = list(answer.result.metrics)
        shown = [_scatter(name, rows, (name,), "circle") for name in metrics]
        label = "a second"
    places = [x for series in shown for x, _ in series.points]
    ends = [min(places), max(places)] if places else []
    line = Series("predicted = measured", [(end, end) for end in ends], faint=True)
    title = f"capplan beside {Path(answer.inputs['file']).name}"
    return Chart(title, Axis(f"measured, {label}", log=True), Axis(f"predicted, {label}", log=True), [*shown, line])


def _scatter(name: str, rows: tuple[ValidatedRow, ...], metrics: tuple[str, ...], mark: str) -> Series:
    found = [
        (figure.measured, figure.predicted, row.id)
        for row in rows
        for figure in row.figures
        if figure.metric in metrics and figure.scored and figure.measured and figure.predicted
    ]
    points = [(measured, predicted) for measured, predicted, _ in found]
    return Series(name, points, line=False, mark=mark, labels=[label for *_, label in found])  # type: ignore[arg-type]
