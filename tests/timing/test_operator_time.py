"""Operators find the kernels that they are, with the work that they really do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.timing.operator_time import OperatorTime, operator_time
from capplan.timing.wanted_kernels import kernel_name, wanted_kernel
from capplan.work.formats import Formats
from capplan.work.operators import GroupedGemm, Message, Operator
from capplan.work.sharding import Sharding
from capplan.work.step import Decode, Prefill, Step, ledger
from tests.timing.machines import machine, model
from tests.work.models import published, small

H100 = machine()
RATE = 989.4e12


def timed(spec_name: str, step: Step, kind: str, **options: object) -> OperatorTime:
    spec = published(spec_name) if "--" in spec_name else small(spec_name)
    work = ledger(spec, step, **options)  # type: ignore[arg-type]
    operator, *_ = work.of_kind(kind)  # the others are of other blocks with the same mixer
    return operator_time(operator, H100)


def compute(time: OperatorTime) -> float:
    """Seconds of arithmetic of one call, as its law has them."""
    assert time.estimate is not None
    return float(time.estimate.time.overlapping["compute"])


def test_an_encoder_sees_both_sides() -> None:
    """All t² pairs, where a decoder of the same heads has t(t + 1)/2."""
    tokens = 512
    both = timed("FacebookAI--xlm-roberta-large", Step(prefill=(Prefill(tokens, sampled=0),)), "prefill_attention")
    assert compute(both) == pytest.approx(4 * 16 * 64 * tokens**2 / (0.69 * RATE))
    assert both.basis == "extrapolated"  # planted kernels are 128 wide, these heads 64
    causal = timed("Qwen--Qwen2-0.5B", Step(prefill=(Prefill(tokens),)), "prefill_attention")
    assert compute(causal) == pytest.approx(4 * 14 * 64 * tokens * (tokens + 1) / 2 / (0.69 * RATE))


@pytest.mark.parametrize(("tokens", "prefix"), [(4096, 0), (512, 8000), (1000, 1500)])
def test_sparse_latent_attention_is_absorbed_and_limited(tokens: int, prefix: int) -> None:
    """1088 multiplications a pair, with at most the 2,048 keys that the scorer chose."""
    time = timed("deepseek-ai--DeepSeek-V3.2", Step(prefill=(Prefill(tokens, prefix),)), "mla_prefill")
    pairs = sum(min(place, 2048) for place in range(prefix + 1, prefix + tokens + 1))
    assert compute(time) == pytest.approx(2 * 128 * (576 + 512) * pairs / (0.69 * RATE))
    assert any("absorbed" in note for note in time.notes)  # the planted kernel was measured unabsorbed


def test_dense_latent_attention_is_expanded() -> None:
    time = timed("deepseek-ai--DeepSeek-V3", Step(prefill=(Prefill(1000),)), "mla_prefill")
    assert compute(time) == pytest.approx(2 * 128 * (192 + 128) * 1000 * 1001 / 2 / (0.69 * RATE))
    assert time.basis == "fitted"


def test_other_latents_have_their_own_widths() -> None:
    """A latent of 32 and a rotary key of 8: (32 + 8) + 32 multiplications a pair."""
    time = timed("mla", Step(decode=(Decode(4, 100),)), "mla_decode")
    length = (100**2 + 100.0**2) ** 0.5
    assert compute(time) == pytest.approx(2 * 4 * 16 * length * 72 / (0.89 * RATE))


def test_verified_tokens_are_further_heads() -> None:
    one, three = (
        timed("deepseek-ai--DeepSeek-V3", Step(decode=(Decode(8, 4096, tokens=tokens),)), "mla_decode")
        for tokens in (1, 3)
    )
    assert compute(three) == pytest.approx(3 * compute(one))
    assert three.estimate is not None
    assert one.estimate is not None
    assert three.estimate.time.overlapping["kv_cache"] == one.estimate.time.overlapping["kv_cache"]


def test_keys_wider_than_values_count_their_mean() -> None:
    """MiMo-V2's keys are 192 wide and its values 128: 2·(192 + 128) FLOPs a pair."""
    spec = published("XiaomiMiMo--MiMo-V2-Flash")
    for operator in ledger(spec, Step(prefill=(Prefill(2000),))).of_kind("prefill_attention"):
        time = operator_time(operator, H100)
        assert compute(time) * 0.69 * RATE == pytest.approx(operator.flops)


