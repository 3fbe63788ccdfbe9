"""Timing one call again and again, on the clock that its device has."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from calibrate.device import Device
from calibrate.repeats import Timing, mark

LEAST_REPEATS, MOST_REPEATS = 7, 60
LEAST_LONG_REPEATS, LONG_SECONDS = 3, 0.1
"""Calls of a tenth of a second and more are steady enough to be repeated three times."""

WARM_UP_SECONDS, MOST_WARM_UPS = 0.02, 200

SHORTEST_SECONDS = 1e-4
"""Calls shorter than this are timed several at once, so that reading the clock is below a thousandth."""

QUEUE_SECONDS = 2e-4
"""A GPU is kept busy for about this long before a timed call, so that the host launches ahead of it."""

_SLEEP_CYCLES_PER_SECOND = 1.5e9


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
