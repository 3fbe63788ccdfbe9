"""DeepSeek from the first mixture of experts to V3.2, and its offspring: Kimi K2, GLM-4.7-Flash, GLM-5."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import (
    MLP,
    QKVO,
    attention,
    attention_part,
    decoder,
    dense,
    layer_count,
    layered,
    make,
    switched,
)
from capplan.describe.families.experts import (
    COPIES,
    NEXTN_KEYS,
    dense_or_experts,
    draft_layers,
    expert_mask,
    one_of,
    routed_experts,
)
from capplan.describe.model import Block, Indexer, LatentAttention

INDEXER_LETTERS = {"F": "full", "S": "shared"}


def latent_attention(config: Config, indexer: Indexer | None = None) -> LatentAttention:
    """MLA under DeepSeek's key names; ``attention_bias`` is on the down-projections and the output.

    The keys of ordinary attention (``num_key_value_heads``, ``head_dim``) say nothing here.
    """
    config.ignore("num_key_value_heads", "head_dim", "qk_head_dim")
    rank = config.optional_size("q_lora_rank")
    biased = ("q_a", "kv_a", "o") if rank else ("kv_a", "o")
    fields = {
        "heads": config.size("num_attention_heads"),
        "kv_lora_rank": config.size("kv_lora_rank"),
        "qk_nope_head_dim": config.size("qk_nope_head_dim"),
        "qk_rope_head_dim": config.count("qk_rope_head_dim"),
        "v_head_dim": config.size("v_head_dim"),
        "q_lora_rank": rank,
        "bias": switched(config, "attention_bias", biased),
        "indexer": indexer,
    }
    return make(config, LatentAttention, fields)


def lightning_indexer(config: Config) -> Indexer:
    """The scorer of DeepSeek sparse attention: queries from the query latent, a LayerNorm on its one key."""
    fields = {
        "heads": config.size("index_n_heads"),
        "head_dim": config.size("index_head_dim"),
        "top_k": config.size("index_topk"),
        "query_rank": config.size("q_lora_rank"),
        "head_weights": True,
        "norm": "key_with_bias",
    }
    return make(config, Indexer, fields)


def deepseek(config: Config) -> dict[str, Any]:
    """DeepSeekMoE: llama's attention, fine-grained experts beside shared ones, none without ``n_routed_experts``."""
    fields = attention(config, bias=switched(config, "attention_bias", QKVO))
    mixer = attention_part(config, fields)
    has_experts = config.optional_size("n_routed_experts") is not None
    mask = [flag and has_experts for flag in expert_mask(config)]

    def block(sparse: bool) -> Block:
        return Block(mixer=(mixer,), ffn=(routed_experts(config) if sparse else dense(config),))

    return decoder(config, dense_or_experts(mask, block))


def deepseek_v2(config: Config) -> dict[str, Any]:
    """MLA, and softmax routing without a correction bias; ``mlp_bias`` is on dense and shared feed-forwards."""
    bias = switched(config, "mlp_bias", MLP)
    mixer = latent_attention(config)

    def block(sparse: bool) -> Block:
        ffn = routed_experts(config, shared_bias=bias) if sparse else dense(config, bias=bias)
        return Block(mixer=(mixer,), ffn=(ffn,))

    return decoder(config, dense_or_experts(expert_mask(config), block))


def deepseek_v3(config: Config) -> dict[str, Any]:
    """MLA and sigmoid routing with a correction bias; MTP layers have copies of the token table and the head."""
    mixer = latent_attention(config)
    block = _blocks(config, mixer)
    mtp = draft_layers(config, block(True), copies=True)
    return decoder(config, dense_or_experts(expert_mask(config), block), mtp=mtp)


def deepseek_v32(config: Config) -> dict[str, Any]:
    """V3 with a lightning indexer in each layer."""
    config.ignore("layer_types")
    mixer = latent_attention(config, lightning_indexer(config))
    block = _blocks(config, mixer)
    mtp = draft_layers(config, block(True), copies=True)
    return decoder(config, dense_or_experts(expert_mask(config), block), mtp=mtp)


def glm4_moe_lite(config: Config) -> dict[str, Any]:
    """V3's layers, of which the first alone is dense where no key tells; MTP layers as in most GLM-4.x."""
    mixer = latent_attention(config)
    block = _blocks(config, mixer)
    return decoder(
        config,
        dense_or_experts(expert_mask(config, first_dense=1), block),
        mtp=glm_draft_layers(config, block(True)),
    )


def glm_draft_layers(config: Config, block: Block) -> dict[str, Any] | None:
    """GLM's MTP layers, with copies of the token table and the head in most releases, but not in all."""
    if config.count(*NEXTN_KEYS, default=0):
        config.assume(COPIES, "as in most releases of GLM-4; GLM-4.6 has none")
    return draft_layers(config, block, copies=True)


def glm_moe_dsa(config: Config) -> dict[str, Any]:
    """GLM-5: V3.2's layers, in which ``shared`` ones reuse an earlier layer's indexer; MTP layers without copies."""
    config.ignore("layer_types", "index_share_for_mtp_iteration")
    indexer = lightning_indexer(config)
    full = latent_attention(config, indexer)
    mixers = {"full": full, "shared": replace(full, indexer=replace(indexer, own=False))}
    layers = []
    for kind, sparse in zip(_indexer_types(config), expert_mask(config), strict=True):
        name = ("moe" if sparse else "dense") + ("_shared_indexer" if kind == "shared" else "")
        layers.append((name, _blocks(config, mixers[kind])(sparse)))
    mtp = draft_layers(config, _blocks(config, full)(True))
    return decoder(config, layered(layers), mtp=mtp)


def _blocks(config: Config, mixer: LatentAttention) -> Callable[[bool], Block]:
    """V3's layer: with experts, or dense."""

    def block(sparse: bool) -> Block:
        ffn = routed_experts(config, correction_bias=True) if sparse else dense(config)
        return Block(mixer=(mixer,), ffn=(ffn,))

    return block


def _indexer_types(config: Config) -> list[str]:
    """``full`` or ``shared`` for each layer: a list, a pattern of letters, or a period after an offset."""
    layers = layer_count(config)
    pattern = config.raw("index_topk_pattern", default=None)
    period = max(config.count("index_topk_freq", default=1), 1)
    offset = config.count("index_skip_topk_offset", default=2)
    kinds = config.items("indexer_types", length=layers)
    if kinds is not None:
        return one_of(config, "indexer_types", kinds, ("full", "shared"))
    if pattern is not None:
        if not isinstance(pattern, (str, list)) or len(pattern) != layers:
            config.invalid("index_topk_pattern", f"index_topk_pattern must name the indexer of each of {layers} layers")
        kinds = [INDEXER_LETTERS.get(item, item) if isinstance(item, str) else item for item in pattern]
        return one_of(config, "index_topk_pattern", kinds, ("full", "shared"))
    return ["full" if max(index - offset + 1, 0) % period == 0 else "shared" for index in range(layers)]
