"""Timing one call again and again, on the clock that its device has."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from calibrate.device import Device
from calibrate.other_programs import is_disturbed, waiting
from calibrate.repeats import LEAST_UNMARKED, Timing, mark

LEAST_REPEATS, MOST_REPEATS = 7, 60
LEAST_LONG_REPEATS, LONG_SECONDS = 3, 0.1
"""Calls of a tenth of a second and more are steady enough to be repeated three times."""

PATIENCE = 3
"""Times the usual number of repeats that are taken at most until three were not disturbed by other programs."""

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
    with waiting() as waited:
        while len(taken) < repeats or _goes_on(len(taken), len(disturbed), repeats):
            place = len(taken) * together
            before = waited()
            seconds = _one_repeat(run, device, [(place + index) % sets for index in range(together)])
            if device.clock == "wall" and is_disturbed(waited() - before, seconds):
                disturbed.append(len(taken))
            taken.append(seconds / together)
    return mark(taken, disturbed)


def _goes_on(taken: int, disturbed: int, repeats: int) -> bool:
    """Whether other programs have left too few repeats in peace, and patience is not at its end."""
    return taken - disturbed < LEAST_UNMARKED and taken < PATIENCE * repeats


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


def _one_repeat(run: Callable[[int], Any], device: Device, places: Sequence[int]) -> float:
    """Seconds of runs one after the other."""
    if device.clock == "events":
        return _by_events(run, device, places)
    now = time.thread_time if device.clock == "cpu" else time.perf_counter
    start = now()
    for place in places:
        run(place)
    device.synchronise()
    return now() - start


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
