"""Hunyuan's mixtures of experts: Hunyuan-Large with cross-layer attention, Hunyuan-A13B."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import (
    MLP,
    QKVO,
    attention_part,
    decoder,
    even_heads,
    layer_count,
    layered,
    make,
    switched,
)
from capplan.describe.families.experts import by_layer
from capplan.describe.model import Attention, Block, Dense, MixtureOfExperts, Tensors

RUNTIME_KEYS = (
    "add_classification_head",
    "anyres_pooling_size",
    "class_num",
    "dense_list",
    "group_limited_greedy",
    "kv_lora_rank",
    "mask_init_id",
    "moe_drop_tokens",
    "moe_random_routing_dropped_token",
    "norm_type",
    "num_media_embeds",
    "org_vocab_size",
    "pool_type",
    "position_embedding_xdrope",
    "q_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "use_rotary_pos_emb",
    "v_head_dim",
)
"""Keys without effect where MLA (``use_mla``), pictures (``vit_...``) and the classifier are off."""


def hunyuan(config: Config) -> dict[str, Any]:
    """Experts only where ``num_experts`` is above 1, shared ones where a key asks, norms by ``use_qk_norm``."""
    shared = config.flag("use_mixed_mlp_moe", default=False)
    if "use_mixed_mlp_moe" not in config.data:
        shared = config.has("num_shared_expert")
    return _hunyuan(config, least_experts=2, shared=shared, norms=config.flag("use_qk_norm", default=False))


def hunyuan_v1_moe(config: Config) -> dict[str, Any]:
    """Experts in every layer beside a shared one, and a norm on each query and key head."""
    shared = config.flag("use_mixed_mlp_moe", default=True)
    return _hunyuan(config, least_experts=1, shared=shared, norms=config.flag("use_qk_norm", default=True))


def _hunyuan(config: Config, *, least_experts: int, shared: bool, norms: bool) -> dict[str, Any]:
    """Layers by whether they have experts and whether they read another layer's keys and values.

    With ``use_cla``, of each ``cla_share_factor`` layers the first alone has keys and values, and the others read its.
    """
    if config.flag("use_mla", default=False):
        config.refuse("use_mla", "latent attention in Hunyuan is not supported")
    if config.data.get("vit_path") or config.data.get("vit_type") or config.data.get("add_classification_head"):
        config.refuse("vit_type", "Hunyuan with a vision tower or a classifier is not supported")
    config.ignore(*RUNTIME_KEYS, *(key for key in config.data if key.startswith("vit_")))
    own = _attention(config, norms)
    reads = replace(own, cache="shared", kv_projection=False)
    key_norm: Tensors = {"self_attn.key_layernorm.weight": (own.head_dim,)} if norms else {}
    factor = config.size("cla_share_factor", default=1)
    factor = factor if config.flag("use_cla", default=False) else 1
    layers = layer_count(config)
    ffns = _feed_forwards(config, layers, least_experts, shared)
    distinct = list(dict.fromkeys(ffns))
    order = []
    for index, ffn in enumerate(ffns):
        name = "moe" if isinstance(ffn, MixtureOfExperts) else "dense"
        name += f"_{distinct.index(ffn)}" if len(distinct) > 2 else ""
        if index % factor:
            order.append((f"{name}_shared_kv", Block(mixer=(reads,), ffn=(ffn,), tensors=key_norm)))
        else:
            order.append((name, Block(mixer=(own,), ffn=(ffn,))))
    return decoder(config, layered(order))


def _attention(config: Config, norms: bool) -> Attention:
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    fields = {
        "heads": heads,
        "kv_heads": config.optional_size("num_key_value_heads") or heads,
        "head_dim": config.optional_size("head_dim", "attention_head_dim") or even_heads(config, heads, hidden),
        "qk_norm": "head" if norms else "none",
        "bias": switched(config, "attention_bias", QKVO),
    }
    return attention_part(config, fields)


def _feed_forwards(config: Config, layers: int, least_experts: int, shared: bool) -> list[Dense | MixtureOfExperts]:
    """The feed-forward of each layer; most sizes may be lists of one a layer.

    Routed and shared experts are as wide as ``moe_intermediate_size``, or ``intermediate_size`` where that is not
    given; the first ``moe_layer_num_skipped`` layers are dense.
    """
    bias = switched(config, "mlp_bias", MLP)
    width = config.raw("intermediate_size")
    widths = by_layer(config, "intermediate_size", width, layers)
    expert_widths = by_layer(config, "moe_intermediate_size", config.raw("moe_intermediate_size", default=None), layers)
    experts = by_layer(config, "num_experts", config.raw("num_local_experts", "num_experts"), layers)
    top_k = by_layer(config, "moe_topk", config.raw("num_experts_per_tok", "moe_topk"), layers)
    beside = by_layer(config, "num_shared_expert", config.raw("num_shared_expert", default=1), layers)
    skipped = config.count("moe_layer_num_skipped", default=0)
    ffns: list[Dense | MixtureOfExperts] = []
    for index in range(layers):
        expert_width = expert_widths[index] or widths[index]
        if (experts[index] or 0) < least_experts or index < skipped:
            ffns.append(make(config, Dense, {"intermediate_size": widths[index], "bias": bias}))
            continue
        total = (expert_width or 0) * (beside[index] or 0)
        fields = {
            "experts": experts[index],
            "top_k": top_k[index],
            "intermediate_size": expert_width,
            "shared": {"intermediate_size": total, "bias": bias} if shared and total else None,
        }
        ffns.append(make(config, MixtureOfExperts, fields))
    return ffns
