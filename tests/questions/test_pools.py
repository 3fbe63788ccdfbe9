"""Disaggregated estimates: Little's law in each pool, the ends where one pool is full, and the ratio that balances."""

from __future__ import annotations

import pytest

from capplan.errors import UsageError
from capplan.questions.estimate import EstimateResult, LoadRequest, estimate
from capplan.questions.pools import PoolsRequest, parse_pools
from capplan.questions.prefill import prefill

MODEL, GPU = "llama3.1-70b", "h200-sxm-141gb"
ISL, OSL = 4096, 512


def served(prefill: int, decode: int, bandwidth: float | None = None, **load: float) -> EstimateResult:
    request = LoadRequest(ISL, OSL, **load)  # type: ignore[arg-type]
    pools = PoolsRequest(prefill, decode, bandwidth)
    return estimate(MODEL, GPU, load=request, pools=pools, tensor_parallel_size=4).result


@pytest.mark.parametrize("clients", [1, 16, 64, 1000])
def test_little_s_law_over_the_whole_and_in_the_decode_pool(clients: int) -> None:
    result = served(2, 4, concurrency=clients)
    assert result.request_throughput * result.mean_e2el_ms / 1e3 == pytest.approx(clients, rel=1e-3)
    decoding = result.request_throughput * (OSL - 1) * result.mean_tpot_ms / 1e3
    prefilling = (result.prefill_utilisation or 0) * 2
    assert result.admitted_batch == pytest.approx(min(decoding + prefilling, clients), rel=0.01)


def test_a_token_never_waits_for_prefill() -> None:
    together = estimate(MODEL, GPU, load=LoadRequest(ISL, OSL, 16), tensor_parallel_size=4).result
    apart = served(1, 1, concurrency=16)
    assert apart.mean_tpot_ms < together.mean_tpot_ms


def test_a_full_prefill_pool_sets_the_rate_and_leaves_tokens_alone() -> None:
    few, many = served(1, 4, concurrency=200), served(1, 4, concurrency=2000)
    assert few.request_throughput == pytest.approx(many.request_throughput, rel=0.01)
    assert few.mean_tpot_ms == pytest.approx(many.mean_tpot_ms, rel=0.01)
    assert served(2, 4, concurrency=2000).request_throughput == pytest.approx(2 * many.request_throughput, rel=0.01)
    alone = prefill(MODEL, GPU, isl=ISL, tensor_parallel_size=4).result
    assert 1e3 / alone.ttft_ms < many.request_throughput < 1e3 / alone.ttft_bound_ms


def test_a_full_decode_pool_queues() -> None:
    result = served(40, 1, concurrency=2000)
    assert result.queued
    assert (result.prefill_utilisation or 0) < 0.2


def test_pools_in_balance_are_as_busy() -> None:
    """With as many prefill replicas as are named, the decode pool runs as full as the prefill pool is busy."""
    result = served(2, 4, concurrency=256)
    assert result.balanced_prefill_replicas == pytest.approx(2, rel=0.01)
    assert (served(2, 4, concurrency=16).balanced_prefill_replicas or 0) < 1


def test_a_slower_network_delays_only_the_first_token() -> None:
    fast, slow = (served(2, 4, rate, concurrency=4) for rate in (50e9, 5e9))
    assert slow.kv_transfer_ms == pytest.approx(10 * (fast.kv_transfer_ms or 0))
    bytes_on_a_rank = ISL * 80 * 2 * 2 * 128 * 2
    assert fast.kv_transfer_ms == pytest.approx(1e3 * bytes_on_a_rank / 50e9)
    added = (slow.kv_transfer_ms or 0) - (fast.kv_transfer_ms or 0)
    assert slow.mean_ttft_ms - fast.mean_ttft_ms == pytest.approx(added, rel=0.05)
    assert slow.mean_tpot_ms <= fast.mean_tpot_ms


def test_an_open_loop_serves_its_rate() -> None:
    assert served(2, 4, request_rate=5).request_throughput == pytest.approx(5, rel=0.01)
    with pytest.raises(UsageError, match="at most"):
        served(2, 4, request_rate=9)


@pytest.mark.parametrize(("text", "pools"), [("2P4D", (2, 4)), ("1p:1d", (1, 1)), ("16P2D", (16, 2))])
def test_pools_as_people_write_them(text: str, pools: tuple[int, int]) -> None:
    assert parse_pools(text) == pools


@pytest.mark.parametrize("text", ["", "2", "2P", "4D2P", "0x1P1D", "P4D", "-1P2D", "9999999P1D"])
def test_what_names_no_pools(text: str) -> None:
    with pytest.raises(UsageError, match="names no two pools"):
        parse_pools(text)


def test_an_empty_pool_serves_nothing() -> None:
    with pytest.raises(UsageError, match="each pool has"):
        served(0, 1, concurrency=1)
