"""Decoders with GQA and DeepSeek-V3's experts: GLM-4.5 and its successors, dots.llm1, Solar Open, Hunyuan 3."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import (
    MLP,
    QKV,
    QKVO,
    attention,
    attention_part,
    decoder,
    dense,
    layer_types,
    layered,
    rotary_dim,
    switched,
)
from capplan.describe.families.deepseek import glm_draft_layers
from capplan.describe.families.experts import (
    NEXTN_KEYS,
    WIDTH_KEYS,
    dense_or_experts,
    draft_layers,
    expert_mask,
    routed_experts,
)
from capplan.describe.model import Block


def glm4_moe(config: Config) -> dict[str, Any]:
    """Biases on q, k and v by ``attention_bias``, a norm a head by ``use_qk_norm``, half of each head rotates.

    Without ``head_dim`` a head is ``hidden / heads`` rounded down.
    """
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    head_dim = config.optional_size("head_dim") or hidden // heads
    norm = "head" if config.flag("use_qk_norm", default=False) else "none"
    fields = {
        "heads": heads,
        "kv_heads": config.optional_size("num_key_value_heads") or heads,
        "head_dim": head_dim,
        "qk_norm": norm,
        "rotary_dim": rotary_dim(config, head_dim, default=0.5),
        "bias": switched(config, "attention_bias", QKV),
    }
    mixer = attention_part(config, fields)

    def block(sparse: bool) -> Block:
        ffn = routed_experts(config, correction_bias=True) if sparse else dense(config)
        return Block(mixer=(mixer,), ffn=(ffn,))

    mtp = glm_draft_layers(config, block(True))
    return decoder(config, dense_or_experts(expert_mask(config), block), mtp=mtp)


def solar_open(config: Config) -> dict[str, Any]:
    """Experts in every layer; biases on q, k and v by ``attention_bias``."""
    fields = attention(config, bias=switched(config, "attention_bias", QKV))
    mixer = attention_part(config, {**fields, "rotary_dim": rotary_dim(config, fields["head_dim"])})

    def block(sparse: bool) -> Block:
        ffn = routed_experts(config, correction_bias=True) if sparse else dense(config)
        return Block(mixer=(mixer,), ffn=(ffn,))

    mtp = glm_draft_layers(config, block(True))
    return decoder(config, dense_or_experts(expert_mask(config), block), mtp=mtp)


def dots1(config: Config) -> dict[str, Any]:
    """A norm a head; layers from ``max_window_layers`` on slide where ``sliding_window`` has a value."""
    window = config.optional_size("sliding_window")
    full_layers = config.count("max_window_layers", default=0)
    config.ignore("use_sliding_window")

    def by_index(layers: int) -> list[str]:
        return ["sliding_attention" if window and i >= full_layers else "full_attention" for i in range(layers)]

    types = layer_types(config, ("full_attention", "sliding_attention"), by_index)
    fields = attention(config, qk_norm="head", bias=switched(config, "attention_bias", QKVO))
    layers = []
    for kind, sparse in zip(types, expert_mask(config), strict=True):
        slides = kind == "sliding_attention"
        if slides and window is None:
            config.invalid("sliding_window", "layers slide (layer_types), but sliding_window has no value")
        mixer = attention_part(config, {**fields, "window": window if slides else None})
        ffn = routed_experts(config, correction_bias=True) if sparse else dense(config)
        name = ("moe" if sparse else "dense") + ("_sliding" if slides else "")
        layers.append((name, Block(mixer=(mixer,), ffn=(ffn,))))
    return decoder(config, layered(layers))


def hy_v3(config: Config) -> dict[str, Any]:
    """A norm a head, biases by ``attention_bias`` and ``mlp_bias``, the first layer dense where no key tells."""
    config.ignore("enable_moe_fp32_combine", "enable_attention_fp32_softmax", "enable_lm_head_fp32")
    config.ignore("qk_norm", "moe_router_enable_expert_bias")
    mixer = attention_part(config, attention(config, qk_norm="head", bias=switched(config, "attention_bias", QKVO)))
    bias = switched(config, "mlp_bias", MLP)
    width, shared = config.size(*WIDTH_KEYS), config.count("num_shared_experts", "n_shared_experts")

    def block(sparse: bool) -> Block:
        if not sparse:
            return Block(mixer=(mixer,), ffn=(dense(config, bias=bias),))
        beside = {"intermediate_size": shared * width, "bias": bias} if shared else None
        return Block(mixer=(mixer,), ffn=(routed_experts(config, correction_bias=True, shared=beside),))

    count = config.count(*NEXTN_KEYS, default=1)
    if not any(key in config.data for key in NEXTN_KEYS):
        config.assume("one MTP layer", "as in the release; the configuration does not say")
    mtp = draft_layers(config, block(True), count=count)
    return decoder(config, dense_or_experts(expert_mask(config, first_dense=1), block), mtp=mtp)
