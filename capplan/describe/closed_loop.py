"""Whether a profile kept its word: whole models that it predicted, and what they then took."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Annotated, Literal

from capplan.describe.gpu import Count, Matching, Positive, Text
from capplan.describe.parts import Part

ERROR_LIMIT = 0.15
"""Median error up to which a profile passes."""

NOISE_FACTOR = 2.0
"""A prediction that is off by at most this many times the repeats' own noise counts as right."""


@dataclass(frozen=True, kw_only=True)
class ClosedLoopRow(Part):
    """One phase of one model that no fit had seen."""

    model: Text
    layers: Count
    phase: Literal["prefill", "decode"]
    mode: Text
    batch: Count
    prompt: Count
    new: Count
    measured: Positive
    """Seconds."""
    predicted: Positive
    low: Positive
    """Of the predicted 80 % interval."""
    high: Positive
    noise: Positive
    """Half the distance of the 10th and 90th percentile of the repeats, as a share of their median."""

    @property
    def error(self) -> float:
        """predicted/measured − 1."""
        return self.predicted / self.measured - 1

    @property
    def within_noise(self) -> bool:
        """Whether the error is at most twice the noise."""
        return abs(self.error) <= NOISE_FACTOR * self.noise

    @property
    def within_interval(self) -> bool:
        """Whether the measurement lies in the predicted interval."""
        return self.low <= self.measured <= self.high


@dataclass(frozen=True, kw_only=True)
class ClosedLoop(Part):
    """The table of a profile's check."""

    date: Annotated[str, Matching(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")]
    rows: tuple[ClosedLoopRow, ...]

    def __post_init__(self) -> None:
        if not self.rows:
            raise ValueError("rows must not be empty")

    @property
    def median_error(self) -> float:
        """Median of |predicted/measured − 1|."""
        return median(abs(row.error) for row in self.rows)

    @property
    def median_noise(self) -> float:
        """Median of the repeats' noise."""
        return median(row.noise for row in self.rows)

    @property
    def passed(self) -> bool:
        """Whether the median error is at most 15 %, or at most twice the median noise."""
        return self.median_error <= max(ERROR_LIMIT, NOISE_FACTOR * self.median_noise)


def closed_loop_warnings(loop: ClosedLoop | None, name: str) -> tuple[str, ...]:
    """What a user of a profile must be told: that it failed its own check."""
    if loop is None or loop.passed:
        return ()
    return (
        f"the profile {name} failed its own check of {loop.date}: whole models were predicted with a median error of "
        f"{100 * loop.median_error:.0f} %",
    )
