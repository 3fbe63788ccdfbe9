"""Bytes that a step touches against what the memory module says that the model holds, exactly."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from math import prod
from pathlib import Path

import pytest

from capplan.describe.formats import FP8_E4M3, number_format
from capplan.describe.gguf_mix import parse_mix
from capplan.describe.model import Attention, CompressedAttention, CrossAttention, ModelSpec
from capplan.describe.module_names import ModuleNames
from capplan.describe.quantisation import QuantisationPlan, Rule, default_plan, unquantised_plan
from capplan.describe.quantisation_config import read_quantisation
from capplan.describe.weight_schemes import Awq, Mxfp4, Nvfp4, ScaledEightBit, WeightScheme, tensor_bytes
from capplan.memory.gguf_plan import mix_plan
from capplan.memory.gguf_weights import gguf_weights
from capplan.memory.quantised_weights import rank_weights
from capplan.memory.sequence_memory import Lengths, sequence_memory
from capplan.work.formats import MATH_FORMATS, Formats
from capplan.work.ledger import Ledger
from capplan.work.sharding import Sharding
from capplan.work.step import Decode, Prefill, Step, ledger
from tests.work.models import BLOCKS, all_published, published, small

DATA = Path(__file__).parents[1] / "data"
ENOUGH_TOKENS = 1 << 40
"""So many that every expert is surely used."""


def weights_touched(book: Ledger) -> float:
    """Weight bytes of everything but the look-up in the embedding tables."""
    return sum(op.traffic.weights * op.count for op in book.operators if op.kind != "embedding")


def weights_held(spec: ModelSpec, plan: QuantisationPlan, tp: int, ep: int = 1) -> int:
    """Weight bytes of a rank by the memory module, without towers, tables that are only looked up, and block buffers."""
    terms = rank_weights(spec, plan, tp=tp, ep=ep).terms
    held = sum(term.bytes for term in terms if term.component != "embedding" and term.component not in spec.towers)
    if spec.embedding.tied and spec.embedding.head:
        rows = -(-spec.embedding.vocab_size // tp)
        held += rows * (spec.embedding.size or spec.hidden_size) * plan.unquantised.bits // 8
    for _, layers, block in spec.each_block():
        buffers = [prod(shape) for shape in block.buffers.values()]
        held -= layers * sum(buffers) * plan.unquantised.bits // 8
    return held


def fits(spec: ModelSpec, tp: int) -> bool:
    """Whether every attention layer has a head for each rank."""
    stacks = [spec, *([spec.encoder] if spec.encoder else [])]
    mixers = [mixer for stack in stacks for block in stack.blocks.values() for mixer in block.mixer]
    return all(getattr(mixer, "heads", tp) >= tp for mixer in mixers if hasattr(mixer, "kv_heads"))


@pytest.mark.parametrize("name", sorted(all_published()))
def test_a_step_reads_all_weights_once(name: str) -> None:
    spec = published(name)
    plan = unquantised_plan(number_format(spec.dtype))
    for tp in (1, 2, 3, 4):
        if fits(spec, tp):
            step = Step(prefill=(Prefill(ENOUGH_TOKENS, source=64),))
            assert weights_touched(ledger(spec, step, Sharding(tp=tp))) == weights_held(spec, plan, tp)


@pytest.mark.parametrize("block", sorted(BLOCKS))
def test_every_kind_of_layer_reads_all_its_weights(block: str) -> None:
    spec, plan = small(block), unquantised_plan()
    for tp, ep in ((1, 1), (2, 1), (3, 1), (4, 4), (8, 2)):
        step = Step(prefill=(Prefill(ENOUGH_TOKENS, source=64),))
        got = weights_touched(ledger(spec, step, Sharding(tp=tp, ep=ep)))
        assert got == weights_held(spec, plan, tp, ep)


QUANTISED = [
    ("deepseek-ai--DeepSeek-V3", "nvidia--DeepSeek-V3.1-NVFP4"),
    ("zai-org--GLM-5.1", "nvidia--GLM-5.1-NVFP4"),
    ("meta-llama--Llama-2-70b-hf", "nvidia--Llama-3.1-70B-Instruct-FP8"),
    ("Qwen--Qwen3.5-9B", "nvidia--Qwen3.6-27B-NVFP4"),
]
"""A model, and the list of a published checkpoint of its family that says what is quantised in it."""


@pytest.mark.parametrize(("name", "listing"), QUANTISED)
@pytest.mark.parametrize(("tp", "ep"), [(1, 1), (8, 1), (8, 8)])
def test_a_checkpoint_s_own_list_decides_what_is_read(name: str, listing: str, tp: int, ep: int) -> None:
    spec = published(name)
    quantised = json.loads((DATA / "quantisation_configs" / f"{listing}.json").read_text(encoding="utf-8"))
    plan = read_quantisation({}, where=listing, hf_quant_config=quantised)
    formats = Formats("bf16", plan=plan)
    book = ledger(spec, Step(prefill=(Prefill(ENOUGH_TOKENS),)), Sharding(tp=tp, ep=ep), formats)
    assert weights_touched(book) == weights_held(spec, plan, tp, ep)
    assert {op.weight_format for op in book.of_kind("gemm", "grouped_gemm", "head")} > {"bf16"}


@pytest.mark.parametrize("name", ["meta-llama--Llama-2-7b-hf", "google--gemma-2-2b", "mistralai--Mixtral-8x7B-v0.1"])
def test_a_mix_of_llama_cpp_is_read_tensor_by_tensor(name: str) -> None:
    """All of the file but the token table, which is looked up, or multiplied where the head is tied to it."""
    spec, mix = published(name), parse_mix("Q4_K_M")
    file = gguf_weights(spec, mix)
    table = sum(g.bytes_for(t.rows, t.columns) for t, g in file.tensors if t.name == "token_embd.weight")
    formats = Formats("bf16", plan=mix_plan(spec, mix))
    book = ledger(spec, Step(prefill=(Prefill(ENOUGH_TOKENS),)), formats=formats)
    assert weights_touched(book) == file.total - (0 if spec.embedding.tied else table)
    assert "q4_k_weight_only" in {op.weight_format for op in book.operators}


def test_equal_layers_that_are_stored_differently_are_told_apart() -> None:
    spec = small("dense")
    listed = ModuleNames.of(["model.layers.0.mlp.down_proj"], anywhere=False)
    plan = replace(default_plan(ScaledEightBit(FP8_E4M3, "tensor")), rules=(Rule(listed, None),))
    assert plan.depends_on_layer
    book = ledger(spec, Step(decode=(Decode(4, 64),)), formats=Formats("bf16", plan=plan))
    downs = [(op.weight_format, op.count) for op in book.operators if op.name == "down_proj"]
    assert downs == [("bf16", 1), ("fp8", 1)]
    assert weights_touched(book) == weights_held(spec, plan, 1)


def reads_what_is_cached(spec: ModelSpec) -> bool:
    """Whether one more token reads all that the layers keep: no scorer's choice, no chunk, no cache that layers share."""
    return not any(
        isinstance(mixer, CompressedAttention)
        or getattr(mixer, "indexer", None)
        or (isinstance(mixer, Attention) and (mixer.cache != "own" or mixer.chunk))
        for block in spec.blocks.values()
        for mixer in block.mixer
    )


