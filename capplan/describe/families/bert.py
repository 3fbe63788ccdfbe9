"""Encoders for embeddings: BERT, RoBERTa, XLM-RoBERTa, ModernBERT. They keep nothing between steps and have no head."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import (
    FULL_OR_SLIDING,
    MLP,
    PLAIN_MLP,
    QKVO,
    attention_part,
    decoder,
    dense,
    layer_types,
    layered,
    multi_head,
    switched,
    uniform,
)
from capplan.describe.model import Block

ENCODER = {"causal": False, "cache": "none"}


def bert(config: Config) -> dict[str, Any]:
    """Learned positions and token types under one norm, norms after the sublayers, and a pooler at the end."""
    for key in ("is_decoder", "add_cross_attention"):
        if config.flag(key, default=False):
            config.refuse(key, f"BERT as a decoder ({key}) is not supported")
    if config.text("position_embedding_type", default="absolute") not in (None, "absolute"):
        config.refuse("position_embedding_type", "only absolute positions are supported")
    _bare_encoder(config, "pooler")
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    mixer = attention_part(config, multi_head(config, heads, hidden, bias=QKVO, rotary_dim=0, **ENCODER))
    block = Block(mixer=(mixer,), ffn=(dense(config, gated=False, bias=PLAIN_MLP),))
    return decoder(
        config,
        uniform(config, block),
        norm="layer",
        final_norms=0,
        tensors={"pooler.dense.weight": (hidden, hidden), "pooler.dense.bias": (hidden,)},
        embedding={
            "tied": False,
            "head": False,
            "positions": config.size("max_position_embeddings"),
            "token_types": config.size("type_vocab_size"),
            "norms": 1,
        },
    )


def modernbert(config: Config) -> dict[str, Any]:
    """Rotary positions, gated feed-forwards, windows of ``local_attention`` tokens; the first layer has one norm."""
    config.ignore(
        "decoder_bias", "classifier_bias", "classifier_pooling", "sparse_prediction", "sparse_pred_ignore_index"
    )
    _bare_encoder(config, "final norm")
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    fields = multi_head(config, heads, hidden, bias=switched(config, "attention_bias", QKVO), **ENCODER)
    ffn = dense(config, bias=switched(config, "mlp_bias", MLP))
    types = layer_types(config, FULL_OR_SLIDING, lambda layers: _full_first(config, layers))
    config.ignore("global_attn_every_n_layers")
    window = config.size("local_attention")
    blocks = []
    for index, kind in enumerate(types):
        sliding = kind == "sliding_attention"
        mixer = attention_part(config, {**fields, "window": window if sliding else None})
        name = ("first_" if index == 0 else "") + ("sliding" if sliding else "full")
        blocks.append((name, Block(mixer=(mixer,), ffn=(ffn,), norms=1 if index == 0 else 2)))
    return decoder(
        config,
        layered(blocks),
        norm="layer" if config.flag("norm_bias") else "layer_no_bias",
        embedding={"tied": False, "head": False, "norms": 1},
    )


def _full_first(config: Config, layers: int) -> list[str]:
    period = config.size("global_attn_every_n_layers")
    return ["sliding_attention" if index % period else "full_attention" for index in range(layers)]


def _bare_encoder(config: Config, end: str) -> None:
    """Say that a head for a task, which the file may name, is not counted."""
    config.ignore("tie_word_embeddings")
    named = config.items("architectures")
    if named and not str(named[0]).endswith("Model"):
        config.assume(f"the encoder up to its {end}", f"the head of {named[0]} is not counted")
