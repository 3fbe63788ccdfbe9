"""How an estimate of serving looks."""

from __future__ import annotations

from capplan.questions.answer import Answer
from capplan.questions.estimate import EstimateResult
from capplan.report.tables import Column, Facts, Table, View

_ROWS = (
    ("mean TTFT", "mean_ttft_ms", "ms"),
    ("mean TPOT", "mean_tpot_ms", "ms"),
    ("mean ITL", "mean_itl_ms", "ms"),
    ("mean E2E latency", "mean_e2el_ms", "ms"),
    ("requests", "request_throughput", "req/s"),
    ("output tokens", "output_throughput", "tok/s"),
    ("all tokens", "total_token_throughput", "tok/s"),
)


def estimate_view(answer: Answer[EstimateResult]) -> View:
    """The figures with their intervals, what binds, and where the server queues or breaks."""
    result, inputs = answer.result, answer.inputs
    load = f"concurrency {inputs['concurrency']:g}" if inputs["concurrency"] else f"{inputs['request_rate']:g} req/s"
    headline = (
        f"{inputs['model']} on {inputs['gpus']} x {inputs['gpu']} ({inputs['engine']}): "
        f"{inputs['isl']:g} tokens in, {inputs['osl']:g} out on average, {load}"
    )
    columns = [
        Column("figure", "figure"),
        Column("estimate", "value", "number4"),
        Column("10 %", "low", "number4"),
        Column("90 %", "high", "number4"),
        Column("unit", "unit"),
    ]
    rows = [
        [title, getattr(result, name), getattr(result, f"{name}_low"), getattr(result, f"{name}_high"), unit]
        for title, name, unit in _ROWS
    ]
    pairs = [
        ("a token waits for", result.binds),
        ("running, of all in the system", f"{result.admitted_batch:.0f} of {result.concurrency:.1f}"),
        ("at most", f"{result.saturation_rate:.3g} requests a second"),
    ]
    if result.kv_capacity_tokens is not None:
        pairs.append(("KV pool", f"{result.kv_capacity_tokens:,} tokens"))
    if result.p50_ttft_ms is not None:
        tails = f"{result.p50_ttft_ms:,.0f}, {result.p90_ttft_ms:,.0f}, {result.p99_ttft_ms:,.0f} ms"
        pairs.append(("TTFT p50, p90, p99", tails))
    if result.goodput is not None:
        pairs.append(("within the limits", f"{result.goodput:.3g} requests a second"))
        pairs.append(("the limits break at", f"{result.breaking_rate:.3g} requests a second"))
    if result.balanced_prefill_replicas is not None:
        pairs.append(("prefill pool busy", f"{100 * (result.prefill_utilisation or 0):.0f} % of the time"))
        pairs.append(("cache moved in", f"{result.kv_transfer_ms:,.3g} ms"))
        pairs.append(("as busy as the decode pool", f"{result.balanced_prefill_replicas:.2f} prefill replicas"))
    return View(headline, (Table(columns, rows), Facts(pairs)))
