"""What a step is made of, against counts by hand, against other ways to the same sum, and invariants."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.errors import UsageError
from capplan.work.experts import Routing, distinct_experts, popularity
from capplan.work.ledger import Ledger, totals
from capplan.work.operators import CAUSES, GroupedGemm
from capplan.work.sharding import Sharding
from capplan.work.step import Decode, Encode, Prefill, Step, draft_ledger, ledger
from tests.work.models import BLOCKS, published, small

REEXPANDED = "kv_b_proj of the prefix"
"""The one product that a prompt in chunks does again: MLA's expansion of the cached latents."""


def prompt_flops(spec_name: str, chunks: list[int]) -> int:
    """FLOPs of a prompt in these chunks, without what MLA expands again."""
    spec, total, prefix = small(spec_name), 0, 0
    for i, chunk in enumerate(chunks):
        last = i == len(chunks) - 1
        book = ledger(spec, Step(prefill=(Prefill(chunk, prefix=prefix, sampled=int(last), source=11),)))
        total += sum(op.flops * op.count for op in book.operators if op.name != REEXPANDED)
        prefix += chunk
    return total


@pytest.mark.parametrize("block", sorted(BLOCKS))
@settings(max_examples=8, deadline=None)
@given(chunks=st.lists(st.integers(1, 60), min_size=2, max_size=4))
def test_a_prompt_is_the_sum_of_its_chunks(block: str, chunks: list[int]) -> None:
    assert prompt_flops(block, chunks) == prompt_flops(block, [sum(chunks)])


@pytest.mark.parametrize("block", sorted(set(BLOCKS) - {"mla"}))
def test_verifying_tokens_is_prefilling_a_chunk(block: str) -> None:
    """Decode of t tokens does the FLOPs of a chunk of t tokens; MLA aside, which decodes in the latent space."""
    spec = small(block)
    decode = ledger(spec, Step(decode=(Decode(3, 50, tokens=4),))).totals
    prefill = ledger(spec, Step(prefill=(Prefill(4, prefix=46, sequences=3, sampled=4),))).totals
    assert decode.flops == prefill.flops
    assert decode.traffic.kv == prefill.traffic.kv


def test_absorbed_and_expanded_latent_attention_cross() -> None:
    """A head of ``Dn + Dr`` and ``Dv`` against one of ``2c + Dr``: 320 and 1088 multiply-adds a pair in DeepSeek-V3."""
    spec = published("deepseek-ai--DeepSeek-V3")
    (prefill,) = {op.flops for op in ledger(spec, Step(prefill=(Prefill(100),))).of_kind("mla_prefill")}
    (decode,) = {op.flops for op in ledger(spec, Step(decode=(Decode(1, 100),))).of_kind("mla_decode")}
    assert prefill == 128 * 100 * 101 * 320
    assert decode == 2 * 128 * 100 * 1088
    (kernel, *_) = ledger(spec, Step(decode=(Decode(1, 100),))).of_kind("mla_decode")
    assert kernel.traffic.kv_read == 576 * 2 * 100
    assert kernel.traffic.activations == 2 * 128 * 1088


SMALL_KERNELS = [
    ("meta-llama--Llama-2-70b-hf", {"layer": 5}),
    ("Qwen--Qwen3-32B", {"layer": 6}),
    ("mistralai--Mixtral-8x7B-v0.1", {"layer": 5}),
    ("deepseek-ai--DeepSeek-V3", {"moe": 7 + 1 + 2}),
    ("deepseek-ai--DeepSeek-V3.2", {"moe": 7 + 1 + 2 + 6}),
]


