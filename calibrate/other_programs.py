"""What other programs take of the processor's cores: before a run, and while something is timed by the wall."""

from __future__ import annotations

import os
import time
from pathlib import Path

DISTURBED_SHARE = 0.05
"""Share of the cores that were wanted above which what other programs took of them disturbs a measurement."""

TICKS_A_SECOND = 100
"""Unit in which Linux tells every program how long its cores were busy (``USER_HZ``)."""

LEAST_TICKS = 2
"""Ticks below which a difference of the system's count and the process's own clock is rounding."""

_PROCESSOR_TIMES = Path("/proc/stat")


def cores_in_use(seconds: float = 0.3) -> float:
    """Cores that are busy while this process sleeps: by the system's own count, else by its load average."""
    before = _ticks()
    if before is None:
        try:
            return os.getloadavg()[0]
        except (OSError, AttributeError):
            return 0.0
    time.sleep(seconds)
    after = _ticks() or before
    busy, whole = (now - then for now, then in zip(after, before, strict=True))
    return busy / whole * (os.cpu_count() or 1) if whole else 0.0


class Watch:
    """Watches, from when it is made, whether other programs take cores that this process wants.

    missing = (busy − own) − (cores − threads)·t,   disturbed: missing > 5 % of threads·t

    busy is what all cores together were, own what this process had of it, and cores − threads are there for others.
    Where the system does not tell, nothing is taken to be disturbed.

    Args:
        threads: cores that this process wants.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._ticks = _ticks()
        self._own = time.process_time()
        self._start = time.perf_counter()

    @property
    def missing(self) -> float:
        """Seconds of cores that were wanted and that other programs had, so far."""
        after = _ticks()
        if self._ticks is None or after is None:
            return 0.0
        busy = (after[0] - self._ticks[0]) / TICKS_A_SECOND
        spare = max((os.cpu_count() or 1) - self.threads, 0) * (time.perf_counter() - self._start)
        return max(busy - (time.process_time() - self._own) - spare, 0.0)

    @property
    def disturbed(self) -> bool:
        """Whether other programs took more than a small share of the cores that were wanted, so far."""
        wanted = self.threads * (time.perf_counter() - self._start)
        return self.missing > max(DISTURBED_SHARE * wanted, LEAST_TICKS / TICKS_A_SECOND)


def _ticks() -> tuple[int, int] | None:
    """(busy, all) ticks of all cores since the start, as Linux counts them; those that a hypervisor took are busy."""
    try:
        words = _PROCESSOR_TIMES.read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
        ticks = [int(word) for word in words[:8]]
    except (OSError, ValueError):
        return None
    return sum(ticks) - sum(ticks[3:5]), sum(ticks)
