"""OPT and Galactica: learned positions, LayerNorm, two matrices a feed-forward."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import (
    PLAIN_MLP,
    QKVO,
    attention_part,
    decoder,
    dense,
    multi_head,
    switched,
    uniform,
)
from capplan.describe.model import Block

POSITION_OFFSET = 2
"""Rows of the position table before the first position (fairseq's padding)."""


def opt(config: Config) -> dict[str, Any]:
    """Biases by ``enable_bias``; where the token table is narrower than the layers, a projection in and one out."""
    config.ignore("learned_embeddings")
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    fields = multi_head(config, heads, hidden, bias=switched(config, "enable_bias", QKVO), rotary_dim=0)
    ffn = dense(
        config,
        intermediate_size=config.size("ffn_dim"),
        gated=False,
        bias=switched(config, "enable_bias", PLAIN_MLP),
    )
    width = config.optional_size("word_embed_proj_dim") or hidden
    narrow = {"project_in.weight": (hidden, width), "project_out.weight": (width, hidden)}
    final_norm = config.flag("do_layer_norm_before") and not config.flag("_remove_final_layer_norm", default=False)
    positions = config.size("max_position_embeddings")
    block = Block(mixer=(attention_part(config, fields),), ffn=(ffn,))
    return decoder(
        config,
        uniform(config, block),
        norm="layer" if config.flag("layer_norm_elementwise_affine") else "none",
        final_norms=1 if final_norm else 0,
        max_positions=positions,
        tensors=narrow if width != hidden else {},
        embedding={"size": width, "positions": positions + POSITION_OFFSET},
    )
