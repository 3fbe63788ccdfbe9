"""Vision towers that several models share: CLIP, SigLIP and Pixtral.

A tower's reader returns the fields of a `Tower` without its projector, which the model around it adds to ``tensors``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import attention_part, dense, even_heads, layer_count
from capplan.describe.families.towers import biased, encoder_layer, pair, tower
from capplan.describe.model import Block, Dense, Tensors


def clip(config: Config) -> dict[str, Any]:
    """CLIP: a class token, learned positions, LayerNorms before and after the layers."""
    config.ignore("vocab_size", "projection_dim")
    hidden = config.size("hidden_size")
    tensors: Tensors = {
        "embeddings.class_embedding": (hidden,),
        "embeddings.patch_embedding.weight": patch_kernel(config, hidden),
        "embeddings.position_embedding.weight": (patches(config) + 1, hidden),
    }
    return tower(hidden, layer_count(config), plain_layer(config), tensors, norms=2)


def siglip(config: Config) -> dict[str, Any]:
    """SigLIP: no class token, and a head that pools unless ``vision_use_head`` is off."""
    hidden = config.size("hidden_size")
    tensors: Tensors = {
        "embeddings.patch_embedding.weight": patch_kernel(config, hidden),
        "embeddings.patch_embedding.bias": (hidden,),
        "embeddings.position_embedding.weight": (patches(config), hidden),
    }
    if config.flag("vision_use_head"):
        width = config.size("intermediate_size")
        tensors |= {
            "head.probe": (1, 1, hidden),
            "head.attention.in_proj_weight": (3 * hidden, hidden),
            "head.attention.in_proj_bias": (3 * hidden,),
            **biased("head.attention.out_proj", hidden, hidden),
            **layer_norm("head.layernorm", hidden),
            **biased("head.mlp.fc1", width, hidden),
            **biased("head.mlp.fc2", hidden, width),
        }
    return tower(hidden, layer_count(config), plain_layer(config), tensors, norms=1)


def pixtral(config: Config) -> dict[str, Any]:
    """Pixtral: RMS norms, rotary positions in two dimensions, gated MLPs, no biases; images of any size."""
    config.ignore("image_size", "head_dim", "vocab_size")
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    layer = free_layer(config, dense(config), heads=heads, head_dim=even_heads(config, heads, hidden))
    tensors: Tensors = {"patch_conv.weight": patch_kernel(config, hidden)}
    return tower(hidden, layer_count(config), layer, tensors, norms=1, norm="rms")


TOWERS: dict[str, Callable[[Config], dict[str, Any]]] = {
    "clip_vision_model": clip,
    "pixtral": pixtral,
    "siglip_vision_model": siglip,
}


def own_type(config: Config, model_type: str) -> str:
    """The ``model_type`` of a nested configuration, or the one that its outer class assumes."""
    return config.text("model_type", default=None) or model_type


def vision_tower(config: Config, model_type: str) -> dict[str, Any]:
    """The tower of a nested configuration, by its own ``model_type`` or else by `model_type`."""
    kind = own_type(config, model_type)
    if kind not in TOWERS:
        config.refuse("model_type", f"the vision model {kind!r} is not supported", f"one of {', '.join(TOWERS)}")
    return TOWERS[kind](config)


def plain_layer(config: Config) -> Block:
    """A layer under transformers' keys with LayerNorms, biases everywhere and a feed-forward of two matrices."""
    heads, width = config.size("num_attention_heads"), config.size("intermediate_size")
    return encoder_layer(config, config.size("hidden_size"), heads, width)


def free_layer(config: Config, ffn: Dense, *, heads: int, head_dim: int, norms: int = 2, **features: Any) -> Block:
    """A layer whose attention sees all patches and keeps nothing, around any feed-forward."""
    fields = {"heads": heads, "kv_heads": heads, "head_dim": head_dim, "causal": False, "cache": "none"}
    return Block(mixer=(attention_part(config, {**fields, **features}),), ffn=(ffn,), norms=norms)


def patch_kernel(
    config: Config, hidden: int, channels: str = "num_channels", frames: int | None = None
) -> tuple[int, ...]:
    """The convolution that turns patches (of `frames` frames) into vectors: ``H x channels [x frames] x P x P``."""
    time = () if frames is None else (frames,)
    return (hidden, config.size(channels), *time, *pair(config, "patch_size"))


def patches(config: Config) -> int:
    """Whole patches in an image of ``image_size``."""
    height, width = pair(config, "image_size")
    rows, columns = pair(config, "patch_size")
    if not (height // rows and width // columns):
        config.invalid("image_size", f"an image of {height} x {width} holds no patch of {rows} x {columns}")
    return (height // rows) * (width // columns)


def layer_norm(name: str, width: int) -> Tensors:
    """A LayerNorm's tensors by name."""
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}
