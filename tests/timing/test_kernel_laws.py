"""The kernel laws against second derivations, limits, and what must hold of any time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.describe.kernel_constants import (
    CarriedPrefillConstants,
    CollectiveConstants,
    DecodeAttentionConstants,
    GemmConstants,
    GroupedGemmConstants,
    LinearCollectiveConstants,
    MlaDecodeConstants,
    PrefillAttentionConstants,
    SparseGemmConstants,
)
from capplan.timing.kernel_laws import (
    Rates,
    attended_pairs,
    bus_share,
    carried_prefill_attention_time,
    collective_time,
    decode_attention_time,
    expected_distinct_experts,
    gemm_bytes,
    gemm_flops,
    gemm_time,
    gemm_time_from_few_points,
    grouped_gemm_time,
    linear_collective_time,
    mla_decode_time,
    mla_prefill_time,
    prefill_attention_time,
)
from capplan.timing.kernel_laws.attention import last_tile_keys
from capplan.timing.kernel_laws.terms import KernelTime, power_mean_sum, rounded_up

H100 = Rates(flops=989.4e12, bandwidth=3.35e12, multiprocessors=132)
GEMM = GemmConstants(0.81, 0.92, 2.4e-6, 4.0e-6, 0.5)
PREFILL = PrefillAttentionConstants(0.69, 0.47, 12e-6, 1.4)
DECODE = DecodeAttentionConstants(0.87, 11.5e-6, 4e-6, 3.4e-6)
MLA_DECODE = MlaDecodeConstants(0.89, 0.9, 11e-6, 12e-6, 100.0)
MOE = GroupedGemmConstants(0.5, 0.9, 30e-6, 2.0, 1e-7)
COLLECTIVE = CollectiveConstants(10e-6, 0.75, 0.6)


def all_calls(scale: float = 1.0, rates: Rates = H100) -> dict[str, KernelTime]:
    """One call of each law on a middling shape, with the axis that grows with a batch multiplied by `scale`."""
    b = 16 * scale
    gemm = {"weight_bytes": 2.0, "activation_bytes": 2.0, "rates": rates}
    return {
        "gemm": gemm_time(b, 8192, 4096, constants=GEMM, **gemm),
        "few": gemm_time_from_few_points(b, 8192, 4096, constants=SparseGemmConstants(0.8, 0.9, 3e-6), **gemm),
        "moe": grouped_gemm_time(
            b, 7168, 2048, 8, expected_distinct_experts(b, 256, 8), weight_bytes=1.0, constants=MOE, rates=rates
        ),
        "prefill": prefill_attention_time(b, 900, 32, 8, 128, kv_bytes=2.0, constants=PREFILL, rates=rates),
        "carried": carried_prefill_attention_time(
            b, 900, 32, 8, 128, kv_bytes=2.0, constants=CarriedPrefillConstants(0.6, 11e-6, 2e-6), rates=rates
        ),
        "decode": decode_attention_time(b, 4096, 32, 8, 128, kv_bytes=2.0, constants=DECODE, rates=rates),
        "mla_prefill": mla_prefill_time(b, 900, 16, absorbed=False, kv_bytes=2.0, constants=PREFILL, rates=rates),
        "mla_decode": mla_decode_time(b, 4096, 128, kv_bytes=2.0, constants=MLA_DECODE, rates=rates),
        "collective": collective_time(
            1e6 * scale, 8, "all_reduce", link_bandwidth=rates.bandwidth / 10, constants=COLLECTIVE
        ),
    }


# --- the sum of terms ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(all_calls()))
def test_the_terms_add_up_to_the_total(name: str) -> None:
    time = all_calls()[name]
    p = time.exponent
    together = (
        max(time.overlapping.values())
        if math.isinf(p)
        else sum(float(x) ** p for x in time.overlapping.values()) ** (1 / p)
        if time.overlapping
        else 0.0
    )
    assert time.total == pytest.approx(sum(map(float, time.serial.values())) + together, rel=1e-12)
    assert time.body == pytest.approx(float(time.total) - float(time.serial.get("launch", 0.0)), rel=1e-12)


def test_the_exponent_runs_from_a_sum_to_a_maximum() -> None:
    terms = (3e-6, 4e-6)
    assert power_mean_sum(terms, 1.0) == pytest.approx(7e-6)
    assert power_mean_sum(terms, 2.0) == pytest.approx(5e-6)  # 3-4-5
    assert power_mean_sum(terms, math.inf) == 4e-6
    assert power_mean_sum(terms, 60.0) == pytest.approx(4e-6, rel=1e-6)
    assert power_mean_sum(terms, 0.5) == pytest.approx((3**0.5 + 4**0.5) ** 2 * 1e-6)
    assert power_mean_sum((), 2.0) == 0.0
    assert power_mean_sum((0.0, 0.0), 2.0) == 0.0


# --- second derivations ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [0, 1, 5, 7, 100])
@pytest.mark.parametrize("prefix", [0, 1, 6, 50])
@pytest.mark.parametrize("tokens", [1, 2, 7, 33])
def test_attended_pairs_are_those_of_a_mask(tokens: int, prefix: int, window: int) -> None:
    query, key = np.indices((tokens, prefix + tokens))
    distance = query + prefix - key
    mask = (distance >= 0) & ((distance < window) if window else True)
    assert attended_pairs(tokens, prefix=prefix, window=window) == mask.sum()


@pytest.mark.parametrize(
    ("tokens", "window", "keys"), [(1, 0, 128), (129, 0, 256), (4096, 1024, 1152), (200, 1024, 256)]
)
def test_the_last_tile_sees_whole_tiles(tokens: int, window: int, keys: int) -> None:
    assert last_tile_keys(tokens, window=window) == keys


def test_a_prefill_in_chunks_has_the_pairs_of_the_whole() -> None:
    chunks = [(0, 512), (512, 512), (1024, 476)]
    whole = attended_pairs(1500)
    assert sum(attended_pairs(new, prefix=before) for before, new in chunks) == whole


def test_gemm_work_is_that_of_numpys_arrays() -> None:
    a, w = np.zeros((48, 640), np.float16), np.zeros((320, 640), np.float16)
    out = np.zeros((48, 320), np.float16)
    assert gemm_bytes(48, 320, 640, 2, 2) == a.nbytes + w.nbytes + out.nbytes
    assert gemm_flops(48, 320, 640) == 2 * out.size * 640


def test_expected_distinct_experts_is_that_of_random_routing() -> None:
    random = np.random.default_rng(0)
    draws = [np.unique([random.permutation(64)[:6] for _ in range(20)]).size for _ in range(2000)]
    assert expected_distinct_experts(20, 64, 6) == pytest.approx(np.mean(draws), rel=5e-3)
    assert expected_distinct_experts(1, 64, 6) == pytest.approx(6)


def test_bus_bytes_of_a_ring() -> None:
    """A ring all-reduce sends n − 1 parts of 1/n twice; a gather once."""
    assert bus_share("all_reduce", 8) == pytest.approx(2 * 7 / 8)
    assert bus_share("all_gather", 4) == pytest.approx(3 / 4)


def test_gemm_of_a_known_shape_by_hand() -> None:
    """m = 1, n = 8192, k = 4096 in bf16 on an H100: 67.1 MB at 92 % of 3.35 TB/s is 21.78 µs."""
    time = gemm_time(1, 8192, 4096, weight_bytes=2, activation_bytes=2, constants=GEMM, rates=H100)
    assert time.overlapping["memory"] == pytest.approx((2 * 8192 * 4096 + 2 * 4096 + 2 * 8192) / (0.92 * 3.35e12))
    assert time.overlapping["compute"] == pytest.approx(2 * 8192 * 4096 / (0.81 * 989.4e12))
    assert time.serial["depth"] == pytest.approx(4e-6 * 4096 / 7096)
    assert time.serial["requantise"] == pytest.approx(0.5 * 3 * 4096 / 3.35e12)
    assert time.total == pytest.approx(2.4e-6 + 2.309e-6 + 21.78e-6, rel=2e-3)


def test_decode_of_a_known_shape_by_hand() -> None:
    """64 sequences of 4096 tokens, 8 KV heads of 128, bf16: 1.07 GB at 87 % of 3.35 TB/s is 368 µs."""
    time = decode_attention_time(64, 4096, 32, 8, 128, kv_bytes=2, constants=DECODE, rates=H100)
    read = 2 * 64 * 4096 * 8 * 128 * 2 / (0.87 * 3.35e12)
    assert time.overlapping["kv_cache"] == pytest.approx(read)
    assert read == pytest.approx(368.4e-6, rel=1e-3)
    assert time.overlapping["blocks"] == pytest.approx(3.4e-6 * 64 * 8 / 132)
    assert time.serial["queries"] == pytest.approx(4 * 64 * 128 * (32 + 8) / (0.87 * 3.35e12))


def test_mla_counts_are_those_of_deepseek() -> None:
    """Unabsorbed 192 + 128 and absorbed 576 + 512 multiplications a pair; 576 numbers a cached token."""
    plain = mla_prefill_time(1, 1000, 16, absorbed=False, kv_bytes=2, constants=PREFILL, rates=H100)
    absorbed = mla_prefill_time(1, 1000, 16, absorbed=True, kv_bytes=2, constants=PREFILL, rates=H100)
    assert plain.overlapping["compute"] == pytest.approx(16 * 1000 * 1001 * 320 / (0.69 * 989.4e12))
    assert absorbed.overlapping["compute"] == pytest.approx(plain.overlapping["compute"] * 1088 / 320)
    decode = mla_decode_time(4, 8192, 16, kv_bytes=1, constants=MLA_DECODE, rates=H100)
    length = math.hypot(8192, 100)
    assert decode.overlapping["kv_cache"] == pytest.approx(576 * 4 * length / (0.9 * 3.35e12))


def test_grouped_gemm_of_one_expert_reads_and_multiplies_like_three_gemms() -> None:
    time = grouped_gemm_time(5, 512, 256, 1, 1, weight_bytes=2, constants=MOE, rates=H100)
    flops = 2 * gemm_flops(5, 256, 512) + gemm_flops(5, 512, 256)
    assert time.serial["compute"] == pytest.approx(flops / (0.5 * H100.flops))
    assert time.serial["weights"] == pytest.approx(3 * 512 * 256 * 2 / (0.9 * H100.bandwidth))


def test_sharding_an_expert_halves_its_weights_and_work() -> None:
    whole = grouped_gemm_time(64, 4096, 1536, 8, 100, weight_bytes=1, constants=MOE, rates=H100)
    half = grouped_gemm_time(64, 4096, 1536, 8, 100, tensor_parallel=2, weight_bytes=1, constants=MOE, rates=H100)
    for term in ("compute", "weights"):
        assert 2 * half.serial[term] == pytest.approx(whole.serial[term])
    assert half.serial["activations"] > whole.serial["activations"] / 2


# --- limits ----------------------------------------------------------------------------------------------------


def test_constants_at_their_best_give_the_roofline() -> None:
    ideal = GemmConstants(1.0, 1.0, 0.0, 0.0, 0.0)
    for m in (1, 100_000):
        time = gemm_time(m, 8192, 8192, weight_bytes=2, activation_bytes=2, constants=ideal, rates=H100)
        bound = max(gemm_flops(m, 8192, 8192) / H100.flops, gemm_bytes(m, 8192, 8192, 2, 2) / H100.bandwidth)
        assert time.total == pytest.approx(bound, rel=0.05)
        assert time.total >= bound


def test_large_and_small_messages_are_bandwidth_and_latency() -> None:
    def at(size: float) -> float:
        return float(
            collective_time(
                size, 8, "all_reduce", link_bandwidth=450e9, constants=CollectiveConstants(1e-5, 0.8, 1.0)
            ).total
        )

    assert at(0) == pytest.approx(1e-5)
    assert at(1e12) == pytest.approx(1e12 * 1.75 / (0.8 * 450e9), rel=1e-3)


def test_a_collective_of_one_gpu_costs_nothing() -> None:
    assert collective_time(1e9, 1, "all_reduce", link_bandwidth=450e9, constants=COLLECTIVE).total == 0
    sizes = np.array([1e3, 1e9])
    assert not np.any(collective_time(sizes, 1, "all_reduce", link_bandwidth=450e9, constants=COLLECTIVE).total)


def test_the_general_collective_with_exponent_one_is_the_linear_one() -> None:
    general = collective_time(1e6, 4, "all_gather", link_bandwidth=450e9, constants=CollectiveConstants(7e-6, 0.6, 1.0))
    linear = linear_collective_time(
        1e6, 4, "all_gather", link_bandwidth=450e9, constants=LinearCollectiveConstants(7e-6, 0.6)
    )
    assert general.total == pytest.approx(linear.total)


def test_a_window_wider_than_the_context_changes_nothing() -> None:
    for time, options in ((decode_attention_time, {}), (prefill_attention_time, {})):
        constants: Any = DECODE if time is decode_attention_time else PREFILL
        free, limited = (
            time(4, 900, 32, 8, 128, window=window, kv_bytes=2, constants=constants, rates=H100, **options)
            for window in (0, 5000)
        )
        assert limited.total == pytest.approx(free.total)


# --- what must hold of any time --------------------------------------------------------------------------------

sizes = st.integers(1, 65536)
heads = st.sampled_from([(32, 8), (64, 8), (16, 16), (8, 1)])
fraction = st.floats(0.05, 1.0)
seconds = st.floats(0.0, 1e-4)


@given(m=sizes, n=sizes, k=sizes, ec=fraction, em=fraction, t0=seconds, tk=seconds, cq=st.floats(0, 5))
@settings(max_examples=200, deadline=None)
def test_a_gemm_is_never_faster_than_the_roofline(
    m: int, n: int, k: int, ec: float, em: float, t0: float, tk: float, cq: float
) -> None:
    constants = GemmConstants(ec, em, t0, tk, cq)
    time = gemm_time(m, n, k, weight_bytes=1, activation_bytes=1, constants=constants, rates=H100)
    bound = max(gemm_flops(m, n, k) / H100.flops, gemm_bytes(m, n, k, 1, 1) / H100.bandwidth)
    assert time.total >= bound * (1 - 1e-12)


@given(batch=sizes, length=sizes, group=heads, window=st.sampled_from([0, 128, 4096]), em=fraction, ec=fraction)
@settings(max_examples=200, deadline=None)
def test_attention_is_never_faster_than_the_roofline(
    batch: int, length: int, group: tuple[int, int], window: int, em: float, ec: float
) -> None:
    h, hk = group
    seen = min(length, window) if window else length
    decode = decode_attention_time(
        batch, length, h, hk, 128, window=window, kv_bytes=2,
        constants=DecodeAttentionConstants(em, 1e-6, 0.0, 0.0), rates=H100,
    )  # fmt: skip
    assert decode.total >= 2 * batch * seen * hk * 128 * 2 / H100.bandwidth
    prefill = prefill_attention_time(
        batch, length, h, hk, 128, window=window, kv_bytes=2,
        constants=PrefillAttentionConstants(ec, em, 1e-6, 50.0), rates=H100,
    )  # fmt: skip
    flops = 4 * batch * h * 128 * float(attended_pairs(length, window=window))
    assert prefill.total >= max(flops / H100.flops, 4 * batch * length * h * 128 / H100.bandwidth)


@pytest.mark.parametrize("name", sorted(all_calls()))
@given(scale=st.floats(1.0, 100.0))
@settings(max_examples=20, deadline=None)
def test_more_work_is_never_faster_and_faster_hardware_never_slower(name: str, scale: float) -> None:
    assert all_calls(scale)[name].total >= all_calls()[name].total
    faster = Rates(H100.flops * scale, H100.bandwidth * scale, H100.multiprocessors)
    assert all_calls(rates=faster)[name].total <= all_calls()[name].total
    assert all_calls()[name].total > 0


@given(length=st.integers(1, 200_000), more=st.integers(1, 5000))
@settings(max_examples=100, deadline=None)
def test_a_longer_context_is_never_faster(length: int, more: int) -> None:
    for constants, law, shape in ((DECODE, decode_attention_time, (32, 8, 128)), (MLA_DECODE, mla_decode_time, (16,))):
        a, b = (law(4, size, *shape, kv_bytes=2, constants=constants, rates=H100) for size in (length, length + more))  # type: ignore[operator]
        assert b.total >= a.total


# --- one formula for numbers and arrays ------------------------------------------------------------------------


def test_arrays_broadcast_to_the_scalar_results() -> None:
    batch = np.array([1, 3, 64, 1024])[:, None]
    context = np.array([1, 127, 4096, 131072])[None, :]
    grid = decode_attention_time(batch, context, 32, 8, 128, window=4096, kv_bytes=1, constants=DECODE, rates=H100)
    prefill = prefill_attention_time(batch, context, 32, 8, 128, prefix=100, kv_bytes=1, constants=PREFILL, rates=H100)
    latent = mla_decode_time(batch, context, 16, kv_bytes=1, constants=MLA_DECODE, rates=H100)
    for i, b in enumerate([1, 3, 64, 1024]):
        for j, c in enumerate([1, 127, 4096, 131072]):
            one = decode_attention_time(b, c, 32, 8, 128, window=4096, kv_bytes=1, constants=DECODE, rates=H100)
            assert np.broadcast_to(grid.total, (4, 4))[i, j] == pytest.approx(float(one.total), rel=1e-12)
            one = prefill_attention_time(b, c, 32, 8, 128, prefix=100, kv_bytes=1, constants=PREFILL, rates=H100)
            assert np.broadcast_to(prefill.total, (4, 4))[i, j] == pytest.approx(float(one.total), rel=1e-12)
            one = mla_decode_time(b, c, 16, kv_bytes=1, constants=MLA_DECODE, rates=H100)
            assert np.broadcast_to(latent.total, (4, 4))[i, j] == pytest.approx(float(one.total), rel=1e-12)


def test_a_sweep_over_gemms_and_messages_is_the_scalar_path() -> None:
    m = np.array([1.0, 17, 4096])
    swept = gemm_time(m, 4096, 8192, weight_bytes=1, activation_bytes=1, constants=GEMM, rates=H100).total
    for value, one in zip(swept, m, strict=True):  # type: ignore[arg-type]
        single = gemm_time(float(one), 4096, 8192, weight_bytes=1, activation_bytes=1, constants=GEMM, rates=H100)
        assert value == pytest.approx(float(single.total), rel=1e-12)
    gpus = np.array([1, 2, 8])
    times = collective_time(1e6, gpus, "all_reduce", link_bandwidth=450e9, constants=COLLECTIVE).total
    for value, n in zip(times, gpus, strict=True):  # type: ignore[arg-type]
        single = collective_time(1e6, int(n), "all_reduce", link_bandwidth=450e9, constants=COLLECTIVE)
        assert value == pytest.approx(float(single.total), rel=1e-12)


def test_numbers_need_no_numpy() -> None:
    """Scalar calls stay plain floats."""
    for time in all_calls().values():
        assert type(time.total) is float
    assert rounded_up(129, 128) == 256
