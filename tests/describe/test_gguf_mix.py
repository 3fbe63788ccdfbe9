"""The type that llama-quantize gives each tensor, against mixes of nine models and a published table."""

import json
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.describe.gguf_mix import (
    BASE_TYPES,
    GgufMix,
    GgufShape,
    gets_more_bits,
    mix_bytes,
    parse_mix,
    quantise_types,
)
from capplan.describe.gguf_tensor import GgufTensor, converted_type, is_quantisable
from capplan.errors import UnsupportedError, UsageError

DATA = json.loads((Path(__file__).parents[1] / "data" / "gguf_mixes.json").read_text())


class Transformer:
    """Sizes from a published configuration, and the tensors that its conversion to GGUF holds."""

    def __init__(self, architecture, hidden, layers, heads, kv_heads, head_dim, ffn, vocab, **more):
        self.shape = GgufShape(architecture, layers, heads, kv_heads, more.get("experts", 0))
        self.sizes = (hidden, heads * head_dim, kv_heads * head_dim, ffn, vocab)
        self.more = more

    def tensors(self) -> list[GgufTensor]:
        hidden, queries, keys, ffn, vocab = self.sizes
        found = {"token_embd.weight": (hidden, vocab), "output_norm.weight": (hidden,)}
        if not self.more.get("tied"):
            found["output.weight"] = (hidden, vocab)
        if "rope_freqs" in self.more:
            found["rope_freqs.weight"] = (self.more["rope_freqs"],)
        experts = (self.shape.experts,) if self.shape.experts else ()
        suffix = "_exps" if experts else ""
        for layer in range(self.shape.layers):
            block = {
                "attn_norm": (hidden,),
                "ffn_norm": (hidden,),
                "attn_q": (hidden, queries),
                "attn_k": (hidden, keys),
                "attn_v": (hidden, keys),
                "attn_output": (queries, hidden),
                f"ffn_gate{suffix}": (hidden, ffn, *experts),
                f"ffn_up{suffix}": (hidden, ffn, *experts),
                f"ffn_down{suffix}": (ffn, hidden, *experts),
            }
            if experts:
                block["ffn_gate_inp"] = (hidden, *experts)
            found |= {f"blk.{layer}.{name}.weight": shape for name, shape in block.items()}
            if self.more.get("qkv_bias"):
                for name, width in (("q", queries), ("k", keys), ("v", keys)):
                    found[f"blk.{layer}.attn_{name}.bias"] = (width,)
        return [GgufTensor(name, shape) for name, shape in found.items()]


MODELS = {
    "Llama-3.1-8B": Transformer("llama", 4096, 32, 32, 8, 128, 14336, 128256, rope_freqs=64),
    "Llama-2-70B": Transformer("llama", 8192, 80, 64, 8, 128, 28672, 32000),
    "Llama-3-70B": Transformer("llama", 8192, 80, 64, 8, 128, 28672, 128256),
    "Mistral-7B": Transformer("llama", 4096, 32, 32, 8, 128, 14336, 32000),
    "Mixtral-8x7B": Transformer("llama", 4096, 32, 32, 8, 128, 14336, 32000, experts=8),
    "Llama-3.2-1B": Transformer("llama", 2048, 16, 32, 8, 64, 8192, 128256, tied=True, rope_freqs=32),
    "Llama-3.2-3B": Transformer("llama", 3072, 28, 24, 8, 128, 8192, 128256, tied=True, rope_freqs=64),
    "Qwen2.5-0.5B": Transformer("qwen2", 896, 24, 14, 2, 64, 4864, 151936, tied=True, qkv_bias=True),
    "Qwen2.5-72B": Transformer("qwen2", 8192, 80, 64, 8, 128, 29568, 152064, qkv_bias=True),
}
LLAMA_2_7B = Transformer("llama", 4096, 32, 32, 32, 128, 11008, 32000)


@pytest.mark.parametrize("mix", DATA["mixes"]["Llama-3.1-8B"])
@pytest.mark.parametrize("model", DATA["mixes"])
def test_mix_is_reproduced_tensor_by_tensor(model: str, mix: str) -> None:
    expected = DATA["mixes"][model][mix]
    chosen = quantise_types(MODELS[model].tensors(), MODELS[model].shape, parse_mix(mix))
    types: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for tensor, ggml in chosen:
        row = types[ggml.name]
        row[0] += 1
        row[1] += tensor.elements
        row[2] += ggml.bytes_for(tensor.rows, tensor.columns)
    assert types == expected["types"]
    assert mix_bytes(chosen) == expected["bytes"]
    assert sum(tensor.elements for tensor, _ in chosen) == expected["n_params"]


