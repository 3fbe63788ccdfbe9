"""A prompt in very many chunks: the sum over some of them against the sum over all."""

from __future__ import annotations

import pytest

from capplan.serving.replica import MOST_CHUNKS, StepParts, over_chunks


@pytest.mark.parametrize("count", [1, 2, MOST_CHUNKS, MOST_CHUNKS + 1, 500, 4001])
def test_a_cost_linear_in_the_prefix_is_summed_exactly(count: int) -> None:
    chunks = [(16, 16 * place) for place in range(count - 1)] + [(7, 16 * (count - 1))]

    def parts(size: int, prefix: int) -> StepParts:
        return StepParts(bodies=2.0 * size + 0.5 * prefix, launches=1.0, steps=1.0)

    found = over_chunks(chunks, parts)
    assert found.steps == pytest.approx(count)
    assert found.launches == pytest.approx(count)
    assert found.bodies == pytest.approx(sum(2.0 * size + 0.5 * prefix for size, prefix in chunks))


def test_few_of_many_chunks_are_worked_out() -> None:
    asked: list[int] = []

    def parts(size: int, prefix: int) -> StepParts:
        asked.append(prefix)
        return StepParts(steps=1.0)

    over_chunks([(8, 8 * place) for place in range(10_000)], parts)
    assert len(asked) <= MOST_CHUNKS
