"""Qwen, Qwen2, Qwen3, and MiMo, which is Qwen2 with draft layers."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import (
    FULL_OR_SLIDING,
    MLP,
    QKV,
    QKVO,
    attention,
    attention_part,
    decoder,
    dense,
    layer_types,
    sliding_layers,
    switched,
    uniform,
)
from capplan.describe.model import Block


def qwen(config: Config) -> dict[str, Any]:
    """Heads of ``kv_channels``; biases on q, k, v always, on the others unless ``no_bias``.

    ``intermediate_size`` is the width of both halves of the gated feed-forward together.
    """
    config.ignore("use_logn_attn", "use_cache_kernel", "use_cache_quantization")
    heads = config.size("num_attention_heads", "n_head")
    biased = not config.flag("no_bias")
    fields = {
        "heads": heads,
        "kv_heads": heads,
        "head_dim": config.size("kv_channels"),
        "bias": QKVO if biased else QKV,
    }
    halves = config.size("intermediate_size", "ffn_hidden_size")
    if halves % 2:
        config.invalid("intermediate_size", f"intermediate_size {halves} must be even: it holds two halves")
    ffn = dense(config, intermediate_size=halves // 2, bias=MLP if biased else ())
    block = Block(mixer=(attention_part(config, fields),), ffn=(ffn,))
    return decoder(
        config,
        uniform(config, block, "num_hidden_layers", "n_layer"),
        hidden_size=config.size("hidden_size", "n_embd"),
        max_positions=config.optional_size("seq_length", "max_position_embeddings", "n_positions"),
        embedding={"vocab_size": config.size("vocab_size", "padded_vocab_size")},
    )


def qwen2(config: Config, **features: Any) -> dict[str, Any]:
    """Biases on q, k and v alone; layers from ``max_window_layers`` on slide where ``use_sliding_window`` is set."""
    if "bias" not in features:
        config.ignore("attention_bias", "qkv_bias")
        features["bias"] = QKV
    window = config.optional_size("sliding_window")
    if not config.flag("use_sliding_window", default=False):
        window = None
    full_layers = config.count("max_window_layers", default=0)

    def by_index(layers: int) -> list[str]:
        return ["sliding_attention" if window and i >= full_layers else "full_attention" for i in range(layers)]

    types = layer_types(config, FULL_OR_SLIDING, by_index)
    stack = sliding_layers(config, types, attention(config, **features), window, ffn=(dense(config),))
    return decoder(config, stack)


def qwen3(config: Config) -> dict[str, Any]:
    """Qwen2's layers with a norm on each query and key head, and biases only by ``attention_bias``."""
    return qwen2(config, qk_norm="head", bias=switched(config, "attention_bias", QKVO))


def mimo(config: Config) -> dict[str, Any]:
    """Qwen2, and layers that draft: each adds a projection of two hidden states to one, and three norms."""
    fields = qwen2(config)
    drafts = config.count("num_nextn_predict_layers")
    if drafts:
        hidden = fields["hidden_size"]
        layer = Block(
            mixer=(attention_part(config, attention(config, bias=QKV)),),
            ffn=(dense(config),),
            norms=5,
            tensors={"input_proj.weight": (hidden, 2 * hidden)},
        )
        fields["mtp"] = {
            "hidden_size": hidden,
            "blocks": {"draft": layer},
            "layers": f"{drafts}*draft",
            "final_norms": 0,
        }
    return fields
