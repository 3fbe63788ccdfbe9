"""Qwen3-Next and Qwen3.5: gated delta nets with a gated attention layer at every fourth place."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import (
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
    rotary_dim,
    switched,
)
from capplan.describe.families.mamba import engine_state_dtype, state_dtype
from capplan.describe.families.qwen_moe import sparse_layers
from capplan.describe.model import Block, Dense, GatedDeltaNet, MixtureOfExperts, Tensors

FEED_FORWARD_KEYS = (
    "intermediate_size",
    "moe_intermediate_size",
    "num_experts_per_tok",
    "shared_expert_intermediate_size",
)
"""Keys that have no meaning in a model that is all dense or all experts."""


def qwen3_next(config: Config) -> dict[str, Any]:
    """Experts in each layer that ``mlp_only_layers`` and ``decoder_sparse_step`` leave them; one draft layer.

    The configuration does not say whether the checkpoint has its MTP layer: most releases do.
    """
    drafts = config.count_or_none("num_nextn_predict_layers", "mtp_num_hidden_layers")
    if drafts is None:
        config.assume("one MTP layer", "most releases of this family have it; the configuration cannot tell")
        drafts = 1
    return _hybrid(config, sparse_layers(config), "fused", drafts)


def qwen3_5_text(config: Config) -> dict[str, Any]:
    """The same mixers, their projections apart, with dense feed-forwards."""
    sparse = [False] * layer_count(config)
    return _hybrid(config, sparse, "split", config.count("mtp_num_hidden_layers", default=0))


def qwen3_5_moe_text(config: Config) -> dict[str, Any]:
    """The same mixers, their projections apart, with experts in every layer."""
    config.ignore("decoder_sparse_step")
    sparse = [True] * layer_count(config)
    return _hybrid(config, sparse, "split", config.count("mtp_num_hidden_layers", default=0))


def _hybrid(config: Config, sparse: list[bool], projections: str, drafts: int) -> dict[str, Any]:
    """The decoder: linear and full layers by ``layer_types``, or full at each ``full_attention_interval``-th place."""
    config.ignore("mlp_only_layers", *FEED_FORWARD_KEYS)
    interval = config.size("full_attention_interval", default=4)

    def by_interval(layers: int) -> list[str]:
        return ["linear_attention" if (index + 1) % interval else "full_attention" for index in range(layers)]

    types = layer_types(config, ("full_attention", "linear_attention"), by_interval)
    ffns = {flag: _feed_forward(config, flag) for flag in {*sparse, sparse[-1]}}
    linear = make(config, GatedDeltaNet, _delta_net(config, projections))
    layers = []
    for kind, flag in zip(types, sparse, strict=True):
        suffix = "_dense" if not flag and True in ffns else ""
        if kind == "full_attention":
            layers.append((f"attention{suffix}", _attention_block(config, ffns[flag])))
        else:
            layers.append((f"linear{suffix}", Block(mixer=(linear,), ffn=(ffns[flag],))))
    return decoder(config, layered(layers), mtp=_mtp(config, ffns[sparse[-1]], drafts))


def _delta_net(config: Config, projections: str) -> dict[str, Any]:
    return {
        "key_heads": config.size("linear_num_key_heads"),
        "value_heads": config.size("linear_num_value_heads"),
        "key_dim": config.size("linear_key_head_dim"),
        "value_dim": config.size("linear_value_head_dim"),
        "conv_kernel": config.size("linear_conv_kernel_dim"),
        "projections": projections,
        "state_dtype": state_dtype(config, "mamba_ssm_dtype"),
        "engine_state_dtype": engine_state_dtype(config, "mamba_ssm_dtype"),
    }


def _attention_block(config: Config, ffn: Dense | MixtureOfExperts) -> Block:
    """Attention with norms a head and a gate on each element of its output, which is the other half of ``q_proj``."""
    gated, bias = config.flag("attn_output_gate", default=True), switched(config, "attention_bias", QKVO)
    fields = attention(config, qk_norm="head", bias=bias, output_gate="full" if gated else "none")
    fields["rotary_dim"] = rotary_dim(config, fields["head_dim"], default=0.25)
    tensors: Tensors = {}
    if gated and bias:
        tensors = {"self_attn.gate_proj.bias": (fields["heads"] * fields["head_dim"],)}
    return Block(mixer=(attention_part(config, fields),), ffn=(ffn,), tensors=tensors)


def _feed_forward(config: Config, sparse: bool) -> Dense | MixtureOfExperts:
    if not sparse:
        return dense(config)
    return moe(
        config,
        experts=config.size("num_experts"),
        top_k=config.size("num_experts_per_tok"),
        intermediate_size=config.size("moe_intermediate_size"),
        shared={"intermediate_size": config.size("shared_expert_intermediate_size"), "gate": True},
    )


def _mtp(config: Config, ffn: Dense | MixtureOfExperts, drafts: int) -> dict[str, Any] | None:
    """Full attention layers behind two norms and a projection of hidden state and next embedding.

    Source: parameters of the published checkpoints.
    """
    copies = config.flag("mtp_use_dedicated_embeddings", default=False)
    if not drafts:
        return None
    hidden = config.size("hidden_size")
    return {
        "hidden_size": hidden,
        "blocks": {"draft": _attention_block(config, ffn)},
        "layers": f"{drafts}*draft",
        "tensors": {
            "mtp.fc.weight": (hidden, 2 * hidden),
            "mtp.pre_fc_norm_embedding.weight": (hidden,),
            "mtp.pre_fc_norm_hidden.weight": (hidden,),
        },
        "embedding_copy": copies,
    }
