"""Sharding conserves work: the ranks together do the whole, plus what they hold copies of, which has names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.describe.deployment import Parallel
from capplan.errors import UsageError
from capplan.memory.weights import model_tensors
from capplan.work.ledger import Ledger
from capplan.work.operators import Message
from capplan.work.sharding import Sharding, pipeline_stages, replicas, shares
from capplan.work.step import Decode, Prefill, Step, ledger
from tests.work.models import BLOCKS, published, small

STEP = Step(decode=(Decode(3, 70, source=20),), prefill=(Prefill(40, source=12), Prefill(16, prefix=33)))
REPLICATED_ATTENTION = {"mla", "sparse_mla", "compressed"}
"""Blocks whose cache is whole on every rank."""


def product_flops(book: Ledger) -> int:
    return sum(op.flops * op.count for op in book.of_kind("gemm", "head", "absorbed_product"))


@given(st.integers(1, 200), st.integers(1, 64))
def test_shares_are_even_and_complete(units: int, ranks: int) -> None:
    parts = shares(units, ranks)
    assert len(parts) == ranks
    assert sum(parts) == max(units, ranks)
    assert max(parts) - min(parts) <= 1


@pytest.mark.parametrize(
    ("layers", "pp", "sizes"),
    [
        (2, 2, [1, 1]),
        (3, 2, [2, 1]),
        (4, 3, [1, 2, 1]),
        (5, 3, [2, 2, 1]),
        (22, 4, [5, 6, 6, 5]),
        (61, 2, [31, 30]),
        (61, 4, [15, 15, 16, 15]),
    ],
)
def test_stages_are_those_of_vllm(layers: int, pp: int, sizes: list[int]) -> None:
    """The cases of vLLM's own test (tests/distributed/test_pipeline_partition.py) and documentation."""
    assert [len(stage) for stage in pipeline_stages(layers, Sharding(pp=pp))] == sizes


def test_stages_can_be_given() -> None:
    stages = pipeline_stages(20, Sharding(pp=3, stage_layers=(5, 10, 5)))
    assert [(stage.start, stage.stop) for stage in stages] == [(0, 5), (5, 15), (15, 20)]
    with pytest.raises(UsageError, match="do not make"):
        pipeline_stages(20, Sharding(pp=3, stage_layers=(5, 10, 6)))
    with pytest.raises(UsageError, match="do not make"):
        pipeline_stages(3, Sharding(pp=4))


@pytest.mark.parametrize("name", ["meta-llama--Llama-2-70b-hf", "Qwen--Qwen3-30B-A3B", "deepseek-ai--DeepSeek-V3"])
@pytest.mark.parametrize("tp", [1, 2, 8, 16])
def test_ranks_hold_the_model_and_the_named_replicas(name: str, tp: int) -> None:
    spec = published(name)
    once = sum(tensor.elements * layers for tensor, layers, _ in model_tensors(spec))
    held = 0
    for rank in range(tp):
        for tensor, layers, _ in model_tensors(spec):
            units = tensor.split.units if tensor.split else 1
            held += tensor.elements * layers // units * (shares(units, tp)[rank] if tensor.split else 1)
    assert held == once + sum(replica.elements for replica in replicas(spec, Sharding(tp=tp)))


def test_replicas_say_why() -> None:
    found = {r.name: r.cause for r in replicas(published("meta-llama--Llama-2-70b-hf"), Sharding(tp=16))}
    assert found == {
        "self_attn.k_proj.weight": "fewer pieces than ranks",
        "self_attn.v_proj.weight": "fewer pieces than ranks",
        "norms.weight": "whole on every rank",
        "norm.weight": "whole on every rank",
    }


@pytest.mark.parametrize("block", sorted(BLOCKS))
@pytest.mark.parametrize("tp", [2, 4, 8])
def test_tensor_parallel_ranks_do_the_whole_and_the_replicas(block: str, tp: int) -> None:
    """Products: tp ranks together do what one would, and again what each has a copy of (2 FLOPs a token and element)."""
    spec = small(block)
    step = Step(decode=(Decode(5, 70),))
    whole, rank = product_flops(ledger(spec, step)), product_flops(ledger(spec, step, Sharding(tp=tp)))
    names = {tensor.name for tensor, _, part in model_tensors(spec) if tensor.linear and part == "model"}
    again = sum(r.elements for r in replicas(spec, Sharding(tp=tp)) if r.name in names)
    if block == "cross":
        again = 0
    assert tp * rank == whole + 2 * 5 * again


@pytest.mark.parametrize("block", sorted(set(BLOCKS) - REPLICATED_ATTENTION))
def test_attention_and_recurrences_are_divided_by_heads(block: str) -> None:
    spec = small(block)
    kinds = ("prefill_attention", "decode_attention", "linear_attention", "scan")
    whole = sum(op.flops * op.count for op in ledger(spec, STEP).of_kind(*kinds))
    rank = sum(op.flops * op.count for op in ledger(spec, STEP, Sharding(tp=4)).of_kind(*kinds))
    indexed = {"sparse"}
    assert 4 * rank == whole or block in indexed


@pytest.mark.parametrize("block", sorted(REPLICATED_ATTENTION))
def test_latent_caches_are_whole_on_every_rank(block: str) -> None:
    spec = small(block)
    step = Step(decode=(Decode(2, 200),))
    whole, rank = (ledger(spec, step, Sharding(tp=tp)).totals.traffic.kv_read for tp in (1, 4))
    assert whole == rank


