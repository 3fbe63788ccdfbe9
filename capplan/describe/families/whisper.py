"""Whisper: an encoder of sound with a fixed number of frames, and a decoder with a fixed number of positions."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import PLAIN_MLP, attention_part, dense, layer_count, make, multi_head
from capplan.describe.model import Block, CrossAttention

BIASED = ("q", "v", "o")
"""Keys are projected without a bias."""

KERNEL = 3
"""Width of both convolutions before the encoder."""


def whisper(config: Config) -> dict[str, Any]:
    """LayerNorms with shift, learned positions in both stacks, two convolutions before the encoder."""
    config.ignore("median_filter_width", "classifier_proj_size", "use_weighted_layer_sum")
    hidden = config.size("hidden_size", "d_model")
    heads, frames = config.size("decoder_attention_heads"), config.size("max_source_positions")
    positions = config.size("max_target_positions")
    own = multi_head(config, heads, hidden, bias=BIASED, rotary_dim=0)
    cross = multi_head(config, heads, hidden, bias=BIASED, source=frames)
    ffn = dense(config, intermediate_size=config.size("decoder_ffn_dim"), gated=False, bias=PLAIN_MLP)
    block = Block(mixer=(attention_part(config, own), make(config, CrossAttention, cross)), ffn=(ffn,), norms=3)
    return {
        "hidden_size": hidden,
        "norm": "layer",
        "blocks": {"decoder": block},
        "layers": f"{layer_count(config, 'decoder_layers')}*decoder",
        "encoder": _encoder(config, hidden, frames),
        "max_positions": positions,
        "cache_positions": positions,
        "embedding": {
            "vocab_size": config.size("vocab_size"),
            "tied": config.flag("tie_word_embeddings"),
            "positions": positions,
        },
    }


def _encoder(config: Config, hidden: int, frames: int) -> dict[str, Any]:
    """Two convolutions (the second halves the frames), positions, and layers that keep nothing."""
    heads = config.size("num_attention_heads", "encoder_attention_heads")
    fields = multi_head(config, heads, hidden, bias=BIASED, rotary_dim=0, causal=False, cache="none")
    ffn = dense(config, intermediate_size=config.size("encoder_ffn_dim"), gated=False, bias=PLAIN_MLP)
    block = Block(mixer=(attention_part(config, fields),), ffn=(ffn,))
    return {
        "hidden_size": hidden,
        "norm": "layer",
        "blocks": {"encoder": block},
        "layers": f"{layer_count(config, 'num_hidden_layers', 'encoder_layers')}*encoder",
        "tensors": {
            "conv1.weight": (hidden, config.size("num_mel_bins"), KERNEL),
            "conv1.bias": (hidden,),
            "conv2.weight": (hidden, hidden, KERNEL),
            "conv2.bias": (hidden,),
            "embed_positions.weight": (frames, hidden),
        },
    }
