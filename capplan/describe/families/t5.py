"""T5 and Flan-T5: an encoder, and a decoder that attends to it."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import attention_part, dense, layer_count, make
from capplan.describe.model import Block, CrossAttention, Dense


def t5(config: Config) -> dict[str, Any]:
    """RMS norms, no biases; the first layer of each stack has a table of relative position biases.

    With ``tie_word_embeddings`` = false (T5 1.1, Flan-T5) the checkpoint has a head of its own, which transformers 5
    ties to the token table all the same.
    """
    config.ignore("relative_attention_max_distance")
    hidden = config.size("hidden_size", "d_model")
    heads = config.size("num_attention_heads", "num_heads")
    head_dim = config.size("head_dim", "d_kv")
    buckets = config.size("relative_attention_num_buckets")
    layers = layer_count(config, "num_hidden_layers", "num_layers")
    decoder_layers = config.optional_size("num_decoder_layers") or layers
    own = {"heads": heads, "kv_heads": heads, "head_dim": head_dim, "rotary_dim": 0}
    cross = make(config, CrossAttention, {"heads": heads, "kv_heads": heads, "head_dim": head_dim, "source": "encoder"})
    ffn = _feed_forward(config)
    biases = {"block.0.layer.0.SelfAttention.relative_attention_bias.weight": (buckets, heads)}
    encoder = Block(mixer=(attention_part(config, {**own, "causal": False, "cache": "none"}),), ffn=(ffn,))
    decoder = Block(mixer=(attention_part(config, own), cross), ffn=(ffn,), norms=3)
    return {
        "hidden_size": hidden,
        "blocks": {"decoder": decoder},
        "layers": f"{decoder_layers}*decoder",
        "tensors": biases,
        "encoder": {
            "hidden_size": hidden,
            "blocks": {"encoder": encoder},
            "layers": f"{layers}*encoder",
            "tensors": biases,
        },
        "embedding": {
            "vocab_size": config.size("vocab_size"),
            "tied": config.raw("tie_word_embeddings", default=None) is not False,
        },
    }


def _feed_forward(config: Config) -> Dense:
    """``feed_forward_proj`` is an activation, or ``gated-`` and an activation."""
    words = (config.text("feed_forward_proj") or "relu").split("-")
    if len(words) > 2 or (len(words) == 2 and words[0] != "gated"):
        config.invalid("feed_forward_proj", "feed_forward_proj must be an activation, or gated-<activation>")
    return dense(config, intermediate_size=config.size("d_ff"), gated=words[0] == "gated")
