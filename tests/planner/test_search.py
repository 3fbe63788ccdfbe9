"""Best-first search against plain sorting, and the Pareto front against its definition."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from capplan.planner.pareto import pareto_front
from capplan.planner.rejections import NEAREST, Rejections
from capplan.planner.search import BestFirst


@dataclass(frozen=True)
class Toy:
    """Something whose cost is found in steps that only go up."""

    family: str
    steps: tuple[int, ...]
    at: int = 0

    @property
    def key(self) -> int:
        return sum(self.steps[: self.at + 1])

    @property
    def solved(self) -> bool:
        return self.at == len(self.steps) - 1


toys = st.lists(
    st.builds(Toy, st.sampled_from("abc"), st.lists(st.integers(0, 9), min_size=1, max_size=4).map(tuple)), max_size=20
)


def final(toy: Toy) -> int:
    return sum(toy.steps)


@given(toys, st.sampled_from([1, 2, 100]))
def test_items_come_in_the_order_of_their_true_cost(items: list[Toy], quota: int) -> None:
    search = BestFirst(items, lambda toy: replace(toy, at=toy.at + 1), quota)
    found = [final(toy) for toy in search]
    assert found == sorted(found)
    for family in "abc":
        best = sorted(final(toy) for toy in items if toy.family == family)[:quota]
        again = BestFirst(items, lambda toy: replace(toy, at=toy.at + 1), quota)
        assert [final(toy) for toy in again if toy.family == family] == best


def test_what_cannot_win_is_not_looked_at() -> None:
    items = [Toy("a", (1, 1)), Toy("b", (50, 50))]
    search = BestFirst(items, lambda toy: replace(toy, at=toy.at + 1), 1)
    assert final(next(iter(search))) == 2
    assert search.refined == 1
    assert [item.family for item in search.left] == ["b"]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5)), max_size=30))
def test_the_pareto_front_by_its_definition(points: list[tuple[int, int, int]]) -> None:
    front = pareto_front(points, lambda point: tuple(map(float, point)))

    def beaten(point: tuple[int, int, int]) -> bool:
        return any(all(a <= b for a, b in zip(other, point, strict=True)) and other != point for other in points)

    assert set(front) == {point for point in points if not beaten(point)}
    assert len(front) == len(set(front))
    assert [point for point in points if point in front][: len(front)] == front or len(points) != len(set(points))


def test_rejections_keep_counts_and_the_nearest_misses() -> None:
    found = Rejections()
    for gap in (5.0, 1.0, 3.0, 2.0, 4.0):
        found.add("does not fit", f"option {gap:g}", "", gap)
    assert found.counts == {"does not fit": 5}
    assert [miss.gap for miss in found.nearest["does not fit"]] == [1.0, 2.0, 3.0]
    assert len(found.nearest["does not fit"]) == NEAREST
