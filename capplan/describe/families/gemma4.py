"""Gemma 4: full layers with sizes of their own, experts beside a dense feed-forward, towers of images and sound."""

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
    even_heads,
    layer_count,
    layer_types,
    layered,
    make,
    moe,
    sliding_every,
    switched,
)
from capplan.describe.families.gemma3 import both_ways, cache_of, per_layer_input, shared_cache
from capplan.describe.families.multimodal import text_model
from capplan.describe.families.towers import biased, tower
from capplan.describe.model import Attention, Block, Dense, FeedForward, Tensors


def gemma4(config: Config) -> dict[str, Any]:
    """The text model, and a tower for each of ``vision_config`` and ``audio_config`` that has a value."""
    text = config.sub("text_config", "gemma4_text", fixed=True)
    fields = text_model(config, text, "gemma4_text", tied=config.flag("tie_word_embeddings"))
    hidden, towers = fields["hidden_size"], {}
    tokens = config.optional_size("vision_soft_tokens_per_image")
    if config.has("vision_config"):
        vision = config.sub("vision_config", "gemma4_vision", fixed=True)
        length = vision.optional_size("default_output_length")
        towers["vision"] = {**_vision(vision, hidden), "tokens_per_image": tokens or length}
    if config.has("audio_config"):
        towers["audio"] = _audio(config.sub("audio_config", "gemma4_audio", fixed=True), hidden)
    config.ignore("vision_config", "audio_config")
    return {**fields, "towers": towers}


def gemma4_text(config: Config) -> dict[str, Any]:
    """Full layers have ``global_head_dim``; with ``attention_k_eq_v`` their values are the keys, of fewer heads.

    The last ``num_kv_shared_layers`` read earlier caches, and may have feed-forwards of twice the width. The last
    layer is always full.
    """
    hidden = config.size("hidden_size")
    types = layer_types(config, FULL_OR_SLIDING, sliding_every(6))
    types[-1] = "full_attention"
    shared = shared_cache(config, types)
    width, layer, stack = per_layer_input(config, hidden)
    experts, router = _experts(config, hidden)
    double = config.flag("use_double_wide_mlp")
    wide = {
        flag: dense(config, intermediate_size=config.size("intermediate_size") * (1 + flag)) for flag in (False, True)
    }
    norms = 4 + bool(width) + (3 if experts else 0)
    order: list[tuple[str, Block]] = []
    names: dict[Any, str] = {}
    for kind, reads, fields in zip(types, shared, _attentions(config, types), strict=True):
        ffn: tuple[FeedForward, ...] = (wide[double and reads], *experts)
        mixer = attention_part(config, {**fields, **cache_of(reads)})
        block = Block(mixer=(mixer,), ffn=ffn, norms=norms, tensors=layer | router, buffers={"layer_scalar": (1,)})
        base = ("sliding" if kind == "sliding_attention" else "full") + ("_shared" if reads else "")
        name = names.setdefault((base, mixer), base if base not in names.values() else f"{base}_{len(names)}")
        order.append((name, block))
    table = {"vocab_size": config.size("vocab_size_per_layer_input"), "size": width}
    return decoder(config, layered(order), tensors=stack, per_layer_embedding=table if width else None)


def _attentions(config: Config, types: list[str]) -> list[dict[str, Any]]:
    """Attention's fields in each layer, with ``per_layer_config`` in the place of the global sizes where it stands."""
    base = attention(config, qk_norm="head", bias=switched(config, "attention_bias", QKVO))
    same = config.flag("attention_k_eq_v")
    window, bidirectional = config.size("sliding_window"), config.text("use_bidirectional_attention")
    if bidirectional == "all":
        window, base["causal"] = both_ways(window), False
    own = {"head_dim": config.optional_size("global_head_dim") or base["head_dim"]}
    kv_heads = config.optional_size("num_global_key_value_heads")
    if kv_heads and same:
        own["kv_heads"] = kv_heads
    overrides = _per_layer(config, len(types))
    layers = []
    for index, kind in enumerate(types):
        fields = {**base}
        if kind == "sliding_attention":
            fields["window"] = window
        else:
            fields["value_is_key"] = same
            fields |= own if overrides is None else {}
        fields |= (overrides or {}).get(index, {})
        fields["rotary_dim"] = _rotary_dim(config, kind, fields["head_dim"])
        layers.append(fields)
    return layers


def _per_layer(config: Config, layers: int) -> dict[int, dict[str, int]] | None:
    """``per_layer_config``, which overrides sizes layer by layer, as fields of attention by layer."""
    given = config.raw("per_layer_config", default=None)
    if given is None:
        return None
    if not isinstance(given, dict):
        config.invalid("per_layer_config", "per_layer_config must be a mapping from layers to sizes")
    names = {"head_dim": "head_dim", "num_key_value_heads": "kv_heads"}
    overrides: dict[int, dict[str, int]] = {}
    for index, sizes in given.items():
        if not (index.isascii() and index.isdigit() and int(index) < layers and isinstance(sizes, dict)):
            config.invalid("per_layer_config", f"{index!r} is not one of the {layers} layers")
        unknown = sorted(set(sizes) - set(names))
        if unknown:
            config.refuse("per_layer_config", f"a layer's own {unknown[0]!r} is not supported")
        level = config.level(sizes, "gemma4_text")
        overrides[int(index)] = {names[key]: level.size(key) for key in sizes}
    return overrides