@pytest.mark.parametrize("mix", DATA["published_bits_per_weight"])
def test_published_bits_per_weight(mix: str) -> None:
    model = MODELS["Llama-3.1-8B"]
    size = mix_bytes(quantise_types(model.tensors(), model.shape, parse_mix(mix)))
    elements = sum(tensor.elements for tensor in model.tensors())
    assert round(8 * size / elements, 4) == DATA["published_bits_per_weight"][mix]


@pytest.mark.parametrize(
    ("model", "gib", "bits"),
    [(LLAMA_2_7B, 3.80, 4.84), (MODELS["Mixtral-8x7B"], 26.49, None), (MODELS["Llama-3-70B"], 39.59, None)],
)
def test_sizes_that_llama_bench_prints_for_q4_k_m(model: Transformer, gib: float, bits: float | None) -> None:
    size = mix_bytes(quantise_types(model.tensors(), model.shape, parse_mix("Q4_K_M")))
    assert round(size / 2**30, 2) == gib
    if bits:
        assert round(8 * size / sum(tensor.elements for tensor in model.tensors()), 2) == bits


def test_only_expert_stacks_are_mxfp4() -> None:
    model = MODELS["Mixtral-8x7B"]
    for tensor, ggml in quantise_types(model.tensors(), model.shape, parse_mix("MXFP4_MOE")):
        expected = "MXFP4" if "_exps" in tensor.name else "Q8_0" if is_quantisable(tensor) else "F32"
        assert ggml.name == expected


def test_falcon_keeps_its_output_at_eight_bits() -> None:
    falcon = Transformer("falcon", 4544, 32, 71, 1, 64, 18176, 65024)
    types = {t.name: g.name for t, g in quantise_types(falcon.tensors(), falcon.shape, parse_mix("Q4_K_M"))}
    assert types["output.weight"] == "Q8_0"
    assert types["blk.0.ffn_down.weight"] == "Q6_K"
    assert types["blk.2.ffn_down.weight"] == "Q5_K"
    assert types["blk.4.ffn_down.weight"] == "Q4_K"
    assert types["blk.2.ffn_up.weight"] == "Q5_0"  # 18176 columns divide by 256, 4544 don't


def test_rows_without_a_fallback_are_refused() -> None:
    odd = [GgufTensor("token_embd.weight", (40, 10)), GgufTensor("output.weight", (40, 10))]
    with pytest.raises(UnsupportedError, match="40 elements"):
        quantise_types(odd, GgufShape("llama", 1, 1, 1), parse_mix("Q4_0"))
    assert [g.name for _, g in quantise_types(odd[:1], GgufShape("llama", 1, 1, 1), parse_mix("F16"))] == ["F16"]


def test_small_tensors_stay_in_f32() -> None:
    router = GgufTensor("blk.0.ffn_gate_inp.weight", (4096, 8))
    assert not is_quantisable(router)
    assert converted_type(router) == "F32"
    assert converted_type(GgufTensor("blk.0.attn_q.weight", (64, 64)), "F16") == "F16"
    assert GgufTensor("x", (7, 1, 1)).dimensions == 1


def test_names() -> None:
    assert parse_mix("q4_k") == GgufMix("Q4_K_M")
    assert parse_mix("iq4-xs+imatrix") == GgufMix("IQ4_XS", importance_matrix=True)
    assert parse_mix("IQ2_XS").needs_importance_matrix
    assert not parse_mix("Q4_K_M").needs_importance_matrix
    with pytest.raises(UsageError) as caught:
        parse_mix("Q4_K_X")
    assert "q4_k_" in caught.value.hint
    with pytest.raises(UsageError, match="option"):
        parse_mix("Q4_K_M+magic")


@given(st.sampled_from(sorted(BASE_TYPES)), st.booleans(), st.sampled_from(sorted(MODELS)))
def test_every_tensor_fits_its_type(mix: str, importance_matrix: bool, model: str) -> None:
    transformer = MODELS[model]
    if mix in ("Q1_0",) and transformer.sizes[0] % 128:
        return
    chosen = quantise_types(transformer.tensors(), transformer.shape, GgufMix(mix, importance_matrix))
    assert len(chosen) == len(transformer.tensors())
    assert all(tensor.columns % ggml.block_elements == 0 for tensor, ggml in chosen)


@given(st.integers(8, 200))
def test_about_half_of_the_layers_get_more_bits(layers: int) -> None:
    favoured = sum(gets_more_bits(layer, layers) for layer in range(layers))
    assert layers / 3 <= favoured <= 2 * layers / 3 + 1
