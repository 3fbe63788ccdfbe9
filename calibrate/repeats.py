"""What the repeats of one timed call say: those that were disturbed are marked, and the median is taken over the rest.

Repeats are never thrown away. One that was disturbed (the system took the processor away, or it lies far above the
rest) is marked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

FAR_DEVIATIONS = 6.0
"""Median absolute deviations above the median from which a repeat is marked; of normal noise one in 20,000 is."""

LEAST_UNMARKED = 3
"""Unmarked repeats without which the median is taken over all."""


@dataclass(frozen=True)
class Timing:
    """What the repeats of one call say.

    Args:
        repeats: seconds of each, in order.
        marked: numbers of those that were disturbed.
    """

    repeats: tuple[float, ...]
    marked: tuple[int, ...]

    @property
    def counted(self) -> list[float]:
        """The unmarked repeats; all where too few are left."""
        left = [value for number, value in enumerate(self.repeats) if number not in self.marked]
        return left if len(left) >= LEAST_UNMARKED else list(self.repeats)

    @property
    def seconds(self) -> float:
        """The median."""
        return median(self.counted)

    @property
    def low(self) -> float:
        """The 10th percentile."""
        return quantile(self.counted, 0.1)

    @property
    def high(self) -> float:
        """The 90th percentile."""
        return quantile(self.counted, 0.9)

    @property
    def noise(self) -> float:
        """Half the distance of the 10th and 90th percentiles, as a share of the median."""
        return (self.high - self.low) / 2 / self.seconds


def mark(repeats: Sequence[float], disturbed: Sequence[int] = ()) -> Timing:
    """The repeats with those marked that were disturbed, or that lie far above the rest."""
    left = [value for number, value in enumerate(repeats) if number not in disturbed] or list(repeats)
    middle = median(left)
    spread = median(abs(value - middle) for value in left) or 0.01 * middle
    far = {number for number, value in enumerate(repeats) if value > middle + FAR_DEVIATIONS * spread}
    return Timing(tuple(repeats), tuple(sorted({*disturbed, *far})))


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which a share of the values lies, between neighbours by their distance."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
