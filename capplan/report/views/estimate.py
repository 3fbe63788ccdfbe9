"""How an estimate of serving looks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from capplan.questions.answer import Answer
from capplan.questions.encode import EncodeResult
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


_READING = (
    ("mean latency", "mean_e2el_ms", "ms"),
    ("requests", "request_throughput", "req/s"),
    ("input tokens", "input_throughput", "tok/s"),
)


def estimate_view(answer: Answer[EstimateResult] | Answer[EncodeResult]) -> View:
    """A server that writes, or one that only reads."""
    if isinstance(answer.result, EncodeResult):
        return _reading_view(answer.result, answer.inputs)
    return _serving_view(answer.result, answer.inputs)


def _serving_view(result: EstimateResult, inputs: dict[str, Any]) -> View:
    """The figures with their intervals, what binds, and where the server queues or breaks."""
    headline = _headline(inputs, f"{inputs['isl']:g} tokens in, {inputs['osl']:g} out on average")
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
    return View(headline, (_figures(result, _ROWS), Facts(pairs)))


def _reading_view(result: EncodeResult, inputs: dict[str, Any]) -> View:
    """Requests and tokens a second, and how prompts share a pass."""
    pairs = [
        ("prompts a pass", f"{result.together:.4g} in {result.pass_ms:,.3g} ms"),
        ("in the system", f"{result.concurrency:.1f}"),
        ("at most", f"{result.saturation_rate:.3g} requests a second"),
    ]
    headline = _headline(inputs, f"{inputs['isl']:g} tokens in on average, none out")
    return View(headline, (_figures(result, _READING), Facts(pairs)))


def _headline(inputs: dict[str, Any], lengths: str) -> str:
    load = f"concurrency {inputs['concurrency']:g}" if inputs["concurrency"] else f"{inputs['request_rate']:g} req/s"
    return f"{inputs['model']} on {inputs['gpus']} x {inputs['gpu']} ({inputs['engine']}): {lengths}, {load}"


def _figures(result: EstimateResult | EncodeResult, rows: Iterable[tuple[str, str, str]]) -> Table:
    """Each figure with the ends of its interval."""
    columns = [
        Column("figure", "figure"),
        Column("estimate", "value", "number4"),
        Column("10 %", "low", "number4"),
        Column("90 %", "high", "number4"),
        Column("unit", "unit"),
    ]
    cells = [
        [title, getattr(result, name), getattr(result, f"{name}_low"), getattr(result, f"{name}_high"), unit]
        for title, name, unit in rows
    ]
    return Table(columns, cells)
