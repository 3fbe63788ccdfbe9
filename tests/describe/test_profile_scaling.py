"""Constants carried to another vendor's device, beside the micro-benchmarks that they are carried by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.describe.gpu import BusBandwidth, GpuSpec, Link, Measured
from capplan.describe.gpu_catalog import load_gpu
from capplan.describe.profile_choice import OTHER_VENDOR, KernelProfile, Wanted, profile_for
from capplan.describe.profile_scaling import multiplied_in, reached_share, scaling_between
from capplan.describe.profile_table import KINDS
from capplan.errors import UnsupportedError
from capplan.timing.kernel_estimates import KernelEstimate, choice_time, estimate
from capplan.timing.kernel_laws.terms import KernelTime

MI300X, H200 = load_gpu("mi300x"), load_gpu("h200")
BF16 = Wanted(engine="vllm", format="bf16")
LARGE: dict[str, Any] = {"m": 8192, "n": 8192, "k": 8192}


def carried(gpu: GpuSpec = MI300X) -> KernelProfile:
    found = profile_for(gpu)
    assert found is not None
    return found


def term(profile: KernelProfile, wanted: Wanted, name: str) -> float:
    found = estimate(profile, "gemm", wanted, LARGE)
    assert found is not None
    return float((found.time.overlapping | found.time.serial)[name])


def message(gpu: GpuSpec, ranks: int, size: float = 2**32) -> KernelTime:
    """An all-reduce by the library, whose kernel the micro-benchmarks ran."""
    profile = carried(gpu)
    wanted = Wanted(collective="all_reduce", gpus=ranks)
    choice = next(one for one in profile.candidates("collective", wanted) if one.fit.key.engine == "nccl")
    return choice_time(profile, "collective", wanted, choice, {"bytes": size, "gpus": ranks})


@pytest.mark.parametrize("gpu", ["mi300x", "mi325x", "mi355x"])
def test_devices_with_micro_benchmarks_take_the_nearest_that_has_them_too(gpu: str) -> None:
    found = carried(load_gpu(gpu))
    assert (found.profile.name, found.carried) == ("h200-sxm-141gb", "other_vendor")
    assert found.hardware.bandwidth == load_gpu(gpu).memory.bandwidth


def test_large_products_stand_to_each_other_as_their_micro_benchmarks() -> None:
    """668.4 TFLOP/s of 16-bit products and 1,273 of 8-bit ones on the MI300X, 794.5 and 1,453.4 on the H200; the best of
    BabelStream's kernels at 4.26 and 4.48 TB/s."""
    own, ours = profile_for(H200), carried()
    assert own is not None
    assert term(ours, BF16, "compute") / term(own, BF16, "compute") == pytest.approx(794.5 / 668.4, rel=1e-3)
    fp8 = Wanted(engine="vllm", format="fp8")
    assert term(ours, fp8, "compute") / term(own, fp8, "compute") == pytest.approx(1453.4 / 1273, rel=1e-3)
    for wanted in (BF16, fp8):
        assert term(ours, wanted, "memory") / term(own, wanted, "memory") == pytest.approx(4480 / 4260, rel=1e-3)
        for name in ("launch", "depth"):
            assert term(ours, wanted, name) == term(own, wanted, name)


@pytest.mark.parametrize(("ranks", "bandwidth"), [(2, 47.671e9), (8, 312.912e9)])
def test_large_all_reduces_reach_the_bus_bandwidth_that_was_measured(ranks: int, bandwidth: float) -> None:
    """bus bandwidth = bytes · 2(n - 1)/n over the seconds"""
    size = 2**32
    seconds = message(MI300X, ranks, size).overlapping["transfer"]
    assert size * 2 * (ranks - 1) / ranks / seconds == pytest.approx(bandwidth, rel=1e-9)


def test_few_ranks_reach_few_links() -> None:
    """64 GB/s between two of eight devices: one, three and seven links."""
    link = MI300X.link
    assert link is not None
    assert [link.among(ranks) for ranks in (2, 4, 8)] == [64e9, 192e9, 448e9]
    assert [load_gpu("h200").link.among(ranks) for ranks in (2, 8)] == [450e9, 450e9]  # type: ignore[union-attr]
    two, four, eight = (message(MI300X, ranks).total for ranks in (2, 4, 8))
    assert two > four > eight


