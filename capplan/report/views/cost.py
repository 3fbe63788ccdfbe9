"""How the answer to ``cost`` looks: prices of tokens, the month's bill with its totals last, APIs beside it."""

from __future__ import annotations

from decimal import Decimal

from capplan.cost.amounts import shown_usd
from capplan.questions.answer import Answer
from capplan.questions.cost import CostResult
from capplan.questions.cost_apis import ApiBreakEven
from capplan.report.charts import Axis, Chart, Series
from capplan.report.tables import Column, Facts, Section, Table, View
from capplan.report.units import show_count

MOST_APIS = 10
"""APIs that a table shows; the JSON has all."""

DRAWN_APIS = 4
"""APIs that a chart draws."""

_BILLINGS = {
    "busy": "only busy seconds are paid for",
    "hourly": "replicas by the hour as the load wants them",
    "always": "all replicas always on",
}


def cost_view(answer: Answer[CostResult]) -> View:
    """The bill, prices of tokens, and break-even."""
    result = answer.result
    sections: list[Section] = [_bill(result), Facts(_facts(result))]
    if result.break_even:
        sections.append(_apis(result))
    if result.rule_of_thumb is not None:
        rule = result.rule_of_thumb
        sections.append(
            Facts(
                [
                    ("throughput", f"{rule.throughput:,.1f} tokens/s"),
                    ("1,000 tokens", shown_usd(rule.cost_per_1k_tokens)),
                    ("against the answer", f"{rule.times_the_answer:,.2f} times its cost"),
                ],
                title="The rule of thumb 100·(P/7)^-0.6 beside it (assumed)",
            )
        )
    return View(_headline(answer), sections)


def cost_chart(answer: Answer[CostResult]) -> Chart:
    """A month's cost against its tokens: servers of one's own in whole instances, and APIs; where they cross."""
    result = answer.result
    own = [(point.tokens_per_month, float(point.cost_per_month)) for point in result.curve]
    band = [
        (point.tokens_per_month, float(point.cost_per_month_low), float(point.cost_per_month_high))
        for point in result.curve
    ]
    series = [Series("servers of one's own, always on", own, band=band)]
    ends, crossings = (own[0][0], own[-1][0]), []
    for row in _told_apart(result.break_even):
        price = float(row.cost_per_1m_tokens) / 1e6
        series.append(Series(f"{row.provider} {row.model}", [(place, price * place) for place in ends]))
        if row.break_even_tokens_per_month is not None:
            crossings.append((row.break_even_tokens_per_month, price * row.break_even_tokens_per_month))
    if crossings:
        series.append(Series("from here on no dearer", crossings, line=False, mark="circle"))
    if answer.inputs.get("requests_per_day") and result.requests_per_day is not None:
        month = result.tokens_per_day * 365 / 12
        series.append(Series("this load", [(month, float(result.cost_per_month))], line=False, mark="diamond"))
    title = f"A month's tokens: {_servers(answer)}"
    return Chart(title, Axis("tokens a month", log=True), Axis("$ a month", log=True), series)


def _told_apart(rows: tuple[ApiBreakEven, ...]) -> list[ApiBreakEven]:
    """The cheapest API, the dearest, and evenly some between: lines of one price would lie on each other."""
    prices = {row.cost_per_1m_tokens: row for row in reversed(rows)}
    distinct = sorted(prices.values(), key=lambda row: row.cost_per_1m_tokens)
    if len(distinct) <= DRAWN_APIS:
        return distinct
    places = {round(place * (len(distinct) - 1) / (DRAWN_APIS - 1)) for place in range(DRAWN_APIS)}
    return [distinct[place] for place in sorted(places)]


def _headline(answer: Answer[CostResult]) -> str:
    result = answer.result
    month, tokens = shown_usd(result.cost_per_month), shown_usd(result.cost_per_1m_tokens)
    return f"{_servers(answer)}: {tokens} for 1M tokens, {month} a month"


def _servers(answer: Answer[CostResult]) -> str:
    result, inputs = answer.result, answer.inputs
    if result.basis == "estimate":
        return f"{inputs['model']} on {result.gpus_per_replica} × {inputs['gpu']} ({inputs['engine']})"
    return f"{result.total_token_throughput:,.6g} tokens/s on {result.gpus_per_replica} × GPU"


