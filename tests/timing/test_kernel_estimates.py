"""Estimates from a profile: the right law, the interval's coverage by construction, domains, carrying, sweeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from capplan.describe.gpu_catalog import load_gpu
from capplan.describe.profile import load_profile
from capplan.describe.profile_choice import KernelProfile, Wanted, profile_for
from capplan.errors import UnsupportedError
from capplan.timing.kernel_estimates import estimate, kernel_time, rates_for
from capplan.timing.kernel_laws import expected_distinct_experts

CALLS: dict[str, tuple[Wanted, dict[str, float]]] = {
    "gemm": (Wanted(engine="vllm", format="bf16"), {"m": 64, "n": 8192, "k": 4096}),
    "grouped_gemm": (
        Wanted(engine="vllm", format="fp8_block"),
        {"tokens": 64, "hidden": 7168, "width": 2048, "top_k": 8, "experts": 256},
    ),
    "prefill_attention": (
        Wanted(engine="vllm", format="bf16", kv_format="bf16", head_dim=128, window="full"),
        {"batch": 1, "tokens": 4096, "heads": 32, "kv_heads": 8},
    ),
    "decode_attention": (
        Wanted(engine="vllm", format="bf16", kv_format="bf16", head_dim=128, heads="gqa", window="full"),
        {"batch": 32, "context": 4096, "heads": 32, "kv_heads": 8},
    ),
    "mla_prefill": (Wanted(engine="trtllm", kv_format="bf16"), {"batch": 1, "tokens": 2048, "heads": 16}),
    "mla_decode": (Wanted(engine="trtllm", kv_format="bf16"), {"batch": 32, "context": 4096, "heads": 16}),
    "collective": (Wanted(engine="nccl", collective="all_reduce", gpus=8), {"bytes": 1e6}),
}


@pytest.fixture(scope="module")
def h100() -> KernelProfile:
    found = profile_for(load_gpu("h100"))
    assert found is not None
    return found


def test_a_profile_comes_of_its_own_name(h100: KernelProfile) -> None:
    assert h100.carried is None


@pytest.mark.parametrize("kind", sorted(CALLS))
def test_an_estimate_lies_within_its_interval_and_above_the_bound(kind: Any, h100: KernelProfile) -> None:
    wanted, shape = CALLS[kind]
    found = estimate(h100, kind, wanted, shape)
    assert found is not None
    assert found.extrapolated == ()
    assert 0 < found.low <= found.total <= found.high < 5 * found.low
    assert found.fit.key.engine == wanted.engine


def test_a_large_decode_is_near_what_the_bandwidth_allows(h100: KernelProfile) -> None:
    """64 sequences of 8192 tokens: 2.1 GB of cache; the fit must land between 80 and 100 % of 3.35 TB/s."""
    wanted, shape = CALLS["decode_attention"]
    found = estimate(h100, "decode_attention", wanted, {**shape, "batch": 64, "context": 8192})
    assert found is not None
    share = (2 * 64 * 8192 * 8 * 128 * 2 / 3.35e12) / float(found.total)
    assert 0.75 < share < 1.0


def test_outside_the_domain_is_marked_and_wider(h100: KernelProfile) -> None:
    wanted, shape = CALLS["decode_attention"]
    within = estimate(h100, "decode_attention", wanted, {**shape, "context": 131072})
    beyond = estimate(h100, "decode_attention", wanted, {**shape, "context": 1_000_000})
    assert within is not None
    assert beyond is not None
    assert beyond.extrapolated == ("context outside 2 to 131072",)
    assert beyond.high / beyond.low > within.high / within.low


def test_a_cached_prefix_was_not_measured_and_is_marked(h100: KernelProfile) -> None:
    wanted, shape = CALLS["prefill_attention"]
    found = estimate(h100, "prefill_attention", wanted, {**shape, "prefix": 4096})
    assert found is not None
    assert found.extrapolated == ("prefix outside 0 to 0",)


def test_a_stand_in_counts_the_wanted_work(h100: KernelProfile) -> None:
    wanted, shape = CALLS["decode_attention"]
    measured = estimate(h100, "decode_attention", wanted, shape)
    wider = estimate(h100, "decode_attention", replace(wanted, head_dim=96), shape)
    assert measured is not None
    assert wider is not None
    assert wider.extrapolated == ("head dim 128 measured, 96 wanted",)
    ratio = wider.time.overlapping["kv_cache"] / measured.time.overlapping["kv_cache"]
    assert ratio == pytest.approx(96 / 128)


def test_nothing_measured_gives_nothing(h100: KernelProfile) -> None:
    assert estimate(h100, "gemm", Wanted(format="nvfp4"), CALLS["gemm"][1]) is None


def test_carried_constants_keep_shares_and_say_what_they_are() -> None:
    carried = profile_for(load_gpu("h100-pcie-80gb"))
    own = profile_for(load_gpu("h100"))
    assert carried is not None
    assert own is not None
    wanted, shape = CALLS["gemm"]
    there, here = estimate(carried, "gemm", wanted, shape), estimate(own, "gemm", wanted, shape)
    assert there is not None
    assert here is not None
    ratio = there.time.overlapping["memory"] / here.time.overlapping["memory"]
    assert ratio == pytest.approx(3.35e12 / load_gpu("h100-pcie-80gb").memory.bandwidth)
    assert there.extrapolated == ("constants carried from h100-sxm-80gb (same architecture)",)
    assert there.high / there.low >= here.high / here.low


def test_expert_parallel_ranks_share_tokens_and_experts(h100: KernelProfile) -> None:
    wanted, shape = CALLS["grouped_gemm"]
    found = estimate(h100, "grouped_gemm", wanted, {**shape, "expert_parallel": 8})
    assert found is not None
    distinct = expected_distinct_experts(64, 256, 8) / 8
    by_hand = {**shape, "tokens": 8, "distinct_experts": distinct}
    again = estimate(h100, "grouped_gemm", wanted, by_hand)
    assert again is not None
    assert found.total == pytest.approx(again.total)


def test_a_sweep_is_the_scalar_path(h100: KernelProfile) -> None:
    wanted, shape = CALLS["decode_attention"]
    batch = np.array([1, 8, 64, 512, 2048])
    swept = estimate(h100, "decode_attention", wanted, {**shape, "batch": batch})
    assert swept is not None
    for index, one in enumerate(batch):
        single = estimate(h100, "decode_attention", wanted, {**shape, "batch": int(one)})
        assert single is not None
        for name in ("total", "low", "high"):
            assert np.asarray(getattr(swept, name))[index] == pytest.approx(getattr(single, name), rel=1e-12)


def test_a_format_without_units_is_refused() -> None:
    a100 = load_profile("a100-sxm-80gb").hardware
    with pytest.raises(UnsupportedError, match="no fp8 units"):
        rates_for(a100, "fp8")
    linkless = replace(a100, link=None, link_kind=None)
    key = next(fit.key for fit in load_profile("a100-sxm-80gb").fits("collective"))
    with pytest.raises(UnsupportedError, match="links are not known"):
        kernel_time("collective", key, None, {"bytes": 1e6}, linkless)
