"""Best first: candidates are refined only as long as their bound could still beat what is known.

Each item has a key that no refinement can lower. The heap gives the item with the least key; it is refined, which
raises its key, rejects it, or solves it. An item that is solved when it is taken has a key that nothing left in the
heap can undercut: items come out in the true order of their keys, as an exhaustive search would give them.

Source: Hart, Nilsson and Raphael, A Formal Basis for the Heuristic Determination of Minimum Cost Paths (1968); Lawler
and Wood, Branch-and-Bound Methods (1966).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Generic, Protocol, TypeVar


class Item(Protocol):
    """Something to be ranked."""

    @property
    def key(self) -> Any:
        """What it is ranked by: exact once it is solved, a lower bound before."""

    @property
    def solved(self) -> bool:
        """Whether its key is exact."""

    @property
    def family(self) -> str:
        """Items of one family stand for one another: only so many of each are wanted."""


T = TypeVar("T", bound=Item)


class BestFirst(Generic[T]):
    """One search.

    Args:
        items: where to start.
        refine: a tighter item, or None where it turns out impossible.
        per_family: items wanted of each family.
        worth: whether an item is still wanted, once there is a first one; None: all are.

    `first` is the best item, once it came out.
    """

    def __init__(
        self,
        items: Iterable[T],
        refine: Callable[[T], T | None],
        per_family: int,
        worth: Callable[[T, T], bool] | None = None,
    ) -> None:
        self._heap = [(item.key, place, item) for place, item in enumerate(items)]
        heapify(self._heap)
        self._refine, self._per_family = refine, per_family
        self._found: Counter[str] = Counter()
        self._worth = worth
        self.first: T | None = None
        self.refined = 0

    def __iter__(self) -> Iterator[T]:
        """Solved items, best first."""
        while self._heap:
            _, place, item = self._heap[0]
            if self._worth is not None and self.first is not None and not self._worth(item, self.first):
                return
            heappop(self._heap)
            if self._found[item.family] >= self._per_family:
                continue
            if item.solved:
                self._found[item.family] += 1
                self.first = self.first or item
                yield item
                continue
            better = self._refine(item)
            self.refined += 1
            if better is not None:
                heappush(self._heap, (max(better.key, item.key), place, better))

    @property
    def left(self) -> list[T]:
        """Items that were never taken: their bounds are above everything that came out."""
        return [item for _, _, item in self._heap]
