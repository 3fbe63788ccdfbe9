"""A function of few sizes, known at the nodes of a geometric grid and linear in between."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import lru_cache

Values = tuple[float, ...]

RATIO = 1.12
"""Of one node to the next. Between nodes at a distance of r, the chord of ``x^a`` is off by ``a(a - 1)(ln r)² / 8`` at
most: 0.3 % for a square, nothing for what is constant or linear."""

MOST = 1 << 32


@lru_cache(maxsize=1)
def geometric_nodes() -> tuple[int, ...]:
    """1, 2, 3, ... and then steps of `RATIO`."""
    nodes = [1]
    while nodes[-1] < MOST:
        nodes.append(max(nodes[-1] + 1, int(nodes[-1] * RATIO)))
    return tuple(nodes)


def neighbours(size: float) -> tuple[int, int, float]:
    """(node below, node above, share of the way between them) of a size of at least 1."""
    nodes = geometric_nodes()
    place = bisect_right(nodes, size) - 1
    low = nodes[place]
    if size == low:
        return low, low, 0.0
    high = nodes[place + 1]
    return low, high, (size - low) / (high - low)


class Grid:
    """Values of `compute` at sizes of at least 1, each node computed when it is first needed.

    Args:
        compute: the function at whole sizes.
    """

    def __init__(self, compute: Callable[..., Values]) -> None:
        self._compute = compute
        self._known: dict[tuple[int, ...], Values] = {}

    def at(self, *sizes: float) -> Values:
        """The values at some sizes: linear in each between the nodes around it."""
        return self._at((), sizes)

    def _at(self, nodes: tuple[int, ...], sizes: tuple[float, ...]) -> Values:
        if not sizes:
            return self._node(nodes)
        low, high, share = neighbours(sizes[0])
        below = self._at((*nodes, low), sizes[1:])
        return _between(below, self._at((*nodes, high), sizes[1:]), share) if share else below

    def _node(self, sizes: tuple[int, ...]) -> Values:
        found = self._known.get(sizes)
        if found is None:
            found = self._known[sizes] = self._compute(*sizes)
        return found


def _between(below: Values, above: Values, share: float) -> Values:
    return tuple([low + share * (high - low) for low, high in zip(below, above, strict=True)])
