"""Scatter plots as SVG text: logarithmic axes, a legend, lines; nothing but strings."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 190, 40, 50

COLOURS = (
    "#1b6ca8", "#d1495b", "#2e933c", "#edae49", "#7b4ea3", "#00798c", "#8d6346", "#5c5c5c", "#c75dab", "#6a994e",
    "#bc4749", "#3d405b",
)  # fmt: skip
"""Colours of the series, in order; they come again where there are more."""


@dataclass(frozen=True)
class Series:
    """Points under one name; with `line` they are joined instead of drawn."""

    name: str
    points: Sequence[tuple[float, float]]
    line: bool = False


@dataclass(frozen=True)
class Axis:
    """One axis: its title, its ends, and whether equal factors have equal lengths."""

    title: str
    low: float
    high: float
    logarithmic: bool = True

    def place(self, value: float) -> float:
        """Where a value lies, from 0 at the low end to 1 at the high end."""
        if self.logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Round values along the axis: powers of ten, or tenths of the range."""
        if self.logarithmic:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            step = max(1, (last - first) // 8 + 1)
            return [10.0**power for power in range(first, last + 1, step)]
        return [self.low + (self.high - self.low) * part / 5 for part in range(6)]


def plot(title: str, x: Axis, y: Axis, series: Sequence[Series], show: Callable[[float], str] = "{:g}".format) -> str:
    """One SVG element.

    Args:
        title: above the plot.
        x: the horizontal axis.
        y: the vertical axis.
        series: what is drawn; points outside the axes are left out.
        show: how a tick's value is written.
    """
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(title)}" font-family="sans-serif" font-size="12">',
        f'<text x="{LEFT}" y="22" font-size="15" font-weight="bold">{escape(title)}</text>',
        *_frame(x, y, show),
    ]
    for number, one in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        parts += _drawn(one, x, y, colour)
        parts += _legend(one, number, colour)
    return "\n".join([*parts, "</svg>"])


def axis_over(title: str, values: Sequence[float], *, logarithmic: bool = True) -> Axis:
    """An axis that holds all values, with a little room."""
    low, high = min(values), max(values)
    if logarithmic:
        return Axis(title, low / 1.5, high * 1.5, True)
    room = 0.05 * (high - low or abs(high) or 1.0)
    return Axis(title, low - room, high + room, False)


def _at(x: Axis, y: Axis, point: tuple[float, float]) -> tuple[float, float] | None:
    """A point's place in the picture, or None outside the axes."""
    if (x.logarithmic and point[0] <= 0) or (y.logarithmic and point[1] <= 0):
        return None
    across, up = x.place(point[0]), y.place(point[1])
    if not (-1e-9 <= across <= 1 + 1e-9 and -1e-9 <= up <= 1 + 1e-9):
        return None
    return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)


def _frame(x: Axis, y: Axis, show: Callable[[float], str]) -> list[str]:
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    parts = [
        f'<rect x="{LEFT}" y="{TOP}" width="{right - LEFT}" height="{bottom - TOP}" fill="none" stroke="#999"/>',
        f'<text x="{(LEFT + right) / 2:.0f}" y="{HEIGHT - 10}" text-anchor="middle">{escape(x.title)}</text>',
        f'<text x="16" y="{(TOP + bottom) / 2:.0f}" text-anchor="middle" '
        f'transform="rotate(-90 16 {(TOP + bottom) / 2:.0f})">{escape(y.title)}</text>',
    ]
    for value in x.ticks():
        across = LEFT + x.place(value) * (right - LEFT)
        parts.append(f'<line x1="{across:.1f}" y1="{TOP}" x2="{across:.1f}" y2="{bottom}" stroke="#eee"/>')
        parts.append(f'<text x="{across:.1f}" y="{bottom + 16}" text-anchor="middle">{escape(show(value))}</text>')
    for value in y.ticks():
        up = bottom - y.place(value) * (bottom - TOP)
        parts.append(f'<line x1="{LEFT}" y1="{up:.1f}" x2="{right}" y2="{up:.1f}" stroke="#eee"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{up + 4:.1f}" text-anchor="end">{escape(show(value))}</text>')
    return parts


def _drawn(one: Series, x: Axis, y: Axis, colour: str) -> list[str]:
    places = [place for point in one.points if (place := _at(x, y, point)) is not None]
    if one.line:
        path = " ".join(f"{across:.1f},{up:.1f}" for across, up in places)
        return [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'] if places else []
    return [
        f'<circle cx="{across:.1f}" cy="{up:.1f}" r="3" fill="{colour}" fill-opacity="0.7"/>' for across, up in places
    ]


def _legend(one: Series, number: int, colour: str) -> list[str]:
    across, up = WIDTH - RIGHT + 14, TOP + 12 + 17 * number
    if up > HEIGHT - 10:
        return []
    return [
        f'<circle cx="{across}" cy="{up - 4}" r="4" fill="{colour}"/>',
        f'<text x="{across + 10}" y="{up}">{escape(one.name)}</text>',
    ]
