"""MPT, whose attention has a configuration of its own."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import (
    PLAIN_MLP,
    QKVO,
    attention_part,
    decoder,
    dense,
    multi_head,
    uniform,
)
from capplan.describe.model import Block


def mpt(config: Config) -> dict[str, Any]:
    """No biases and no shifts in the norms (``no_bias``); ALiBi, or learned positions where it is off.

    Grouped KV heads and norms on queries and keys are MPT's own (``attn_config``); transformers' class has neither.
    """
    config.ignore("embedding_fraction")
    hidden, heads = config.size("hidden_size", "d_model"), config.size("num_attention_heads", "n_heads")
    biased = not config.flag("no_bias")
    attn = config.sub("attn_config")
    alibi = attn.flag("alibi", default=True)
    fields = multi_head(config, heads, hidden, bias=QKVO if biased else ())
    fields.update(_attention_extras(attn, heads, biased))
    if config.sub("ffn_config").text("ffn_type", default=None) not in (None, "mptmlp"):
        config.refuse("ffn_config", "of MPT's feed-forwards only the plain one (mptmlp) is supported")
    width = config.size("expansion_ratio") * hidden
    ffn = dense(config, intermediate_size=width, gated=False, bias=PLAIN_MLP if biased else ())
    positions = config.size("max_position_embeddings", "max_seq_len")
    learned = config.flag("learned_pos_emb") and not alibi and fields["rotary_dim"] == 0
    shifted = "layer" if biased else "layer_no_bias"
    block = Block(mixer=(attention_part(config, fields),), ffn=(ffn,))
    return decoder(
        config,
        uniform(config, block, "num_hidden_layers", "n_layers"),
        hidden_size=hidden,
        norm="rms" if "rms" in (config.text("norm_type", default=None) or "") else shifted,
        max_positions=positions,
        embedding={"positions": positions if learned else 0},
    )


def _attention_extras(attn: Config, heads: int, biased: bool) -> dict[str, Any]:
    """What ``attn_config`` changes in plain multi-head attention."""
    attn.ignore("attn_uses_sequence_id", "alibi_bias_max")
    if attn.flag("qk_gn", default=False):
        attn.refuse("qk_gn", "group norms on queries and keys are not supported")
    if attn.raw("sliding_window_size", default=-1) not in (None, -1):
        attn.refuse("sliding_window_size", "MPT with sliding windows is not supported")
    kind = attn.text("attn_type", default=None)
    qk_norm = attn.flag("qk_ln", default=False)
    return {
        "kv_heads": attn.optional_size("kv_n_heads") or (1 if kind == "multiquery_attention" else heads),
        "qk_norm": "full" if qk_norm else "none",
        "qk_norm_bias": qk_norm and biased,
        "rotary_dim": None if attn.flag("rope", default=False) else 0,
    }
