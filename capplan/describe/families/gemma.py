"""Gemma 1 and 2: heads wider than their share of the hidden state, tied embeddings, and GeGLU."""

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


def gemma(config: Config) -> dict[str, Any]:
    """Llama's layers without biases in the feed-forward."""
    fields = attention(config, bias=switched(config, "attention_bias", QKVO))
    return decoder(config, same_layers(config, fields, dense(config)))


def gemma2(config: Config) -> dict[str, Any]:
    """Sliding and full layers by turns, sliding first; norms before and after each sublayer."""
    fields = attention(config, bias=switched(config, "attention_bias", QKVO))
    types = layer_types(config, FULL_OR_SLIDING, sliding_every(2))
    window = config.optional_size("sliding_window")
    return decoder(config, sliding_layers(config, types, fields, window, ffn=(dense(config),), norms=4))
