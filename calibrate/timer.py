"""Timing one call again and again: what a repeat took, whether something disturbed it, and what all of them say.

Repeats are never thrown away. One that was disturbed (the system took the processor away, or it lies far above the
rest) is marked, and the median is taken over those that are not marked.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from calibrate.device import Device

FAR_DEVIATIONS = 6.0
"""Median absolute deviations above the median from which a repeat is marked; of normal noise one in 20,000 is."""

LEAST_UNMARKED = 3
"""Unmarked repeats without which the median is taken over all."""

LEAST_REPEATS, MOST_REPEATS = 7, 60
LEAST_LONG_REPEATS, LONG_SECONDS = 3, 0.1
"""Calls of a tenth of a second and more are steady enough to be repeated three times."""

WARM_UP_SECONDS, MOST_WARM_UPS = 0.02, 200

SHORTEST_SECONDS = 1e-4
"""Calls shorter than this are timed several at once, so that reading the clock is below a thousandth."""

QUEUE_SECONDS = 2e-4
"""A GPU is kept busy for about this long before a timed call, so that the host launches ahead of it."""

_SLEEP_CYCLES_PER_SECOND = 1.5e9


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


def time_call(run: Callable[[int], Any], device: Device, *, sets: int = 1, budget: float = 0.3) -> Timing:
    """Time a call whose i-th run uses the (i mod sets)-th buffers, after warming up.

    Args:
        run: the call, by the number of the buffers.
        device: where it runs.
        sets: how many buffers rotate.
        budget: seconds to spend, but for the least number of repeats.
    """
    first = _warm_up(run, device, sets)
    together = max(1, math.ceil(SHORTEST_SECONDS / first))
    least = LEAST_LONG_REPEATS if first > LONG_SECONDS else LEAST_REPEATS
    repeats = round(min(max(budget / (first * together), least), MOST_REPEATS))
    taken: list[float] = []
    disturbed: list[int] = []
    place = 0
    for number in range(repeats):
        seconds, pushed = _one_repeat(run, device, [(place + index) % sets for index in range(together)])
        place += together
        taken.append(seconds / together)
        if pushed:
            disturbed.append(number)
    return mark(taken, disturbed)


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


def _warm_up(run: Callable[[int], Any], device: Device, sets: int) -> float:
    """Run some sets, at least twice and for `WARM_UP_SECONDS`; seconds of one run after the first, by the wall."""
    run(0)
    device.synchronise()
    count = 0
    start = time.perf_counter()
    while count < 1 or (time.perf_counter() - start < WARM_UP_SECONDS and count < MOST_WARM_UPS):
        count += 1
        run(count % sets)
        if count == 1:
            device.synchronise()
    device.synchronise()
    return max((time.perf_counter() - start) / count, 1e-8)


def _one_repeat(run: Callable[[int], Any], device: Device, places: Sequence[int]) -> tuple[float, bool]:
    """(seconds of one run after the other, whether the system took the processor away)."""
    if device.clock == "events":
        return _by_events(run, device, places), False
    if device.clock == "cpu":
        start = time.thread_time()
        for place in places:
            run(place)
        return time.thread_time() - start, False
    before = _times_pushed_aside()
    start = time.perf_counter()
    for place in places:
        run(place)
    device.synchronise()
    return time.perf_counter() - start, _times_pushed_aside() > before


def _by_events(run: Callable[[int], Any], device: Device, places: Sequence[int]) -> float:
    """Seconds between two events on the device, which is made to wait first so that the host gets ahead of it."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    device.synchronise()
    torch.cuda._sleep(int(QUEUE_SECONDS * len(places) * _SLEEP_CYCLES_PER_SECOND))
    start.record()
    for place in places:
        run(place)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e-3


def _times_pushed_aside() -> int:
    """How often the system took the processor away from this process before its time was up."""
    try:
        import resource
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
