"""What other programs take of the processor's cores: before a run, and while something is timed by the wall."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from calibrate.repeats import Timing
    from calibrate.samples import Recording, Sample

DISTURBED_SHARE = 0.05
"""Share of a measured time that the process's threads may have waited for a core."""

DISTURBED_SAMPLES = 0.05
"""Share of samples that other programs may have disturbed before an answer warns of it."""

_PROCESSOR_TIMES = Path("/proc/stat")
_THREADS = Path("/proc/self/task")
_MOST_BYTES = 100


class Waited(Protocol):
    """Tells for how long, so far, the threads of this process were ready to run and had no core."""

    def __call__(self) -> float:
        """Seconds, all threads together."""


@contextmanager
def waiting() -> Iterator[Waited]:
    """How long the threads that there are now wait for a core, as Linux accounts for it; 0 where it does not tell.

    Every core that another program has while a thread wants it counts, to the nanosecond, also after a thread slept
    between two steps; what a hypervisor takes does not.

    Source: Linux, Documentation/scheduler/sched-stats.rst, ``/proc/<pid>/schedstat``: the second figure.
    """
    files = _opened()
    try:
        yield lambda: sum(map(_run_delay, files))
    finally:
        for file in files:
            os.close(file)


def is_disturbed(waited: float, seconds: float) -> bool:
    """Whether a time was stretched: all threads of a step wait for the one that has no core."""
    return waited > DISTURBED_SHARE * seconds


def is_mostly_disturbed(one: Sample | Timing) -> bool:
    """Whether more than half of the repeats are marked."""
    return 2 * len(one.marked) > len(one.repeats)


def disturbed_samples(recording: Recording) -> tuple[str, ...]:
    """A warning where other programs left few repeats of a sample alone; none for clocks that do not see them."""
    if recording.provenance.get("clock") != "wall":
        return ()
    parts = []
    for kind, name in (("kernel", "kernel samples"), ("phase", "phases")):
        members = [sample for sample in recording.samples if sample.kind == kind]
        count = sum(map(is_mostly_disturbed, members))
        parts += [f"{count} of {len(members)} {name}"] if count > DISTURBED_SAMPLES * len(members) else []
    if not parts:
        return ()
    return (
        f"other programs disturbed most repeats of {' and '.join(parts)}: measure on a quieter machine, or with "
        "--clock cpu --threads 1",
    )


def cores_in_use(seconds: float = 0.5, times: int = 4) -> float:
    """Cores that are busy while this process sleeps, in the busiest of some half seconds: programs come and go.

    By the system's own count, else by its load average.
    """
    before = _ticks()
    if before is None:
        try:
            return os.getloadavg()[0]
        except (OSError, AttributeError):
            return 0.0
    most = 0.0
    for _ in range(times):
        time.sleep(seconds)
        after = _ticks() or before
        busy, whole = (now - then for now, then in zip(after, before, strict=True))
        most = max(most, busy / whole * (os.cpu_count() or 1) if whole else 0.0)
        before = after
    return most


def _opened() -> list[int]:
    """The accounts of the process's threads, open, so that reading one takes microseconds."""
    files = []
    for thread in sorted(_THREADS.glob("*/schedstat")):
        try:
            files.append(os.open(thread, os.O_RDONLY))
        except OSError:
            continue
    return files


def _run_delay(file: int) -> float:
    """Seconds that a thread has waited for a core since it began; 0 once it has ended."""
    try:
        return 1e-9 * int(os.pread(file, _MOST_BYTES, 0).split()[1])
    except (OSError, ValueError, IndexError):
        return 0.0


def _ticks() -> tuple[int, int] | None:
    """(busy, all) ticks of all cores since the start, as Linux counts them; those that a hypervisor took are busy."""
    try:
        words = _PROCESSOR_TIMES.read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
        ticks = [int(word) for word in words[:8]]
    except (OSError, ValueError):
        return None
    return sum(ticks) - sum(ticks[3:5]), sum(ticks)
