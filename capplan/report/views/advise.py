"""How the checklist looks."""

from __future__ import annotations

from capplan.questions.advise import Advice, AdviseResult
from capplan.questions.answer import Answer
from capplan.report.tables import Column, Table, View


def advise_view(answer: Answer[AdviseResult]) -> View:
    """What can be done, what is done already, what cannot be: each with its gain and its effect on the rest."""
    result, inputs = answer.result, answer.inputs
    load = f"concurrency {inputs['concurrency']:g}" if inputs["concurrency"] else f"{inputs['request_rate']:g} req/s"
    headline = (
        f"{inputs['model']} on {inputs['gpus']} x {inputs['gpu']} ({inputs['engine']}): {inputs['isl']:g} tokens in, "
        f"{inputs['osl']:g} out, {load}; now TTFT {result.mean_ttft_ms:,.0f} ms, TPOT {result.mean_tpot_ms:,.2f} ms, "
        f"{result.output_throughput:,.0f} tok/s"
    )
    columns = [
        Column("item", "item"),
        Column("state", "state"),
        Column("for", "metric"),
        Column("gain", "gain", "times"),
        Column("claimed", "claim"),
        Column("tok/s", "throughput_gain", "times"),
        Column("TPOT", "tpot_gain", "times"),
        Column("TTFT", "ttft_gain", "times"),
        Column("KV", "memory_gain", "times"),
        Column("tok/$", "cost_gain", "times"),
        Column("how, and what it assumes", "remark"),
    ]
    return View(headline, (Table(columns, [_row(item) for item in result.items]),))


def _row(item: Advice) -> list[str | float | None]:
    gains = [item.throughput_gain, item.tpot_gain, item.ttft_gain, item.memory_gain, item.cost_gain]
    how = "; ".join(text for text in (item.change, item.remark) if text)
    return [item.item, item.state, item.metric, item.gain, item.claim, *gains, how]
