"""How long prompts and outputs are: all alike, uniform between two lengths, or by a histogram."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Protocol

from capplan.describe.quantities import parse_tokens, shown
from capplan.errors import UsageError
from capplan.serving.random_source import RandomSource


class Lengths(Protocol):
    """A distribution of numbers of tokens."""

    @property
    def mean(self) -> float:
        """The mean."""

    @property
    def second_moment(self) -> float:
        """The mean of the squares."""

    @property
    def longest(self) -> int:
        """The longest."""

    def draw(self, source: RandomSource) -> int:
        """One length."""


@dataclass(frozen=True, slots=True)
class FixedLength:
    """Every length is the same."""

    tokens: int

    @property
    def mean(self) -> float:
        """``n``."""
        return float(self.tokens)

    @property
    def second_moment(self) -> float:
        """``n²``."""
        return float(self.tokens) ** 2

    @property
    def longest(self) -> int:
        """``n``."""
        return self.tokens

    def draw(self, source: RandomSource) -> int:
        """The one length; draws nothing."""
        return self.tokens


@dataclass(frozen=True, slots=True)
class UniformLength:
    """Every whole length from `least` to `most` is equally likely."""

    least: int
    most: int

    @property
    def mean(self) -> float:
        """``(a + b) / 2``."""
        return (self.least + self.most) / 2

    @property
    def second_moment(self) -> float:
        """``mean² + ((b - a + 1)² - 1) / 12``."""
        return self.mean**2 + ((self.most - self.least + 1) ** 2 - 1) / 12

    @property
    def longest(self) -> int:
        """``b``."""
        return self.most

    def draw(self, source: RandomSource) -> int:
        """One length."""
        return source.whole(self.least, self.most)


@dataclass(frozen=True)
class HistogramLength:
    """Each of some lengths has its weight."""

    lengths: tuple[int, ...]
    weights: tuple[float, ...]

    @cached_property
    def _shares(self) -> tuple[float, ...]:
        total = sum(self.weights)
        return tuple(weight / total for weight in self.weights)

    @cached_property
    def _cumulative(self) -> list[float]:
        return list(accumulate(self._shares))

    @property
    def mean(self) -> float:
        """``Σ p_i · n_i``."""
        return sum(share * length for share, length in zip(self._shares, self.lengths, strict=True))

    @property
    def second_moment(self) -> float:
        """``Σ p_i · n_i²``."""
        return sum(share * length**2 for share, length in zip(self._shares, self.lengths, strict=True))

    @property
    def longest(self) -> int:
        """The longest with any weight."""
        return max(length for length, weight in zip(self.lengths, self.weights, strict=True) if weight)

    def draw(self, source: RandomSource) -> int:
        """One length."""
        place = bisect_right(self._cumulative, source.uniform())
        return self.lengths[min(place, len(self.lengths) - 1)]


def variation(lengths: Lengths) -> float:
    """The squared coefficient of variation: ``E[n²] / E[n]² - 1``."""
    return max(0.0, lengths.second_moment / lengths.mean**2 - 1)


def shortened(tokens: int, share: float) -> UniformLength:
    """Uniform lengths from ``share · tokens`` to ``tokens``, as serving benchmarks draw them."""
    return UniformLength(max(1, int(share * tokens)), tokens)


def parse_lengths(text: str, flag: str = "") -> Lengths:
    """``1024``, ``512-2048`` (uniform, ends included), ``512:0.3,1024:0.7`` (lengths with weights).

    Raises:
        UsageError: anything else.
    """
    stripped = text.strip()
    if ":" in stripped:
        return _histogram(stripped.split(","), flag)
    least, dash, most = stripped.partition("-")
    if not dash or not least:
        return FixedLength(parse_tokens(stripped, flag))
    first, last = parse_tokens(least, flag), parse_tokens(most, flag)
    if last < first:
        raise UsageError(f"{shown(text)} ends before it begins", where=flag, hint=f"write {last}-{first}")
    return UniformLength(first, last) if last > first else FixedLength(first)


def _histogram(items: Sequence[str], flag: str) -> HistogramLength:
    if len(items) > 10_000:
        raise UsageError(f"the histogram has {len(items)} lengths; at most 10000 are taken", where=flag)
    lengths, weights = [], []
    for item in items:
        length, _, weight = item.partition(":")
        lengths.append(parse_tokens(length, flag))
        weights.append(_weight(weight, item, flag))
    if not sum(weights):
        raise UsageError("all weights are zero", where=flag)
    return HistogramLength(tuple(lengths), tuple(weights))


def _weight(text: str, item: str, flag: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e18:
        raise UsageError(f"{shown(item)} has no weight", where=flag, hint="write length:weight, such as 512:0.3")
    return value
