"""Amounts with an interval: exact fractions inside, decimals of twelve significant digits outside."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction

_SHOWN = Context(prec=12, rounding=ROUND_HALF_EVEN)


@dataclass(frozen=True, slots=True)
class Amount:
    """A value and the interval that it may lie in: dollars, tokens a second, hours.

    Sums and products take the worst cases together, so that an interval never narrows on its way to a price.
    """

    value: Fraction
    low: Fraction
    high: Fraction

    @classmethod
    def of(cls, value: Fraction | Decimal | float, low: float | None = None, high: float | None = None) -> Amount:
        """An amount from plain numbers, exactly; without an interval it is certain."""
        exact = Fraction(value)
        return cls(exact, exact if low is None else Fraction(low), exact if high is None else Fraction(high))

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.value + other.value, self.low + other.low, self.high + other.high)

    def __mul__(self, factor: Fraction | int) -> Amount:
        """Times a factor that is not negative."""
        return Amount(self.value * factor, self.low * factor, self.high * factor)

    def per(self, rate: Amount) -> Amount:
        """Over a rate above 0: the better the rate, the lower the amount."""
        return Amount(self.value / rate.value, self.low / rate.high, self.high / rate.low)


ZERO = Amount(Fraction(0), Fraction(0), Fraction(0))


def usd(amount: Fraction) -> Decimal:
    """Dollars as a decimal of twelve significant digits, without trailing zeros: ``41.6666666667``."""
    rounded = _SHOWN.divide(Decimal(amount.numerator), Decimal(amount.denominator))
    return Decimal(f"{rounded.normalize(_SHOWN):f}")


def shown_usd(amount: Decimal | Fraction) -> str:
    """Dollars for people: cents, or four significant digits below a dime; ``$1,267.36``, ``$0.008333``."""
    value = usd(amount) if isinstance(amount, Fraction) else amount
    if value and abs(value) < Decimal("0.1"):
        short = value.normalize(Context(prec=4, rounding=ROUND_HALF_EVEN))
        return f"${short:f}"
    return f"${value:,.2f}"
