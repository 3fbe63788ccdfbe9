"""A progress bar on standard error: drawn over and over on a terminal, a line now and then in a log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from capplan.cli.streams import tell

WIDTH = 24
TEXT = 70

Say = Callable[[float, str], None]


class _Bar:
    """The bar's state: what was drawn last."""

    def __init__(self) -> None:
        self.terminal = sys.stderr.isatty()
        self.last = -1.0
        self.doing = ""

    def say(self, share: float, doing: str) -> None:
        """Draw the bar; in a log only every tenth of the way, and what comes after it."""
        share = min(max(share, 0.0), 1.0)
        if self.terminal:
            filled = round(WIDTH * share)
            line = f"[{'#' * filled}{'.' * (WIDTH - filled)}] {100 * share:3.0f} % {doing[:TEXT]}"
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        elif share >= self.last + 0.1 or (share >= 1 and doing != self.doing):
            self.last = share
            print(f"{100 * share:3.0f} % {doing}", file=sys.stderr, flush=True)
        self.doing = doing

    def end(self) -> None:
        """Take the bar away."""
        if self.terminal and self.doing:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


@contextmanager
def bar(after_interrupt: str) -> Iterator[Say]:
    """A function that is told the share that is done and what is being done.

    Args:
        after_interrupt: what to tell a user who interrupts.
    """
    drawn = _Bar()
    try:
        yield drawn.say
    except KeyboardInterrupt:
        drawn.end()
        tell(after_interrupt)
        raise
    finally:
        drawn.end()
