"""Qwen's mixtures of experts with ordinary attention: Qwen1.5-MoE, Qwen2-MoE, Qwen3-MoE."""

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
    layer_count,
    layer_types,
    layered,
    moe,
    switched,
)
from capplan.describe.model import Block, Dense, MixtureOfExperts


def sparse_layers(config: Config) -> list[bool]:
    """Experts in each ``decoder_sparse_step``-th layer that ``mlp_only_layers`` does not list."""
    step = config.size("decoder_sparse_step", default=1)
    dense_only = config.items("mlp_only_layers") or []
    has_experts = config.count("num_experts", "num_local_experts") > 0
    layers = layer_count(config)
    return [has_experts and index not in dense_only and (index + 1) % step == 0 for index in range(layers)]


def qwen2_moe(config: Config) -> dict[str, Any]:
    """Biases on q, k and v by ``qkv_bias``; a gated shared expert; where windows are used, every other layer slides."""
    window = config.count_or_none("sliding_window") or None
    slide_until = config.count("max_window_layers", default=0)
    if not config.flag("use_sliding_window", default=False):
        window = None

    def by_index(layers: int) -> list[str]:
        slides = [window is not None and index % 2 == 0 and index < slide_until for index in range(layers)]
        return ["sliding_attention" if flag else "full_attention" for flag in slides]

    types = layer_types(config, ("full_attention", "sliding_attention"), by_index)
    if window is None and "sliding_attention" in types:
        config.invalid("sliding_window", "layers slide (layer_types), but no sliding_window is in use")
    windows = [window if kind == "sliding_attention" else None for kind in types]
    fields = attention(config, bias=switched(config, "qkv_bias", QKV))
    shared = {"intermediate_size": config.size("shared_expert_intermediate_size"), "gate": True}
    return _decoder(config, fields, windows, shared=shared)


def qwen3_moe(config: Config) -> dict[str, Any]:
    """A norm a head, biases by ``attention_bias``, no shared expert; one window for all layers where it is used."""
    config.ignore("use_qk_norm")
    window = config.count_or_none("sliding_window") or None
    if not config.flag("use_sliding_window", default=False):
        window = None
    fields = attention(config, qk_norm="head", bias=switched(config, "attention_bias", QKVO))
    return _decoder(config, fields, [window] * layer_count(config))


def _decoder(config: Config, fields: dict[str, Any], windows: list[int | None], **experts: Any) -> dict[str, Any]:
    """Layers by window and by whether they have experts of ``moe_intermediate_size``."""
    config.ignore("moe_intermediate_size", "num_experts_per_tok")
    order = []
    for window, sparse in zip(windows, sparse_layers(config), strict=True):
        mixer = attention_part(config, {**fields, "window": window})
        ffn: Dense | MixtureOfExperts = dense(config)
        if sparse:
            ffn = moe(
                config,
                experts=config.size("num_experts", "num_local_experts"),
                top_k=config.size("num_experts_per_tok"),
                intermediate_size=config.size("moe_intermediate_size"),
                **experts,
            )
        name = ("moe" if sparse else "dense") + ("_sliding" if window else "")
        order.append((name, Block(mixer=(mixer,), ffn=(ffn,))))
    return decoder(config, layered(order))
