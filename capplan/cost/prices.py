"""What an hour of a GPU costs: offers by GPU, provider, commitment and region, with their age.

A table holds many dates of one offer; the newest that was known on the day asked for stands for it. Prices that are
kept for trends, and rates that someone assumed, are never chosen unless asked for by name.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import ceil
from pathlib import Path

from capplan.cost.price_table import Commitment, Price, load_prices, provider_id
from capplan.describe.catalog import find_entry, normalise_name
from capplan.errors import NotFoundError, did_you_mean

STALE_AFTER_DAYS = 90
"""Older prices are used with a warning: list prices moved by a quarter within a quarter of 2026."""


@dataclass(frozen=True)
class Offer:
    """Whole instances that hold at least the GPUs asked for."""

    price: Price
    instances: int
    gpus: int
    usd_per_hour: Decimal
    age_days: int
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class PriceSummary:
    """One line of ``capplan prices list``: a GPU at a provider, per GPU and hour."""

    gpu: str
    provider: str
    commitment: Commitment
    lowest_usd_per_gpu_hour: Decimal
    highest_usd_per_gpu_hour: Decimal
    offers: int
    newest: str
    age_days: int
    stale: bool


@dataclass(frozen=True)
class PriceSheet:
    """What ``capplan prices show`` answers for a GPU or a provider."""

    name: str
    offers: tuple[Price, ...]
    history: tuple[Price, ...]


def find_prices(
    gpu: str | None = None,
    provider: str | None = None,
    commitment: Commitment | None = None,
    region: str | None = None,
    on: datetime.date | None = None,
    *,
    history: bool = False,
    hardware_dirs: Sequence[Path] = (),
) -> list[Price]:
    """Prices that fit, the cheapest per GPU first; those whose source does not say which GPU it is come last.

    Args:
        gpu: a name or alias of the hardware catalog; None: any.
        provider: its short or listed name; None: any.
        commitment: on-demand, spot, reserved, serverless or assumed; None: any but assumed.
        region: as the provider writes it; None: any, stated or not.
        on: prices known on that day; None: today.
        history: also superseded prices and those kept for trends.
        hardware_dirs: further folders with a ``prices/`` folder.

    Raises:
        NotFoundError: the catalog has no such GPU, or the tables no such provider or region.
    """
    check_sellers(provider, region, hardware_dirs)
    day = on or datetime.date.today()
    name = find_entry("hardware", gpu, hardware_dirs).stem if gpu is not None else None
    chosen = [
        price
        for price in load_prices(hardware_dirs)
        if (name is None or name in price.gpus)
        and (provider is None or _sold_by(price, provider))
        and (price.commitment == commitment if commitment else price.commitment != "assumed")
        and (region is None or _same(price.region, region))
        and price.first_day <= day
        and (history or not price.historic)
    ]
    current = chosen if history else newest(chosen)
    return sorted(current, key=lambda p: (not p.exact_gpu, p.usd_per_gpu_hour, p.provider, p.instance, p.region))


def check_sellers(provider: str | None, region: str | None, hardware_dirs: Sequence[Path] = ()) -> None:
    """Refuse a provider, and a region, that no price of the tables has.

    Args:
        provider: its short or listed name; None: any.
        region: as the provider writes it; None: any.
        hardware_dirs: further folders with a ``prices/`` folder.

    Raises:
        NotFoundError: there is none of that name; the hint has the nearest names.
    """
    prices = load_prices(hardware_dirs)
    if provider is not None:
        known = {price.provider for price in prices}
        prices = tuple(price for price in prices if _sold_by(price, provider))
        if not prices:
            hint = did_you_mean(provider, known) or "`capplan prices list` shows the providers"
            message = f"there is no provider {provider[:40]!r} in the price tables"
            raise NotFoundError(message, where="--provider", hint=hint)
    if region is not None and not any(_same(price.region, region) for price in prices):
        regions = {price.region for price in prices if price.region}
        whose = f" of {provider}" if provider else ""
        near = did_you_mean(region, (name.lower() for name in regions))
        some = f"such as {', '.join(sorted(regions)[:6])}" if regions else "none is stated: leave --region out"
        message = f"no price{whose} in the tables is of a region {region[:40]!r}"
        raise NotFoundError(message, where="--region", hint=near or some)


def newest(prices: Iterable[Price]) -> list[Price]:
    """The newest price of each offer: the one whose date is surely the latest."""
    latest: dict[tuple[object, ...], datetime.date] = {}
    kept = list(prices)
    for price in kept:
        latest[_offer(price)] = max(price.first_day, latest.get(_offer(price), price.first_day))
    return [price for price in kept if price.first_day == latest[_offer(price)]]


def age_days(price: Price, on: datetime.date | None = None) -> int:
    """Days since the price was last surely valid: since the first day that its date can mean."""
    return ((on or datetime.date.today()) - price.first_day).days


def is_stale(price: Price, on: datetime.date | None = None) -> bool:
    """Whether the price is older than `STALE_AFTER_DAYS`."""
    return age_days(price, on) > STALE_AFTER_DAYS


def price_warnings(price: Price, gpu: str | None = None, on: datetime.date | None = None) -> tuple[str, ...]:
    """What a reader of this price must know: its age, and that the source may mean another GPU."""
    warnings = []
    label = f"{price.listed_provider} {price.listed_gpu}"
    if is_stale(price, on):
        warnings.append(f"the price of {label} is {age_days(price, on)} days old ({price.date}, {price.date_quality})")
    if not price.exact_gpu and gpu:
        warnings.append(f"the price of {label} may be of another form factor than {gpu}")
    if "APPROXIMATE" in price.notes:
        warnings.append(f"the price of {label} is approximate")
    return tuple(warnings)


def best_offer(
    gpu: str,
    gpus: int = 1,
    provider: str | None = None,
    commitment: Commitment = "on-demand",
    region: str | None = None,
    on: datetime.date | None = None,
    *,
    same_host: int = 1,
    hardware_dirs: Sequence[Path] = (),
) -> Offer:
    """The cheapest whole instances that hold `gpus`: ``ceil(gpus / gpus_per_instance) x usd_per_instance_hour``.

    See `offered_prices` for which prices count.

    Raises:
        NotFoundError: no such GPU, or no price that fits; the hint names what there is.
    """
    prices = offered_prices(gpu, provider, commitment, region, on, same_host=same_host, hardware_dirs=hardware_dirs)
    offers = [_offer_of(price, gpu, gpus, on) for price in prices]
    return min(offers, key=lambda offer: (offer.usd_per_hour, offer.price.provider, offer.price.instance))


def offered_prices(
    gpu: str,
    provider: str | None = None,
    commitment: Commitment = "on-demand",
    region: str | None = None,
    on: datetime.date | None = None,
    *,
    same_host: int = 1,
    hardware_dirs: Sequence[Path] = (),
) -> list[Price]:
    """Prices at which a GPU can be had.

    Instances hold at least `same_host` GPUs; a price per GPU without an instance's name is taken to come in any size.
    A price whose source does not say which GPU it means, and a stale one, count only where there is no better.

    Raises:
        NotFoundError: no such GPU, or no price that fits; the hint names what there is.
    """
    found = find_prices(gpu, provider, commitment, region, on, hardware_dirs=hardware_dirs)
    prices = best_kept(found, same_host, on)
    if not prices:
        raise _no_price(gpu, provider, commitment, region, on, hardware_dirs)
    return prices


def best_kept(found: Sequence[Price], same_host: int, on: datetime.date | None = None) -> list[Price]:
    """Of prices of one GPU those that count; see `offered_prices`."""
    prices = [p for p in found if p.offered and (not p.instance or p.gpus_per_instance >= same_host)]
    for better in (lambda price: price.exact_gpu, lambda price: not is_stale(price, on)):
        prices = [price for price in prices if better(price)] or prices
    return prices


def list_prices(
    gpu: str | None = None,
    provider: str | None = None,
    commitment: Commitment | None = None,
    on: datetime.date | None = None,
    hardware_dirs: Sequence[Path] = (),
) -> list[PriceSummary]:
    """The span of current prices by GPU, provider and commitment."""
    groups: dict[tuple[str, str, Commitment], list[Price]] = {}
    for price in find_prices(gpu, provider, commitment, on=on, hardware_dirs=hardware_dirs):
        name = price.gpus[0] if price.exact_gpu else price.listed_gpu
        groups.setdefault((name, price.provider, price.commitment), []).append(price)
    return [_summary(*key, prices=prices, on=on) for key, prices in sorted(groups.items())]


def show_prices(name: str, on: datetime.date | None = None, hardware_dirs: Sequence[Path] = ()) -> PriceSheet:
    """Every price of a GPU, or of a provider: today's offers, and what they were.

    Raises:
        NotFoundError: neither a GPU of the catalog nor a provider of the tables.
    """
    providers = {price.provider for price in load_prices(hardware_dirs)}
    if provider_id(name) in providers:
        gpu, provider, title = None, name, provider_id(name)
    else:
        try:
            gpu, provider = find_entry("hardware", name, hardware_dirs).stem, None
        except NotFoundError as error:
            hint = did_you_mean(name, providers) or error.hint
            raise NotFoundError(f"{name!r} is neither a GPU nor a provider with prices", hint=hint) from None
        title = gpu
    offers = find_prices(gpu, provider, on=on, hardware_dirs=hardware_dirs)
    everything = find_prices(gpu, provider, on=on, history=True, hardware_dirs=hardware_dirs)
    history = sorted(set(everything) - set(offers), key=lambda price: (price.first_day, price.provider, price.instance))
    return PriceSheet(title, tuple(offers), tuple(history))


def _sold_by(price: Price, provider: str) -> bool:
    return price.provider == provider_id(provider) or _same(price.listed_provider, provider)


def _same(one: str, other: str) -> bool:
    return normalise_name(one) == normalise_name(other)


def _offer(price: Price) -> tuple[object, ...]:
    """What makes two prices the same offer at different times."""
    return (
        price.provider,
        price.listed_gpu,
        price.instance,
        price.gpus_per_instance,
        price.region,
        price.pricing_type,
    )


def _offer_of(price: Price, gpu: str, gpus: int, on: datetime.date | None) -> Offer:
    instances = ceil(gpus / price.gpus_per_instance)
    return Offer(
        price=price,
        instances=instances,
        gpus=int(instances * price.gpus_per_instance),
        usd_per_hour=instances * price.usd_per_instance_hour,
        age_days=age_days(price, on),
        warnings=price_warnings(price, gpu, on),
    )


def _summary(
    gpu: str, provider: str, commitment: Commitment, *, prices: list[Price], on: datetime.date | None
) -> PriceSummary:
    latest = max(prices, key=lambda price: price.first_day)
    return PriceSummary(
        gpu=gpu,
        provider=provider,
        commitment=commitment,
        lowest_usd_per_gpu_hour=min(price.usd_per_gpu_hour for price in prices),
        highest_usd_per_gpu_hour=max(price.usd_per_gpu_hour for price in prices),
        offers=len(prices),
        newest=latest.date,
        age_days=age_days(latest, on),
        stale=is_stale(latest, on),
    )


def _no_price(
    gpu: str,
    provider: str | None,
    commitment: Commitment,
    region: str | None,
    on: datetime.date | None,
    hardware_dirs: Sequence[Path],
) -> NotFoundError:
    """The error that names the nearest prices there are."""
    asked = [part for part in (provider and f"at {provider}", commitment, region and f"in {region}") if part]
    message = f"there is no price of {gpu} {' '.join(asked)}"
    others = [price for price in find_prices(gpu, on=on, hardware_dirs=hardware_dirs) if price.offered]
    own = sorted({price.commitment for price in others if provider and price.provider == provider_id(provider)})
    if own and commitment not in own:
        return NotFoundError(message, where="--provider", hint=f"{provider} has it as {', '.join(own)}")
    fitting = [price for price in others if price.commitment == commitment]
    sellers = sorted({price.provider for price in fitting if not region or _same(price.region, region)})
    hint = f"it is sold by {', '.join(sellers[:8])}" if sellers else "give --price-per-gpu-hour"
    return NotFoundError(message, where="--provider" if provider else "--gpu", hint=hint)
