"""Qwen's vision-language models: towers that take images of any size, and merge neighbouring patches into a token."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import QKVO, dense, even_heads, layer_count, layered
from capplan.describe.families.multimodal import text_model
from capplan.describe.families.towers import biased, encoder_layer, pair, tower
from capplan.describe.families.vision import free_layer, layer_norm, patch_kernel
from capplan.describe.model import Tensors


def qwen2_vl(config: Config) -> dict[str, Any]:
    """Qwen2 behind a tower of LayerNorms as wide as ``embed_dim``; first releases are flat, without ``text_config``."""
    fields = _older_text(config, "qwen2_vl_text")
    return {**fields, "towers": {"vision": _qwen2_tower(config.sub("vision_config", "qwen2_vl_vision", fixed=True))}}


def qwen2_5_vl(config: Config) -> dict[str, Any]:
    """Qwen2 behind a tower of RMS norms and gated MLPs, most of whose layers see windows of patches alone."""
    fields = _older_text(config, "qwen2_5_vl_text")
    vision = config.sub("vision_config", "qwen2_5_vl_vision", fixed=True)
    return {**fields, "towers": {"vision": _windowed_tower(vision)}}


def qwen3_vl(config: Config) -> dict[str, Any]:
    """Qwen3 behind a tower with learned positions, whose deeper features enter the first decoder layers, too."""
    return _newer(config, "qwen3_vl")


def qwen3_vl_moe(config: Config) -> dict[str, Any]:
    """Qwen3-MoE behind the same tower."""
    return _newer(config, "qwen3_vl_moe")


def qwen3_5(config: Config) -> dict[str, Any]:
    """Qwen3.5's hybrid decoder behind the same tower without deeper features."""
    return _newer(config, "qwen3_5", deepstack=False)


def qwen3_5_moe(config: Config) -> dict[str, Any]:
    """Qwen3.5's hybrid decoder with experts, behind the same tower without deeper features."""
    return _newer(config, "qwen3_5_moe", deepstack=False)


def _older_text(config: Config, model_type: str) -> dict[str, Any]:
    """The text model from ``text_config``, or from the outer level of a flat file."""
    if config.has("text_config"):
        text = config.sub("text_config", model_type, fixed=True)
    else:
        outer = {key: value for key, value in config.data.items() if key not in ("vision_config", "text_config")}
        text = config.level(outer, model_type)
        config.ignore(*outer)
    tied = config.flag("tie_word_embeddings") or text.flag("tie_word_embeddings", default=False)
    text.ignore("mrope_section", "model_type")
    return text_model(config, text, model_type, tied=tied)


def _newer(config: Config, model_type: str, *, deepstack: bool = True) -> dict[str, Any]:
    text = config.sub("text_config", f"{model_type}_text", fixed=True)
    fields = text_model(config, text, f"{model_type}_text", tied=config.flag("tie_word_embeddings"))
    vision = config.sub("vision_config", f"{model_type}_vision", fixed=True)
    return {**fields, "towers": {"vision": _qwen3_tower(vision, deepstack)}}


def _sizes(config: Config, width_key: str) -> tuple[int, int, int]:
    """Hidden size, heads and merged patches' width of a tower."""
    config.ignore("spatial_patch_size", "temporal_patch_size", "tokens_per_second", "in_chans")
    hidden, heads = config.size(width_key), config.size("num_attention_heads", "num_heads")
    return hidden, heads, hidden * config.size("spatial_merge_size") ** 2


def _kernel(config: Config, hidden: int) -> tuple[int, ...]:
    return patch_kernel(config, hidden, "in_channels", config.size("temporal_patch_size"))


def _qwen2_tower(config: Config) -> dict[str, Any]:
    hidden, heads, merged = _sizes(config, "embed_dim")
    out = config.size("hidden_size")
    tensors: Tensors = {
        "patch_embed.proj.weight": _kernel(config, hidden),
        **layer_norm("merger.ln_q", hidden),
        **biased("merger.mlp.0", merged, merged),
        **biased("merger.mlp.2", out, merged),
    }
    width = config.number("mlp_ratio") or 0
    layer = encoder_layer(config, hidden, heads, int(hidden * width))
    return tower(hidden, layer_count(config, "num_hidden_layers", "depth"), layer, tensors, norms=0)


def _windowed_tower(config: Config) -> dict[str, Any]:
    """Layers outside ``fullatt_block_indexes`` see squares of ``window_size`` pixels."""
    hidden, heads, merged = _sizes(config, "hidden_size")
    rows, columns = pair(config, "patch_size")
    side = config.size("window_size")
    whole = config.items("fullatt_block_indexes") or []
    tensors: Tensors = {
        "patch_embed.proj.weight": _kernel(config, hidden),
        "merger.ln_q.weight": (hidden,),
        **biased("merger.mlp.0", merged, merged),
        **biased("merger.mlp.2", config.size("out_hidden_size"), merged),
    }
    ffn = dense(config, bias=("gate", "up", "down"))
    features: dict[str, Any] = {"heads": heads, "head_dim": even_heads(config, heads, hidden), "bias": QKVO}
    window = max(1, side // rows) * max(1, side // columns)
    blocks = {
        "full": free_layer(config, ffn, **features),
        "window": free_layer(config, ffn, **features, chunk=window),
    }
    names = [
        "full" if index in whole else "window" for index in range(layer_count(config, "num_hidden_layers", "depth"))
    ]
    stack = layered([(name, blocks[name]) for name in names])
    return {"hidden_size": hidden, "norm": "rms", **stack, "final_norms": 0, "tensors": tensors}


def _qwen3_tower(config: Config, deepstack: bool) -> dict[str, Any]:
    hidden, heads, merged = _sizes(config, "hidden_size")
    out = config.size("out_hidden_size")
    tensors: Tensors = {
        "patch_embed.proj.weight": _kernel(config, hidden),
        "patch_embed.proj.bias": (hidden,),
        "pos_embed.weight": (config.size("num_position_embeddings"), hidden),
        **layer_norm("merger.norm", hidden),
        **biased("merger.linear_fc1", merged, merged),
        **biased("merger.linear_fc2", out, merged),
    }
    for index in range(len(config.items("deepstack_visual_indexes") or []) if deepstack else 0):
        name = f"deepstack_merger_list.{index}"
        tensors |= layer_norm(f"{name}.norm", merged)
        tensors |= biased(f"{name}.linear_fc1", merged, merged) | biased(f"{name}.linear_fc2", out, merged)
    layer = encoder_layer(config, hidden, heads, config.size("intermediate_size"))
    return tower(hidden, layer_count(config, "num_hidden_layers", "depth"), layer, tensors, norms=0)
