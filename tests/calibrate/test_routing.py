"""The collectors' routings: whole loads that sum up, and how many experts they touch."""

from __future__ import annotations

import numpy as np
import pytest

from calibrate.routing import distinct_experts, skewed_loads
from capplan.errors import UnsupportedError


@pytest.mark.parametrize(("tokens", "experts", "top_k"), [(1, 256, 8), (16, 128, 8), (64, 8, 2), (4096, 384, 8)])
@pytest.mark.parametrize("alpha", [1.0, 1.01, 1.2])
def test_loads_are_whole_within_the_tokens_and_sum_up(tokens: int, experts: int, top_k: int, alpha: float) -> None:
    loads = skewed_loads(tokens, experts, top_k, alpha, np.random.default_rng(1))
    assert loads.sum() == tokens * top_k
    assert loads.min() >= 0
    assert loads.max() <= tokens


def test_balanced_routing_touches_every_expert_it_can() -> None:
    assert distinct_experts(4, 128, 8, "balanced") == 32
    assert distinct_experts(100, 128, 8, "balanced") == 128


def test_one_token_touches_its_own_experts_and_skew_touches_fewer() -> None:
    assert distinct_experts(1, 256, 8, "power_law_1.01") == 8
    skewed = distinct_experts(64, 256, 8, "power_law_1.2")
    assert 64 < skewed < distinct_experts(64, 256, 8, "balanced")


def test_a_stronger_skew_is_steeper() -> None:
    mild, strong = (
        np.mean([skewed_loads(4096, 128, 8, alpha, np.random.default_rng(s)).max() for s in range(20)])
        for alpha in (1.01, 1.2)
    )
    assert strong > mild


def test_an_unknown_routing_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="zipf"):
        distinct_experts(4, 8, 2, "zipf")
