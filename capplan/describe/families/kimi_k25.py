"""Kimi K2.5: DeepSeek-V3's decoder with the MoonViT tower."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import layer_count
from capplan.describe.families.deepseek import deepseek_v3
from capplan.describe.families.towers import biased, encoder_layer, pair, tower
from capplan.describe.model import Tensors

RUNTIME_KEYS = ("use_unified_vision_chunk", "vision_start_token_id", "vision_end_token_id")
TOWER_RUNTIME_KEYS = (
    "init_pos_emb_time",
    "pos_emb_time",
    "merge_type",
    "mm_projector_type",
    "pos_emb_type",
    "projector_hidden_act",
    "projector_ln_eps",
    "text_hidden_size",
    "video_attn_type",
)


def kimi_k25(config: Config) -> dict[str, Any]:
    """The text model under ``text_config`` and the tower under ``vision_config``; the outer level says what is tied."""
    config.ignore(*RUNTIME_KEYS)
    text = config.sub("text_config", "deepseek_v3")
    vision = config.sub("vision_config", "kimi_k25_vision", fixed=True)
    fields = deepseek_v3(text)
    embedding = {**fields["embedding"], "tied": config.flag("tie_word_embeddings", default=False)}
    width = vision.optional_size("mm_hidden_size") or config.optional_size("projection_hidden_size")
    config.ignore("projection_hidden_size")
    return {
        **fields,
        "embedding": embedding,
        "towers": {"vision": _moonvit(vision, fields["hidden_size"], width)},
    }


def _moonvit(config: Config, text_hidden: int, projector_width: int | None) -> dict[str, Any]:
    """A ViT with learned positions; patches are merged and projected by two matrices.

    The released files prefix their keys with ``vt_``.
    """
    config.ignore(*TOWER_RUNTIME_KEYS)
    hidden = config.size("vt_hidden_size", "hidden_size")
    heads = config.size("vt_num_attention_heads", "num_attention_heads")
    width = config.size("vt_intermediate_size", "intermediate_size")
    layers = layer_count(config, "vt_num_hidden_layers", "num_hidden_layers")
    rows, columns = pair(config, "patch_size")
    merged_rows, merged_columns = pair(config, "merge_kernel_size")
    grid = (
        config.size("init_pos_emb_height", "pos_emb_height"),
        config.size("init_pos_emb_width", "pos_emb_width"),
    )
    merged = hidden * merged_rows * merged_columns
    normed = projector_width or hidden
    tensors: Tensors = {
        "patch_embed.proj.weight": (hidden, 3, rows, columns),
        "patch_embed.proj.bias": (hidden,),
        "patch_embed.pos_emb.position_embeddings": (*grid, hidden),
        "mm_projector.pre_norm.weight": (normed,),
        "mm_projector.pre_norm.bias": (normed,),
        **biased("mm_projector.in_proj", merged, merged),
        **biased("mm_projector.out_proj", text_hidden, merged),
    }
    layer = encoder_layer(config, hidden, heads, width)
    return tower(hidden, layers, layer, tensors, norms=1)
