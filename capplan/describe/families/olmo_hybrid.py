"""OLMo hybrid: gated delta nets with a full attention layer at every fourth place."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import (
    QKVO,
    attention,
    attention_part,
    decoder,
    dense,
    layer_types,
    layered,
    make,
    switched,
)
from capplan.describe.model import Block, GatedDeltaNet


def olmo_hybrid(config: Config) -> dict[str, Any]:
    """Norms over all heads of queries and keys; linear sizes follow the attention's where the keys have no value."""
    config.ignore("linear_allow_neg_eigval", "linear_a_log_min", "linear_a_log_max")
    config.ignore("linear_dt_min", "linear_dt_max", "linear_dt_init_floor")

    def every_fourth(layers: int) -> list[str]:
        types = ["linear_attention" if (index + 1) % 4 else "full_attention" for index in range(layers)]
        return types if "full_attention" in types else [*types[:-1], "full_attention"]

    types = layer_types(config, ("full_attention", "linear_attention"), every_fourth)
    fields = attention(config, qk_norm="full", bias=switched(config, "attention_bias", QKVO))
    rope = config.raw("rope_parameters", default=None)
    if not isinstance(rope, dict) or rope.get("rope_theta") is None:
        fields["rotary_dim"] = 0
    heads = fields["heads"]
    key_heads = config.optional_size("linear_num_key_heads") or heads
    key_dim = config.optional_size("linear_key_head_dim") or int(0.75 * config.size("hidden_size") / key_heads)
    linear = {
        "key_heads": key_heads,
        "value_heads": config.optional_size("linear_num_value_heads") or heads,
        "key_dim": key_dim,
        "value_dim": config.optional_size("linear_value_head_dim") or 2 * key_dim,
        "conv_kernel": config.size("linear_conv_kernel_dim"),
        "projections": "separate",
    }
    ffn = dense(config)
    blocks = {
        "full_attention": ("attention", Block(mixer=(attention_part(config, fields),), ffn=(ffn,))),
        "linear_attention": ("linear", Block(mixer=(make(config, GatedDeltaNet, linear),), ffn=(ffn,))),
    }
    return decoder(config, layered([blocks[kind] for kind in types]))
