"""Bounds against sums by hand, the ridge against its closed form."""

from __future__ import annotations

from dataclasses import replace

import pytest

from capplan.describe.gpu_catalog import ad_hoc_gpu, load_gpu
from capplan.errors import UnsupportedError
from capplan.timing.ridge import least_batch, ridge_batch
from capplan.timing.roofline import (
    Bound,
    host_rate,
    knows_links,
    link_rate,
    math_rate,
    operator_bound,
    ridge_point,
    step_bound,
)
from capplan.work.formats import Formats
from capplan.work.operators import Gemm, Message, Operator, Traffic, Transfer
from capplan.work.sharding import Sharding
from capplan.work.step import Decode, Prefill, Step, ledger
from tests.timing.machines import model
from tests.work.models import published

H100 = load_gpu("h100-sxm-80gb")


def test_the_least_of_llama2_70b_is_weights_and_cache_over_the_bandwidth() -> None:
    """Its layers hold 68.71·10⁹ parameters and its head 0.26·10⁹: 137.43 GB; 4,096 tokens of cache are 1.34 GB."""
    layer = 2 * 8192**2 + 2 * 8192 * 1024 + 3 * 8192 * 28672 + 2 * 8192
    weights = 2 * (80 * layer + 8192 + 32000 * 8192)
    cache = 4096 * 80 * 2 * 8 * 128 * 2
    assert f"{weights / 1e9:.2f}" == "137.43"
    assert f"{cache / 1e9:.2f}" == "1.34"
    spec = model("llama2-70b")
    bound = step_bound(ledger(spec, Step(decode=(Decode(1, 4096),)), Sharding(tp=4)).operators, H100)
    assert bound.seconds == pytest.approx((weights + cache) / (4 * 3.35e12), rel=2e-4)  # norms are on every rank
    assert f"{1e3 * bound.seconds:.2f}" == "10.36"
    assert bound.whole.limit == "memory"


def test_a_step_is_bound_by_less_than_its_operators() -> None:
    spec = model("llama3.1-8b")
    work = ledger(spec, Step(decode=(Decode(64, 4096),), prefill=(Prefill(512),)), Sharding(tp=2))
    alone = sum(operator_bound(operator, H100).seconds * operator.count for operator in work.operators)
    whole = step_bound(work.operators, H100)
    assert whole.seconds < alone
    assert whole.seconds == max(whole.whole.compute, whole.whole.memory, whole.whole.link)


def test_stages_add_up() -> None:
    """Each stage has its own limit, and one batch passes through all."""
    spec = model("llama3.1-8b")
    step = Step(prefill=(Prefill(4096),))
    one, two = (step_bound(ledger(spec, step, Sharding(pp=pp)).operators, H100) for pp in (1, 2))
    assert len(two.stages) == 2
    assert two.whole.compute == pytest.approx(one.whole.compute)
    assert one.seconds <= two.seconds == sum(stage.seconds for stage in two.stages)


@pytest.mark.parametrize(
    ("collective", "crossing"),
    [("all_reduce", 2 * 7 / 8), ("all_gather", 7 / 8), ("reduce_scatter", 7 / 8), ("send", 1)],
)
def test_messages_take_the_link(collective: str, crossing: float) -> None:
    message = Message(collective, 8, 10**9)  # type: ignore[arg-type]
    bound = operator_bound(Operator("collective", "x", "communication", message), H100)
    assert bound == Bound(link=pytest.approx(crossing * 1e9 / 450e9))
    assert bound.limit == "link"


def test_transfers_take_the_host_link() -> None:
    transfer = Operator("host_transfer", "x", "mlp", Transfer(10**9, "to_device"))
    assert operator_bound(transfer, H100).host == pytest.approx(1e9 / host_rate(H100))
    assert operator_bound(transfer, H100).limit == "host link"


def test_a_product_by_hand() -> None:
    traffic = Traffic(weights=2 * 4096 * 4096, activations_read=2 * 4096 * 64, activations_written=2 * 4096 * 64)
    product = Operator(
        "gemm", "x", "mlp", Gemm(64, 4096, 4096), flops=2 * 64 * 4096**2, traffic=traffic, activation_format="bf16"
    )
    bound = operator_bound(product, H100)
    assert bound.compute == pytest.approx(2 * 64 * 4096**2 / 989.4e12)
    assert bound.memory == pytest.approx((2 * 4096**2 + 4 * 4096 * 64) / 3.35e12)


def test_rates_of_formats() -> None:
    assert math_rate(H100, "fp8") == pytest.approx(2 * math_rate(H100, "bf16"), rel=1e-3)
    assert math_rate(load_gpu("v100-sxm-32gb"), "bf16") == load_gpu("v100-sxm-32gb").dense_rate("fp16")
    plain = ad_hoc_gpu("24GiB", "1000GB/s", "165")
    assert math_rate(plain, "fp32") == 165e12  # no faster than its 16-bit units: the bound holds
    with pytest.raises(UnsupportedError):
        math_rate(plain, "fp8")


def test_unknown_links_leave_messages_out_of_the_bound() -> None:
    plain = ad_hoc_gpu("24GiB", "1000GB/s", "165")
    assert not knows_links(plain)
    message = Operator("collective", "x", "communication", Message("all_reduce", 2, 10**9))
    assert operator_bound(message, plain).seconds == 0
    with pytest.raises(UnsupportedError, match="links of ad-hoc"):
        link_rate(plain)
    assert link_rate(load_gpu("l40s")) == host_rate(load_gpu("l40s"))


def test_the_ridge_of_products_is_the_ridge_point() -> None:
    """2·B FLOPs for each weight of 2 bytes: compute-bound from ``B = P / BW`` on."""
    spec = model("llama3.1-8b")
    formats = Formats("bf16")
    ridge = ridge_batch(spec, H100, 4096, Sharding(), formats)
    assert ridge_point(H100, "bf16") == pytest.approx(989.4 / 3.35)
    assert ridge == 296
    assert (
        ridge_batch(spec, replace(H100, memory=replace(H100.memory, bandwidth=6.7e12)), 4096, Sharding(), formats)
        == 148
    )


def test_long_contexts_are_never_compute_bound() -> None:
    """A token of Llama-3.1-8B reads 131 kB of cache a position and computes 16 FLOPs for each of its bytes."""
    spec, formats = model("llama3.1-8b"), Formats("bf16")
    assert ridge_batch(spec, H100, 32768, Sharding(), formats, whole=True) is None
    short = ridge_batch(spec, H100, 64, Sharding(), formats, whole=True)
    assert short is not None
    assert short > 296


def test_experts_move_the_ridge() -> None:
    """With K of E experts a token, all experts are read but 1/16 of them multiplied."""
    spec = published("Qwen--Qwen3-30B-A3B")
    dense = ridge_batch(model("llama3.1-8b"), H100, 1024, Sharding(), Formats("bf16"))
    experts = ridge_batch(spec, H100, 1024, Sharding(), Formats("bf16"))
    assert dense is not None
    assert experts is not None
    assert 8 * dense < experts < 20 * dense


@pytest.mark.parametrize("edge", [1, 2, 3, 100, 1023, 1024])
def test_the_least_that_holds(edge: int) -> None:
    assert least_batch(lambda batch: batch >= edge, 1024) == edge


def test_nothing_holds() -> None:
    assert least_batch(lambda batch: False, 1024) is None