def test_experts_are_divided_over_all_ranks_of_a_stage() -> None:
    spec, tokens = small("moe"), 24
    step = Step(decode=(Decode(tokens, 64),))
    (whole,) = ledger(spec, step).of_kind("grouped_gemm")
    for sharding in (Sharding(tp=4), Sharding(tp=4, ep=4), Sharding(tp=2, ep=2), Sharding(tp=8, ep=2)):
        (rank,) = ledger(spec, step, sharding).of_kind("grouped_gemm")
        assert rank.flops * sharding.tp == whole.flops
        assert rank.traffic.weights * sharding.tp == pytest.approx(whole.traffic.weights)
    (group,) = ledger(spec, step, Sharding(dp=4, ep=4)).of_kind("grouped_gemm")
    (all_tokens,) = ledger(spec, Step(decode=(Decode(4 * tokens, 64),))).of_kind("grouped_gemm")
    assert group.flops * 4 == all_tokens.flops
    assert group.traffic.weights * 4 == pytest.approx(all_tokens.traffic.weights)


def test_more_ranks_than_kv_heads_hold_copies() -> None:
    spec = published("meta-llama--Llama-2-70b-hf")
    reads = {tp: ledger(spec, Step(decode=(Decode(1, 512),)), Sharding(tp=tp)).totals.traffic.kv_read for tp in (8, 16)}
    assert reads[8] == reads[16]


@pytest.mark.parametrize("block", sorted(BLOCKS))
def test_one_rank_sends_nothing(block: str) -> None:
    assert ledger(small(block), STEP).of_kind("collective") == ()


def test_two_all_reduces_a_layer() -> None:
    spec = published("meta-llama--Llama-2-70b-hf")
    book = ledger(spec, Step(decode=(Decode(8, 512),)), Sharding(tp=4))
    hidden = [op for op in book.of_kind("collective") if op.message_bytes == 8 * 8192 * 2]
    assert sum(op.count for op in hidden) == 2 * 80 + 1
    assert {op.shape.collective for op in hidden if isinstance(op.shape, Message)} == {"all_reduce"}


def test_pipeline_stages_add_up_to_the_whole() -> None:
    spec = published("deepseek-ai--DeepSeek-V3")
    step = Step(decode=(Decode(16, 1000),))
    whole, staged = ledger(spec, step), ledger(spec, step, Sharding(pp=4))
    sends = staged.of_kind("collective")
    assert [op.message_bytes for op in sends] == [16 * 7168 * 2] * 3
    assert staged.totals.flops == whole.totals.flops
    assert staged.totals.traffic.kv_read == whole.totals.traffic.kv_read
    parts = [staged.stage(stage).totals.flops for stage in range(4)]
    assert sum(parts) == whole.totals.flops
    assert len({op.stage for op in staged.operators}) == 4


def test_data_parallel_groups_gather_their_tokens_for_the_experts() -> None:
    spec = small("moe")
    step = Step(decode=(Decode(8, 64),))
    gather = ledger(spec, step, Sharding(dp=4, ep=4)).of_kind("collective")
    kinds = [(op.shape.collective, op.message_bytes) for op in gather if isinstance(op.shape, Message)]
    assert kinds == [("all_gather", 4 * 8 * 64 * 2), ("reduce_scatter", 4 * 8 * 64 * 2)]
    exchange = ledger(spec, step, Sharding(dp=4, ep=4, expert_exchange="all_to_all")).of_kind("collective")
    kinds = [(op.shape.collective, op.message_bytes) for op in exchange if isinstance(op.shape, Message)]
    assert kinds == [("all_to_all", 8 * 4 * 64 * 2)] * 2


def test_context_parallel_ranks_divide_one_cache() -> None:
    """MLA over 8 ranks holds 8 copies of its latents; over 8 ranks that share them by position, one."""
    spec = published("deepseek-ai--DeepSeek-V3")
    step = Step(decode=(Decode(4, 8000),))
    alone, shared = (ledger(spec, step, Sharding(tp=8, cp=cp)) for cp in (1, 8))
    assert shared.totals.traffic.kv_read * 8 == alone.totals.traffic.kv_read
    (one,), (many,) = alone.of_kind("mla_decode")[:1], shared.of_kind("mla_decode")[:1]
    assert one.flops == many.flops
    names = {op.name for op in shared.of_kind("collective")} - {op.name for op in alone.of_kind("collective")}
    assert names == {"gather queries", "gather log-sum-exp", "scatter partial outputs"}


def test_a_chunk_gathers_the_prefix_that_others_hold() -> None:
    spec = small("dense")
    step = Step(prefill=(Prefill(10, prefix=50),))
    gathered = [op for op in ledger(spec, step, Sharding(tp=16, cp=2)).operators if op.name == "gather prefix"]
    assert [op.message_bytes for op in gathered] == [50 * 2 * 16 * 2]
    first = ledger(spec, Step(prefill=(Prefill(10),)), Sharding(tp=16, cp=2))
    assert not [op for op in first.operators if op.name == "gather prefix"]


@pytest.mark.parametrize(
    ("sharding", "message"),
    [
        (Sharding(tp=32), "heads cannot be divided"),
        (Sharding(tp=4, ep=3), "must divide"),
        (Sharding(tp=8, dp=4, ep=32), "experts cannot be divided"),
        (Sharding(tp=16, cp=4), "leave no 4 ranks"),
        (Sharding(pp=5), "do not make 5 pipeline stages"),
    ],
)
def test_shardings_that_no_engine_runs_are_refused(sharding: Sharding, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ledger(small("moe", "dense"), Step(decode=(Decode(1, 8),)), sharding)


def test_a_deployment_gives_its_sharding() -> None:
    parallel = Parallel(tp=4, dp=2, ep=8, pp=2, stage_layers=(3, 1))
    sharding = Sharding.of(parallel)
    assert (sharding.tp, sharding.dp, sharding.ep, sharding.moe_tp) == (4, 2, 8, parallel.moe_tp)
    assert sharding.stage_layers == (3, 1)