@pytest.mark.parametrize("name", [name for name, spec in all_published().items() if reads_what_is_cached(spec)])
def test_decode_reads_the_cache_and_the_states_that_the_model_keeps(name: str) -> None:
    spec = published(name)
    for length, kv_dtype in ((4096, "bf16"), (100, "fp8")):
        kept = sequence_memory(spec, Lengths(length, encoder=77, images=77), sequences=3, kv_dtype=kv_dtype)
        step = Step(decode=(Decode(3, length, source=77),))
        total = ledger(spec, step, formats=Formats(spec.dtype, kv_dtype)).totals.traffic
        assert total.kv_read == kept.kv_bytes
        assert total.state_read == total.state_written == kept.state_bytes


@pytest.mark.parametrize("block", sorted(set(BLOCKS) - {"chunk", "sparse", "sparse_mla", "compressed"}))
def test_a_rank_reads_its_share_of_the_cache(block: str) -> None:
    spec = small(block)
    for tp in (1, 2, 8, 16):
        total = ledger(spec, Step(decode=(Decode(2, 90, source=30),)), Sharding(tp=tp)).totals.traffic
        kept = sequence_memory(spec, Lengths(90, encoder=30), sequences=2)
        assert total.kv_read + total.state_read == kept.rank_bytes(tp)


