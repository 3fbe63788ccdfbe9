"""Llama 3.2 Vision: layers of cross-attention on the images between llama's own."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import (
    PLAIN_MLP,
    attention_part,
    decoder,
    dense,
    even_heads,
    layer_count,
    layered,
    make,
    never_tied,
)
from capplan.describe.families.multimodal import text_model
from capplan.describe.families.towers import biased
from capplan.describe.families.vision import free_layer, patch_kernel, patches
from capplan.describe.model import Block, CrossAttention, Tensors

CROSS_LAYERS = (3, 8, 13, 18, 23, 28, 33, 38)
RESERVED_ROWS = 8
"""Rows of the token table beyond the vocabulary, for the image token; the head has none of them."""


def mllama(config: Config) -> dict[str, Any]:
    """The text model, and a tower of two parts whose output has ``vision_output_dim`` features a patch."""
    fields = text_model(
        config,
        config.sub("text_config", "mllama_text_model", fixed=True),
        "mllama_text_model",
        tied=never_tied(config),
    )
    vision = config.sub("vision_config", "mllama_vision_model", fixed=True)
    return {**fields, "towers": {"vision": _tower(vision, fields["hidden_size"])}}


def mllama_text(config: Config) -> dict[str, Any]:
    """Cross-attention at ``cross_attention_layers``, with norms a head and gates on both sublayers; nothing is tied."""
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    fields = {
        "heads": heads,
        "kv_heads": config.optional_size("num_key_value_heads") or heads,
        "head_dim": even_heads(config, heads, hidden),
    }
    cross_fields = {**fields, "source": "images", "qk_norm": "head"}
    ffn = dense(config)
    cross = config.items("cross_attention_layers")
    gates: Tensors = {"cross_attn_attn_gate": (1,), "cross_attn_mlp_gate": (1,)}
    blocks = {
        "self": Block(mixer=(attention_part(config, fields),), ffn=(ffn,)),
        "cross": Block(mixer=(make(config, CrossAttention, cross_fields),), ffn=(ffn,), tensors=gates),
    }
    at = CROSS_LAYERS if cross is None else cross
    names = ["cross" if index in at else "self" for index in range(layer_count(config))]
    return decoder(
        config,
        layered([(name, blocks[name]) for name in names]),
        embedding={"tied": never_tied(config), "extra_rows": RESERVED_ROWS},
    )


def _tower(config: Config, text_hidden: int) -> dict[str, Any]:
    """Local layers, then gated global ones; positions within a tile and of the tile, by the image's aspect ratio.

    An image counts as all of its ``max_num_tiles`` tiles, as its padding makes it.
    """
    config.ignore("intermediate_layers_indices")
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads", "attention_heads")
    tiles, positions = config.size("max_num_tiles"), patches(config) + 1
    listed = config.items("supported_aspect_ratios")
    ratios = (8 if listed is None else len(listed)) + 1
    tensors: Tensors = {
        "class_embedding": (hidden,),
        "patch_embedding.weight": patch_kernel(config, hidden),
        "gated_positional_embedding.gate": (1,),
        "gated_positional_embedding.embedding": (positions, hidden),
        "gated_positional_embedding.tile_embedding": (ratios, tiles * positions * hidden),
        "pre_tile_positional_embedding.gate": (1,),
        "pre_tile_positional_embedding.embedding": (ratios, tiles * hidden),
        "post_tile_positional_embedding.gate": (1,),
        "post_tile_positional_embedding.embedding": (ratios, tiles * hidden),
        **biased("multi_modal_projector", text_hidden, config.size("vision_output_dim")),
    }
    ffn = dense(config, gated=False, bias=PLAIN_MLP)
    local = free_layer(config, ffn, heads=heads, head_dim=even_heads(config, heads, hidden), rotary_dim=0)
    gated = Block(mixer=local.mixer, ffn=local.ffn, tensors={"gate_attn": (1,), "gate_ffn": (1,)})
    layers = [("local", local)] * layer_count(config) + [("global", gated)] * layer_count(config, "num_global_layers")
    return {
        "hidden_size": hidden,
        "norm": "layer",
        **layered(layers),
        "final_norms": 2,
        "tensors": tensors,
        "tokens_per_image": tiles * positions,
    }
