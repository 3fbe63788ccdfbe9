"""The month line by line: what is hired, what is used beside it, and the totals last."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Literal

from capplan.cost.amounts import ZERO, Amount, usd
from capplan.cost.cost import DAYS_PER_MONTH, Bill
from capplan.cost.hire import Hire
from capplan.questions.cost_request import CostRequest

Section = Literal["baseline", "usage", "total"]


@dataclass(frozen=True)
class CostLine:
    """One line of a month's bill.

    Args:
        section: hired whatever happens, used as the load wants it, or a sum.
        name: of what.
        detail: which, where.
        quantity: how much a month; null for sums.
        unit: of what it is counted in.
        unit_price: dollars for one.
        cost_per_month: dollars.
        cost_per_month_low: lower end of its interval.
        cost_per_month_high: upper end.
        estimated: whether it rests on a predicted throughput.
    """

    section: Section
    name: str
    detail: str
    quantity: float | None
    unit: str
    unit_price: Decimal | None
    cost_per_month: Decimal
    cost_per_month_low: Decimal
    cost_per_month_high: Decimal
    estimated: bool


@dataclass(frozen=True)
class DailyLine:
    """A line before it is rounded, dollars a day."""

    section: Section
    name: str
    day: Amount
    detail: str = ""
    quantity: Fraction | None = None
    unit: str = ""
    unit_price: Fraction | None = None
    estimated: bool = False
    fixed: bool = False

    @property
    def shown(self) -> CostLine:
        """The line as a month's, rounded."""
        month = self.day * DAYS_PER_MONTH
        return CostLine(
            self.section,
            self.name,
            self.detail,
            float(self.quantity * DAYS_PER_MONTH) if self.quantity is not None else None,
            self.unit,
            usd(self.unit_price) if self.unit_price is not None else None,
            usd(month.value),
            usd(month.low),
            usd(month.high),
            self.estimated,
        )


def daily_lines(
    request: CostRequest, bill: Bill, hire: Hire, energy: Fraction | None, *, estimated: bool
) -> list[DailyLine]:
    """Hire, electricity, storage and egress; only what is paid for.

    Args:
        request: prices of what stands beside the hire.
        bill: a day's hire.
        hire: what replicas stand on.
        energy: kWh a day.
        estimated: whether the bill rests on a predicted throughput.
    """
    lines = [
        DailyLine(
            "baseline",
            "GPUs",
            bill.cost,
            hired_where(hire),
            bill.gpu_hours.value,
            "GPU-hours",
            hire.usd_per_gpu_hour,
            estimated,
        )
    ]
    if request.electricity_price is not None and energy is not None:
        price = Fraction(request.electricity_price)
        drawn = bill.gpu_hours * (energy / bill.gpu_hours.value)
        lines.append(DailyLine("usage", "electricity", drawn * price, "", energy, "kWh", price, True))
    for name, amount, price_given, unit in (
        ("storage", request.storage_gb, request.storage_price, "GB-months"),
        ("egress", request.egress_gb, request.egress_price, "GB"),
    ):
        if amount is not None and price_given is not None:
            quantity, each = Fraction(amount) / DAYS_PER_MONTH, Fraction(price_given)
            lines.append(DailyLine("usage", name, Amount.of(quantity * each), "", quantity, unit, each, fixed=True))
    return lines


def hired_where(hire: Hire) -> str:
    """What is hired, in words: ``8x H100 at lambda``."""
    if hire.price is None:
        return "at the price given"
    return f"{hire.price.instance or hire.price.listed_gpu} at {hire.price.provider}"


def with_totals(lines: list[DailyLine]) -> list[CostLine]:
    """The lines of a month, with sums by section where there are several, and the whole last."""
    shown = [line.shown for line in lines]
    whole = sum((line.day for line in lines), start=ZERO)
    doubtful = any(line.estimated for line in lines)
    return [*shown, DailyLine("total", "all of it", whole, estimated=doubtful).shown]
