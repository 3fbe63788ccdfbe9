"""MiniCPM: llama with scaled embeddings and residuals, and its third generation with latent attention."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import MLP, decoder, dense, make, switched, uniform
from capplan.describe.families.llama import llama
from capplan.describe.model import Block, LatentAttention


def minicpm(config: Config) -> dict[str, Any]:
    """Llama; the sparse attention of later releases (InfLLM-v2) has no weights, and its pooled keys are not counted."""
    config.ignore("dim_model_base", "mup_denominator", "sparse_config", "use_minicpm_sparse")
    if config.has("sparse_config"):
        config.assume("dense attention", "the pooled keys of sparse_config are not counted")
    if "tie_word_embeddings" not in config.data:
        config.assume("tie_word_embeddings = true", "as in the first release's class; later copies of it disagree")
    return llama(config)


def minicpm3(config: Config) -> dict[str, Any]:
    """Multi-head latent attention; the value heads are as wide as ``hidden / heads`` where nothing else is said."""
    config.ignore("dim_model_base", "num_key_value_heads", "head_dim")
    hidden = config.size("hidden_size")
    heads = config.size("num_attention_heads")
    mixer = make(
        config,
        LatentAttention,
        {
            "heads": heads,
            "q_lora_rank": config.optional_size("q_lora_rank"),
            "kv_lora_rank": config.size("kv_lora_rank"),
            "qk_nope_head_dim": config.size("qk_nope_head_dim"),
            "qk_rope_head_dim": config.count("qk_rope_head_dim"),
            "v_head_dim": config.optional_size("v_head_dim") or hidden // heads,
            "bias": switched(config, "attention_bias", ("q_a", "kv_a", "o")),
        },
    )
    ffn = dense(config, bias=switched(config, "mlp_bias", MLP))
    return decoder(config, uniform(config, Block(mixer=(mixer,), ffn=(ffn,))))
