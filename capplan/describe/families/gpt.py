"""GPT-2 and what followed it: GPT-Neo, GPT-J, GPT-BigCode. LayerNorm with shift, and two matrices a feed-forward."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import (
    PLAIN_MLP,
    QKVO,
    attention_part,
    decoder,
    dense,
    layer_count,
    multi_head,
    uniform,
)
from capplan.describe.model import Block


def _sizes(config: Config) -> tuple[int, int]:
    """Hidden size and heads."""
    return config.size("hidden_size", "n_embd"), config.size("num_attention_heads", "n_head", "num_heads")


def _gpt(config: Config, fields: dict[str, Any], *, norms: int = 2, **embedding: Any) -> dict[str, Any]:
    """Layers of the given attention with a biased feed-forward, four times as wide as the hidden state unless told."""
    if config.flag("add_cross_attention", default=False):
        config.refuse("add_cross_attention", "a decoder with cross-attention to an unnamed encoder is not supported")
    hidden, _ = _sizes(config)
    width = config.optional_size("n_inner", "intermediate_size") or 4 * hidden
    ffn = dense(config, intermediate_size=width, gated=False, bias=PLAIN_MLP)
    block = Block(mixer=(attention_part(config, fields),), ffn=(ffn,), norms=norms)
    return decoder(
        config,
        uniform(config, block, "num_hidden_layers", "n_layer", "num_layers"),
        hidden_size=hidden,
        norm="layer",
        max_positions=config.size("max_position_embeddings", "n_positions"),
        embedding=embedding,
    )


def _positions(config: Config) -> int:
    return config.size("max_position_embeddings", "n_positions")


def gpt2(config: Config) -> dict[str, Any]:
    """Learned positions, biases everywhere."""
    config.ignore("reorder_and_upcast_attn")
    hidden, heads = _sizes(config)
    fields = multi_head(config, heads, hidden, bias=QKVO, rotary_dim=0)
    return _gpt(config, fields, positions=_positions(config))


def gpt_bigcode(config: Config) -> dict[str, Any]:
    """GPT-2 with one KV head where ``multi_query`` is set."""
    config.ignore("pre_allocate_kv_cache")
    hidden, heads = _sizes(config)
    fields = multi_head(config, heads, hidden, bias=QKVO, rotary_dim=0)
    if config.flag("multi_query"):
        fields["kv_heads"] = 1
    return _gpt(config, fields, positions=_positions(config))


def gpt_neo(config: Config) -> dict[str, Any]:
    """GPT-2 with a bias on the output alone; local layers mask to ``window_size`` tokens, yet cache the whole context.

    No engine gives the local layers a cache of their window: transformers masks, and keeps all keys and values.
    """
    hidden, heads = _sizes(config)
    layers = layer_count(config, "num_hidden_layers", "num_layers")
    kinds = _expanded(config, layers)
    if "local" in kinds:
        window = config.size("window_size")
        config.assume(f"a cache of the whole context in the local layers (window {window})", "as transformers keeps it")
    config.ignore("window_size", "attention_layers")
    fields = multi_head(config, heads, hidden, bias=("o",), rotary_dim=0)
    return _gpt(config, fields, positions=_positions(config))


def _expanded(config: Config, layers: int) -> list[str]:
    """``attention_types`` such as ``[[["global", "local"], 12]]`` as one kind a layer."""
    runs = config.items("attention_types", default=None)
    kinds: list[str] = []
    for run in runs or [[["global", "local"], 12]]:
        match run:
            case [[*pattern], int(repeat)] if repeat <= layers and all(kind in ("global", "local") for kind in pattern):
                kinds += pattern * repeat
            case _:
                config.invalid("attention_types", f"each run must be [[kinds], repeats], not {run!r}")
    if len(kinds) != layers:
        config.invalid("attention_types", f"attention_types names {len(kinds)} layers, and the model has {layers}")
    return kinds


def gptj(config: Config) -> dict[str, Any]:
    """Attention without biases and a feed-forward with them, side by side under one norm; a head with a bias."""
    hidden, heads = _sizes(config)
    fields = multi_head(config, heads, hidden, rotary_dim=config.optional_size("rotary_dim"))
    return _gpt(config, fields, norms=1, head_bias=True)
