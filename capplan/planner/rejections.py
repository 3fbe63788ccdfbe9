"""Why the others fail: counts by reason, and the nearest misses of each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

NEAREST = 3
"""Misses that are kept of each reason."""


@dataclass(frozen=True, slots=True, order=True)
class Miss:
    """One option that failed.

    Args:
        gap: by how much, in the reason's own unit; what misses are ranked by.
        option: what it is.
        detail: in words.
    """

    gap: float
    option: str
    detail: str


@dataclass
class Rejections:
    """Everything that was ruled out."""

    counts: Counter[str] = field(default_factory=Counter)
    nearest: dict[str, list[Miss]] = field(default_factory=dict)

    def add(self, reason: str, option: str, detail: str = "", gap: float = 0.0) -> None:
        """One more option that failed for a reason."""
        self.counts[reason] += 1
        kept = [*self.nearest.get(reason, ()), Miss(float(gap), option, detail)]
        self.nearest[reason] = sorted(kept)[:NEAREST]
