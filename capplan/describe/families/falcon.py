"""Falcon 7B, 40B, 180B, RW and 11B: two architectures and a switch for each difference."""

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
    switched,
    uniform,
)
from capplan.describe.model import Block


def falcon(config: Config) -> dict[str, Any]:
    """LayerNorms with shift, biases by ``bias``, two matrices a feed-forward.

    KV heads are ``num_kv_heads`` in the new decoder architecture, else one with ``multi_query`` or one a query head.
    A layer has one norm where its sublayers run side by side (the new architecture two, unless told).
    """
    hidden = config.optional_size("n_embed") or config.size("hidden_size")
    heads = config.size("num_attention_heads")
    fields = multi_head(config, heads, hidden, bias=switched(config, "bias", QKVO))
    given = config.optional_size("num_kv_heads") or heads
    grouped = config.flag("new_decoder_architecture")
    if grouped:
        fields["kv_heads"] = given
    elif config.flag("multi_query"):
        fields["kv_heads"] = 1
    config.ignore("multi_query")
    if config.flag("alibi"):
        fields["rotary_dim"] = 0
    parallel_norms = config.count_or_none("num_ln_in_parallel_attn")
    if parallel_norms is None:
        parallel_norms = 2 if grouped else 1
    two_norms = not config.flag("parallel_attn") or parallel_norms == 2
    width = config.optional_size("ffn_hidden_size") or 4 * hidden
    ffn = dense(config, intermediate_size=width, gated=False, bias=switched(config, "bias", PLAIN_MLP))
    block = Block(mixer=(attention_part(config, fields),), ffn=(ffn,), norms=2 if two_norms else 1)
    return decoder(config, uniform(config, block), hidden_size=hidden, norm="layer")
