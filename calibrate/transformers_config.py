"""A transformers configuration from a model's description: that of the family which has exactly its parts.

What comes out is read back by capplan's own reader and must give the same parameters, so that no part is lost on the
way without being told.
"""

from __future__ import annotations

from typing import Any

from capplan.describe.huggingface import read_config
from capplan.describe.model import Attention, Block, Dense, LatentAttention, MixtureOfExperts, ModelSpec
from capplan.errors import UnsupportedError
from capplan.memory.weights import count_parameters


def configuration(spec: ModelSpec) -> Any:
    """The configuration object of a description.

    Raises:
        UnsupportedError: no family of transformers that is known here has these parts.
    """
    import transformers

    name, fields = _family(spec)
    config = getattr(transformers, name)(**fields)
    again = read_config(config.to_dict(), where="transformers", name=spec.name)
    counted, wanted = count_parameters(again).total, count_parameters(spec)
    if counted != wanted.total - wanted.towers:
        raise UnsupportedError(
            f"{spec.name} has {wanted.total - wanted.towers} parameters, as {name} it would have {counted}",
            where="--runner",
            hint="give its config.json as --model, or take --runner stack",
        )
    return config


def shortened(config: Any, layers: int) -> Any:
    """A configuration that came from a file, with its first layers only."""
    config.num_hidden_layers = layers
    for name in ("layer_types", "mlp_layer_types"):
        if isinstance(getattr(config, name, None), list):
            setattr(config, name, getattr(config, name)[:layers])
    return config


def _family(spec: ModelSpec) -> tuple[str, dict[str, Any]]:
    """The class of a configuration and its fields."""
    kinds = {(type(block.mixer[0]), type(block.ffn[0])) for block in spec.blocks.values() if block.mixer and block.ffn}
    mixers = {mixer for mixer, _ in kinds}
    common = {
        "hidden_size": spec.hidden_size,
        "num_hidden_layers": spec.depth,
        "vocab_size": spec.embedding.vocab_size,
        "tie_word_embeddings": spec.embedding.tied,
    }
    if mixers == {Attention} and len(kinds) == 1:
        return _attention(spec, common)
    if mixers == {LatentAttention}:
        return "DeepseekV3Config", common | _latent(spec)
    names = sorted({str(mixer.kind).replace("_", " ") for block in spec.blocks.values() for mixer in block.mixer})
    raise UnsupportedError(
        f"{spec.name} mixes {', '.join(names)}, for which no configuration is made up here",
        where="--runner",
        hint="give its config.json as --model, or take --runner stack",
    )


def _attention(spec: ModelSpec, common: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Llama, Qwen2, Qwen3 by what stands beside the heads; their mixtures of experts likewise."""
    block = next(iter(spec.blocks.values()))
    mixer, ffn = block.mixer[0], block.ffn[0]
    assert isinstance(mixer, Attention)
    fields = common | {
        "num_attention_heads": mixer.heads,
        "num_key_value_heads": mixer.kv_heads,
        "head_dim": mixer.head_dim,
    }
    if isinstance(ffn, MixtureOfExperts):
        return "Qwen3MoeConfig" if mixer.qk_norm == "head" else "MixtralConfig", fields | _experts(ffn, mixer)
    fields["intermediate_size"] = ffn.intermediate_size
    if mixer.qk_norm == "head":
        return "Qwen3Config", fields
    if mixer.bias:
        return "Qwen2Config", fields
    return "LlamaConfig", fields


def _experts(ffn: MixtureOfExperts, mixer: Attention) -> dict[str, Any]:
    if mixer.qk_norm == "head":
        return {
            "num_experts": ffn.experts,
            "num_experts_per_tok": ffn.top_k,
            "moe_intermediate_size": ffn.intermediate_size,
            "intermediate_size": ffn.intermediate_size,
        }
    return {
        "num_local_experts": ffn.experts,
        "num_experts_per_tok": ffn.top_k,
        "intermediate_size": ffn.intermediate_size,
    }


def _latent(spec: ModelSpec) -> dict[str, Any]:
    """DeepSeek-V3: dense layers first, then mixtures of experts with shared ones."""
    first = spec.blocks[spec.order[0]]
    mixer = first.mixer[0]
    assert isinstance(mixer, LatentAttention)
    mixtures = [(name, ffn) for name, block in spec.blocks.items() if (ffn := _mixture(block)) is not None]
    if not mixtures:
        raise UnsupportedError(f"{spec.name} has no mixture of experts, as DeepSeek-V3 has", where="--runner")
    name, ffn = mixtures[0]
    dense = next((block.ffn[0] for block in spec.blocks.values() if isinstance(block.ffn[0], Dense)), None)
    return {
        "num_attention_heads": mixer.heads,
        "num_key_value_heads": mixer.heads,
        "kv_lora_rank": mixer.kv_lora_rank,
        "q_lora_rank": mixer.q_lora_rank,
        "qk_nope_head_dim": mixer.qk_nope_head_dim,
        "qk_rope_head_dim": mixer.qk_rope_head_dim,
        "v_head_dim": mixer.v_head_dim,
        "first_k_dense_replace": spec.order.index(name),
        "intermediate_size": dense.intermediate_size if isinstance(dense, Dense) else ffn.intermediate_size,
        "n_routed_experts": ffn.experts,
        "num_experts_per_tok": ffn.top_k,
        "moe_intermediate_size": ffn.intermediate_size,
        "n_shared_experts": ffn.shared.intermediate_size // ffn.intermediate_size if ffn.shared else 0,
        "n_group": 1,
        "topk_group": 1,
    }


def _mixture(block: Block) -> MixtureOfExperts | None:
    ffn = block.ffn[0]
    return ffn if isinstance(ffn, MixtureOfExperts) else None
