"""How far measured servers lie from predictions: the 80 % interval of a first token and of the tokens after it."""

from __future__ import annotations

from dataclasses import dataclass

from capplan.describe.engine_times import EngineTimes


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


def around(seconds: float, low: float, high: float, widening: float = 1.0) -> Interval:
    """``[t · low^w, t · high^w]``: w widens where a prediction is stretched, and narrows after a probe."""
    return Interval(seconds * low**widening, seconds * high**widening)


def tpot_interval(tpot: float, times: EngineTimes, widening: float = 1.0) -> Interval:
    """The 80 % interval of a mean time per output token, from errors on models left out of the fit."""
    return around(tpot, times.tpot_low, times.tpot_high, widening)


def ttft_interval(ttft: float, times: EngineTimes, widening: float = 1.0) -> Interval:
    """The 80 % interval of a mean time to the first token, from errors on models left out of the fit."""
    return around(ttft, times.ttft_low, times.ttft_high, widening)
