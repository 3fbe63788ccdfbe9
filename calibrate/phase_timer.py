"""Timing phases that take a good part of a second, again and again, until enough of them were left in peace."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from calibrate.device import Device
from calibrate.other_programs import is_disturbed, waiting
from calibrate.repeats import LEAST_UNMARKED, Timing, mark

LEAST_REPEATS, MOST_REPEATS = 3, 15

PATIENCE = 3.0
"""Times the usual seconds that are spent at most to have enough repeats that no other program disturbed."""

Timed = tuple[float, bool]
"""Seconds, and whether other programs stretched them."""


def timed(work: Callable[[], Any], device: Device) -> Timed:
    """Seconds of a phase, synchronised, by the device's clock (on a GPU by the wall, launching included)."""
    now = time.thread_time if device.clock == "cpu" else time.perf_counter
    with waiting() as waited:
        device.synchronise()
        before, start = waited(), now()
        work()
        device.synchronise()
        seconds = now() - start
        return seconds, device.clock == "wall" and is_disturbed(waited() - before, seconds)


def repeated(once: Callable[[], Sequence[Timed]], budget: float) -> list[Timing]:
    """What the repeats of phases that follow one another say, a timing for each.

    Other programs stretch every step that all threads wait for: a repeat that they disturbed is marked, and where they
    leave fewer than three alone, it goes on for up to `PATIENCE` times as long.

    Args:
        once: runs all phases once.
        budget: seconds to spend, but for the least number of repeats.
    """
    runs: list[Sequence[Timed]] = []
    begin = time.perf_counter()
    while True:
        runs.append(once())
        spent = time.perf_counter() - begin
        if len(runs) < LEAST_REPEATS or (spent < budget and len(runs) < MOST_REPEATS):
            continue
        if spent >= PATIENCE * budget or all(
            _undisturbed(phase) >= LEAST_UNMARKED for phase in zip(*runs, strict=True)
        ):
            break
    return [_timing(phase) for phase in zip(*runs, strict=True)]


def _undisturbed(phase: Sequence[Timed]) -> int:
    return sum(not disturbed for _, disturbed in phase)


def _timing(phase: Sequence[Timed]) -> Timing:
    disturbed = [number for number, (_, disturbed) in enumerate(phase) if disturbed]
    return mark([seconds for seconds, _ in phase], disturbed)
