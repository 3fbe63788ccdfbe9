"""What clients saw: distributions of times, and how requests and blocks developed, in the terms of serving benchmarks.

Source: vLLM, vllm/benchmarks/serve.py (names and definitions of its metrics).
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True)
class Distribution:
    """Figures of a sample, in its own unit; all zero for an empty one.

    Args:
        count: its size.
        mean: the mean.
        std: the standard deviation.
        low: the least.
        high: the greatest.
        percentiles: the percentiles of `PERCENTILES`, between two values by linear interpolation.
    """

    count: int = 0
    mean: float = 0.0
    std: float = 0.0
    low: float = 0.0
    high: float = 0.0
    percentiles: tuple[float, ...] = (0.0,) * len(PERCENTILES)

    def percentile(self, percent: int) -> float:
        """One of the percentiles."""
        return self.percentiles[PERCENTILES.index(percent)]


def distribution(values: Sequence[float], weights: Sequence[int] | None = None) -> Distribution:
    """The figures of a sample; with weights, each value stands for so many equal ones."""
    if not values:
        return Distribution()
    if weights is None:
        ordered: list[float] = sorted(values)
        counts: list[int] | range = range(1, len(ordered) + 1)
        total, count = math.fsum(ordered), len(ordered)
        squares = math.fsum(value * value for value in ordered)
    else:
        pairs = sorted(zip(values, weights, strict=True))
        ordered = [value for value, _ in pairs]
        counts = list(accumulate(weight for _, weight in pairs))
        count = counts[-1]
        total = math.fsum(value * weight for value, weight in pairs)
        squares = math.fsum(value * value * weight for value, weight in pairs)
    mean = total / count
    return Distribution(
        count,
        mean,
        math.sqrt(max(0.0, squares / count - mean * mean)),
        ordered[0],
        ordered[-1],
        tuple(_percentile(ordered, counts, percent / 100) for percent in PERCENTILES),
    )


def _percentile(ordered: Sequence[float], counts: Sequence[int], share: float) -> float:
    """The value at place ``share · (n - 1)`` of the sample written out, `counts` being cumulated multiplicities."""
    place = share * (counts[-1] - 1)
    below = math.floor(place)
    first = ordered[bisect_right(counts, below)]
    second = ordered[bisect_right(counts, min(below + 1, counts[-1] - 1))]
    return first + (second - first) * (place - below)


@dataclass(frozen=True, slots=True)
class Objectives:
    """What a request must keep to count as good, in seconds; None: anything.

    Args:
        ttft: time to first token.
        tpot: mean time per further token.
        e2e: time until the last token.
    """

    ttft: float | None = None
    tpot: float | None = None
    e2e: float | None = None

    def met(self, ttft: float, tpot: float, e2e: float) -> bool:
        """Whether a request kept all of them."""
        return (
            (self.ttft is None or ttft <= self.ttft)
            and (self.tpot is None or tpot <= self.tpot)
            and (self.e2e is None or e2e <= self.e2e)
        )

    @property
    def any(self) -> bool:
        """Whether there is any objective."""
        return self.ttft is not None or self.tpot is not None or self.e2e is not None


class Log:
    """Times of requests as they finish, by column.

    Args:
        objectives: what a good request keeps.
    """

    COLUMNS = ("arrival", "isl", "osl", "cached", "queue", "ttft", "tpot", "e2e")

    def __init__(self, objectives: Objectives) -> None:
        self.objectives = objectives
        self.good = 0
        self.arrival, self.queue = array("d"), array("d")
        self.ttft, self.tpot, self.e2e = array("d"), array("d"), array("d")
        self.isl, self.osl, self.cached = array("q"), array("q"), array("q")
        self.gaps, self.gap_weights = array("d"), array("q")

    def gap(self, seconds: float, weight: int) -> None:
        """`weight` tokens (or messages) that each came `seconds` after the one before."""
        self.gaps.append(seconds)
        self.gap_weights.append(weight)

    def request(
        self, arrival: float, isl: int, osl: int, cached: int, scheduled: float, first: float, last: float
    ) -> None:
        """One finished request, by its points in time."""
        ttft, e2e = first - arrival, last - arrival
        tpot = (last - first) / (osl - 1) if osl > 1 else 0.0
        self.arrival.append(arrival)
        self.isl.append(isl)
        self.osl.append(osl)
        self.cached.append(cached)
        self.queue.append(scheduled - arrival)
        self.ttft.append(ttft)
        self.e2e.append(e2e)
        self.tpot.append(tpot)
        self.good += self.objectives.met(ttft, tpot, e2e)

    def tpots(self) -> list[float]:
        """TPOT of the requests that have one: more than one output token."""
        return [tpot for tpot, osl in zip(self.tpot, self.osl, strict=True) if osl > 1]

    def rows(self) -> list[tuple[float, ...]]:
        """One row a request, in the order in which they finished; see `COLUMNS`."""
        return list(zip(*(getattr(self, name) for name in self.COLUMNS), strict=True))


@dataclass(frozen=True, slots=True)
class TimelinePoint:
    """The server at one moment.

    Args:
        time: seconds from the start.
        running: requests that are admitted.
        waiting: requests that are not yet.
        used_blocks: blocks that requests hold.
        tokens: tokens generated so far.
    """

    time: float
    running: int
    waiting: int
    used_blocks: int
    tokens: int


class Timeline:
    """Points at about equal distances: never more than twice `points`, however long it goes on.

    Args:
        points: how many there are at least once there is enough to show.
    """

    def __init__(self, points: int = 200) -> None:
        self._most = 2 * points
        self._points: list[TimelinePoint] = []
        self._distance = 0.0
        self.due = 0.0
        """When the next point is wanted."""

    def add(self, point: TimelinePoint) -> None:
        """Take a point, and every second one away when there are too many."""
        self._points.append(point)
        if len(self._points) >= self._most:
            span = point.time - self._points[0].time
            self._points = self._points[::2]
            self._distance = 2 * span / self._most
        self.due = point.time + self._distance

    @property
    def points(self) -> tuple[TimelinePoint, ...]:
        """The points so far."""
        return tuple(self._points)
