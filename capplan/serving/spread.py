"""How far measured servers lie from predictions: the 80 % interval of a first token and of the tokens after it."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, hypot, log

from capplan.describe.engine_times import EngineTimes
from capplan.describe.profile_table import Spread


@dataclass(frozen=True)
class Interval:
    """The ends between which four of five measurements lie.

    Args:
        low: the 10th percentile.
        high: the 90th percentile.
    """

    low: float
    high: float

    def inverse(self, factor: float = 1.0) -> Interval:
        """The interval of ``factor / x``."""
        return Interval(factor / self.high, factor / self.low)


def around(seconds: float, low: float, high: float, carried: Spread | None = None) -> Interval:
    """``[t · l, t · h]``; with constants carried from another GPU, whose error is independent, the squares of both
    logarithms add: ``ln l = -√(ln² l₁ + ln² l₂)``.
    """
    if carried is not None:
        low = exp(-hypot(log(min(low, 1.0)), log(min(carried.low, 1.0))))
        high = exp(hypot(log(max(high, 1.0)), log(max(carried.high, 1.0))))
    return Interval(seconds * low, seconds * high)


def tpot_interval(tpot: float, times: EngineTimes, carried: Spread | None = None) -> Interval:
    """The 80 % interval of a mean time per output token, from errors on models left out of the fit."""
    return around(tpot, times.tpot_low, times.tpot_high, carried)


def ttft_interval(ttft: float, times: EngineTimes, carried: Spread | None = None) -> Interval:
    """The 80 % interval of a mean time to the first token, from errors on models left out of the fit."""
    return around(ttft, times.ttft_low, times.ttft_high, carried)
