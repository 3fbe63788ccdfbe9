"""BLOOM: ALiBi instead of positions, and a norm on the embedded tokens."""

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
    uniform,
)
from capplan.describe.model import Block


def bloom(config: Config) -> dict[str, Any]:
    """LayerNorms and biases everywhere; the feed-forward is four times as wide as the hidden state."""
    config.ignore("apply_residual_connection_post_layernorm", "skip_bias_add", "skip_bias_add_qkv")
    hidden = config.optional_size("n_embed") or config.size("hidden_size")
    heads = config.size("num_attention_heads", "n_head")
    width = config.optional_size("n_inner") or 4 * hidden
    if width != 4 * hidden:
        config.refuse("n_inner", f"BLOOM's feed-forward is 4 x {hidden} wide, not {width}")
    mixer = attention_part(config, multi_head(config, heads, hidden, bias=QKVO, rotary_dim=0))
    ffn = dense(config, intermediate_size=width, gated=False, bias=PLAIN_MLP)
    return decoder(
        config,
        uniform(config, Block(mixer=(mixer,), ffn=(ffn,)), "num_hidden_layers", "n_layer"),
        hidden_size=hidden,
        norm="layer",
        max_positions=config.optional_size("seq_length"),
        embedding={"norms": 1},
    )
