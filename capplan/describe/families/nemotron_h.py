"""Nemotron-H and Nemotron 3: every layer is one thing, a Mamba-2, an attention, a feed-forward or experts."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import (
    LEGACY_LAYER_TYPES,
    MAX_LAYERS,
    PLAIN_MLP,
    attention,
    attention_part,
    decoder,
    dense,
    layered,
    make,
    moe,
    never_tied,
    switched,
)
from capplan.describe.families.mamba import engine_state_dtype, state_dtype
from capplan.describe.model import Block, Mamba2, MixtureOfExperts, Tensors

PATTERN = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}
NAMES = {"linear_attention": "mamba", "full_attention": "attention", "mlp": "mlp", "moe": "moe"}


def nemotron_h(config: Config) -> dict[str, Any]:
    """One norm and one mixer or feed-forward a layer, without gates and rotary embedding; latent experts; MTP."""
    config.ignore("expand", "chunk_size", "mamba_chunk_size", "mamba_proj_bias", "attention_bias")
    config.ignore("moe_shared_expert_overlap", "use_mamba_kernels", "sliding_window", "n_shared_experts")
    blocks = _blocks(config)
    order = _order(config, ("layer_types", "layers_block_type"), "hybrid_override_pattern")
    if order is None:
        order = ["linear_attention", "moe", "full_attention", "mlp"]
    config.optional_size("num_hidden_layers")  # the pattern decides, but a number that is none is a mistake
    layers = layered([(NAMES[kind], blocks[kind]) for kind in order])
    return decoder(config, layers, mtp=_mtp(config), embedding={"tied": never_tied(config)})


def _order(config: Config, keys: tuple[str, ...], pattern_key: str) -> list[str] | None:
    """The kind of each layer from a list, or from a pattern of letters; None without either."""
    listed = config.items(*keys)
    pattern = config.text(pattern_key, default=None)
    if listed is None:
        if pattern is None:
            return None
        unknown = next((letter for letter in pattern if letter not in PATTERN), None)
        if unknown is not None:
            config.refuse(pattern_key, f"the layer {unknown!r} is not supported", f"one of {' '.join(PATTERN)}")
        listed = [PATTERN[letter] for letter in pattern]
    order = [LEGACY_LAYER_TYPES.get(kind, kind) if isinstance(kind, str) else kind for kind in listed]
    for kind in order:
        if kind not in NAMES:
            config.refuse(keys[0], f"the layer type {kind!r} is not supported", f"one of {', '.join(NAMES)}")
    if not 1 <= len(order) <= MAX_LAYERS:
        config.invalid(keys[0], f"there must be between 1 and {MAX_LAYERS} layers, not {len(order)}")
    return order


def _blocks(config: Config, *, correction_bias: bool = True) -> dict[str, Block]:
    """The block of each kind of layer."""
    mamba = {
        "heads": config.size("mamba_num_heads"),
        "head_dim": config.size("mamba_head_dim"),
        "groups": config.size("mamba_n_groups", "n_groups"),
        "state": config.size("ssm_state_size"),
        "conv_kernel": config.size("mamba_d_conv", "conv_kernel"),
        "conv_bias": config.flag("mamba_conv_bias", "use_conv_bias"),
        "projection_bias": config.flag("use_bias"),
        "state_dtype": state_dtype(config, "mamba_ssm_cache_dtype"),
        "engine_state_dtype": engine_state_dtype(config, "mamba_ssm_cache_dtype"),
    }
    head_dim = config.optional_size("head_dim", "attention_head_dim")
    fields = {**attention(config, rotary_dim=0), **({"head_dim": head_dim} if head_dim else {})}
    bias = switched(config, "mlp_bias", PLAIN_MLP)
    experts, tensors = _experts(config, bias, correction_bias)
    return {
        "linear_attention": Block(mixer=(make(config, Mamba2, mamba),), norms=1),
        "full_attention": Block(mixer=(attention_part(config, fields),), norms=1),
        "mlp": Block(ffn=(dense(config, gated=False, bias=bias),), norms=1),
        "moe": Block(ffn=(experts,), norms=1, tensors=tensors),
    }


def _experts(config: Config, bias: tuple[str, ...], correction_bias: bool) -> tuple[MixtureOfExperts, Tensors]:
    """Routed experts on a latent where ``moe_latent_size`` has a value; the shared one on the hidden state."""
    latent = config.optional_size("moe_latent_size")
    experts = moe(
        config,
        experts=config.size("num_local_experts", "n_routed_experts"),
        top_k=config.size("num_experts_per_tok"),
        intermediate_size=config.size("moe_intermediate_size"),
        gated=False,
        latent_size=latent,
        shared={"intermediate_size": config.size("moe_shared_expert_intermediate_size"), "bias": bias},
        correction_bias=correction_bias,
    )
    if latent is None or not bias:
        return experts, {}
    hidden = config.size("hidden_size")
    return experts, {"mlp.fc1_latent_proj.bias": (latent,), "mlp.fc2_latent_proj.bias": (hidden,)}


def _mtp(config: Config) -> dict[str, Any] | None:
    """The layers of ``mtp_layers_block_type`` for each further token, behind two norms and a projection.

    Their router has no correction bias.

    Source: parameters of the published Nemotron-3 checkpoints.
    """
    order = _order(config, ("mtp_layers_block_type",), "mtp_hybrid_override_pattern")
    modules = config.count("num_nextn_predict_layers")
    if not modules:
        return None
    hidden = config.size("hidden_size")
    order = order or ["full_attention", "moe"]
    tensors: Tensors = {}
    for module in range(modules):
        tensors[f"mtp.layers.{module * len(order)}.eh_proj.weight"] = (hidden, 2 * hidden)
        for norm in ("enorm", "hnorm", "final_layernorm"):
            tensors[f"mtp.layers.{module * len(order)}.{norm}.weight"] = (hidden,)
    blocks = _blocks(config, correction_bias=False)
    layers = layered([(NAMES[kind], blocks[kind]) for _ in range(modules) for kind in order])
    return {"hidden_size": hidden, **layers, "final_norms": 0, "tensors": tensors}
