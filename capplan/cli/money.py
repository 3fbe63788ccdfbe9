"""The flags of every question about money and load, and how they are read."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Annotated, Any

import typer

from capplan.cli.prices import day_named
from capplan.describe.quantities import parse_seconds, parse_tokens
from capplan.errors import UsageError
from capplan.questions.cost_request import Pricing
from capplan.questions.estimate import LoadRequest
from capplan.questions.prices import commitment_named

Text = str | None
_LOAD, _PRICE = "Load", "Prices"


def option(*names: str, help: str, panel: str) -> Any:
    """An option in a panel of the help."""
    return typer.Option(*names, help=help, rich_help_panel=panel)


Isl = Annotated[Text, option("--isl", help="Input tokens of a request: 2000, 2k.", panel=_LOAD)]
Osl = Annotated[Text, option("--osl", help="Output tokens of a request.", panel=_LOAD)]
Concurrency = Annotated[Text, option("--concurrency", help="Requests at once, closed loop.", panel=_LOAD)]
RequestRate = Annotated[Text, option("--request-rate", help="Requests a second, open loop.", panel=_LOAD)]
PrefixHitRate = Annotated[Text, option("--prefix-hit-rate", help="Share of the input that is cached.", panel=_LOAD)]
Ttft = Annotated[Text, option("--ttft", help="Time to first token, at most: 500ms, 2s.", panel=_LOAD)]
Tpot = Annotated[Text, option("--tpot", help="Time per output token, at most: 50ms.", panel=_LOAD)]
MaxNumSeqs = Annotated[Text, option("--max-num-seqs", help="Sequences at once, at most.", panel=_LOAD)]

PricePerGpuHour = Annotated[Text, option("--price-per-gpu-hour", help="Dollars [the tables'].", panel=_PRICE)]
Provider = Annotated[Text, option("--provider", help="Whose prices [the cheapest].", panel=_PRICE)]
Commitment = Annotated[str, option("--commitment", help="on-demand, spot or reserved.", panel=_PRICE)]
Region = Annotated[Text, option("--region", help="As the provider writes it [any].", panel=_PRICE)]
Day = Annotated[Text, option("--on", help="Prices known on a day: 2026-11-01 [today].", panel=_PRICE)]


def load_of(
    isl: Text,
    osl: Text,
    concurrency: Text = None,
    request_rate: Text = None,
    prefix_hit_rate: Text = None,
    ttft: Text = None,
    tpot: Text = None,
    max_num_seqs: Text = None,
) -> LoadRequest | None:
    """The load that flags describe; None without lengths.

    Raises:
        UsageError: half of the lengths, or a value that cannot be read.
    """
    if isl is None and osl is None:
        for flag, value in (("--concurrency", concurrency), ("--request-rate", request_rate)):
            if value is not None:
                raise UsageError("how long are the requests?", where=flag, hint="give --isl and --osl")
        return None
    if isl is None or osl is None:
        raise UsageError("how long are the requests?", where="--isl" if isl is None else "--osl")
    return LoadRequest(
        isl=float(parse_tokens(isl, "--isl")),
        osl=float(parse_tokens(osl, "--osl")),
        concurrency=optional_number(concurrency, "--concurrency"),
        request_rate=optional_number(request_rate, "--request-rate"),
        prefix_hit_rate=float(share_of(prefix_hit_rate, "--prefix-hit-rate")) if prefix_hit_rate else 0.0,
        ttft=parse_seconds(ttft, "--ttft") if ttft else None,
        tpot=parse_seconds(tpot, "--tpot") if tpot else None,
        max_num_seqs=parse_tokens(max_num_seqs, "--max-num-seqs") if max_num_seqs else None,
    )


def pricing_of(price: Text, provider: Text, commitment: str, region: Text, on: Text) -> Pricing:
    """Where GPUs are hired."""
    return Pricing(
        price_per_gpu_hour=optional_money(price, "--price-per-gpu-hour"),
        provider=provider,
        commitment=commitment_named(commitment),
        region=region,
        on=day_named(on),
    )


def number(text: str, flag: str, *, zero: bool = False) -> Fraction:
    """An exact number above 0, or also 0."""
    try:
        value = Decimal(text.strip().replace("_", "").replace(",", ""))
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite() or not 0 <= value < Decimal("1e18") or (value == 0 and not zero):
        raise UsageError(f"{text[:40]!r} is not a number {'of at least' if zero else 'above'} 0", where=flag)
    return Fraction(value)


def share_of(text: str, flag: str) -> Fraction:
    """A share from 0 to below 1."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = Decimal(-1)
    if not value.is_finite() or not 0 <= value < 1:
        raise UsageError(f"{text[:40]!r} is not a share such as 0.6", where=flag)
    return Fraction(value)


def optional_number(text: Text, flag: str) -> float | None:
    """A number above 0, or None."""
    return float(number(text, flag)) if text is not None else None


def optional_money(text: Text, flag: str, *, zero: bool = False) -> Decimal | None:
    """Exact dollars above 0, or also 0, or None."""
    if text is None:
        return None
    number(text.strip().lstrip("$"), flag, zero=zero)
    return Decimal(text.strip().lstrip("$").replace("_", "").replace(",", ""))
