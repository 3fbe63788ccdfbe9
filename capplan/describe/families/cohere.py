"""Command-R and Command-A: attention and feed-forward side by side under one LayerNorm without shift."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import (
    FULL_OR_SLIDING,
    QKVO,
    attention,
    decoder,
    dense,
    layer_types,
    sliding_every,
    sliding_layers,
    switched,
)
from capplan.describe.families.llama import same_layers


def cohere(config: Config) -> dict[str, Any]:
    """A norm on queries and keys as wide as all heads by ``use_qk_norm``."""
    fields = attention(
        config,
        bias=switched(config, "attention_bias", QKVO),
        qk_norm="full" if config.flag("use_qk_norm") else "none",
    )
    stack = same_layers(config, fields, dense(config), norms=1)
    return decoder(config, stack, norm="layer_no_bias")


def cohere2(config: Config) -> dict[str, Any]:
    """Three sliding layers with a rotary embedding, then a full one without.

    Files from before transformers had the class name the same things ``layer_switch`` and ``use_embedding_sharing``.
    """
    for key, usual in (("use_gated_activation", True), ("use_parallel_block", True)):
        if not config.flag(key, default=usual):
            config.refuse(key, f"{key} = false is not part of the Cohere 2 architecture")
    if config.text("order_of_interleaved_layers", default=None) not in (None, "local_attn_first"):
        config.refuse("order_of_interleaved_layers", "only layers with sliding attention first are supported")
    config.ignore("use_parallel_embedding")
    fields = attention(config, bias=switched(config, "attention_bias", QKVO))
    types = layer_types(config, FULL_OR_SLIDING, lambda layers: sliding_every(_period(config))(layers))
    config.ignore("sliding_window_pattern", "layer_switch")
    window = config.optional_size("sliding_window")
    unrotated = {"rotary_dim": 0}
    stack = sliding_layers(config, types, fields, window, full=unrotated, ffn=(dense(config),), norms=1)
    tied = config.flag("tie_word_embeddings", "use_embedding_sharing")
    return decoder(config, stack, norm="layer_no_bias", embedding={"tied": tied})


def _period(config: Config) -> int:
    return config.size("sliding_window_pattern", "layer_switch")
