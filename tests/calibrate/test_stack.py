"""Whole models in torch: a prompt at once and token by token agree; parameters and caches are what capplan counts."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from calibrate.phase_load import Load  # noqa: E402
from calibrate.phases import expected_cache_bytes  # noqa: E402
from calibrate.shrink import least_depth, shrunk, weight_bytes, with_depth  # noqa: E402
from calibrate.stack.model import Model, cache_bytes, why_not  # noqa: E402
from calibrate.stack.weights import Weights  # noqa: E402
from capplan.describe.model import (  # noqa: E402
    Attention,
    Block,
    Dense,
    Embedding,
    GatedDeltaNet,
    LatentAttention,
    Mamba,
    MixtureOfExperts,
    ModelSpec,
    SharedExperts,
    ShortConvolution,
)
from capplan.errors import UnsupportedError, UsageError  # noqa: E402
from capplan.memory.weights import count_parameters  # noqa: E402

pytestmark = pytest.mark.torch

DENSE = Dense(intermediate_size=96)
MIXTURE = MixtureOfExperts(
    experts=8,
    top_k=2,
    intermediate_size=32,
    shared=SharedExperts(intermediate_size=48, gate=True),
    correction_bias=True,
)
LATENT: dict[str, int] = {
    "heads": 4, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
}  # fmt: skip


def spec(
    mixer: Any, ffn: Any = DENSE, *, norms: int = 2, norm: Any = "rms", layers: str = "2*a", **embedding: Any
) -> ModelSpec:
    return ModelSpec(
        name="tiny",
        hidden_size=64,
        norm=norm,
        blocks={"a": Block(mixer=mixer, ffn=ffn, norms=norms)},
        layers=layers,
        embedding=Embedding(vocab_size=300, **embedding),
    )


SPECS = {
    "grouped queries": spec(Attention(heads=4, kv_heads=2, head_dim=16, qk_norm="head", bias=("q", "k", "v"))),
    "sliding window": spec(Attention(heads=4, kv_heads=1, head_dim=16, window=8), norms=4, tied=True),
    "gated, norms over all heads": spec(
        Attention(heads=4, kv_heads=2, head_dim=16, qk_norm="full", output_gate="full", rotary_dim=8)
    ),
    "narrow values, parallel layers": spec(
        Attention(heads=4, kv_heads=2, head_dim=16, output_gate="head", v_head_dim=8),
        norm="layer",
        norms=1,
        head_bias=True,
    ),
    "values are keys, learned positions": spec(
        Attention(heads=4, kv_heads=2, head_dim=16, value_is_key=True, rotary_dim=0), norm="layer_no_bias", positions=64
    ),
    "latent": spec(LatentAttention(**LATENT)),
    "latent, low-rank queries, experts": spec(LatentAttention(**LATENT, q_lora_rank=24, output_gate="full"), MIXTURE),
    "delta net, experts": spec(
        GatedDeltaNet(key_heads=2, value_heads=4, key_dim=16, value_dim=16, conv_kernel=4), MIXTURE
    ),
    "short convolution, no gate": spec(
        ShortConvolution(conv_kernel=3, bias=True), Dense(intermediate_size=96, gated=False, bias=("up", "down"))
    ),
}
RECURRENT = ("delta net, experts", "short convolution, no gate")
TOKENS, BATCH, SPLIT = 21, 2, 12


def run(name: str, form: str) -> tuple[Any, Any, list[Any], Weights]:
    """(logits of the whole prompt, of a prompt and tokens, the second's caches, the weights)."""
    weights = Weights("cpu", form)
    with torch.inference_mode():
        model = Model(SPECS[name], weights, 64)
        tokens = torch.randint(0, 300, (BATCH, TOKENS), generator=torch.Generator().manual_seed(1))
        whole = model.logits(tokens, model.new_caches(BATCH, TOKENS), 0)
        caches = model.new_caches(BATCH, TOKENS)
        last = model.logits(tokens[:, :SPLIT], caches, 0)
        for place in range(SPLIT, TOKENS):
            last = model.logits(tokens[:, place : place + 1], caches, place)
    return whole, last, caches, weights


@pytest.mark.parametrize("name", SPECS)
def test_token_by_token_is_the_prompt_at_once(name: str) -> None:
    whole, last, _, _ = run(name, "fp32")
    assert torch.allclose(whole, last, atol=1e-4, rtol=1e-4)
    whole, last, _, _ = run(name, "bf16")
    assert float((whole.float() - last.float()).abs().max() / whole.float().abs().max()) < 0.05


@pytest.mark.parametrize("name", [name for name in SPECS if name not in RECURRENT])
def test_a_prompt_in_two_chunks_is_the_prompt_at_once(name: str) -> None:
    with torch.inference_mode():
        model = Model(SPECS[name], Weights("cpu", "fp32"), 64)
        tokens = torch.randint(0, 300, (BATCH, TOKENS))
        whole = model.logits(tokens, model.new_caches(BATCH, TOKENS), 0)
        caches = model.new_caches(BATCH, TOKENS)
        model.logits(tokens[:, :10], caches, 0)
        chunked = model.logits(tokens[:, 10:], caches, 10)
    assert torch.allclose(whole, chunked, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("form", ["fp32", "bf16"])
@pytest.mark.parametrize("name", SPECS)
def test_real_tensors_are_what_capplan_counts(name: str, form: str) -> None:
    _, _, caches, weights = run(name, form)
    assert weights.elements == count_parameters(SPECS[name]).total
    assert weights.bytes == weight_bytes(SPECS[name], form)
    load = Load(BATCH, SPLIT, TOKENS - SPLIT + 1)
    assert load.length == TOKENS
    assert cache_bytes(caches) == expected_cache_bytes(SPECS[name], load, form)


def test_experts_are_counted_as_bincount_does() -> None:
    from calibrate.operations.experts import tokens_of_each

    chosen = torch.randint(0, 7, (40,))
    assert torch.equal(tokens_of_each(chosen, 9), torch.bincount(chosen, minlength=9))


def test_experts_by_grouped_product_and_by_loop_agree() -> None:
    from calibrate.operations.experts import exact_mixture, has_grouped_product, mixture

    x, first, second = torch.randn(9, 32), torch.randn(6, 48, 32), torch.randn(6, 32, 24)
    chosen = torch.stack([torch.randperm(6)[:2] for _ in range(9)])
    weights = torch.rand(9, 2)
    loop = mixture(x, chosen, weights, first, second)
    exact = torch.stack([exact_mixture(x, chosen, weights, first, second, row) for row in range(9)])
    assert torch.allclose(loop.double(), exact, atol=1e-3)
    if has_grouped_product():
        half = [part.bfloat16() for part in (x, first, second)]
        grouped = mixture(half[0], chosen, weights, half[1], half[2])
        assert float((grouped.double() - exact).abs().max() / exact.abs().max()) < 0.05


@pytest.mark.parametrize(
    ("mixer", "reason"),
    [
        (Mamba(inner=64, state=8, conv_kernel=4, dt_rank=4), "mamba"),
        (Attention(heads=4, kv_heads=2, head_dim=16, sinks=True), "sinks"),
        (Attention(heads=4, kv_heads=2, head_dim=16, causal=False, cache="none"), "shared cache"),
    ],
)
def test_what_cannot_be_run_is_named(mixer: Any, reason: str) -> None:
    assert reason in why_not(spec(mixer))
    with pytest.raises(UnsupportedError, match="cannot be run here"):
        Model(spec(mixer), Weights("cpu"), 8)


def test_a_model_is_shrunk_to_its_first_layers() -> None:
    blocks = {
        "a": Block(mixer=Attention(heads=4, kv_heads=2, head_dim=16), ffn=DENSE),
        "b": Block(mixer=Attention(heads=4, kv_heads=2, head_dim=16), ffn=MIXTURE),
    }
    whole = ModelSpec(
        name="two kinds", hidden_size=64, blocks=blocks, layers="a + 6*b", embedding=Embedding(vocab_size=300)
    )
    assert least_depth(whole) == 2
    size = weight_bytes(whole, "bf16")
    assert shrunk(whole, size) is whole
    shorter = shrunk(whole, size - 1)
    assert shorter.order == whole.order[: shorter.depth]
    assert shorter.depth == 6
    assert weight_bytes(shorter, "bf16") <= size - 1
    assert with_depth(whole, 1).blocks.keys() == {"a"}
    with pytest.raises(UsageError, match="one layer of each kind"):
        shrunk(whole, 1000)
