"""Llama and the decoders that differ from it in a switch or two."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import (
    QKV,
    QKVO,
    attention,
    attention_part,
    decoder,
    dense,
    layer_types,
    layered,
    uniform,
)
from capplan.describe.model import Block


def llama(config: Config) -> dict[str, Any]:
    """RMS norms, GQA, a gated feed-forward; biases by ``attention_bias`` and ``mlp_bias``."""
    bias = QKVO if config.flag("attention_bias", default=False) else ()
    ffn_bias = ("gate", "up", "down") if config.flag("mlp_bias", default=False) else ()
    block = Block(
        mixer=attention_part(config, attention(config, bias=bias)),
        ffn=dense(config, bias=ffn_bias),
    )
    return decoder(config, uniform(config, block))


def mistral(config: Config) -> dict[str, Any]:
    """Llama with one sliding window for all layers where ``sliding_window`` has a value."""
    block = Block(
        mixer=attention_part(config, attention(config, window=config.optional_size("sliding_window"))),
        ffn=dense(config),
    )
    return decoder(config, uniform(config, block))


def qwen2(config: Config, **features: Any) -> dict[str, Any]:
    """Biases on q, k and v alone; layers from ``max_window_layers`` on slide where ``use_sliding_window`` is set."""
    features.setdefault("bias", QKV)
    window = config.optional_size("sliding_window")
    if not config.flag("use_sliding_window", default=False):
        window = None
    full_layers = config.count("max_window_layers", default=0)

    def by_index(layers: int) -> list[str]:
        return ["sliding_attention" if window and i >= full_layers else "full_attention" for i in range(layers)]

    types = layer_types(config, ("full_attention", "sliding_attention"), by_index)
    base = attention(config, **features)
    ffn = dense(config)
    blocks = {
        "full_attention": ("full", {**base}),
        "sliding_attention": ("sliding", {**base, "window": window}),
    }
    order = []
    for kind in types:
        name, fields = blocks[kind]
        order.append((name, Block(mixer=attention_part(config, fields), ffn=ffn)))
    return decoder(config, layered(order))


def qwen3(config: Config) -> dict[str, Any]:
    """Qwen2's layers with a norm on each query and key head, and biases only by ``attention_bias``."""
    bias = QKVO if config.flag("attention_bias", default=False) else ()
    return qwen2(config, qk_norm="head", bias=bias)
