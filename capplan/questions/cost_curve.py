"""A month's cost of servers of one's own against the tokens that they serve, for a chart beside APIs."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import ceil

from capplan.cost.amounts import usd
from capplan.cost.breakeven import OwnCost
from capplan.cost.cost import DAYS_PER_MONTH, HOURS_PER_DAY
from capplan.cost.energy import energy_kwh
from capplan.questions.cost_apis import MONTH_SECONDS, ApiBreakEven, OwnServers
from capplan.questions.estimate import LoadRequest
from capplan.questions.reckoning import Reckoning

STAIRS = 12
"""Steps of the staircase whose edges are drawn."""

BETWEEN = 60
"""Points besides."""

LEAST = Fraction(1, 25)
"""Where the curve begins, in the tokens of one instance."""

BEYOND = 3
"""How far the curve goes beyond the last crossing or the load."""


@dataclass(frozen=True)
class CurvePoint:
    """What a month's tokens cost on servers of one's own: whole instances, always on.

    Args:
        tokens_per_month: input and output.
        cost_per_month: dollars.
    """

    tokens_per_month: float
    cost_per_month: Decimal
    cost_per_month_low: Decimal
    cost_per_month_high: Decimal


def own_servers(reckoning: Reckoning, load: LoadRequest | None) -> OwnServers | None:
    """The servers of a bill, for a comparison with APIs; None where input and output are not told apart."""
    served = reckoning.served
    if served.isl is None or served.osl is None:
        return None
    return OwnServers(
        reckoning.hire,
        served.throughput.requests.value,
        served.isl,
        served.osl,
        Fraction(load.prefix_hit_rate) if load is not None else Fraction(0),
        _power(reckoning),
        _fixed(reckoning),
        reckoning.load.requests_per_day * DAYS_PER_MONTH if reckoning.load is not None else None,
        reckoning.day.value * DAYS_PER_MONTH,
    )


def cost_curve(reckoning: Reckoning, apis: tuple[ApiBreakEven, ...]) -> tuple[CurvePoint, ...]:
    """``F + C · ⌈v / cap⌉`` from a small share of one instance's tokens to beyond the crossings and the load."""
    hire, total = reckoning.hire, reckoning.served.throughput.total
    unit = hire.usd_per_hour(1) + hire.filling * _power(reckoning)
    monthly, fixed = unit * HOURS_PER_DAY * DAYS_PER_MONTH, _fixed(reckoning)
    tokens = hire.filling * MONTH_SECONDS
    value, low, high = (OwnCost(monthly, tokens * capacity, fixed) for capacity in (total.value, total.high, total.low))
    last = max(
        [
            value.capacity,
            reckoning.tokens.value * DAYS_PER_MONTH if reckoning.load is not None else Fraction(0),
            *(Fraction(row.break_even_tokens_per_month) for row in apis if row.break_even_tokens_per_month),
        ]
    )
    return tuple(
        CurvePoint(float(volume), usd(value.cost(volume)), usd(low.cost(volume)), usd(high.cost(volume)))
        for volume in _volumes(value.capacity, BEYOND * last)
    )


def _volumes(capacity: Fraction, last: Fraction) -> list[Fraction]:
    """Volumes in equal ratios, and both sides of the first edges of the staircase."""
    first = capacity * LEAST
    ratio = float(last / first) ** (1 / BETWEEN)
    volumes = {first * Fraction(ratio**place) for place in range(BETWEEN)} | {last}
    for step in range(1, min(STAIRS, ceil(last / capacity) - 1) + 1):
        volumes |= {step * capacity, step * capacity * Fraction(1_000_001, 1_000_000)}
    return sorted(volumes)


def _fixed(reckoning: Reckoning) -> Fraction:
    """Dollars a month that do not depend on the replicas."""
    daily = sum((line.day.value for line in reckoning.lines if line.fixed), start=Fraction(0))
    return daily * DAYS_PER_MONTH


def _power(reckoning: Reckoning) -> Fraction:
    """Dollars an hour for the electricity of one busy replica, where it is paid for apart."""
    served, request = reckoning.served, reckoning.request
    if request.electricity_price is None or reckoning.energy is None:
        return Fraction(0)
    watts = request.tdp_w or (served.gpu.tdp_w if served.gpu else None) or 0.0
    return energy_kwh(Fraction(served.gpus), watts, Fraction(1), request.power) * Fraction(request.electricity_price)
