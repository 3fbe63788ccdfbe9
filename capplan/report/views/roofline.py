"""How the roofline looks: a line a step, a ledger a step, and the chart."""

from __future__ import annotations

from capplan.questions.answer import Answer
from capplan.questions.roofline import RooflineResult, RooflineStep
from capplan.questions.timed import OperatorFigures
from capplan.report.charts import Axis, Chart, Series
from capplan.report.tables import Column, Facts, Table, View
from capplan.report.units import show_seconds
from capplan.report.views.timed import operator_columns, operator_row, subject

ROOF_ENDS = (0.3, 3.0)
"""How far the roof is drawn beyond the outermost points."""


def roofline_view(answer: Answer[RooflineResult]) -> View:
    """The ridge, the steps, and every operator of each."""
    result, inputs = answer.result, answer.inputs
    pairs = [
        (
            f"roof, {roof.format}",
            f"{roof.peak_flops / 1e12:,.1f} TFLOP/s over {roof.bandwidth / 1e12:,.2f} TB/s:"
            f" ridge point {roof.ridge_point:,.0f} FLOPs a byte",
        )
        for roof in result.roofs
    ]
    if any(step.phase == "decode" for step in result.steps):
        products = "no batch" if result.ridge_batch is None else f"a batch of {result.ridge_batch:,}"
        pairs.append(("products with weights", f"compute-bound from {products} on"))
        whole = "no batch" if result.step_ridge_batch is None else f"a batch of {result.step_ridge_batch:,}"
        pairs.append(("whole decode step", f"compute-bound from {whole} on, at {inputs['context']:,} tokens"))
    ledgers = [
        Table(
            [Column("step", "step"), *operator_columns()],
            [[name_of(step), *operator_row(row)] for row in step.step.operators],
            title=f"{name_of(step)}: {_time(step)}",
        )
        for step in result.steps
    ]
    return View(f"{subject(inputs)}, roofline", (Facts(pairs), _steps(result), *map(_without_step, ledgers)))


def roofline_rows(answer: Answer[RooflineResult]) -> Table:
    """Every operator of every step in one table, for CSV and Markdown."""
    rows = [[name_of(step), *operator_row(row)] for step in answer.result.steps for row in step.step.operators]
    return Table([Column("step", "step"), *operator_columns()], rows)


def name_of(step: RooflineStep) -> str:
    """A step in a few words: ``decode, B = 8``."""
    return f"decode, B = {step.batch:,}" if step.phase == "decode" else f"prefill, {step.tokens:,} tokens"


def roofline_chart(answer: Answer[RooflineResult]) -> Chart:
    """FLOP/s over arithmetic intensity: the roof, and the operators of each step by the time that they take."""
    result = answer.result
    series = [
        Series(
            name_of(step),
            [_point(row) for row in _drawn(step)],
            line=False,
            mark="circle",
            marks=["square" if "attention" in row.kind or "mla" in row.kind else "circle" for row in _drawn(step)],
            labels=[row.name for row in _drawn(step)],
        )
        for step in result.steps
    ]
    roofs = [_roof(roof.format, roof.peak_flops, roof.bandwidth, roof.ridge_point, series) for roof in result.roofs[:2]]
    corrected = result.steps[0].step_ms is not None
    basis = "operators at their predicted times" if corrected else "operators at their bounds"
    shapes = "round: products with weights; square: attention"
    return Chart(
        title=f"{subject(answer.inputs)}: roofline of one device",
        x=Axis("arithmetic intensity, FLOPs a byte", log=True),
        y=Axis("FLOP/s", log=True),
        series=[*roofs, *series],
        notes=(basis, shapes),
    )


def _steps(result: RooflineResult) -> Table:
    columns = [
        Column("step", "step"),
        Column("FLOPs", "flops", "count"),
        Column("bytes", "bytes", "bytes"),
        Column("FLOP/B", "arithmetic_intensity", "ratio"),
        Column("bound by", "limit"),
        Column("bound", "bound_seconds", "seconds"),
        Column("time", "seconds", "seconds"),
        Column("from", "seconds_low", "seconds"),
        Column("to", "seconds_high", "seconds"),
        Column("FLOP/s", "attained_flops", "flops"),
    ]
    rows = [
        [
            name_of(step),
            step.step.flops,
            step.step.bytes,
            step.step.arithmetic_intensity,
            step.step.limit,
            step.step.bound_seconds,
            step.step.seconds,
            step.step.seconds_low,
            step.step.seconds_high,
            step.attained_flops,
        ]
        for step in result.steps
    ]
    return Table(columns, rows, title="Steps of a rank")


def _without_step(table: Table) -> Table:
    """A step's own table needs no column that names the step."""
    return Table(table.columns[1:], [row[1:] for row in table.rows], table.title)


def _time(step: RooflineStep) -> str:
    figures = step.step
    bound = f"at least {show_seconds(figures.bound_seconds)}"
    return bound if figures.seconds is None else f"{show_seconds(figures.seconds)}, {bound}"


def _drawn(step: RooflineStep) -> list[OperatorFigures]:
    """The operators that multiply: the others have no place on a roofline."""
    return [row for row in step.step.operators if row.flops and row.bytes]


def _point(row: OperatorFigures) -> tuple[float, float]:
    seconds = row.bound_seconds if row.seconds is None else row.seconds
    return row.arithmetic_intensity, row.flops / seconds


def _roof(name: str, peak: float, bandwidth: float, ridge: float, series: list[Series]) -> Series:
    """``min(P, intensity · BW)`` over the range of the points."""
    places = [x for one in series for x, _ in one.points] or [ridge]
    low, high = min(*places, ridge) * ROOF_ENDS[0], max(*places, ridge) * ROOF_ENDS[1]
    return Series(f"roof, {name}", [(low, low * bandwidth), (ridge, peak), (high, peak)])
