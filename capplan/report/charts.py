"""A chart as data: axes, series of points or stacked bars, and where ticks stand; drawn as SVG or in the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Mark = Literal["none", "circle", "square", "diamond", "triangle", "cross"]

MARKS: tuple[Mark, ...] = ("circle", "square", "diamond", "triangle", "cross")
"""Marks that tell series apart, in order."""

MOST_TICKS = 10
"""Values at an axis, where nothing says how much room there is."""

_NEAR = 1e-12
"""Relative difference of two values that are meant to be the same."""

_PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


@dataclass(frozen=True)
class Axis:
    """One axis: its label with the unit, and whether it is logarithmic."""

    label: str
    log: bool = False


@dataclass(frozen=True)
class Series:
    """Points that belong together, joined by a line or marked or both.

    Args:
        name: what the legend calls it.
        points: (x, y); those without a place on the axes (0 on a logarithmic one, infinite) are left out.
        line: whether points are joined, in order.
        mark: what stands at each point.
        marks: the same point by point, where points differ; empty: `mark`.
        labels: a word at each point, shown when a reader points at it; empty: none.
        band: (x, low, high) of an interval around the line.
        faint: whether it is a background for others, such as a limit.
    """

    name: str
    points: Sequence[tuple[float, float]]
    line: bool = True
    mark: Mark = "none"
    marks: Sequence[Mark] = ()
    labels: Sequence[str] = ()
    band: Sequence[tuple[float, float, float]] = ()
    faint: bool = False


@dataclass(frozen=True)
class Chart:
    """A chart with a title, two axes and some series."""

    title: str
    x: Axis
    y: Axis
    series: Sequence[Series]
    notes: Sequence[str] = field(default_factory=tuple)


Look = Literal["solid", "free", "lacking"]


@dataclass(frozen=True)
class Part:
    """A part of a bar.

    Args:
        name: what the legend calls it; parts of one name look alike in every bar.
        value: how long it is, on the axis.
        shown: its value as people read it.
        words: what else is known of it, shown when a reader points at it.
        look: solid; or what is left over; or what is wanted and not there.
    """

    name: str
    value: float
    shown: str
    words: str = ""
    look: Look = "solid"


@dataclass(frozen=True)
class Bar:
    """Parts in a row, from 0 on; those of nothing are left out."""

    name: str
    parts: Sequence[Part]


@dataclass(frozen=True)
class BarChart:
    """A chart of bars below one another, over one axis from 0.

    Args:
        title: the title.
        x: the axis; linear.
        bars: the bars, from the top.
        limits: lines across all bars: what the legend calls each, and where it stands.
        notes: what stands below the legend.
    """

    title: str
    x: Axis
    bars: Sequence[Bar]
    limits: Sequence[tuple[str, float]] = ()
    notes: Sequence[str] = ()

    @property
    def kinds(self) -> tuple[Part, ...]:
        """One part of each name, in the order of the bars."""
        found = {part.name: part for bar in reversed(self.bars) for part in reversed(bar.parts) if part.value > 0}
        return tuple(reversed(found.values()))

    @property
    def legend(self) -> tuple[str, ...]:
        """What the legend says: the parts, with their values where there is one bar, then the limits."""
        alone = len(self.bars) == 1
        parts = [f"{part.name}, {part.shown}" if alone else part.name for part in self.kinds]
        return (*parts, *(name for name, _ in self.limits))

    @property
    def scale(self) -> Scale:
        """The axis from 0 to the longest bar or the farthest limit.

        Raises:
            ValueError: there is nothing to draw.
        """
        lengths = [sum(part.value for part in bar.parts) for bar in self.bars]
        if not any(lengths):
            raise ValueError("nothing to draw")
        return scale_of(self.x, [0.0, *lengths, *(value for _, value in self.limits)])


Drawing = Chart | BarChart


@dataclass(frozen=True)
class Scale:
    """Values of one axis as places from 0 to 1."""

    low: float
    high: float
    log: bool

    def place(self, value: float) -> float:
        """Where a value stands: 0 at the axis's start, 1 at its end."""
        if self.log:
            return (math.log10(value) - math.log10(self.low)) / (math.log10(self.high) - math.log10(self.low))
        return (value - self.low) / (self.high - self.low)

    def holds(self, value: float) -> bool:
        """Whether a value has a place at all."""
        return math.isfinite(value) and (value > 0 or not self.log)

    def ticks(self, most: int = MOST_TICKS) -> list[float]:
        """Values to write at the axis: 1, 2 and 5 times the powers of ten or those alone, or round steps.

        Args:
            most: how many there is room for.
        """
        values = _log_ticks(self.low, self.high, most) if self.log else _round_steps(self.low, self.high)
        return values[:: -(-len(values) // most)]

    def minor_ticks(self) -> list[float]:
        """Values between the ticks of a logarithmic axis: 2 to 9 times each power of ten."""
        if not self.log:
            return []
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        values = [digit * 10.0**power for power in range(first, last) for digit in range(2, 10)]
        return [value for value in values if self.low <= value <= self.high]


def scale_of(axis: Axis, values: Sequence[float]) -> Scale:
    """The scale that holds all values of an axis, between round ends: 1, 2 or 5 times a power of ten, or whole steps.

    Raises:
        ValueError: there is nothing to draw.
    """
    known = [value for value in values if math.isfinite(value) and (value > 0 or not axis.log)]
    if not known:
        raise ValueError("nothing to draw")
    low, high = min(known), max(known)
    if axis.log:
        ends = _one_two_five(low, high)
        first = max(place for place, value in enumerate(ends) if value <= low * (1 + _NEAR))
        last = min(place for place, value in enumerate(ends) if value >= high * (1 - _NEAR))
        if first == last:
            first, last = first - 1, last + 1
        return Scale(ends[first], ends[last], log=True)
    size = max(abs(low), abs(high))
    if 0 < low <= 0.4 * high or 0 <= low == high:
        low = 0.0
    if high - low <= 1e-6 * size or size == 0:
        low, high = low - 0.1 * size, high + (0.1 * size or 1.0)
    for _ in range(5):  # round ends may ask for larger steps, whose ends are rounder still
        steps = _round_steps(low, high)
        if math.isclose(steps[0], low, abs_tol=1e-12 * size) and math.isclose(steps[-1], high):
            break
        low, high = steps[0], steps[-1]
    return Scale(steps[0], steps[-1], log=False)


def scales(chart: Chart) -> tuple[Scale, Scale]:
    """Both scales of a chart.

    Raises:
        ValueError: there is nothing to draw.
    """
    xs = [x for series in chart.series for x, _ in series.points]
    ys = [y for series in chart.series for _, y in series.points]
    ys += [value for series in chart.series for _, low, high in series.band for value in (low, high)]
    return scale_of(chart.x, xs), scale_of(chart.y, ys)


def show_tick(value: float) -> str:
    """A value at an axis: ``0.1``, ``20``, ``1k``, ``2.5M``."""
    if value == 0:
        return "0"
    size = abs(value)
    if size < 1:
        return f"{value:.3g}" if size >= 1e-4 else f"{value:.0e}"
    for least, prefix in _PREFIXES:
        if size >= least * (1 - 1e-9):
            return f"{value / least:.4g}{prefix}"
    return f"{value:g}"


def _one_two_five(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten, from a decade below `low` to one above `high`."""
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    return [digit * 10.0**power for power in powers for digit in (1, 2, 5)]


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    """The closest of 1, 2, 5 and 10, powers of ten, and every so many of those, that has room."""
    inside = [value for value in _one_two_five(low, high) if low * (1 - _NEAR) <= value <= high * (1 + _NEAR)]
    if len(inside) <= most:
        return inside
    decades = inside[next(place for place, value in enumerate(inside) if f"{value:e}".startswith("1")) :: 3]
    return decades[:: -(-len(decades) // most)]


def _round_steps(low: float, high: float) -> list[float]:
    """About six values from `low` to `high` in steps of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / 6
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(size * power for size in (1, 2, 5, 10) if size * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step), math.ceil(high / step - 1e-9)
    return [index * step for index in range(first, last + 1)]