def test_shares_between_measured_ranks_lie_on_a_line() -> None:
    link = Link(kind="mesh", per_direction=700e9, total=1400e9, domain_size=8, per_peer=100e9)
    measured = Measured(
        products={"bf16": 0.5},
        bandwidth=0.5,
        all_reduce=(BusBandwidth(ranks=8, bandwidth=350e9), BusBandwidth(ranks=2, bandwidth=80e9)),
    )
    shares = {ranks: reached_share(link, measured, ranks) for ranks in (2, 4, 5, 8, 16)}
    assert shares == pytest.approx({2: 0.8, 4: 0.7, 5: 0.65, 8: 0.5, 16: 0.5})


def device(bf16: float, bandwidth: float) -> GpuSpec:
    assert MI300X.measured is not None
    measured = replace(MI300X.measured, products={"bf16": bf16, "fp8": bf16}, bandwidth=bandwidth)
    return replace(MI300X, measured=measured)


@given(st.floats(0.05, 1), st.floats(0.05, 1), st.floats(1, 3))
def test_better_shares_are_never_slower(bf16: float, bandwidth: float, better: float) -> None:
    def seconds(gpu: GpuSpec) -> list[float]:
        found = [estimate(carried(gpu), "gemm", wanted, shape) for wanted in (BF16, Wanted(engine="vllm", format="fp8"))
                 for shape in (LARGE, LARGE | {"m": 1})]  # fmt: skip
        return [float(one.total) for one in found if isinstance(one, KernelEstimate)]

    plain = seconds(device(bf16, bandwidth))
    for other in (device(min(1, bf16 * better), bandwidth), device(bf16, min(1, bandwidth * better))):
        assert all(a <= b for a, b in zip(seconds(other), plain, strict=True))


def test_no_efficiency_passes_one() -> None:
    """The best kernels of the H200 would pass 1 on a device that reaches its whole sheet."""
    profile = carried(device(1.0, 1.0))
    names = ("compute_efficiency", "memory_efficiency")
    for kind in KINDS.values():
        if kind.name in ("rows", "collective"):
            continue
        for choice in profile.candidates(kind.name, Wanted()):
            assert all(getattr(choice.fit.constants, name, 0.0) <= 1 for name in names)
    assert any(
        choice.fit.constants.compute_efficiency == 1  # type: ignore[union-attr]
        for choice in profile.candidates("gemm", Wanted(format="bf16"))
    )


def test_what_would_be_a_guess_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="no share of its int8 rate"):
        carried().candidates("gemm", Wanted(engine="vllm", format="int8"))
    with pytest.raises(UnsupportedError, match="no share of its fp4 rate"):
        carried(load_gpu("mi355x")).candidates("gemm", Wanted(engine="vllm", format="nvfp4"))
    with pytest.raises(UnsupportedError, match="no kernel of h200-sxm-141gb in nvfp4_weight_only"):
        carried().candidates("gemm", Wanted(engine="vllm", format="nvfp4_weight_only"))
    with pytest.raises(UnsupportedError, match="trtllm runs on NVIDIA's devices alone"):
        carried().candidates("gemm", Wanted(engine="trtllm", format="bf16"))
    assert carried().candidates("gemm", Wanted(engine="vllm", format="fp32")) == ()  # assumed, as on every device


def test_without_an_all_reduce_no_message_is_carried() -> None:
    assert MI300X.measured is not None
    alone = replace(MI300X, measured=replace(MI300X.measured, all_reduce=()), sources={})
    assert carried(alone).candidates("collective", Wanted(collective="all_reduce", gpus=8)) == ()


def test_a_device_without_micro_benchmarks_takes_and_gives_none() -> None:
    profile = carried().profile
    assert scaling_between(replace(MI300X, measured=None, sources={}), H200, profile) is None
    assert scaling_between(MI300X, replace(H200, measured=None, sources={}), profile) is None
    assert profile_for(replace(MI300X, measured=None, sources={})) is None


def test_the_interval_is_at_least_that_of_another_architecture() -> None:
    ours = carried()
    known = {
        error.kind: error.spread for error in ours.profile.carried_errors if error.relation == "other_architecture"
    }
    for kind, spread in known.items():
        found = ours.carried_error(kind)
        assert found is not None
        assert found.low <= min(spread.low, OTHER_VENDOR.low)
        assert found.high >= max(spread.high, OTHER_VENDOR.high)


def test_formats_are_multiplied_in_what_their_kernels_multiply() -> None:
    named = ("", "bf16", "fp8_block", "int4_weight_only", "mxfp4_mxfp8", "nvfp4", "q4_k")
    assert [multiplied_in(name) for name in named] == ["bf16", "bf16", "fp8", "bf16", "fp8", "fp4", "bf16"]