@pytest.mark.parametrize(("name", "counts"), SMALL_KERNELS)
def test_small_kernels_of_a_layer(name: str, counts: dict[str, int]) -> None:
    """Norms, rotary, cache write, activation: 5 in a GQA layer, one more with q/k norms; 4 and the top-k with experts;
    7 and the top-k with MLA, 2 more for shared experts, 6 more for sparse attention."""
    spec = published(name)
    book = ledger(spec, Step(decode=(Decode(8, 512),)))
    (want,) = counts.values()
    layers = max(spec.counts.values())
    per_layer = [op for op in book.of_kind("norm", "elementwise") if op.count % layers == 0]
    assert sum(op.count // layers for op in per_layer) == want


def test_a_gated_delta_net_layer_has_six_small_kernels() -> None:
    spec = small("delta")
    book = ledger(spec, Step(decode=(Decode(8, 512),)))
    experts = {"top-k", "shared activation", "add shared experts"}
    small_ones = [op for op in book.of_kind("norm", "elementwise") if op.name not in experts | {"final norm"}]
    assert sum(op.count for op in small_ones) == 6 * 2


def test_head_only_for_sampled_positions() -> None:
    spec = small("dense")
    step = Step(decode=(Decode(3, 9, tokens=2),), prefill=(Prefill(100), Prefill(50, sampled=0)))
    (head,) = ledger(spec, step).of_kind("head")
    assert head.flops == 2 * (3 * 2 + 1) * 64 * 256
    assert ledger(spec, Step(prefill=(Prefill(50, sampled=0),))).of_kind("head", "sampling") == ()


def test_an_encoder_has_no_head_and_cannot_decode() -> None:
    spec = published("google-bert--bert-large-uncased")
    book = ledger(spec, Step(prefill=(Prefill(128, sequences=4),)))
    assert book.of_kind("head", "sampling") == ()
    assert book.totals.traffic.kv == 0
    with pytest.raises(UsageError, match="encoder"):
        ledger(spec, Step(decode=(Decode(1, 128),)))


def test_whisper_encodes_its_frames_with_the_first_tokens() -> None:
    spec = published("openai--whisper-large-v3-turbo")
    first = ledger(spec, Step(prefill=(Prefill(4),)))
    then = ledger(spec, Step(decode=(Decode(1, 5),)))
    assert {op.name for op in first.operators} - {op.name for op in then.operators} >= {"conv1", "cross kv_proj"}
    cross = [op for op in then.operators if op.name == "cross-attention"]
    assert [op.shape.keys for op in cross] == [1500]  # type: ignore[union-attr]


def test_a_tower_runs_over_its_patches() -> None:
    spec = published("Qwen--Qwen2.5-VL-7B-Instruct")
    book = ledger(spec, Step(encode=(Encode("vision", 1024, sequences=2, outputs=256),)))
    merger = next(op for op in book.operators if op.name == "2")
    assert merger.flops == 2 * 2 * 256 * 3584 * 5120
    with pytest.raises(UsageError, match="no audio tower"):
        ledger(spec, Step(encode=(Encode("audio", 10),)))


def test_drafting_is_one_pass_of_the_mtp_layers() -> None:
    spec = published("deepseek-ai--DeepSeek-V3")
    book = draft_ledger(spec, Step(decode=(Decode(4, 100),)))
    names = [op.name for op in book.operators]
    assert names.count("experts") == 1
    projection = next(op for op in book.operators if op.name == "eh_proj")
    assert projection.flops == 2 * 4 * 7168 * 2 * 7168
    with pytest.raises(UsageError, match="no MTP layers"):
        draft_ledger(small("dense"), Step(decode=(Decode(1, 8),)))


def test_offloaded_experts_cross_the_link() -> None:
    spec = published("deepseek-ai--DeepSeek-V3")
    book = ledger(spec, Step(decode=(Decode(1, 100),))).with_host_weights({"experts_routed"})
    moved = book.totals.transfer_bytes
    assert moved == pytest.approx(58 * 8 * 3 * 7168 * 2048 * 2)
    assert book.totals.flops == ledger(spec, Step(decode=(Decode(1, 100),))).totals.flops


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (Step(), "nothing to do"),
        (Step(decode=(Decode(0, 10),)), "at least 1"),
        (Step(decode=(Decode(1, 3, tokens=4),)), "cannot hold"),
        (Step(prefill=(Prefill(0),)), "at least 1"),
        (Step(prefill=(Prefill(4, prefix=-1),)), "at least 0"),
    ],
)
def test_steps_that_cannot_be_are_refused(step: Step, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ledger(small("dense"), step)


def test_groups_add_up() -> None:
    book = ledger(published("deepseek-ai--DeepSeek-V3"), Step(decode=(Decode(8, 99),)), Sharding(tp=4, ep=4))
    for grouping in ("kind", "component", "name", "stage"):
        parts = book.by(grouping).values()  # type: ignore[arg-type]
        assert sum(part.flops for part in parts) == book.totals.flops
        assert sum(part.message_bytes for part in parts) == book.totals.message_bytes
        assert sum(part.traffic.total for part in parts) == pytest.approx(book.totals.traffic.total)
    assert totals(()).flops == 0


def simulated_distinct(experts: int, top_k: int, tokens: int) -> float:
    draws = np.random.default_rng(7)
    seen = [
        len({int(e) for _ in range(tokens) for e in draws.choice(experts, top_k, replace=False)}) for _ in range(400)
    ]
    return float(np.mean(seen))


@pytest.mark.parametrize(("experts", "top_k", "tokens"), [(16, 4, 1), (16, 4, 5), (64, 6, 20), (8, 2, 3)])
def test_distinct_experts_against_drawing_them(experts: int, top_k: int, tokens: int) -> None:
    want = simulated_distinct(experts, top_k, tokens)
    assert distinct_experts(experts, top_k / experts, tokens) == pytest.approx(want, rel=0.02)


def test_identity_experts_take_their_share() -> None:
    (op,) = ledger(small("identity_moe"), Step(decode=(Decode(8, 64),))).of_kind("grouped_gemm")
    assert isinstance(op.shape, GroupedGemm)
    assert op.shape.assignments == 8 * 6 * 16 / 24


@given(st.integers(2, 64), st.floats(0, 3), st.data())
def test_popularity_is_a_choice_of_k(experts: int, skew: float, data: st.DataObject) -> None:
    top_k = data.draw(st.integers(1, experts))
    chances = popularity(experts, top_k, skew)
    assert sum(chances) == pytest.approx(top_k)
    assert all(0 <= chance <= 1 for chance in chances)
    assert list(chances) == sorted(chances, reverse=True)


def test_skewed_routing_touches_fewer_experts_and_loads_one_rank_more() -> None:
    spec, step = small("moe"), Step(decode=(Decode(8, 64),))
    even, skewed = (
        ledger(spec, step, Sharding(tp=4, ep=4), routing=Routing(skew)).of_kind("grouped_gemm")[0] for skew in (0, 1.0)
    )
    assert isinstance(even.shape, GroupedGemm)
    assert isinstance(skewed.shape, GroupedGemm)
    assert skewed.shape.assignments > even.shape.assignments
    nearly, _ = (
        ledger(spec, step, Sharding(tp=4, ep=4), routing=Routing(skew)).of_kind("grouped_gemm")[0] for skew in (1e-9, 0)
    )
    assert nearly.flops == pytest.approx(even.flops)
    assert nearly.traffic.weights == pytest.approx(even.traffic.weights)


def figures(book: Ledger) -> dict[str, object]:
    total = book.totals
    return {
        "launches": total.launches,
        "flops": total.flops,
        "messages": total.message_bytes,
        **{cause: getattr(total.traffic, cause) for cause in CAUSES},
    }


@pytest.mark.parametrize("block", sorted(BLOCKS))
def test_arrays_go_through_the_same_formulas(block: str) -> None:
    """Batch x context x chunk x prefix x tp at once, against the same step one by one."""
    spec = small(block)
    batch, context, tp = np.array([1, 3, 8]), np.array([5, 40, 300]), np.array([1, 2, 8])
    chunk, prefix = np.array([7, 30]), np.array([0, 25])

    def book(b: object, s: object, n: object, t: object, p: object) -> Ledger:
        step = Step(decode=(Decode(b, s, source=13),), prefill=(Prefill(t, prefix=p, source=13),))
        return ledger(spec, step, Sharding(tp=n, ep=n))

    grid = figures(book(*np.ix_(batch, context, tp, chunk, prefix)))
    shape = (3, 3, 3, 2, 2)
    for at in [(0, 0, 0, 0, 0), (2, 1, 0, 1, 1), (1, 2, 1, 0, 1), (2, 2, 2, 1, 0), (0, 1, 2, 1, 1)]:
        values = [int(axis[i]) for axis, i in zip((batch, context, tp, chunk, prefix), at, strict=True)]
        for name, one in figures(book(*values)).items():
            assert np.broadcast_to(grid[name], shape)[at] == pytest.approx(one, rel=1e-12), name  # type: ignore[call-overload]


@pytest.mark.parametrize("block", sorted(BLOCKS))
@settings(max_examples=10, deadline=None)
@given(batch=st.integers(1, 200), context=st.integers(2, 400), more=st.integers(1, 50))
def test_more_work_is_never_less(block: str, batch: int, context: int, more: int) -> None:
    spec = small(block)
    if "chunk" in block:
        context, more = 25 + context % 12, more % 12  # a new chunk starts with one key
    if block == "compressed":
        more *= 4  # every fourth token writes an entry
    base = ledger(spec, Step(decode=(Decode(batch, context, source=9),))).totals
    wider = ledger(spec, Step(decode=(Decode(batch + more, context, source=9),))).totals
    longer = ledger(spec, Step(decode=(Decode(batch, context + more, source=9),))).totals
    for other in (wider, longer):
        assert other.flops >= base.flops
        assert other.traffic.total >= base.traffic.total * (1 - 1e-12)


def test_names_are_words() -> None:
    for block in BLOCKS:
        for operator in ledger(small(block), Step(decode=(Decode(1, 8),))).operators:
            assert re.fullmatch(r"[\w .,/+'-]+", operator.name)
