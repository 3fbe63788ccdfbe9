"""MiniMax-M2 and M3: ordinary attention with norms on queries and keys, in M3 with a sparse one in most layers."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import (
    attention,
    attention_part,
    decoder,
    dense,
    layer_count,
    layer_types,
    layered,
    make,
    rotary_dim,
    uniform,
)
from capplan.describe.families.experts import expert_mask, one_of
from capplan.describe.families.towers import biased, encoder_layer, tower
from capplan.describe.model import Block, Indexer, MixtureOfExperts, Tensors

FULL, SPARSE = "full_attention", "minimax_m3_sparse"
QK_NORMS = {"per_layer": "full", "per_head": "head"}
DRAFT_KEYS = ("num_mtp_modules", "mtp_transformer_layers", "use_mtp", "num_nextn_predict_layers")
INDEX_KEYS = {
    "index_n_heads": "sparse_num_index_heads",
    "index_head_dim": "sparse_index_dim",
    "index_block_size": "sparse_block_size",
    "index_topk_blocks": "sparse_topk_blocks",
}


def minimax_m2(config: Config) -> dict[str, Any]:
    """Full attention in all layers, norms as wide as all heads, experts with a correction bias."""
    kinds = config.items("attn_type_list", length=layer_count(config)) or []
    one_of(config, "attn_type_list", kinds, (1,))
    block = Block(
        mixer=(attention_part(config, _attention(config, "per_layer")),),
        ffn=(_experts(config, shared=config.count("shared_intermediate_size", default=0)),),
    )
    return decoder(config, uniform(config, block))


def minimax_m3(config: Config) -> dict[str, Any]:
    """A norm a head; experts beside a shared one, dense first layers, sparse layers with an indexer and full cache."""
    config.ignore("use_gemma_norm", "swiglu_alpha", "swiglu_limit", "index_local_blocks")
    sparse = config.sub("sparse_attention_config") if config.has("sparse_attention_config") else None
    config.ignore("sparse_attention_config")
    fields = _attention(config, "per_head", rotated=64)
    indexer = _indexer(config, sparse)
    if config.count("n_shared_experts", default=1) > 1:
        config.refuse("n_shared_experts", "more than one shared expert is not known of MiniMax-M3")
    experts = _experts(config, shared=config.count("shared_intermediate_size"))
    mlp = dense(config, intermediate_size=config.size("dense_intermediate_size"))
    order = []
    for kind, has_experts in zip(_layer_types(config, sparse), expert_mask(config), strict=True):
        mixer = attention_part(config, {**fields, "indexer": indexer if kind == SPARSE else None})
        name = ("moe" if has_experts else "dense") + ("_sparse" if kind == SPARSE else "")
        order.append((name, Block(mixer=(mixer,), ffn=(experts if has_experts else mlp,))))
    return decoder(config, layered(order))


def minimax_m3_vl(config: Config) -> dict[str, Any]:
    """M3's text model with a vision tower; what is tied on either level is tied."""
    text = config.sub("text_config", "minimax_m3_vl_text", fixed=True)
    vision = config.sub("vision_config", "minimax_m3_vl_vision", fixed=True)
    config.ignore(
        "projection_dim",
        "vision_feature_layer",
        "vision_feature_select_strategy",
        "img_token_compression_config",
    )
    config.ignore("image_seq_length", "multimodal_projector_bias", "image_grid_pinpoints", "process_image_mode")
    fields = minimax_m3(text)
    tied = config.flag("tie_word_embeddings", default=False) or fields["embedding"]["tied"]
    width = config.size("projector_hidden_size")
    return {
        **fields,
        "embedding": {**fields["embedding"], "tied": tied},
        "towers": {"vision": _tower(vision, fields["hidden_size"], width)},
    }


