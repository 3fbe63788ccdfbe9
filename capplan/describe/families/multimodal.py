"""Models of a text decoder and towers: what they share, and those whose configuration names both freely.

A text model's fields become the whole model's; towers stand beside them.
"""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families import FAMILIES, reader
from capplan.describe.families.towers import biased
from capplan.describe.families.vision import own_type, patches, vision_tower
from capplan.describe.model import Tensors
from capplan.errors import did_you_mean

CLIP_LARGE = {
    "model_type": "clip_vision_model",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "patch_size": 14,
    "image_size": 336,
}
"""LLaVA's tower where the configuration has none."""

PIXTRAL = {
    "model_type": "pixtral",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "patch_size": 14,
}
MISTRAL_SMALL = {
    "model_type": "mistral",
    "hidden_size": 5120,
    "intermediate_size": 32768,
    "num_hidden_layers": 40,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "sliding_window": None,
    "vocab_size": 131072,
    "max_position_embeddings": 131072,
}
"""Mistral-3's tower and text model where the configuration has none."""


def text_model(config: Config, text: Config, model_type: str, *, tied: bool) -> dict[str, Any]:
    """The fields of the text model; whether its head is tied is for the outer configuration to say.

    What some files repeat of the text model's keys on the outer level has no effect.
    """
    if model_type not in FAMILIES:
        text.refuse("model_type", f"the text model {model_type!r} is not supported", did_you_mean(model_type, FAMILIES))
    text.data = {**text.data, "tie_word_embeddings": tied}
    fields = reader(model_type)(text)
    config.ignore("vocab_size", "hidden_size", *text.data)
    return fields


def feature_layers(config: Config) -> int:
    """How many of the tower's layers the projector sees side by side."""
    layer = config.raw("vision_feature_layer")
    return len(layer) if isinstance(layer, list) else 1


def llava(config: Config) -> dict[str, Any]:
    """Any decoder behind any tower, with a projector of two maps; a patch becomes a token."""
    config.ignore("image_seq_length", "projector_hidden_act")
    vision = config.sub("vision_config", "clip_vision_model", absent=CLIP_LARGE)
    text = config.sub("text_config", "llama")
    tied = config.flag("tie_word_embeddings") or text.flag("tie_word_embeddings", default=False)
    fields = text_model(config, text, own_type(text, "llama"), tied=tied)
    tower = vision_tower(vision, "clip_vision_model")
    bias = config.flag("multimodal_projector_bias")
    columns = tower["hidden_size"] * feature_layers(config)
    tower["tensors"] |= two_maps(fields["hidden_size"], columns, bias)
    kind = own_type(vision, "clip_vision_model")
    strategy = config.text("vision_feature_select_strategy")
    if kind != "pixtral":
        positions = patches(vision) + (kind == "clip_vision_model")
        tower["tokens_per_image"] = positions - (strategy == "default")
    return {**fields, "towers": {"vision": tower}}


def mistral3(config: Config) -> dict[str, Any]:
    """Mistral's text model behind Pixtral; neighbouring patches merge before a projector of two maps."""
    config.ignore("projector_hidden_act")
    vision = config.sub("vision_config", "pixtral", absent=PIXTRAL)
    text = config.sub("text_config", "mistral", absent=MISTRAL_SMALL)
    fields = text_model(config, text, own_type(text, "mistral"), tied=config.flag("tie_word_embeddings"))
    tower = vision_tower(vision, "pixtral")
    width = tower["hidden_size"]
    merged = width * config.size("spatial_merge_size") ** 2
    tower["tensors"] |= {
        "multi_modal_projector.norm.weight": (width,),
        "multi_modal_projector.patch_merger.merging_layer.weight": (width, merged),
        **two_maps(fields["hidden_size"], width * feature_layers(config), config.flag("multimodal_projector_bias")),
    }
    return {**fields, "towers": {"vision": tower}}


def two_maps(hidden: int, columns: int, bias: bool) -> Tensors:
    """A projector of two linear maps to the decoder's hidden size."""
    name = "multi_modal_projector"
    return {
        **biased(f"{name}.linear_1", hidden, columns, bias),
        **biased(f"{name}.linear_2", hidden, hidden, bias),
    }
