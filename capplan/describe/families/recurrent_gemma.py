"""RecurrentGemma (Griffin): gated linear recurrences between layers of local attention."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import (
    MLP,
    QKV,
    attention_part,
    decoder,
    dense,
    even_heads,
    layer_count,
    layered,
    make,
    rotary_dim,
    switched,
)
from capplan.describe.model import Block, RecurrentGatedLru


def recurrent_gemma(config: Config) -> dict[str, Any]:
    """``block_types`` repeats; the MLP is half as wide as ``intermediate_size``, and most maps have biases."""
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    head_dim = config.optional_size("head_dim") or even_heads(config, heads, hidden)
    width = config.optional_size("lru_width") or hidden
    if width % heads:
        config.invalid("lru_width", f"lru_width {width} does not divide by {heads} heads")
    attention = {
        "heads": heads,
        "kv_heads": config.optional_size("num_key_value_heads") or heads,
        "head_dim": head_dim,
        "window": config.size("sliding_window", "attention_window_size"),
        "bias": (*switched(config, "attention_bias", QKV), "o"),
        "rotary_dim": rotary_dim(config, head_dim, default=0.5),
    }
    recurrence = {"width": width, "heads": heads, "conv_kernel": config.size("conv1d_width")}
    ffn = dense(config, intermediate_size=config.size("intermediate_size") // 2, bias=MLP)
    blocks = {
        "attention": Block(mixer=(attention_part(config, attention),), ffn=(ffn,)),
        "recurrent": Block(mixer=(make(config, RecurrentGatedLru, recurrence),), ffn=(ffn,)),
    }
    return decoder(config, layered([(kind, blocks[kind]) for kind in _order(config)]))


def _order(config: Config) -> list[str]:
    pattern = config.items("block_types") or []
    if not pattern:
        config.invalid("block_types", "there must be at least one block type")
    for kind in pattern:
        if kind not in ("recurrent", "attention"):
            config.refuse("block_types", f"the block type {kind!r} is not supported", "recurrent or attention")
    return [pattern[index % len(pattern)] for index in range(layer_count(config))]
