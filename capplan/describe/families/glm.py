"""The dense GLM models: ChatGLM2 to GLM-4, first as remote code, then as `glm` and `glm4` of transformers."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import (
    MLP,
    QKV,
    attention,
    attention_part,
    decoder,
    dense,
    rotary_dim,
    switched,
    uniform,
)
from capplan.describe.families.llama import same_layers
from capplan.describe.model import Block


def glm(config: Config, **block: Any) -> dict[str, Any]:
    """Biases on q, k, v (never the output) by ``attention_bias``; half of each head rotates."""
    fields = attention(config, bias=switched(config, "attention_bias", QKV))
    fields["rotary_dim"] = rotary_dim(config, fields["head_dim"], default=0.5)
    return decoder(config, same_layers(config, fields, dense(config), **block))


def glm4(config: Config) -> dict[str, Any]:
    """GLM with norms after each sublayer, too."""
    return glm(config, norms=4)


def chatglm(config: Config) -> dict[str, Any]:
    """Heads of ``kv_channels``; KV heads are ``multi_query_group_num`` where ``multi_query_attention`` is set.

    A second architecture has the same model type: ChatGLM-6B, the first generation, which is refused.
    """
    for key in ("inner_hidden_size", "position_encoding_2d"):
        if config.has(key):
            config.refuse(key, "the first ChatGLM-6B has an architecture of its own, which is not supported")
    if config.has("pre_seq_len"):
        config.refuse("pre_seq_len", "prefix tuning (pre_seq_len) adds an encoder that is not supported")
    config.ignore(
        "apply_residual_connection_post_layernorm", "apply_query_key_layer_scaling", "fp32_residual_connection"
    )
    heads, channels = config.size("num_attention_heads"), config.size("kv_channels")
    grouped = config.flag("multi_query_attention")
    groups = config.size("multi_query_group_num")
    everywhere = config.flag("add_bias_linear")
    fields = {
        "heads": heads,
        "kv_heads": groups if grouped else heads,
        "head_dim": channels,
        "bias": (*(QKV if everywhere or config.flag("add_qkv_bias") else ()), *(("o",) if everywhere else ())),
        "rotary_dim": channels // 2,
    }
    ffn = dense(config, intermediate_size=config.size("ffn_hidden_size"), bias=MLP if everywhere else ())
    block = Block(mixer=(attention_part(config, fields),), ffn=(ffn,))
    return decoder(
        config,
        uniform(config, block, "num_layers", "num_hidden_layers"),
        norm="rms" if config.flag("rmsnorm") else "layer",
        final_norms=1 if config.flag("post_layer_norm") else 0,
        max_positions=config.optional_size("seq_length"),
        embedding={
            "vocab_size": config.size("padded_vocab_size", "vocab_size"),
            "tied": config.flag("tie_word_embeddings", default=False),
            "head_bias": everywhere,
        },
    )
