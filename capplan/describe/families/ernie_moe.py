"""ERNIE 4.5's mixtures of experts."""

from __future__ import annotations

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
    make,
    switched,
)
from capplan.describe.families.experts import dense_or_experts, draft_layers
from capplan.describe.model import Block, MixtureOfExperts, Tensors

RUNTIME_KEYS = (
    "fuse_ln",
    "fuse_rope",
    "fuse_swiglu",
    "fuse_gate_detach_matmul",
    "moe_capacity",
    "moe_gate",
    "moe_gate_act",
    "moe_group",
    "moe_norm_gate_logits",
    "moe_norm_min",
    "moe_use_aux_free",
    "num_acc_steps",
    "use_rmsnorm",
)


def ernie4_5_moe(config: Config) -> dict[str, Any]:
    """Biases everywhere by ``use_bias``; the routers' correction biases are parameters; MTP layers are dense."""
    config.ignore(*RUNTIME_KEYS)
    biased = config.flag("use_bias", default=False)
    mixer = attention_part(config, attention(config, bias=switched(config, "use_bias", QKVO)))
    bias = switched(config, "use_bias", MLP)
    experts = _experts(config)
    correction: Tensors = {"mlp.gate.moe_statics.e_score_correction_bias": (1, experts.experts)}

    def block(sparse: bool) -> Block:
        if sparse:
            return Block(mixer=(mixer,), ffn=(experts,), tensors=correction)
        return Block(mixer=(mixer,), ffn=(dense(config, bias=bias),))

    hidden = config.size("hidden_size")
    projection: Tensors = {"mtp_linear_proj.weight": (hidden, 2 * hidden)}
    if biased:
        projection["mtp_linear_proj.bias"] = (hidden,)
    mtp = draft_layers(config, block(False), norms=2, tensors=projection)
    return decoder(config, dense_or_experts(_sparse_layers(config), block), mtp=mtp, embedding={"head_bias": biased})


def _experts(config: Config) -> MixtureOfExperts:
    """Routed and shared experts of ``moe_intermediate_size``."""
    width, shared = config.size("moe_intermediate_size"), config.count("moe_num_shared_experts")
    bias = switched(config, "use_bias", MLP)
    fields = {
        "experts": config.size("num_experts", "moe_num_experts"),
        "top_k": config.size("num_experts_per_tok", "moe_k"),
        "intermediate_size": width,
        "shared": {"intermediate_size": shared * width, "bias": bias} if shared else None,
    }
    return make(config, MixtureOfExperts, fields)


def _sparse_layers(config: Config) -> list[bool]:
    """Experts in each ``moe_layer_interval``-th layer from a first to a last one (-1: the last of all)."""
    layers = layer_count(config)
    first, period = config.count("moe_layer_start_index"), config.size("moe_layer_interval", default=1)
    last = config.raw("moe_layer_end_index", default=-1)
    if last in (None, -1):
        last = layers - 1
    if isinstance(last, bool) or not isinstance(last, int) or last < 0:
        config.invalid("moe_layer_end_index", f"moe_layer_end_index must be a layer's number or -1, not {last!r}")
    return [first <= index <= last and (index + 1) % period == 0 for index in range(layers)]