@pytest.mark.parametrize("block", sorted(set(BLOCKS) - {"compressed"}))
def test_prefill_writes_what_the_memory_module_keeps(block: str) -> None:
    """Up to the window, where older entries give way."""
    spec, length = small(block), 20
    total = ledger(spec, Step(prefill=(Prefill(length, source=9),))).totals.traffic
    kept = sequence_memory(spec, Lengths(length, encoder=9))
    assert (total.kv_written, total.state_written) == (kept.kv_bytes, kept.state_bytes)
    assert total.state_read == 0


def test_a_scorer_bounds_what_decode_reads() -> None:
    """MLA with a scorer: top_k latents and every index key; without one the whole cache."""
    spec = small("sparse_mla")
    read = ledger(spec, Step(decode=(Decode(1, 1000),))).totals.traffic.kv_read
    assert read == 2 * (32 * 40 + 1000 * 8) * 2


def test_layers_that_share_a_cache_read_it_too() -> None:
    spec = published("google--gemma-3n-E2B-it(text)")
    owners = sum(n for _, n, b in spec.each_block() if all(getattr(m, "cache", "") == "own" for m in b.mixer))
    total = ledger(spec, Step(decode=(Decode(1, 300),))).totals.traffic
    kept = sequence_memory(spec, Lengths(300)).kv_bytes
    assert total.kv_read == kept * spec.depth // owners
    assert total.kv_written == kept // 300


def test_cross_attention_is_projected_once() -> None:
    spec = small("cross")
    first = ledger(spec, Step(prefill=(Prefill(5, source=40),))).totals.traffic
    later = ledger(spec, Step(prefill=(Prefill(5, prefix=5, source=40),))).totals.traffic
    rules = [m for b in spec.blocks.values() for m in b.mixer if isinstance(m, CrossAttention)]
    assert first.kv_written - later.kv_written == 2 * 40 * 2 * rules[0].kv_heads * rules[0].head_dim * 2


@pytest.mark.parametrize(
    ("scheme", "math", "name", "input_bytes"),
    [
        (ScaledEightBit(FP8_E4M3, "block"), MATH_FORMATS, "fp8_block", 1),
        (ScaledEightBit(FP8_E4M3, "tensor"), frozenset({"int8"}), "fp8_weight_only", 2),
        (Awq(4, 128), MATH_FORMATS, "int4_weight_only", 2),
        (Nvfp4(), MATH_FORMATS, "nvfp4", Fraction(1, 2)),
        (Mxfp4(), frozenset({"fp8"}), "mxfp4_weight_only", 2),
        (Mxfp4(), MATH_FORMATS, "mxfp4_mxfp8", 1),
    ],
)
def test_kernels_multiply_in_what_the_matrix_units_can(
    scheme: WeightScheme, math: frozenset[str], name: str, input_bytes: Fraction | int
) -> None:
    spec = published("meta-llama--Llama-2-7b-hf")
    formats = Formats("bf16", plan=default_plan(scheme), math=math)
    book = ledger(spec, Step(decode=(Decode(4, 64),)), formats=formats)
    qkv = next(op for op in book.operators if op.name == "qkv_proj")
    assert qkv.weight_format == name
    assert qkv.traffic.activations_read == 4 * 4096 * input_bytes
    assert qkv.traffic.weights == 3 * tensor_bytes(scheme, 4096, 4096).total


def test_a_cache_of_blocks_of_integers_has_fractional_bytes() -> None:
    """llama.cpp's q8_0: 34 bytes for 32 elements."""
    spec = small("dense")
    exact = ledger(spec, Step(decode=(Decode(1, 10),)), formats=Formats("bf16", "q8_0")).totals.traffic
    assert exact.kv_read == 2 * 10 * 2 * 8 * 16 * 34 // 32


def test_the_published_bound_of_llama_2_70b() -> None:
    """137.43 GB of weights without the embedding, 1.34 GB of keys and values: 10.36 ms on four cards of 3.35 TB/s."""
    spec = published("meta-llama--Llama-2-70b-hf")
    book = ledger(spec, Step(decode=(Decode(1, 4096),)), formats=Formats("fp16", "fp16"))
    weights, kv = weights_touched(book), book.totals.traffic.kv_read
    assert (round(weights / 1e9, 2), round(kv / 1e9, 2)) == (137.43, 1.34)
    assert round((weights + kv) / (4 * 3.35e12) * 1e3, 2) == 10.36
