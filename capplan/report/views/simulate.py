"""How a simulation looks: times with their percentiles, rates, the pool, and the server over time."""

from __future__ import annotations

from capplan.questions.answer import Answer
from capplan.questions.simulate_result import SimulateResult
from capplan.report.charts import Axis, Chart, Series
from capplan.report.tables import Column, Facts, Table, View

_TIMES = (("TTFT", "ttft"), ("TPOT", "tpot"), ("ITL", "itl"), ("E2E latency", "e2el"))
_STATISTICS = ("mean", "std", "median", "p90", "p95", "p99")
MOMENTS = 12
"""Rows of the timeline that people are shown; the JSON has all."""


def simulate_view(answer: Answer[SimulateResult]) -> View:
    """One row a time, then the rates and the pool, then the server over time."""
    result, inputs = answer.result, answer.inputs
    headline = (
        f"{inputs['model']} on {inputs['gpus']} x {inputs['gpu']} ({inputs['engine']} {inputs['engine_version']}): "
        f"{result.completed:,} requests, {_arrivals(answer)}"
    )
    columns = [Column("ms", "time"), *(Column(name, f"{name}_ms", "number4") for name in _STATISTICS)]
    columns += [Column("10 %", "mean_low_ms", "number4"), Column("90 %", "mean_high_ms", "number4")]
    rows = [
        [
            title,
            *(getattr(result, f"{statistic}_{name}_ms") for statistic in _STATISTICS),
            getattr(result, f"mean_{name}_ms_low"),
            getattr(result, f"mean_{name}_ms_high"),
        ]
        for title, name in _TIMES
    ]
    times = Table(columns, rows, title="What clients see (the mean lies between 10 % and 90 % in four of five cases)")
    return View(headline, (times, Facts(_facts(result), title="The server"), _timeline(result)))


def _arrivals(answer: Answer[SimulateResult]) -> str:
    inputs = answer.inputs
    if inputs["arrivals"] == "trace":
        return f"trace {inputs['trace']}"
    lengths = f"{inputs['isl']} tokens in, {inputs['osl']} out"
    if inputs["arrivals"] == "closed":
        return f"{lengths}, concurrency {inputs['concurrency']}"
    return f"{lengths}, {inputs['arrivals']} arrivals at {inputs['request_rate']:g} a second"


def _facts(result: SimulateResult) -> list[tuple[str, str]]:
    pairs = [
        ("requests", f"{result.request_throughput:.4g} a second over {result.duration:,.4g} s"),
        ("output tokens", f"{result.output_throughput:,.4g} a second"),
        ("all tokens", f"{result.total_token_throughput:,.4g} a second"),
    ]
    if result.request_goodput is not None:
        share = result.request_goodput / result.request_throughput
        pairs.append(("within the limits", f"{result.request_goodput:.4g} requests a second ({100 * share:.1f} %)"))
    pairs += [
        ("running", f"{result.mean_running:.4g} on average, {result.peak_running} at most"),
        ("in the queue", f"{result.mean_queue_ms:,.4g} ms on average, p99 {result.p99_queue_ms:,.4g} ms"),
        (
            "KV blocks in use",
            f"{100 * result.mean_kv_usage:.1f} % on average, {100 * result.peak_kv_usage:.1f} % at most, "
            f"of {result.kv_blocks:,} blocks of {result.kv_block_size}",
        ),
        ("steps", f"{result.steps:,} of {result.mean_step_ms:.4g} ms; busy {100 * result.busy:.1f} % of the time"),
    ]
    if result.preemptions:
        pairs.append(("preemptions", f"{result.preemptions:,}, {result.recomputed_tokens:,} positions computed again"))
    if result.prefix_hit_rate:
        found = f"{100 * result.prefix_hit_rate:.1f} % of the prompts' tokens"
        pairs.append(("found cached", f"{found}; {result.evicted_blocks:,} blocks given up"))
    if result.rejected:
        pairs.append(("rejected", f"{result.rejected:,}"))
    return pairs


def _timeline(result: SimulateResult) -> Table:
    columns = [
        Column("time", "time", "seconds"),
        Column("running", "running", "integer"),
        Column("waiting", "waiting", "integer"),
        Column("KV in use", "kv_usage", "percent"),
        Column("tokens so far", "output_tokens", "integer"),
    ]
    step = max(1, len(result.timeline) // MOMENTS)
    shown = [*result.timeline[:-1:step], result.timeline[-1]]
    rows = [[getattr(moment, column.name) for column in columns] for moment in shown]
    return Table(columns, rows, title="Over time")


def simulate_chart(answer: Answer[SimulateResult]) -> Chart:
    """Requests that run and wait, and the pool in percent, over time."""
    result, inputs = answer.result, answer.inputs
    moments = result.timeline
    series = [
        Series("running", [(moment.time, float(moment.running)) for moment in moments]),
        Series("waiting", [(moment.time, float(moment.waiting)) for moment in moments]),
        Series("KV blocks in use, %", [(moment.time, 100 * moment.kv_usage) for moment in moments], faint=True),
    ]
    title = f"{inputs['model']} on {inputs['gpus']} x {inputs['gpu']}: {_arrivals(answer)}"
    return Chart(title, Axis("seconds"), Axis("requests, or % of the blocks"), series)