@pytest.mark.parametrize("cache", ["fp8", "fp8_e4m3", "int8", "nvfp4", "q8_0", "fp32", "fp16"])
def test_every_cache_format_has_its_bytes(cache: str) -> None:
    formats = Formats("bf16", cache)
    time = timed("Qwen--Qwen2.5-7B", Step(decode=(Decode(32, 8192),)), "decode_attention", formats=formats)
    assert time.estimate is not None
    moved = 32 * 8192 * 2 * 4 * 128 * float(formats.kv_bytes)
    assert time.estimate.time.overlapping["kv_cache"] == pytest.approx(moved / (0.87 * 3.35e12))
    known = kernel_name(cache) in ("bf16", "fp8")
    assert time.basis == ("fitted" if known else "extrapolated")


def test_experts_without_a_gate_are_counted_by_their_matrices() -> None:
    work = ledger(small("latent_moe"), Step(prefill=(Prefill(100),)))
    (operator,) = work.of_kind("grouped_gemm")
    question = wanted_kernel(operator, "vllm")
    assert question is not None
    sizes = question[2]
    assert isinstance(operator.shape, GroupedGemm)
    assert 6 * sizes["tokens"] * sizes["top_k"] * sizes["hidden"] * sizes["width"] == operator.flops


def test_the_faster_of_two_kernels_runs() -> None:
    """A one-shot kernel starts in 4 µs but moves a byte slowly; the library starts in 10 µs."""
    small_message, large_message = (
        operator_time(Operator("collective", "x", "communication", Message("all_reduce", 4, size)), H100)
        for size in (10_000, 100_000_000)
    )
    assert small_message.estimate is not None
    assert large_message.estimate is not None
    assert small_message.estimate.fit.key.engine == "vllm"
    assert large_message.estimate.fit.key.engine == "nccl"


def test_what_no_table_measured_is_assumed() -> None:
    work = ledger(model("llama3.1-8b"), Step(decode=(Decode(8, 1000),)))
    for operator in work.of_kind("norm", "elementwise", "embedding", "sampling"):
        time = operator_time(operator, H100)
        assert time.basis == "assumed"
        assert time.seconds >= H100.times.small_kernel * operator.count


MODELS = ("llama2-70b", "deepseek-v3", "gpt-oss-120b", "gemma-3-27b", "qwen3-30b-a3b", "qwen3-next-80b-a3b")


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(MODELS),
    st.sampled_from([1, 2, 4, 8]),
    st.lists(st.integers(1, 4000), min_size=2, max_size=6),
    st.integers(1, 200_000),
)
def test_arrays_are_the_scalar_path(name: str, tp: int, batches: list[int], context: int) -> None:
    """Every operator, for many batches at once and one by one: seconds, interval and bound."""
    spec = model(name)
    if tp > 2 and spec.name.startswith("qwen3-next"):
        tp = 2
    together = ledger(spec, Step(decode=(Decode(np.array(batches, float), context),)), Sharding(tp=tp))
    alone = [ledger(spec, Step(decode=(Decode(batch, context),)), Sharding(tp=tp)) for batch in batches]
    for number, operator in enumerate(together.operators):
        swept = operator_time(operator, H100)
        for index, one in enumerate(alone):
            time = operator_time(one.operators[number], H100)
            for name in ("seconds", "launch", "low", "high", "bound"):
                value = np.broadcast_to(np.asarray(getattr(swept, name), float), (len(batches),))[index]
                assert value == pytest.approx(getattr(time, name), rel=1e-12), (operator.name, name)
