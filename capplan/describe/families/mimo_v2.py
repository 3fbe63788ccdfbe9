"""MiMo-V2: windows of few tokens with sinks, wider keys than values, more KV heads where layers slide."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import (
    QKV,
    attention_part,
    decoder,
    dense,
    layer_count,
    layer_types,
    layered,
    rotary_dim,
    switched,
)
from capplan.describe.families.experts import draft_layers, expert_mask, one_of, routed_experts
from capplan.describe.model import Attention, Block

FULL, SLIDING = "full_attention", "sliding_attention"


def mimo_v2_flash(config: Config) -> dict[str, Any]:
    """Sliding layers have sizes of their own (``swa_...``), and twice the KV heads where those are not given."""
    config.ignore("attention_projection_layout", "hybrid_block_size", "attention_value_scale")
    mixers = {FULL: _attention(config, ""), SLIDING: _attention(config, "swa_")}
    order = []
    for kind, sparse in zip(_layer_types(config), expert_mask(config, first_dense=1), strict=True):
        ffn = routed_experts(config, correction_bias=True) if sparse else dense(config)
        name = ("moe" if sparse else "dense") + ("_sliding" if kind == SLIDING else "")
        order.append((name, Block(mixer=(mixers[kind],), ffn=(ffn,))))
    mtp = draft_layers(config, Block(mixer=(mixers[SLIDING],), ffn=(dense(config),)))
    return decoder(config, layered(order), mtp=mtp)


def _layer_types(config: Config) -> list[str]:
    """``layer_types``, or ``hybrid_layer_pattern`` (1: sliding), or one full layer first and then each sixth."""
    pattern = config.items("hybrid_layer_pattern", length=layer_count(config))

    def by_pattern(layers: int) -> list[str]:
        if pattern is not None:
            flags = one_of(config, "hybrid_layer_pattern", pattern, (0, 1))
            return [SLIDING if flag else FULL for flag in flags]
        return [FULL if index == 0 or (index + 1) % 6 == 0 else SLIDING for index in range(layers)]

    return layer_types(config, (FULL, SLIDING), by_pattern)


def _attention(config: Config, prefix: str) -> Attention:
    """Full attention, or with the prefix ``swa_`` the sliding layers'.

    ``sliding_window_size`` counts the tokens before the query's own, ``sliding_window`` that one as well.
    """
    heads, kv_heads = config.size("num_attention_heads"), config.size("num_key_value_heads")
    head_dim, value_dim = config.size("head_dim"), config.optional_size("v_head_dim")
    window, sinks = None, config.flag("add_full_attention_sink_bias", default=False)
    if prefix:
        heads = config.optional_size("swa_num_attention_heads") or heads
        kv_heads = config.optional_size("swa_num_key_value_heads") or 2 * kv_heads
        head_dim = config.optional_size("swa_head_dim") or head_dim
        value_dim = config.optional_size("swa_v_head_dim") or value_dim
        sinks = config.flag("add_swa_attention_sink_bias", default=True)
        before = config.optional_size("sliding_window_size")
        own = config.size("sliding_window")
        window = own if before is None else before + 1
    fields = {
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "v_head_dim": value_dim,
        "window": window,
        "sinks": sinks,
        "bias": switched(config, "attention_bias", QKV),
        "rotary_dim": rotary_dim(config, head_dim, default=0.334, layer_type=SLIDING if prefix else FULL),
    }
    return attention_part(config, fields)