def _bill(result: CostResult) -> Table:
    columns = [
        Column("", "section"),
        Column("line", "name"),
        Column("", "detail"),
        Column("a month", "quantity", "quantity"),
        Column("of", "unit"),
        Column("at", "unit_price", "usd"),
        Column("$ a month", "cost_per_month", "usd"),
        Column("at least", "cost_per_month_low", "usd"),
        Column("at most", "cost_per_month_high", "usd"),
    ]
    rows = []
    for line in result.lines:
        name = f"{line.name}{' *' if line.estimated else ''}"
        certain = line.cost_per_month_low == line.cost_per_month_high
        interval = [None, None] if certain else [line.cost_per_month_low, line.cost_per_month_high]
        rows.append(
            [line.section, name, line.detail, line.quantity, line.unit, line.unit_price, line.cost_per_month, *interval]
        )
    note = " (* estimated)" if any(line.estimated for line in result.lines) else ""
    return Table(columns, rows, title=f"A month of 730 hours{note}")


def _facts(result: CostResult) -> list[tuple[str, str]]:
    pairs = [
        (
            "1,000 tokens",
            _money(result.cost_per_1k_tokens, result.cost_per_1k_tokens_low, result.cost_per_1k_tokens_high),
        ),
        ("1M tokens", _money(result.cost_per_1m_tokens, result.cost_per_1m_tokens_low, result.cost_per_1m_tokens_high)),
    ]
    for name, key in (
        ("1M input tokens", "cost_per_1m_input_tokens"),
        ("1M output tokens", "cost_per_1m_output_tokens"),
        ("one request", "cost_per_request"),
        ("a day", "cost_per_day"),
    ):
        value = getattr(result, key)
        if value is not None:
            pairs.append((name, _money(value, getattr(result, f"{key}_low"), getattr(result, f"{key}_high"))))
    hired = f"{result.instances:,} × {result.instance}" if result.instance else f"{result.gpus:,g} GPUs"
    pairs += [
        ("GPU-hours a day", f"{result.gpu_hours_per_day:,.2f}  ({_BILLINGS[result.billing]})"),
        ("replicas", f"{result.replicas:,} of {result.gpus_per_replica} GPUs on {hired}"),
        (
            "price",
            f"{shown_usd(result.price_per_gpu_hour)} a GPU-hour"
            + (f" at {result.provider}" if result.provider else ""),
        ),
        ("one replica", f"{result.total_token_throughput:,.1f} tokens/s  ({result.basis})"),
        ("utilisation", f"{100 * result.utilisation:.1f} %"),
        ("tokens a day", show_count(result.tokens_per_day)),
    ]
    if result.prefill_share is not None:
        pairs.append(("GPU time in prefill", f"{100 * result.prefill_share:.1f} %"))
    if result.energy is not None:
        energy = result.energy
        pairs.append(
            ("electricity", f"{energy.kwh_per_day:,.1f} kWh a day, {energy.kwh_per_1m_tokens:.3g} for 1M tokens")
        )
    return pairs


def _money(value: Decimal, low: Decimal, high: Decimal) -> str:
    shown = shown_usd(value)
    return shown if low == high else f"{shown}  ({shown_usd(low)} to {shown_usd(high)})"


def _apis(result: CostResult) -> Table:
    columns = [
        Column("API", "provider"),
        Column("model", "model"),
        Column("$/1M in", "usd_per_1m_input", "usd"),
        Column("$/1M out", "usd_per_1m_output", "usd"),
        Column("$/1M this mix", "cost_per_1m_tokens", "usd"),
        Column("date", "date"),
        Column("even from tokens a month", "break_even_tokens_per_month", "count"),
        Column("at utilisation", "break_even_utilisation", "percent"),
        Column("cheaper", "cheaper"),
    ]
    rows = [[getattr(row, column.name) for column in columns] for row in result.break_even[:MOST_APIS]]
    left = len(result.break_even) - len(rows)
    more = f"; {left} dearer ones in --json" if left else ""
    return Table(columns, rows, title=f"Behind an API (a dash: servers of one's own never get as cheap{more})")
