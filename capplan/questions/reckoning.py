"""Everything between a load and its price: what is hired for it, what that costs a day, and for how many tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from capplan.cost.amounts import ZERO, Amount
from capplan.cost.cost import HOURS_PER_DAY, Bill, Billing, daily_bill, replicas_for
from capplan.cost.energy import energy_kwh
from capplan.cost.hire import Hire
from capplan.cost.load_profile import LoadProfile
from capplan.errors import UsageError
from capplan.questions.cost_lines import DailyLine, daily_lines
from capplan.questions.cost_request import CostRequest
from capplan.questions.served import Served


@dataclass(frozen=True)
class Reckoning:
    """Everything between a load and its price.

    Args:
        served: what one replica does.
        load: the load; None: always full.
        hire: what replicas stand on.
        billing: what is paid for.
        bill: a day's hire.
        lines: a month's lines.
        day: everything, dollars a day.
        tokens: tokens a day.
        energy: kWh a day; None: no power limit is known.
        request: what was asked.
    """

    served: Served
    load: LoadProfile | None
    hire: Hire
    billing: Billing
    bill: Bill
    lines: tuple[DailyLine, ...]
    day: Amount
    tokens: Amount
    energy: Fraction | None
    request: CostRequest

    @property
    def token(self) -> Amount:
        """Dollars a token: a day's money over a day's tokens."""
        return self.day.per(self.tokens)


def reckoned(served: Served, request: CostRequest, hardware_dirs: Sequence[Path] = ()) -> Reckoning:
    """A day's bill of a load, and what is paid besides.

    Args:
        served: what one replica does.
        request: what was asked.
        hardware_dirs: further folders with a ``prices/`` folder.

    Raises:
        UsageError: a load in requests, and no tokens of one.
    """
    load = request.load or served.load
    if load is not None and served.tokens is None:
        raise UsageError("how many tokens has a request?", where="--tokens-per-request", hint="or --isl and --osl")
    billing = request.billing or ("always" if served.basis == "estimate" else "busy")
    capacity = served.throughput.requests
    peak = replicas_for(load.peak, capacity.value) + request.spare_replicas if load is not None else 1
    gpu = served.gpu
    hire = request.pricing.hire(gpu, served.gpus, peak, hardware_dirs)
    bill = daily_bill(load, capacity, hire, billing, spare=request.spare_replicas)
    tokens = served.throughput.total * (hire.filling * HOURS_PER_DAY * 3600)
    if load is not None and served.tokens is not None:
        tokens = Amount.of(load.requests_per_day * served.tokens)
    watts = request.tdp_w if request.tdp_w is not None else gpu.tdp_w if gpu is not None else None
    energy = energy_kwh(bill.gpu_hours.value, watts, bill.utilisation, request.power) if watts is not None else None
    lines = tuple(daily_lines(request, bill, hire, energy, estimated=served.basis == "estimate"))
    day = sum((line.day for line in lines), start=ZERO)
    return Reckoning(served, load, hire, billing, bill, lines, day, tokens, energy, request)
