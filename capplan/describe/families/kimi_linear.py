"""Kimi Linear and Kimi K3: Kimi delta attention with latent attention at every fourth place, and experts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import (
    decoder,
    dense,
    layer_count,
    layer_types,
    layered,
    make,
    moe,
    never_tied,
)
from capplan.describe.families.deepseek import latent_attention
from capplan.describe.families.experts import expert_mask
from capplan.describe.families.multimodal import text_model
from capplan.describe.families.towers import biased, pair, tower
from capplan.describe.model import Attention, Block, KimiDeltaAttention, Mixer, MixtureOfExperts, Tensors

FULL, LINEAR = "full_attention", "linear_attention"
RUNTIME_KEYS = ("head_dim", "activation_situ_beta", "activation_situ_linear_beta", "moe_router_activation_func")
TOWER_RUNTIME_KEYS = (
    "init_pos_emb_time",
    "merge_type",
    "mm_projector_type",
    "pos_emb_interpolation_mode",
    "pos_emb_type",
    "projector_hidden_act",
    "projector_ln_eps",
    "text_hidden_size",
    "video_attn_type",
)


def kimi_linear(config: Config) -> dict[str, Any]:
    """Layers by ``layer_types`` or by the lists of ``linear_attn_config``, whose numbers start at 1.

    K3 adds a gate on the latent attention's output, experts on a latent, and a learned residual from the layers of
    its block (``attn_res_block_size``), each by a key.
    """
    config.ignore("mla_use_nope", *RUNTIME_KEYS)
    if config.count("num_nextn_predict_layers", default=0):
        config.refuse("num_nextn_predict_layers", "the MTP layers of Kimi Linear are not known")
    hidden = config.size("hidden_size")
    linear = config.sub("linear_attn_config")
    latent = latent_attention(config)
    if config.flag("mla_use_output_gate", default=False):
        latent = replace(latent, output_gate="full")
    mixers: dict[str, Mixer] = {FULL: latent, LINEAR: _delta_attention(config, linear)}
    types = layer_types(config, (FULL, LINEAR), lambda layers: _listed(config, linear, layers))
    experts, latent_tensors = _experts(config)
    residual, output = _residuals(config, hidden)
    feed_forward = dense(config)
    layers = []
    for kind, sparse in zip(types, expert_mask(config, first_dense=1), strict=True):
        name = ("mla" if kind == FULL else "kda") + ("_moe" if sparse else "_dense")
        ffn = experts if sparse else feed_forward
        tensors = residual | (latent_tensors if sparse else {})
        layers.append((name, Block(mixer=(mixers[kind],), ffn=(ffn,), norms=4 if residual else 2, tensors=tensors)))
    positions = config.optional_size("model_max_length", "max_position_embeddings")
    tied = {"tied": never_tied(config)}
    return decoder(config, layered(layers), tensors=output, max_positions=positions, embedding=tied)


def _listed(config: Config, linear: Config, layers: int) -> list[str]:
    """The kind of each layer from two lists of numbers; without them every fourth layer after the first is full."""
    full, delta = linear.items("full_attn_layers"), linear.items("kda_layers")
    if full is None or delta is None:
        return [FULL if index and index % 4 == 0 else LINEAR for index in range(layers)]
    kinds = {**dict.fromkeys(full, FULL), **dict.fromkeys(delta, LINEAR)}
    missing = next((number for number in range(1, layers + 1) if number not in kinds), None)
    if missing is not None:
        linear.invalid("kda_layers", f"layer {missing} is in neither full_attn_layers nor kda_layers")
    return [kinds[number] for number in range(1, layers + 1)]


def _delta_attention(config: Config, linear: Config) -> KimiDeltaAttention:
    """Sizes under ``linear_attn_config``, else under the keys ``linear_*``."""
    linear.ignore("full_attn_layers", "kda_layers", "gate_lower_bound")
    fields = {
        "heads": linear.optional_size("num_heads") or config.size("linear_num_heads"),
        "head_dim": linear.optional_size("head_dim") or config.size("linear_head_dim"),
        "conv_kernel": linear.optional_size("short_conv_kernel_size") or config.size("linear_conv_kernel_dim"),
        "full_rank_gate": linear.flag("use_full_rank_gate", default=False),
    }
    config.ignore("linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim")
    return make(config, KimiDeltaAttention, fields)


def _experts(config: Config) -> tuple[MixtureOfExperts, Tensors]:
    """Routed and shared experts; with ``routed_expert_hidden_size`` the routed ones act on a latent of that width."""
    width, latent = config.size("moe_intermediate_size"), config.optional_size("routed_expert_hidden_size")
    shared = config.count("num_shared_experts", "n_shared_experts")
    experts = moe(
        config,
        experts=config.size("num_experts", "num_local_experts"),
        top_k=config.size("num_experts_per_token", "num_experts_per_tok"),
        intermediate_size=width,
        latent_size=latent,
        shared={"intermediate_size": shared * width} if shared else None,
        correction_bias=True,
    )
    normed = config.flag("latent_moe_use_norm", default=False)
    return experts, {"mlp.routed_expert_norm.weight": (latent,)} if latent and normed else {}


def _residuals(config: Config, hidden: int) -> tuple[Tensors, Tensors]:
    """Scorers of earlier residuals: two in each layer (whose norms count with the layer's own) and one at the end."""
    if config.optional_size("attn_res_block_size") is None:
        return {}, {}
    layer: Tensors = {"self_attention_res_proj.weight": (1, hidden), "mlp_res_proj.weight": (1, hidden)}
    return layer, {"output_attn_res_norm.weight": (hidden,), "output_attn_res_proj.weight": (1, hidden)}


def kimi_k3(config: Config) -> dict[str, Any]:
    """Kimi Linear's decoder behind a ViT of RMS norms without biases, whose attention is wider than its layers.

    Source: vLLM's model of Kimi K3; the released configuration.
    """
    text = config.sub("text_config", "kimi_linear", fixed=True)
    fields = text_model(config, text, "kimi_linear", tied=config.flag("tie_word_embeddings", default=False))
    return {**fields, "towers": {"vision": _moonvit(config.sub("vision_config"), fields["hidden_size"])}}


def _moonvit(config: Config, text_hidden: int) -> dict[str, Any]:
    """Learned positions in the plane, fixed ones in time; merged patches, two matrices and a norm to the decoder."""
    config.ignore(*TOWER_RUNTIME_KEYS)
    hidden, heads = config.size("vt_hidden_size"), config.size("vt_num_attention_heads")
    attention_width, projector_width = config.size("qkv_hidden_size"), config.optional_size("mm_hidden_size") or hidden
    if attention_width % heads:
        config.invalid("qkv_hidden_size", f"qkv_hidden_size {attention_width} does not divide by {heads} heads")
    for key, value in (("norm_type", "rmsnorm"), ("mlp_type", "mlp2")):
        if config.text(key, default=value) != value:
            config.refuse(key, f"a tower with another {key} than {value} is not supported")
    attention = {
        "heads": heads,
        "kv_heads": heads,
        "head_dim": attention_width // heads,
        "bias": ("q", "k", "v", "o") if config.flag("attn_bias", default=False) else (),
        "causal": False,
        "cache": "none",
    }
    linear_bias = config.flag("linear_bias", default=False)
    ffn = dense(
        config,
        intermediate_size=config.size("vt_intermediate_size"),
        gated=False,
        bias=("up", "down") if linear_bias else (),
    )
    rows, columns = pair(config, "patch_size")
    merge_rows, merge_columns = pair(config, "merge_kernel_size")
    merged = projector_width * merge_rows * merge_columns
    tensors: Tensors = {
        "patch_embed.proj.weight": (hidden, 3, rows, columns),
        "patch_embed.pos_emb.weight": (config.size("init_pos_emb_height"), config.size("init_pos_emb_width"), hidden),
        **biased("mm_projector.linear_1", merged, merged, linear_bias),
        **biased("mm_projector.linear_2", text_hidden, merged, linear_bias),
        "mm_projector.post_norm.weight": (text_hidden,),
    }
    if config.flag("patch_embed_proj_bias", default=False):
        tensors["patch_embed.proj.bias"] = (hidden,)
    block = Block(mixer=(make(config, Attention, attention),), ffn=(ffn,))
    return tower(hidden, layer_count(config, "vt_num_hidden_layers"), block, tensors, norms=1, norm="rms")
