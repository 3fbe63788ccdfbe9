"""Hybrids of attention and state-space layers with a feed-forward in each: Jamba, Bamba, Granite 4.0-H, Falcon-H1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import (
    MLP,
    QKVO,
    attention,
    attention_part,
    decoder,
    dense,
    layer_count,
    layer_types,
    layered,
    make,
    moe,
    uniform,
)
from capplan.describe.families.mamba import prefixed_mamba2, time_step_rank
from capplan.describe.model import Block, FeedForward, Mamba, Mamba2, Mixer, Tensors

ATTENTION_OR_MAMBA = ("full_attention", "linear_attention")


def jamba(config: Config) -> dict[str, Any]:
    """Mamba-1 with norms on dt, B and C; attention and experts each have a period and an offset in the layers."""
    config.ignore("use_mamba_kernels", "use_mambapy", "use_associative_scan", "sliding_window")
    mamba = {
        "inner": config.size("mamba_expand") * config.size("hidden_size"),
        "state": config.size("mamba_d_state"),
        "conv_kernel": config.size("mamba_d_conv"),
        "dt_rank": time_step_rank(config, "mamba_dt_rank"),
        "conv_bias": config.flag("mamba_conv_bias"),
        "projection_bias": config.flag("mamba_proj_bias"),
        "inner_norms": config.flag("mamba_inner_layernorms", default=True),
    }
    mixers: dict[bool, Mixer] = {
        True: attention_part(config, attention(config, rotary_dim=0)),
        False: make(config, Mamba, mamba),
    }
    experts, top_k = config.size("num_local_experts", "num_experts"), config.size("num_experts_per_tok")
    width = config.size("intermediate_size")
    ffns: dict[bool, FeedForward] = {False: dense(config)}
    if experts > 1:
        ffns[True] = moe(config, experts=experts, top_k=top_k, intermediate_size=width)
    attends, has_experts = _periodic(config, "attn_layer"), _periodic(config, "expert_layer")
    layers = []
    for index in range(layer_count(config)):
        attention_layer, moe_layer = attends(index), experts > 1 and has_experts(index)
        name = ("attention" if attention_layer else "mamba") + ("_moe" if moe_layer else "")
        layers.append((name, Block(mixer=(mixers[attention_layer],), ffn=(ffns[moe_layer],))))
    return decoder(config, layered(layers))


def _periodic(config: Config, name: str) -> Callable[[int], bool]:
    """Whether a layer stands at the offset of the period ``<name>_period``."""
    period, offset = config.size(f"{name}_period"), config.count(f"{name}_offset")
    if offset >= period:
        config.invalid(f"{name}_offset", f"the offset {offset} must be less than the period {period}")
    return lambda index: index % period == offset


def bamba(config: Config) -> dict[str, Any]:
    """Mamba-2 layers, attention (half of each head rotated) at ``attn_layer_indices``, a feed-forward in each layer."""
    config.ignore("use_mamba_kernels", "mamba_use_mlp")
    indices = config.items("attn_layer_indices") or []
    fields = attention(config, bias=QKVO if config.flag("attention_bias") else ())
    mamba = prefixed_mamba2(config, config.size("mamba_expand") * config.size("hidden_size"))
    mixers: dict[str, Mixer] = {
        "attention": attention_part(config, {**fields, "rotary_dim": fields["head_dim"] // 2}),
        "mamba": make(config, Mamba2, mamba),
    }
    ffn = dense(config, bias=MLP if config.flag("mlp_bias") else ())
    names = ["attention" if index in indices else "mamba" for index in range(layer_count(config))]
    return decoder(config, layered([(name, Block(mixer=(mixers[name],), ffn=(ffn,))) for name in names]))


def granitemoehybrid(config: Config) -> dict[str, Any]:
    """Granite 4.0: Mamba-2 or attention by layer; a shared MLP in every layer, beside experts where there are any."""
    config.ignore("normalization_function", "mlp_bias")
    rotary = None if config.text("position_embedding_type") == "rope" else 0
    bias = QKVO if config.flag("attention_bias") else ()
    types = layer_types(
        config,
        ATTENTION_OR_MAMBA,
        lambda layers: ["linear_attention"] * layers,
        "layers_block_type",
        "layer_types",
    )
    fields = prefixed_mamba2(config, config.size("mamba_expand") * config.size("hidden_size"))
    mixers: dict[str, Mixer] = {
        "full_attention": attention_part(config, attention(config, bias=bias, rotary_dim=rotary)),
        "linear_attention": make(config, Mamba2, fields),
    }
    experts, top_k = config.count("num_experts", "num_local_experts"), config.count("num_experts_per_tok")
    shared = config.size("shared_intermediate_size")
    width = config.size("intermediate_size")
    ffn: FeedForward
    if experts:
        shared_fields = {"intermediate_size": shared}
        ffn = moe(config, experts=experts, top_k=top_k, intermediate_size=width, shared=shared_fields)
    else:
        ffn = dense(config, intermediate_size=shared)
    names = {"full_attention": "attention", "linear_attention": "mamba"}
    return decoder(config, layered([(names[kind], Block(mixer=(mixers[kind],), ffn=(ffn,))) for kind in types]))


def falcon_h1(config: Config) -> dict[str, Any]:
    """Attention and Mamba-2 side by side in every layer; the mixer's width is ``mamba_d_ssm``, its norm optional."""
    config.ignore("mamba_norm_before_gate", "mamba_use_mlp", "mlp_expansion_factor", "attn_layer_indices")
    config.ignore(*(f"{name}_multiplier" for name in ("key", "attention_in", "attention_out", "lm_head", "embedding")))
    config.ignore("mlp_multipliers", "ssm_multipliers", "ssm_in_multiplier", "ssm_out_multiplier")
    hidden = config.size("hidden_size")
    expanded = config.size("mamba_expand") * hidden
    inner = config.optional_size("mamba_d_ssm") or expanded
    fields = prefixed_mamba2(config, inner, norm=config.flag("mamba_rms_norm"))
    tensors: Tensors = {}
    out_bias = config.flag("projectors_bias")
    if out_bias != fields["projection_bias"]:
        # Its two projections have a switch each, unlike every other Mamba-2.
        rows = 2 * inner + 2 * fields["groups"] * fields["state"] + fields["heads"]
        tensors = {"mamba.out_proj.bias": (hidden,)} if out_bias else {"mamba.in_proj.bias": (rows,)}
        fields["projection_bias"] = False
    bias = QKVO if config.flag("attention_bias") else ()
    mixers = (attention_part(config, attention(config, bias=bias)), make(config, Mamba2, fields))
    ffn = dense(config, bias=MLP if config.flag("mlp_bias") else ())
    return decoder(config, uniform(config, Block(mixer=mixers, ffn=(ffn,), tensors=tensors)))
