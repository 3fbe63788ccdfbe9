"""LFM2: gated short convolutions with a few attention layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import (
    attention,
    attention_part,
    decoder,
    dense,
    layer_types,
    layered,
    make,
    moe,
)
from capplan.describe.model import Block, FeedForward, Mixer, ShortConvolution

LEGACY_KEYS = (
    "block_dim",
    "block_mlp_init_scale",
    "block_norm_eps",
    "block_out_init_scale",
    "block_use_swiglu",
    "block_use_xavier_init",
    "conv_dim",
    "conv_dim_out",
    "conv_use_xavier_init",
    "num_heads",
    "use_pos_enc",
)
"""Keys of the first releases that nothing reads."""


def lfm2(config: Config) -> dict[str, Any]:
    """Feed-forwards two thirds as wide as the key says, rounded up, where ``block_auto_adjust_ff_dim`` is set."""
    width = config.size("block_ff_dim", "intermediate_size")
    multiplier, multiple = config.number("block_ffn_dim_multiplier"), config.size("block_multiple_of")
    if config.flag("block_auto_adjust_ff_dim"):
        width = int(2 * width / 3)
        if multiplier is not None:
            width = multiple * -(-int(multiplier * width) // multiple)
    indices = config.items("full_attn_idxs")

    def by_index(layers: int) -> list[str]:
        full = range(layers) if indices is None else indices
        return ["full_attention" if index in full else "conv" for index in range(layers)]

    types = layer_types(config, ("conv", "full_attention"), by_index)
    ffn = dense(config, intermediate_size=width)
    return _lfm2(config, types, [("", ffn)] * len(types))


def lfm2_moe(config: Config) -> dict[str, Any]:
    """The same mixers with experts from layer ``num_dense_layers`` on."""

    def no_default(layers: int) -> list[str]:
        config.refuse("layer_types", "the configuration has no 'layer_types', and its class has no default for it")

    types = layer_types(config, ("conv", "full_attention"), no_default)
    first = dense(config)
    experts = moe(
        config,
        experts=config.size("num_experts"),
        top_k=config.size("num_experts_per_tok"),
        intermediate_size=config.size("moe_intermediate_size"),
        correction_bias=config.flag("use_expert_bias"),
    )
    dense_layers = config.count("num_dense_layers")
    ffns = [("", first) if index < dense_layers else ("_moe", experts) for index in range(len(types))]
    return _lfm2(config, types, ffns)


def _lfm2(config: Config, types: list[str], ffns: Sequence[tuple[str, FeedForward]]) -> dict[str, Any]:
    config.ignore(*LEGACY_KEYS)
    convolution = {"conv_kernel": config.size("conv_L_cache"), "bias": config.flag("conv_bias")}
    mixers: dict[str, Mixer] = {
        "conv": make(config, ShortConvolution, convolution),
        "full_attention": attention_part(config, attention(config, qk_norm="head")),
    }
    names = {"conv": "conv", "full_attention": "attention"}
    layers = [
        (names[kind] + suffix, Block(mixer=(mixers[kind],), ffn=(ffn,)))
        for kind, (suffix, ffn) in zip(types, ffns, strict=True)
    ]
    tied = config.flag("tie_embedding", "tie_word_embeddings")
    return decoder(config, layered(layers), embedding={"tied": tied})