def _attention(config: Config, norm_kind: str, rotated: int | None = None) -> dict[str, Any]:
    """Attention's fields; ``qk_norm_type`` says whether a norm is as wide as a head or as all heads.

    `rotated` elements of a head rotate where no key tells.
    """
    kind = config.text("qk_norm_type", default=norm_kind) or norm_kind
    one_of(config, "qk_norm_type", [kind], tuple(QK_NORMS))
    normed = config.flag("use_qk_norm", default=True)
    fields = attention(config, qk_norm=QK_NORMS[kind] if normed else "none")
    rotated = config.optional_size("rotary_dim", default=rotated)
    if rotated is None:
        fields["rotary_dim"] = rotary_dim(config, fields["head_dim"])
    elif rotated < fields["head_dim"]:
        fields["rotary_dim"] = rotated
    _note_drafts(config)
    return fields


def _note_drafts(config: Config) -> None:
    """The files speak of MTP modules, but the published checkpoints hold none."""
    config.ignore(*DRAFT_KEYS)
    if any(config.data.get(key) for key in DRAFT_KEYS):
        config.assume("no MTP layers", "MiniMax's checkpoints hold none, whatever the configuration counts")


def _experts(config: Config, shared: int) -> MixtureOfExperts:
    """Experts of ``intermediate_size``; the correction bias is what ``use_routing_bias`` means."""
    width = config.size("intermediate_size")
    if config.optional_size("moe_intermediate_size") not in (None, width):
        config.invalid("moe_intermediate_size", f"moe_intermediate_size is not intermediate_size {width}")
    fields = {
        "experts": config.size("num_experts", "num_local_experts"),
        "top_k": config.size("num_experts_per_tok"),
        "intermediate_size": width,
        "correction_bias": config.flag("use_routing_bias", default=True),
        "shared": {"intermediate_size": shared} if shared else None,
    }
    return make(config, MixtureOfExperts, fields)


def _indexer(config: Config, sparse: Config | None) -> Indexer:
    """Scores blocks of tokens; its sizes stand beside attention's or in ``sparse_attention_config``."""
    sizes = {key: config.size(key) for key in INDEX_KEYS}
    if sparse is not None:
        sparse.ignore("sparse_init_block", "sparse_local_block", "sparse_score_type", "sparse_disable_index_value")
        sizes = {key: sparse.optional_size(name) or sizes[key] for key, name in INDEX_KEYS.items()}
    fields = {
        "heads": sizes["index_n_heads"],
        "head_dim": sizes["index_head_dim"],
        "top_k": sizes["index_topk_blocks"] * sizes["index_block_size"],
        "norm": "query_and_key",
    }
    return make(config, Indexer, fields)


def _layer_types(config: Config, sparse: Config | None) -> list[str]:
    """``layer_types``, or ``sparse_attention_freq`` (1: sparse), or full attention in all layers."""
    flags: list[Any] | None = None
    if sparse is not None:
        flags = sparse.items("sparse_attention_freq", length=layer_count(config))
        if not sparse.flag("use_sparse_attention", default=True):
            flags = None

    def by_flags(layers: int) -> list[str]:
        return [SPARSE if flag else FULL for flag in flags or [0] * layers]

    return layer_types(config, (FULL, SPARSE), by_flags)


def _tower(config: Config, text_hidden: int, width: int) -> dict[str, Any]:
    """A ViT on patches of two frames; a projector for each patch and one for each merged square of patches."""
    hidden, channels, patch = (
        config.size("hidden_size"),
        config.size("num_channels"),
        config.size("patch_size"),
    )
    config.ignore("projection_dim", "vocab_size", "rope_mode", "vision_segment_max_frames")
    compression = config.sub("img_token_compression_config")
    compression.ignore("image_token_compression_method")
    side = compression.optional_size("spatial_merge_size") or config.size("spatial_merge_size")
    frames = compression.optional_size("temporal_patch_size") or config.size("temporal_patch_size")
    merged = text_hidden * side**2
    tensors: Tensors = {
        "embeddings.proj.weight": (hidden, channels, frames, patch, patch),
        **biased("multi_modal_projector.linear_1", width, hidden),
        **biased("multi_modal_projector.linear_2", text_hidden, width),
        **biased("multi_modal_projector.merge_linear_1", width, merged),
        **biased("multi_modal_projector.merge_linear_2", text_hidden, width),
    }
    heads, ffn_width = config.size("num_attention_heads"), config.size("intermediate_size")
    return tower(hidden, layer_count(config), encoder_layer(config, hidden, heads, ffn_width), tensors, norms=1)
