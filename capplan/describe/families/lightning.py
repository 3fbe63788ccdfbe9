"""MiniMax-Text-01 and M1: lightning attention with softmax attention in between, experts in every layer."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import (
    attention,
    attention_part,
    decoder,
    layer_count,
    layer_types,
    layered,
    make,
    moe,
    rotary_dim,
)
from capplan.describe.model import Block, LightningAttention

FACTORS = tuple(
    f"{part}_{letter}_factor" for part in ("full_attn", "linear_attn", "mlp") for letter in ("alpha", "beta")
)
ORIGINAL_FACTORS = tuple(
    f"layernorm_{part}_{letter}"
    for part in ("full_attention", "linear_attention", "mlp")
    for letter in ("alpha", "beta")
)


def minimax(config: Config) -> dict[str, Any]:
    """Every second layer is linear unless ``layer_types`` or the original files' ``attn_type_list`` says otherwise."""
    config.ignore("block_size", "sliding_window", "postnorm", "shared_moe_mode", *FACTORS, *ORIGINAL_FACTORS)
    if config.count("shared_intermediate_size", default=0):
        config.refuse("shared_intermediate_size", "MiniMax with shared experts is not supported")
    fields = attention(config)
    head_dim = fields["head_dim"]
    rotated = config.count_or_none("rotary_dim")
    fields["rotary_dim"] = rotary_dim(config, head_dim) if rotated in (None, head_dim) else rotated
    lightning = {"heads": fields["heads"], "head_dim": head_dim}
    experts = moe(
        config,
        experts=config.size("num_experts", "num_local_experts"),
        top_k=config.size("num_experts_per_tok"),
        intermediate_size=config.size("intermediate_size"),
    )
    blocks = {
        "full_attention": ("attention", Block(mixer=(attention_part(config, fields),), ffn=(experts,))),
        "linear_attention": ("lightning", Block(mixer=(make(config, LightningAttention, lightning),), ffn=(experts,))),
    }
    tied = config.flag("tie_word_embeddings", default=False)
    return decoder(config, layered([blocks[kind] for kind in _order(config)]), embedding={"tied": tied})


def _order(config: Config) -> list[str]:
    numbered = config.items("attn_type_list", length=layer_count(config))
    for kind in numbered or []:
        if kind not in (0, 1):
            config.refuse(
                "attn_type_list", f"the attention type {kind!r} is not supported", "0 (linear) or 1 (softmax)"
            )

    def by_number(layers: int) -> list[str]:
        softmax = numbered if numbered is not None else [not index % 2 for index in range(layers)]
        return ["full_attention" if kind else "linear_attention" for kind in softmax]

    return layer_types(config, ("full_attention", "linear_attention"), by_number)
