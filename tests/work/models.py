"""Models that the tests of the ledger share: published configurations, and small ones of every kind of layer."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from capplan.describe.huggingface import read_config
from capplan.describe.model import (
    Attention,
    Block,
    CompressedAttention,
    CrossAttention,
    Dense,
    Embedding,
    GatedDeltaNet,
    Indexer,
    KimiDeltaAttention,
    LatentAttention,
    LightningAttention,
    Mamba,
    Mamba2,
    MixtureOfExperts,
    ModelSpec,
    RecurrentGatedLru,
    SharedExperts,
    ShortConvolution,
    Stack,
)

CONFIGS = Path(__file__).parents[1] / "data" / "model_truth" / "configs"


@cache
def published(name: str) -> ModelSpec:
    """A published configuration by the name of its file."""
    path = CONFIGS / f"{name}.json"
    return read_config(json.loads(path.read_text(encoding="utf-8")), where=path.name, name=name)


@cache
def all_published() -> dict[str, ModelSpec]:
    """Every published configuration."""
    return {path.stem: published(path.stem) for path in sorted(CONFIGS.glob("*.json"))}


GQA = Attention(heads=16, kv_heads=8, head_dim=16, qk_norm="head", bias=("q", "k", "v"))
MLA = LatentAttention(heads=16, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=12, q_lora_rank=24)
SCORER = Indexer(heads=4, head_dim=8, top_k=32, query_rank=24, head_weights=True, norm="key_with_bias")
DENSE = Dense(intermediate_size=96)
EXPERTS = MixtureOfExperts(
    experts=16, top_k=4, intermediate_size=32, shared=SharedExperts(intermediate_size=64, gate=True), router_bias=True
)

BLOCKS: dict[str, Block] = {
    "dense": Block(mixer=(GQA,), ffn=(DENSE,)),
    "window": Block(mixer=(Attention(heads=16, kv_heads=16, head_dim=16, window=24, sinks=True),), ffn=(DENSE,)),
    "chunk": Block(mixer=(Attention(heads=16, kv_heads=2, head_dim=16, chunk=24, output_gate="full"),), ffn=(DENSE,)),
    "moe": Block(mixer=(GQA,), ffn=(EXPERTS,)),
    "latent_moe": Block(
        mixer=(GQA,), ffn=(MixtureOfExperts(experts=16, top_k=3, intermediate_size=32, latent_size=48, gated=False),)
    ),
    "identity_moe": Block(
        mixer=(GQA,), ffn=(MixtureOfExperts(experts=16, top_k=6, intermediate_size=32, identity_experts=8), DENSE)
    ),
    "mla": Block(mixer=(MLA,), ffn=(EXPERTS,)),
    "sparse_mla": Block(
        mixer=(
            LatentAttention(
                heads=16,
                kv_lora_rank=32,
                qk_nope_head_dim=16,
                qk_rope_head_dim=8,
                v_head_dim=12,
                q_lora_rank=24,
                indexer=SCORER,
            ),
        ),
        ffn=(DENSE,),
    ),
    "sparse": Block(
        mixer=(Attention(heads=16, kv_heads=8, head_dim=16, indexer=Indexer(heads=2, head_dim=8, top_k=16)),),
        ffn=(DENSE,),
    ),
    "compressed": Block(
        mixer=(
            CompressedAttention(
                heads=16,
                head_dim=16,
                q_lora_rank=24,
                o_lora_rank=8,
                o_groups=8,
                window=16,
                rate=4,
                indexer=Indexer(heads=4, head_dim=8, top_k=8, query_rank=24, head_weights=True),
                overlap=True,
                rotary_dim=8,
            ),
        ),
        ffn=(DENSE,),
    ),
    "delta": Block(
        mixer=(GatedDeltaNet(key_heads=8, value_heads=16, key_dim=8, value_dim=12, conv_kernel=4),), ffn=(EXPERTS,)
    ),
    "kda": Block(mixer=(KimiDeltaAttention(heads=16, head_dim=8, conv_kernel=4),), ffn=(DENSE,)),
    "lightning": Block(mixer=(LightningAttention(heads=16, head_dim=8),), ffn=(DENSE,)),
    "mamba": Block(mixer=(Mamba(inner=128, state=8, conv_kernel=4, dt_rank=8, inner_norms=True),), norms=1),
    "mamba2": Block(mixer=(Mamba2(heads=16, head_dim=8, groups=8, state=16, conv_kernel=4),), norms=1),
    "parallel": Block(
        mixer=(GQA, Mamba2(heads=16, head_dim=8, groups=8, state=16, conv_kernel=4)), ffn=(DENSE,), norms=2
    ),
    "rg_lru": Block(mixer=(RecurrentGatedLru(width=64, heads=8, conv_kernel=4),), ffn=(DENSE,)),
    "short": Block(mixer=(ShortConvolution(conv_kernel=3),), ffn=(DENSE,)),
    "cross": Block(
        mixer=(GQA, CrossAttention(heads=16, kv_heads=8, head_dim=16, source="encoder")), ffn=(DENSE,), norms=3
    ),
}


@cache
def small(*blocks: str) -> ModelSpec:
    """A small model with two layers of each of these blocks."""
    named = {name: BLOCKS[name] for name in blocks}
    encoder = None
    if "cross" in blocks:
        attention = Attention(heads=16, kv_heads=16, head_dim=4, causal=False, cache="none")
        encoder = Stack(hidden_size=64, blocks={"layer": Block(mixer=(attention,), ffn=(DENSE,))}, layers="2*layer")
    return ModelSpec(
        name="+".join(blocks),
        hidden_size=64,
        blocks=named,
        layers=" + ".join(f"2*{name}" for name in blocks),
        embedding=Embedding(vocab_size=256),
        encoder=encoder,
    )
