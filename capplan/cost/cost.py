"""Dollars for tokens: from what a replica costs an hour and does in a second to a price a token, a request, a month.

    hours a day  = tokens a day / (3600 · T)
    cost a token = C / (3600 · T)
    input        = s · C / (3600 · T_in)
    output       = (1 - s) · C / (3600 · T_out)

with C dollars an hour of one replica, T tokens a second of it, and s the share of the GPU's time that goes to prefill.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Literal

from capplan.cost.amounts import Amount
from capplan.cost.hire import Hire
from capplan.cost.load_profile import LoadProfile
from capplan.errors import UsageError

SECONDS_PER_HOUR = 3600
HOURS_PER_DAY = 24
DAYS_PER_MONTH = Fraction(365, 12)
"""Cloud bills count 730 hours a month: a twelfth of a year."""

Billing = Literal["busy", "hourly", "always"]
"""What is paid for: seconds of work alone; replicas hour by hour as the load wants them; the peak's replicas always."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """What one replica does in a second at its operating point.

    Args:
        total: tokens a second, input and output together.
        requests: requests a second.
        input: input tokens a second; None: not told apart.
        output: output tokens a second; None: not told apart.
        prefill_share: share of the GPU's time in prefill; None: not known.
    """

    total: Amount
    requests: Amount
    input: Amount | None = None
    output: Amount | None = None
    prefill_share: Fraction | None = None


@dataclass(frozen=True, slots=True)
class TokenPrices:
    """Dollars a token at full load.

    Args:
        blended: over input and output tokens together.
        input: of an input token; None: the throughput does not tell them apart.
        output: of an output token.
        request: of a request.
    """

    blended: Amount
    input: Amount | None
    output: Amount | None
    request: Amount


@dataclass(frozen=True, slots=True)
class Bill:
    """What a load costs a day.

    Args:
        replicas: the most that run at once.
        gpu_hours: GPU-hours a day that are paid for.
        cost: dollars a day.
        utilisation: share of what is paid for that is used.
    """

    replicas: Amount
    gpu_hours: Amount
    cost: Amount
    utilisation: Fraction


def seed_throughput(parameters: float) -> float:
    """Tokens a second by the rule of thumb ``100 · (P / 7)^-0.6`` for P billion parameters on an A100.

    Args:
        parameters: of the model.

    Leaves out everything: the device, the batch, the lengths, the number format. Of a batch of one, roughly.
    """
    return float(100 * (parameters / 1e9 / 7) ** -0.6)


def prefill_time_share(prefill: float, decode_step: float, osl: float, batch: float) -> Fraction:
    """Share of a replica's time that goes to prefill: ``M / (M + O · S / B)``.

    Args:
        prefill: M, seconds that the prefill of one request takes from the steps.
        decode_step: S, seconds of a decode step.
        osl: O, output tokens of a request.
        batch: B, requests that share a decode step.
    """
    decoding = Fraction(osl) * Fraction(decode_step) / Fraction(batch)
    return Fraction(prefill) / (Fraction(prefill) + decoding)


def token_prices(usd_per_hour: Fraction, throughput: Throughput) -> TokenPrices:
    """Dollars a token of a replica that is always busy; see the module for the equations.

    Args:
        usd_per_hour: C, of one replica.
        throughput: of one replica.

    Raises:
        UsageError: nothing comes out.
    """
    if throughput.total.low <= 0:
        raise UsageError(f"must be above 0, not {float(throughput.total.low):g}", where="--throughput")
    second = Amount.of(usd_per_hour / SECONDS_PER_HOUR)
    share = throughput.prefill_share
    ingoing = outgoing = None
    if share is not None and throughput.input is not None and throughput.output is not None:
        ingoing = (second * share).per(throughput.input)
        outgoing = (second * (1 - share)).per(throughput.output)
    return TokenPrices(second.per(throughput.total), ingoing, outgoing, second.per(throughput.requests))


def replicas_for(rate: Fraction, capacity: Fraction) -> int:
    """Whole replicas for a request rate: ``⌈rate / capacity⌉``."""
    return ceil(rate / capacity)


def daily_bill(load: LoadProfile | None, capacity: Amount, hire: Hire, billing: Billing, *, spare: int = 0) -> Bill:
    """What a day costs.

    ``busy``: ``Σ_hours λ_h / μ`` replica-hours. ``hourly``: the instances that hold ``⌈λ_h / μ⌉`` replicas, hour by
    hour. ``always``: those that hold ``⌈max λ_h / μ⌉``, all day.

    Args:
        load: λ, requests a second by the hour; None: one instance full of replicas that are always busy.
        capacity: μ, requests a second of one replica.
        hire: what replicas stand on, and what that costs.
        billing: what is paid for.
        spare: replicas beside those that the load needs.
    """
    if load is None:
        paid = hire.gpus(hire.filling)
        hours = Amount.of(paid * HOURS_PER_DAY)
        used = hire.filling * hire.gpus_per_replica / paid
        return Bill(Amount.of(hire.filling), hours, hours * hire.usd_per_gpu_hour, used)
    edges = (capacity.value, capacity.high, capacity.low)
    hours = Amount(*(_gpu_hours(load, edge, hire, billing, spare) for edge in edges))
    peaks = Amount(*(Fraction(replicas_for(load.peak, edge) + spare) for edge in edges))
    busy = _gpu_hours(load, capacity.value, hire, "busy", 0)
    return Bill(peaks, hours, hours * hire.usd_per_gpu_hour, busy / hours.value)


def _gpu_hours(load: LoadProfile, capacity: Fraction, hire: Hire, billing: Billing, spare: int) -> Fraction:
    """GPU-hours a day that are paid for, on average over the profile's period."""
    if billing == "busy":
        return HOURS_PER_DAY * load.mean / capacity * hire.gpus_per_replica
    if billing == "always":
        return HOURS_PER_DAY * hire.gpus(replicas_for(load.peak, capacity) + spare)
    whole = sum((hire.gpus(replicas_for(rate, capacity) + spare) for rate in load.rates), Fraction(0))
    return whole * HOURS_PER_DAY / len(load.rates)
