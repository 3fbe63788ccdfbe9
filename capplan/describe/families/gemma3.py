"""Gemma 3, of text and of images, and the text model of Gemma 3n."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import (
    FULL_OR_SLIDING,
    QKVO,
    attention,
    attention_part,
    decoder,
    dense,
    layer_count,
    layer_types,
    layered,
    sliding_every,
    sliding_layers,
    switched,
)
from capplan.describe.families.multimodal import text_model
from capplan.describe.families.vision import vision_tower
from capplan.describe.model import Block, Tensors


def gemma3(config: Config) -> dict[str, Any]:
    """The text model behind SigLIP, whose patches are pooled to ``mm_tokens_per_image`` and projected by one matrix."""
    text = config.sub("text_config", "gemma3_text", fixed=True)
    fields = text_model(config, text, "gemma3_text", tied=config.flag("tie_word_embeddings"))
    tower = vision_tower(config.sub("vision_config", "siglip_vision_model"), "siglip_vision_model")
    width = tower["hidden_size"]
    tower["tensors"] |= {
        "multi_modal_projector.mm_input_projection_weight": (width, fields["hidden_size"]),
        "multi_modal_projector.mm_soft_emb_norm.weight": (width,),
    }
    tower["tokens_per_image"] = config.size("mm_tokens_per_image")
    return {**fields, "towers": {"vision": tower}}


def gemma3_text(config: Config) -> dict[str, Any]:
    """Norms on each query and key head and around each sublayer; full attention in every sixth layer unless told."""
    fields = attention(config, qk_norm="head", bias=switched(config, "attention_bias", QKVO))
    period = config.size("sliding_window_pattern", "_sliding_window_pattern", default=6)
    types = layer_types(config, FULL_OR_SLIDING, sliding_every(period))
    window = config.optional_size("sliding_window")
    if window and config.flag("use_bidirectional_attention"):
        window = both_ways(window)
    return decoder(config, sliding_layers(config, types, fields, window, ffn=(dense(config),), norms=4))


def both_ways(window: int) -> int:
    """Tokens to each side, itself included, of a window that is centred on the query."""
    return window // 2 + 1


def shared_cache(config: Config, types: list[str]) -> list[bool]:
    """Which layers read an earlier layer's cache: the last ``num_kv_shared_layers``."""
    shared = config.count("num_kv_shared_layers")
    first = len(types) - shared
    if first < 0:
        config.invalid("num_kv_shared_layers", f"{shared} shared layers are more than the {len(types)} layers")
    orphan = set(types) - set(types[:first]) if shared and first else set()
    if orphan:
        config.invalid("num_kv_shared_layers", f"no layer before the shared ones has a cache for {orphan.pop()}")
    return [index >= first for index in range(len(types))]


def per_layer_input(config: Config, hidden: int) -> tuple[int, Tensors, Tensors]:
    """Width of the per-layer embedding, a layer's tensors for it, and the stack's."""
    width = config.count("hidden_size_per_layer_input")
    if not width:
        return 0, {}, {}
    layer: Tensors = {"per_layer_input_gate.weight": (width, hidden), "per_layer_projection.weight": (hidden, width)}
    stack: Tensors = {
        "per_layer_model_projection.weight": (layer_count(config) * width, hidden),
        "per_layer_projection_norm.weight": (width,),
    }
    return width, layer, stack


def gemma3n_text(config: Config) -> dict[str, Any]:
    """AltUp's parallel hidden states, LAuReL's low-rank residuals, per-layer embeddings, and layers without a cache.

    Feed-forwards may differ by layer; the last ``num_kv_shared_layers`` have no keys and values of their own.
    """
    config.ignore("activation_sparsity_pattern", "altup_active_idx", "altup_coef_clip", "altup_correct_scale")
    hidden = config.size("hidden_size")
    types = layer_types(config, FULL_OR_SLIDING, sliding_every(5))
    shared = shared_cache(config, types)
    fields = attention(config, qk_norm="head", bias=switched(config, "attention_bias", QKVO))
    window = config.size("sliding_window")
    width, layer, stack = per_layer_input(config, hidden)
    inputs, rank = config.size("altup_num_inputs"), config.size("laurel_rank")
    layer |= {
        "altup.correct_output_scale": (hidden,),
        "altup.correction_coefs.weight": (inputs, inputs),
        "altup.prediction_coefs.weight": (inputs * inputs, inputs),
        "altup.modality_router.weight": (inputs, hidden),
        "laurel.linear_left.weight": (rank, hidden),
        "laurel.linear_right.weight": (hidden, rank),
    }
    for part in ("altup_projections", "altup_unembed_projections"):
        stack |= {f"{part}.{index}.weight": (hidden, hidden) for index in range(inputs - 1)}
    order, widths = [], _widths(config, len(types))
    for kind, reads, ffn_width in zip(types, shared, widths, strict=True):
        features = {"window": window if kind == "sliding_attention" else None, **cache_of(reads)}
        name = ("sliding" if features["window"] else "full") + ("_shared" if reads else "")
        name += f"_{ffn_width}" if len(set(widths)) > 1 else ""
        ffn = dense(config, intermediate_size=ffn_width)
        mixer = attention_part(config, {**fields, **features})
        order.append((name, Block(mixer=(mixer,), ffn=(ffn,), norms=7, tensors=layer)))
    table = {"vocab_size": config.size("vocab_size_per_layer_input"), "size": width}
    return decoder(config, layered(order), tensors=stack, per_layer_embedding=table)


def cache_of(shared: bool) -> dict[str, Any]:
    """Attention's fields for a layer that reads an earlier layer's cache, or keeps its own."""
    return {"cache": "shared", "kv_projection": False} if shared else {"cache": "own"}


def _widths(config: Config, layers: int) -> list[int]:
    """The feed-forward's width of each layer, from one number or a list."""
    value = config.raw("intermediate_size")
    if not isinstance(value, list):
        return [config.size("intermediate_size")] * layers
    widths = config.items("intermediate_size", length=layers) or []
    for width in widths:
        if isinstance(width, bool) or not isinstance(width, int) or not 1 <= width <= 1 << 32:
            config.invalid("intermediate_size", f"a width must be a positive whole number, not {width!r}")
    return widths
