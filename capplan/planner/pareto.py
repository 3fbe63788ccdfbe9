"""The Pareto front: what nothing else beats in every respect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def pareto_front(items: Sequence[T], measures: Callable[[T], tuple[float, ...]]) -> list[T]:
    """Items that no other is at least as good as in all measures and better than in one; smaller is better.

    Equal items stand for one another: the first is kept.
    """
    front: list[tuple[tuple[float, ...], T]] = []
    for figures, item in sorted(((measures(item), item) for item in items), key=lambda pair: pair[0]):
        if not any(all(a <= b for a, b in zip(kept, figures, strict=True)) for kept, _ in front):
            front.append((figures, item))
    chosen = {id(item) for _, item in front}
    return [item for item in items if id(item) in chosen]
