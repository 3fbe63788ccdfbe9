"""How the figures of ``cost`` come about."""

from __future__ import annotations

from capplan.cost.cost import DAYS_PER_MONTH
from capplan.questions.answer import Explained
from capplan.questions.reckoning import Reckoning

_HOURS = {
    "busy": ("tokens a day / (3600 · T) · GPUs", "only the seconds of work are paid for"),
    "hourly": ("Σ_hours ⌈λ / μ⌉ · GPUs", "replicas by the hour"),
    "always": ("24 · ⌈max λ / μ⌉ · GPUs", "the peak's replicas, always"),
}


def explain_cost(reckoning: Reckoning) -> list[Explained]:
    """Every step from a throughput to a month's money."""
    bill, hire, served = reckoning.bill, reckoning.hire, reckoning.served
    tokens, rate = float(reckoning.tokens.value), float(served.throughput.total.value)
    formula, what = _HOURS[reckoning.billing]
    if reckoning.billing == "busy":
        numbers = f"{tokens:,.0f} / (3600 · {rate:,.6g}) · {served.gpus}"
    elif reckoning.load is None:
        numbers = f"24 · 1 · {float(hire.gpus(1)):g}"
    else:
        peak, most = float(reckoning.load.peak), float(served.throughput.requests.value)
        numbers = f"λ = {peak:.4g}/s, μ = {most:.4g}/s, {int(bill.replicas.value)} replicas of {served.gpus}"
    source = hire.price.source if hire.price else ""
    price, day = float(hire.usd_per_gpu_hour), float(reckoning.day.value)
    lines = [
        Explained("GPU-hours a day", formula, numbers, float(bill.gpu_hours.value), "h", what),
        Explained(
            "hire a day",
            "GPU-hours · price",
            f"{float(bill.gpu_hours.value):.6g} · {price:.6g}",
            float(bill.cost.value),
            "USD",
            source,
        ),
        Explained("all of a day", "Σ lines", "", day, "USD"),
        Explained(
            "a month", "day · 365/12", f"{day:.6g} · {float(DAYS_PER_MONTH):.6g}", day * float(DAYS_PER_MONTH), "USD"
        ),
        Explained(
            "1,000 tokens",
            "day / tokens a day · 1000",
            f"{day:.6g} / {tokens:,.0f} · 1000",
            float(reckoning.token.value) * 1000,
            "USD",
        ),
    ]
    share = served.throughput.prefill_share
    if share is not None:
        lines.append(Explained("prefill's share of the GPUs' time", "M / (M + O · S / B)", "", float(share), ""))
    return lines
