"""The same tokens behind an API: what they would cost there, and from when on servers of one's own are cheaper."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from capplan.cost.amounts import usd
from capplan.cost.api_prices import ApiPrice
from capplan.cost.breakeven import OwnCost, api_price_per_request, break_even
from capplan.cost.cost import DAYS_PER_MONTH, HOURS_PER_DAY
from capplan.cost.hire import Hire
from capplan.describe.catalog import normalise_name
from capplan.errors import NotFoundError
from capplan.questions.cost_request import CostRequest
from capplan.questions.prices import api_prices_of

MONTH_SECONDS = DAYS_PER_MONTH * HOURS_PER_DAY * 3600


@dataclass(frozen=True)
class ApiBreakEven:
    """One API beside servers of one's own.

    Args:
        provider: whose API.
        model: its name there.
        usd_per_1m_input: dollars for a million input tokens.
        usd_per_1m_output: dollars for a million output tokens.
        date: of the price.
        cost_per_1m_tokens: over input and output tokens in the mix that is asked about.
        cost_per_month: of the load; null without a load.
        break_even_requests_per_month: from here on one's own servers are no dearer; null: never.
        break_even_tokens_per_month: the same in tokens.
        break_even_utilisation: how busy they are there.
        always_from_requests_per_month: from here on they are never dearer again; null: never.
        cheaper: ``own`` or ``API``, for the load, or for servers that are always full.
    """

    provider: str
    model: str
    usd_per_1m_input: Decimal
    usd_per_1m_output: Decimal
    date: str
    cost_per_1m_tokens: Decimal
    cost_per_month: Decimal | None
    break_even_requests_per_month: float | None
    break_even_tokens_per_month: float | None
    break_even_utilisation: float | None
    always_from_requests_per_month: float | None
    cheaper: str


@dataclass(frozen=True)
class OwnServers:
    """Servers of one's own, for a comparison.

    Args:
        hire: what replicas stand on.
        capacity: requests a second of one replica.
        isl: input tokens of a request.
        osl: output tokens of a request.
        cached_share: share of the input that is cached.
        power_per_replica: dollars an hour for the electricity of one replica.
        fixed: dollars a month besides.
        requests_per_month: the load; None: always full.
        cost_per_month: dollars a month of that load; of full servers without one.
    """

    hire: Hire
    capacity: Fraction
    isl: Fraction
    osl: Fraction
    cached_share: Fraction
    power_per_replica: Fraction
    fixed: Fraction
    requests_per_month: Fraction | None
    cost_per_month: Fraction

    @property
    def unit(self) -> OwnCost:
        """The least that can be hired: one instance with all replicas that fit, or the instances of one replica."""
        together = self.hire.filling
        hourly = self.hire.usd_per_hour(1) + together * self.power_per_replica
        return OwnCost(hourly * HOURS_PER_DAY * DAYS_PER_MONTH, together * self.capacity * MONTH_SECONDS, self.fixed)


def api_break_evens(request: CostRequest, model: str | None, own: OwnServers) -> tuple[ApiBreakEven, ...]:
    """Every API price of the model beside one's own servers; dated prices where there are any.

    Raises:
        NotFoundError: the provider that is asked about has no price of the model.
    """
    if request.api_input_price is not None and request.api_output_price is not None:
        given = (Fraction(request.api_input_price), Fraction(request.api_output_price))
        name = request.api_provider or "API"
        return (_compared(name, model or "", *given, None, "given", own),)
    if model is None:
        return ()
    prices = api_prices_of(model, request.pricing.on)
    if request.api_provider is not None:
        wanted = normalise_name(request.api_provider)
        chosen = [price for price in prices if normalise_name(price.provider) == wanted]
        if not chosen:
            sellers = ", ".join(sorted({price.provider for price in prices})[:8])
            raise NotFoundError(
                f"there is no price of {model} at {request.api_provider}",
                where="--api-provider",
                hint=f"it is sold by {sellers}" if sellers else "give --api-input-price and --api-output-price",
            )
        prices = chosen
    prices = _newest([price for price in prices if price.dated] or prices)
    rows = [_of(price, own) for price in prices]
    return tuple(sorted(rows, key=lambda row: (row.cost_per_1m_tokens, row.provider)))


def _newest(prices: list[ApiPrice]) -> list[ApiPrice]:
    """The newest price of each provider and model name."""
    latest: dict[tuple[str, str], ApiPrice] = {}
    for price in prices:
        key = (price.provider, price.model)
        if key not in latest or price.first_day > latest[key].first_day:
            latest[key] = price
    return list(latest.values())


def _of(price: ApiPrice, own: OwnServers) -> ApiBreakEven:
    cached = price.usd_per_1m_cached_input
    return _compared(
        price.provider,
        price.model,
        Fraction(price.usd_per_1m_input),
        Fraction(price.usd_per_1m_output),
        Fraction(cached) if cached is not None else None,
        price.date,
        own,
    )


def _compared(
    provider: str,
    model: str,
    ingoing: Fraction,
    outgoing: Fraction,
    cached: Fraction | None,
    date: str,
    own: OwnServers,
) -> ApiBreakEven:
    one = api_price_per_request(own.isl, own.osl, ingoing, outgoing, own.cached_share, cached)
    tokens = own.isl + own.osl
    unit = own.unit
    found = break_even(unit, one)
    requests = own.requests_per_month if own.requests_per_month is not None else unit.capacity
    mine = own.cost_per_month if own.requests_per_month is not None else unit.cost(unit.capacity)
    crossed = found.requests is not None
    return ApiBreakEven(
        provider,
        model,
        usd(ingoing),
        usd(outgoing),
        date,
        usd(one / tokens * 10**6),
        usd(one * requests) if own.requests_per_month is not None else None,
        float(found.requests) if found.requests is not None else None,
        float(found.requests * tokens) if found.requests is not None else None,
        float(found.utilisation) if crossed else None,
        float(found.always_from) if found.always_from is not None else None,
        "own" if mine <= one * requests else "API",
    )
