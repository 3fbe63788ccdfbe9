"""gpt-oss: attention sinks, alternating windows, biases on attention, router and experts."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import (
    QKVO,
    attention,
    decoder,
    layer_types,
    moe,
    sliding_every,
    sliding_layers,
    switched,
)


def gpt_oss(config: Config) -> dict[str, Any]:
    """Every other layer slides; experts of ``intermediate_size`` with biases, one learned sink a head."""
    types = layer_types(config, ("full_attention", "sliding_attention"), sliding_every(2))
    fields = attention(config, sinks=True, bias=switched(config, "attention_bias", QKVO))
    ffn = moe(
        config,
        experts=config.size("num_experts", "num_local_experts"),
        top_k=config.size("num_experts_per_tok", "experts_per_token"),
        intermediate_size=config.size("intermediate_size"),
        router_bias=True,
        expert_bias=True,
    )
    window = config.optional_size("sliding_window")
    return decoder(config, sliding_layers(config, types, fields, window, ffn=(ffn,)))
