"""Decoders with experts in every layer and little else that is special: Mixtral, OLMoE, Phi-3.5-MoE, DBRX, Grok-1."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import (
    QKVO,
    attention,
    attention_part,
    decoder,
    dense,
    even_heads,
    layer_count,
    layered,
    moe,
    switched,
    uniform,
)
from capplan.describe.model import Block


def plain_experts(config: Config) -> dict[str, Any]:
    """Experts of ``intermediate_size``."""
    return {
        "experts": config.size("num_experts", "num_local_experts"),
        "top_k": config.size("num_experts_per_tok"),
        "intermediate_size": config.size("intermediate_size"),
    }


def mixtral(config: Config) -> dict[str, Any]:
    """No biases; one sliding window for all layers where ``sliding_window`` has a value."""
    fields = attention(config, window=config.optional_size("sliding_window"))
    block = Block(mixer=(attention_part(config, fields),), ffn=(moe(config, **plain_experts(config)),))
    return decoder(config, uniform(config, block))


def granitemoe(config: Config) -> dict[str, Any]:
    """Biases by ``attention_bias``; heads always divide the hidden size."""
    fields = attention(config, bias=switched(config, "attention_bias", QKVO))
    block = Block(mixer=(attention_part(config, fields),), ffn=(moe(config, **plain_experts(config)),))
    return decoder(config, uniform(config, block))


def olmoe(config: Config) -> dict[str, Any]:
    """Norms on queries and keys as wide as all heads; ``clip_qkv`` clips and holds nothing."""
    config.ignore("clip_qkv")
    fields = attention(config, qk_norm="full", bias=switched(config, "attention_bias", QKVO))
    block = Block(mixer=(attention_part(config, fields),), ffn=(moe(config, **plain_experts(config)),))
    return decoder(config, uniform(config, block))


def phimoe(config: Config) -> dict[str, Any]:
    """LayerNorms with bias, biases on all of attention by ``attention_bias`` and on the head by ``lm_head_bias``."""
    config.ignore("input_jitter_noise", "router_jitter_noise")
    window = config.optional_size("sliding_window")
    fields = attention(config, window=window, bias=switched(config, "attention_bias", QKVO))
    block = Block(mixer=(attention_part(config, fields),), ffn=(moe(config, **plain_experts(config)),))
    head = {"head_bias": config.flag("lm_head_bias", default=False)}
    return decoder(config, uniform(config, block), norm="layer", embedding=head)


def dbrx(config: Config) -> dict[str, Any]:
    """GPT's key names, attention and experts each under a key of their own; LayerNorms without bias."""
    inner, ffn = config.sub("attn_config"), config.sub("ffn_config")
    inner.ignore("clip_qkv")
    ffn.ignore(
        "hidden_size",
        "moe_normalize_expert_weights",
        "moe_jitter_eps",
        "moe_loss_weight",
        "uniform_expert_assignment",
    )
    config.ignore("num_key_value_heads")
    hidden, heads = config.size("hidden_size", "d_model"), config.size("num_attention_heads", "n_heads")
    fields = {
        "heads": heads,
        "kv_heads": inner.optional_size("kv_n_heads", default=1) or heads,
        "head_dim": even_heads(config, heads, hidden),
    }
    experts = {
        "experts": ffn.size("moe_num_experts", default=4),
        "top_k": ffn.size("moe_top_k", default=1),
        "intermediate_size": ffn.size("ffn_hidden_size", default=3584),
    }
    block = Block(mixer=(attention_part(config, fields),), ffn=(moe(config, **experts),))
    return decoder(
        config,
        uniform(config, block, "num_hidden_layers", "n_layers"),
        norm="layer_no_bias",
        hidden_size=hidden,
        max_positions=config.optional_size("max_position_embeddings", "max_seq_len"),
    )


def grok(config: Config) -> dict[str, Any]:
    """Norms before and after attention and before and after the experts, whose feed-forwards are gated."""
    fields = attention(config, bias=switched(config, "attention_bias", QKVO))
    ffn = moe(config, **plain_experts(config))
    block = Block(mixer=(attention_part(config, fields),), ffn=(ffn,), norms=4)
    tied = config.flag("tie_word_embeddings", default=True)
    return decoder(config, uniform(config, block), embedding={"tied": tied})


def arctic(config: Config) -> dict[str, Any]:
    """A dense residual feed-forward as wide as the hidden state beside the experts.

    With ``parallel_attn_mlp_res`` every layer has both. Without it, each ``moe_layer_frequency``-th layer has
    experts (and the residual where ``use_residual`` is set) and the others have one dense feed-forward.
    """
    mixer = attention_part(config, attention(config, window=config.optional_size("sliding_window")))
    config.ignore("enable_expert_tensor_parallelism", "moe_token_dropping", "moe_train_capacity_factor")
    config.ignore("moe_eval_capacity_factor", "moe_min_capacity", "num_local_heads", "enc_index")
    residual = dense(config, intermediate_size=config.size("hidden_size"))
    experts = moe(config, **plain_experts(config))
    both = Block(mixer=(mixer,), ffn=(residual, experts), norms=3)
    parallel = config.flag("parallel_attn_mlp_res", default=False)
    period = config.size("moe_layer_frequency", default=1)
    beside = config.flag("use_residual", default=parallel)
    if parallel:
        if period != 1:
            config.assume("experts in every layer", "parallel_attn_mlp_res sets moe_layer_frequency aside")
        return decoder(config, uniform(config, both))
    with_experts = both if beside else Block(mixer=(mixer,), ffn=(experts,))
    without = Block(mixer=(mixer,), ffn=(dense(config),))
    layers = [
        ("moe", with_experts) if (index + 1) % period == 0 else ("dense", without)
        for index in range(layer_count(config))
    ]
    return decoder(config, layered(layers))
