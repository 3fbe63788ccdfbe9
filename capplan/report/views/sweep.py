"""How a sweep looks: the front of cost and latency, device by device in a plot."""

from __future__ import annotations

from collections import Counter
from itertools import cycle
from typing import Any

from capplan.questions.answer import Answer
from capplan.questions.plan_result import Rejected
from capplan.questions.sweep import SweepFront, SweepResult
from capplan.report.charts import MARKS, Axis, Chart, Series
from capplan.report.tables import Column, Section, Table, View

MOST_ROWS = 20
"""Rows of the front that a table for people has."""

MOST_DEVICES = 8
"""Devices that a chart draws."""

_COLUMNS = (
    Column("GPUs", "gpus", "integer"),
    Column("GPU", "gpu"),
    Column("engine", "engine"),
    Column("tp", "tp", "integer"),
    Column("pp", "pp", "integer"),
    Column("dp", "dp", "integer"),
    Column("weights", "weights"),
    Column("KV", "kv_cache_dtype"),
    Column("ISL", "isl", "integer"),
    Column("OSL", "osl", "integer"),
    Column("clients", "concurrency", "integer"),
    Column("TTFT ms", "ttft_ms", "quantity"),
    Column("TPOT ms", "tpot_ms", "quantity"),
    Column("tokens/s", "total_token_throughput", "quantity"),
    Column("$/1M", "cost_per_1m_tokens", "dollars"),
)


def sweep_view(answer: Answer[SweepResult]) -> View:
    """The front, and what fell out."""
    result = answer.result
    where = f", written to {result.output}" if result.output else ""
    headline = f"{result.rows:,} rows of {result.deployments:,} deployments{where}"
    sections: list[Section] = []
    for front in result.fronts[:1] if result.rows else ():
        title = f"Front of TPOT and cost at {front.isl:,} + {front.osl:,} tokens: no other row beats these in both"
        sections.append(Table(_COLUMNS, _rows(thinned(front.rows)), title=title))
    if result.rejected:
        columns = [
            Column("left out", "reason"),
            Column("deployments", "options", "integer"),
            Column("such as", "option"),
        ]
        rows = [[row.reason, row.options, _nearest(row)] for row in result.rejected]
        sections.append(Table(columns, rows))
    return View(headline, sections)


def _nearest(row: Rejected) -> str:
    """The nearest miss of a reason, and what it misses."""
    if not row.nearest:
        return ""
    miss = row.nearest[0]
    return f"{miss.option}: {miss.detail}" if miss.detail else miss.option


def sweep_table(answer: Answer[SweepResult]) -> Table:
    """All fronts, every column."""
    names = answer.result.columns
    rows = [[row[name] for name in names] for front in answer.result.fronts for row in front.rows]
    return Table([Column(name, name) for name in names], rows)


def sweep_chart(answer: Answer[SweepResult]) -> Chart:
    """Cost against time per token, the front of each device; of many devices those that most of the front is on."""
    front = answer.result.fronts[0]
    drawn = _most_on_front(front)
    series = tuple(
        Series(gpu, [(row["tpot_ms"], row["cost_per_1m_tokens"]) for row in thinned(front.by_gpu[gpu])], mark=mark)
        for gpu, mark in zip(drawn, cycle(MARKS), strict=False)
    )
    left = len(front.by_gpu) - len(drawn)
    return Chart(
        title=f"What tokens cost at a speed: {answer.inputs['model']}, {front.isl:,} + {front.osl:,} tokens",
        x=Axis("TPOT, ms", log=True),
        y=Axis("$ for 1M tokens", log=True),
        series=series,
        notes=(f"{left} devices with less or nothing of the front are left out: name them with --gpu",) if left else (),
    )


def _most_on_front(front: SweepFront) -> list[str]:
    """The devices, those first that hold most rows of the front over all of them; of many only those that hold any."""
    rows = Counter(row["gpu"] for row in front.rows)
    ranked = sorted(front.by_gpu, key=lambda gpu: (-rows[gpu], gpu))
    return ranked if len(ranked) <= MOST_DEVICES else [gpu for gpu in ranked if rows[gpu]][:MOST_DEVICES]


def thinned(rows: tuple[dict[str, Any], ...]) -> list[dict[str, Any]]:
    """At most `MOST_ROWS` rows, evenly from the first to the last."""
    if len(rows) <= MOST_ROWS:
        return list(rows)
    places = {round(place * (len(rows) - 1) / (MOST_ROWS - 1)) for place in range(MOST_ROWS)}
    return [rows[place] for place in sorted(places)]


def _rows(rows: list[dict[str, Any]]) -> list[list[Any]]:
    return [[row[column.name] for column in _COLUMNS] for row in rows]