def _rotary_dim(config: Config, kind: str, head_dim: int) -> int | None:
    """Rotated elements of a head by kind of layer; a quarter in full layers unless ``rope_parameters`` differs."""
    rope = config.raw("rope_parameters", default=None)
    own = (
        rope.get(kind) if isinstance(rope, dict) else {"partial_rotary_factor": 0.25 if kind == "full_attention" else 1}
    )
    factor = own.get("partial_rotary_factor", 1) if isinstance(own, dict) else 1
    if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 0 < factor <= 1:
        config.invalid("rope_parameters", f"the rotated part of a head must be between 0 and 1, not {factor!r}")
    return None if factor == 1 else int(head_dim * factor)


def _experts(config: Config, hidden: int) -> tuple[tuple[FeedForward, ...], Tensors]:
    """Experts beside the dense feed-forward where ``enable_moe_block`` is set, and the scales of their router."""
    if not config.flag("enable_moe_block"):
        config.ignore("num_experts", "top_k_experts", "moe_intermediate_size", "expert_intermediate_size")
        return (), {}
    experts = config.size("num_experts")
    routed = moe(
        config,
        experts=experts,
        top_k=config.size("top_k_experts"),
        intermediate_size=config.size("moe_intermediate_size"),
    )
    return (routed,), {"router.scale": (hidden,), "router.per_expert_scale": (experts,)}


def _vision(config: Config, text_hidden: int) -> dict[str, Any]:
    """A ViT with grouped heads, norms a head and around sublayers, gated MLPs, a table of positions for each axis."""
    config.ignore("pooling_kernel_size", "global_head_dim", "attention_bias", "default_output_length")
    hidden, patch = config.size("hidden_size"), config.size("patch_size")
    fields = attention(config, qk_norm="head", causal=False, cache="none")
    clips = _clip_ranges(config, 7)
    block = Block(mixer=(attention_part(config, fields),), ffn=(dense(config),), norms=4, buffers=clips)
    tensors: Tensors = {
        "patch_embedder.input_proj.weight": (hidden, 3 * patch * patch),
        "patch_embedder.position_embedding_table": (2, config.size("position_embedding_size"), hidden),
        "embed_vision.embedding_projection.weight": (text_hidden, hidden),
    }
    standard: Tensors = {"std_bias": (hidden,), "std_scale": (hidden,)} if config.flag("standardize") else {}
    return {**tower(hidden, layer_count(config), block, tensors, norms=0, norm="rms"), "buffers": standard}


def _clip_ranges(config: Config, matrices: int) -> Tensors:
    """What a checkpoint stores of the ranges that inputs and outputs are clipped to: four numbers a matrix."""
    return {"clip_ranges": (4 * matrices,)} if config.flag("use_clipped_linears") else {}


def _audio(config: Config, text_hidden: int) -> dict[str, Any]:
    """A conformer: two feed-forwards around local attention and a convolution, behind two strided convolutions."""
    config.ignore("attention_chunk_size", "attention_invalid_logits_value", "attention_logit_cap", "residual_weight")
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    head_dim, out = even_heads(config, heads, hidden), config.size("output_proj_dims")
    sees = config.count("attention_context_left") + config.count("attention_context_right")
    fields = {"heads": heads, "kv_heads": heads, "head_dim": head_dim, "window": sees, "causal": False, "cache": "none"}
    feed_forward = make(config, Dense, {"intermediate_size": 4 * hidden, "gated": False})
    layer: Tensors = {
        "self_attn.relative_k_proj.weight": (hidden, hidden),
        "self_attn.per_dim_scale": (head_dim,),
        "lconv1d.linear_start.linear.weight": (2 * hidden, hidden),
        "lconv1d.linear_end.linear.weight": (hidden, hidden),
        "lconv1d.depthwise_conv1d.weight": (hidden, 1, config.size("conv_kernel_size")),
    }
    block = Block(
        mixer=(make(config, Attention, fields),),
        ffn=(feed_forward, feed_forward),
        norms=9,
        tensors=layer,
        buffers=_clip_ranges(config, 10),
    )
    first, second = (config.items("subsampling_conv_channels", length=2) or [0, 0])[:2]
    name = "subsample_conv_projection"
    tensors: Tensors = {
        f"{name}.layer0.conv.weight": (first, 1, 3, 3),
        f"{name}.layer0.norm.weight": (first,),
        f"{name}.layer1.conv.weight": (second, first, 3, 3),
        f"{name}.layer1.norm.weight": (second,),
        f"{name}.input_proj_linear.weight": (hidden, first // 4 * second),
        **biased("output_proj", out, hidden),
        "embed_audio.embedding_projection.weight": (text_hidden, out),
    }
    return tower(hidden, layer_count(config), block, tensors, norms=0, norm="rms")
