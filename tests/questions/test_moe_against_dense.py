"""Is a 35B-A3B as fast as a dense 3B? docs/moe-against-dense.md has the curve; its shape is held here."""

from __future__ import annotations

import pytest

from capplan.questions.decode import decode

BATCHES = (1, 16, 64, 1024)


def tpot(model: str, batch: int) -> float:
    return decode(model, "h100-sxm-80gb", context=2048, batch=batch).result.tpot_ms


@pytest.fixture(scope="module")
def ratios() -> dict[int, float]:
    return {batch: tpot("qwen3.6-35b-a3b", batch) / tpot("llama3.2-3b", batch) for batch in BATCHES}


def test_it_is_slower_at_every_batch(ratios: dict[int, float]) -> None:
    assert all(ratio > 1 for ratio in ratios.values())


def test_it_is_slowest_where_a_batch_touches_most_experts(ratios: dict[int, float]) -> None:
    assert ratios[16] > ratios[1]
    assert max(ratios.values()) in (ratios[16], ratios[64])
    assert ratios[1024] < ratios[64] / 2


def test_it_is_faster_than_a_dense_model_of_its_own_size() -> None:
    assert all(tpot("qwen3.6-35b-a3b", batch) < tpot("qwen2.5-32b", batch) for batch in BATCHES)


@pytest.mark.parametrize(("tokens", "touched"), [(1, 8), (16, 102), (64, 222)])
def test_distinct_experts_of_the_page(tokens: int, touched: int) -> None:
    """By drawing experts one by one instead of the closed form."""
    import random

    rng = random.Random(5)
    draws = [len({expert for _ in range(tokens) for expert in rng.sample(range(256), 8)}) for _ in range(200)]
    assert sum(draws) / len(draws) == pytest.approx(touched, abs=1.5)
