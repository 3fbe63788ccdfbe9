"""Llama 4: layers that see their own chunk, layers without positions, one routed expert beside a shared one."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import (
    QKVO,
    attention,
    attention_part,
    decoder,
    dense,
    layer_count,
    layer_types,
    layered,
    make,
    switched,
)
from capplan.describe.families.towers import encoder_layer, pair, tower
from capplan.describe.model import Block, Dense, MixtureOfExperts, Tensors

CHUNKED, FULL = "chunked_attention", "full_attention"


def llama4(config: Config) -> dict[str, Any]:
    """The text model and its vision tower."""
    text = config.sub("text_config", "llama4_text", fixed=True)
    vision = config.sub("vision_config", "llama4_vision_model", fixed=True)
    tied = (text if "tie_word_embeddings" in text.data else config).flag("tie_word_embeddings", default=False)
    config.ignore("tie_word_embeddings")
    fields = llama4_text(text)
    embedding = {**fields["embedding"], "tied": tied}
    return {**fields, "embedding": embedding, "towers": {"vision": _tower(vision, fields["hidden_size"])}}


def llama4_text(config: Config) -> dict[str, Any]:
    """Layers with positions are chunked; ``moe_layers`` or each ``interleave_moe_layer_step``-th layer has experts.

    The norm on queries and keys has no weights.
    """
    config.ignore("intermediate_size", "intermediate_size_mlp", "num_local_experts", "num_experts_per_tok")
    config.ignore("use_qk_norm", "attn_temperature_tuning", "floor_scale", "attn_scale", "for_llm_compressor")
    layers = layer_count(config)
    rotates = _rotating_layers(config, layers)
    chunk = config.optional_size("attention_chunk_size")
    by_position = [CHUNKED if flag and chunk else FULL for flag in rotates]
    types = layer_types(config, (CHUNKED, FULL), lambda _: by_position)
    if chunk is None and CHUNKED in types:
        config.invalid("attention_chunk_size", "layers are chunked (layer_types), but the chunk has no size")
    fields = attention(config, bias=switched(config, "attention_bias", QKVO))
    order = []
    for kind, rotating, sparse in zip(types, rotates, _expert_layers(config, layers), strict=True):
        own = {"chunk": chunk if kind == CHUNKED else None, "rotary_dim": None if rotating else 0}
        name = ("moe" if sparse else "dense") + ("_chunked" if kind == CHUNKED else "_full")
        name += "" if rotating == (kind == CHUNKED) else "_rotating" if rotating else "_unrotated"
        mixer = attention_part(config, {**fields, **own})
        order.append((name, Block(mixer=(mixer,), ffn=(_feed_forward(config, sparse),))))
    return decoder(config, layered(order))


def _rotating_layers(config: Config, layers: int) -> list[bool]:
    """Layers with rotary positions: ``no_rope_layers`` (1, despite its name), or all but each interval's last."""
    flags = config.items("no_rope_layers") or None
    interval = config.size("no_rope_layer_interval", default=4)
    if flags is None:
        return [(index + 1) % interval != 0 for index in range(layers)]
    if len(flags) != layers:
        config.invalid("no_rope_layers", f"no_rope_layers has {len(flags)} items where {layers} are expected")
    return [bool(flag) for flag in flags]


def _expert_layers(config: Config, layers: int) -> list[bool]:
    listed = config.items("moe_layers")
    step = config.size("interleave_moe_layer_step", default=1)
    if listed is not None:
        return [index in listed for index in range(layers)]
    return [(index + 1) % step == 0 for index in range(layers)]


def _feed_forward(config: Config, sparse: bool) -> Dense | MixtureOfExperts:
    """Experts and a shared one of ``intermediate_size``, or a dense feed-forward of ``intermediate_size_mlp``."""
    if not sparse:
        return dense(config, intermediate_size=config.size("intermediate_size_mlp"))
    width = config.size("intermediate_size")
    fields = {
        "experts": config.size("num_local_experts"),
        "top_k": config.size("num_experts_per_tok"),
        "intermediate_size": width,
        "shared": {"intermediate_size": width},
    }
    return make(config, MixtureOfExperts, fields)


def _tower(config: Config, text_hidden: int) -> dict[str, Any]:
    """A ViT with a class token and learned positions, a pixel-shuffle adapter and a projection to the text model."""
    config.ignore("vision_feature_layer", "vision_feature_select_strategy", "pixel_shuffle_ratio")
    config.ignore("projector_dropout", "multi_modal_projector_bias")
    hidden, width = config.size("hidden_size"), config.size("intermediate_size")
    rows, columns = pair(config, "patch_size")
    image, channels = config.size("image_size"), config.size("num_channels")
    adapted, projected = config.size("projector_input_dim"), config.size("projector_output_dim")
    tensors: Tensors = {
        "class_embedding": (hidden,),
        "positional_embedding_vlm": ((image // rows) * (image // columns) + 1, hidden),
        "patch_embedding.linear.weight": (hidden, channels * rows * columns),
        "vision_adapter.mlp.fc1.weight": (adapted, width),
        "vision_adapter.mlp.fc2.weight": (projected, projected),
        "multi_modal_projector.linear_1.weight": (text_hidden, config.size("vision_output_dim")),
    }
    layer = encoder_layer(config, hidden, config.size("num_attention_heads"), width)
    return tower(hidden, layer_count(config), layer, tensors, norms=2)
