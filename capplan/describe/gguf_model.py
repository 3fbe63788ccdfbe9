"""GGUF metadata -> `ModelSpec`, for the architectures that llama.cpp's files mostly have.

Each architecture's sizes are put under the keys of its Hugging Face configuration, and that family's reader does the
rest, so that one architecture is described in one place. What a configuration says and metadata doesn't (biases, tied
embeddings, norms on heads) is read off the tensor table. An architecture that isn't in the table is refused.

Source: llama.cpp, gguf-py/gguf/constants.py (keys), convert_hf_to_gguf.py (what is written under them).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from capplan.describe.gguf import GgufFile, read_gguf_model
from capplan.describe.gguf_facts import GgufFacts
from capplan.describe.huggingface import read_config
from capplan.describe.model import ModelSpec
from capplan.errors import UnsupportedError, did_you_mean

Fields = dict[str, Any]

_QUERY_KEY_VALUE_BIAS = ("attn_q.bias", "attn_qkv.bias")


def read_gguf_spec(path: Path) -> tuple[ModelSpec, GgufFile]:
    """The model of a GGUF file (with all its shards), and what the file holds.

    Raises:
        UnsupportedError: an architecture that isn't understood.
        InvalidFileError: a malformed file, or metadata that contradicts itself or the tensors.
        NotFoundError: there is no such file, or a shard is missing.
    """
    file = read_gguf_model(path)
    return gguf_spec(file, name=path.stem), file


def gguf_spec(file: GgufFile, *, name: str) -> ModelSpec:
    """The model that a GGUF header describes.

    Raises:
        UnsupportedError: an architecture that isn't understood.
        InvalidFileError: metadata that contradicts itself or the tensors.
    """
    architecture = file.metadata.get("general.architecture")
    if not isinstance(architecture, str) or architecture not in ARCHITECTURES:
        raise UnsupportedError(
            f"the GGUF architecture {str(architecture)[:40]!r} is not supported",
            where=f"{file.name}: general.architecture",
            hint=did_you_mean(str(architecture)[:40], ARCHITECTURES),
        )
    facts = GgufFacts(file, architecture)
    config = ARCHITECTURES[architecture](facts)
    _check_keys_and_values(facts, config)
    return read_config(config, where=file.name, name=name)


def _check_keys_and_values(facts: GgufFacts, config: Fields) -> None:
    """The rows of attention's K and V must be what the metadata says, in every layer: the cache is made of them."""
    head_dim = config.get("head_dim")
    if "num_key_value_heads" not in config or not isinstance(head_dim, int) or "kv_lora_rank" in config:
        return
    rows = config["num_key_value_heads"] * head_dim
    for name in ("attn_k.weight", "attn_v.weight"):
        for layer in facts.layer_names.get(name, ()):
            tensor = facts.tensors[f"blk.{layer}.{name}"]
            if tensor.shape[1:] != (rows,):
                facts.refuse(f"{tensor.name} has {tensor.shape[1:]} rows where the metadata means {rows}")


def _decoder(facts: GgufFacts, model_type: str, **more: Any) -> Fields:
    """What all decoders with attention have."""
    return {
        "model_type": model_type,
        "hidden_size": facts.size("embedding_length"),
        "num_hidden_layers": facts.layers,
        "num_attention_heads": facts.heads,
        "num_key_value_heads": facts.kv_heads,
        "head_dim": facts.head_dim,
        "vocab_size": facts.vocabulary,
        "max_position_embeddings": facts.optional("context_length"),
        "tie_word_embeddings": facts.tied,
        **more,
    }


def _dense(facts: GgufFacts, model_type: str, **more: Any) -> Fields:
    return _decoder(facts, model_type, intermediate_size=facts.size("feed_forward_length"), **more)


def _experts(facts: GgufFacts, key: str, width: str = "moe_intermediate_size") -> Fields:
    """Routed experts: their number under `key`, how many a token uses, and their width under `width`."""
    ffn_width = facts.optional("feed_forward_length")
    return {
        key: facts.size("expert_count"),
        "num_experts_per_tok": facts.size("expert_used_count"),
        width: facts.size("expert_feed_forward_length", default=ffn_width),
    }


def _llama(facts: GgufFacts) -> Fields:
    """Llama, Mistral and Mixtral, which llama.cpp runs as one architecture, without sliding windows."""
    if facts.optional("expert_count"):
        return _decoder(
            facts, "mixtral", sliding_window=None, **_experts(facts, "num_local_experts", "intermediate_size")
        )
    if facts.has(*_QUERY_KEY_VALUE_BIAS) and not facts.has("attn_output.bias"):
        return _dense(facts, "qwen2", use_sliding_window=False)
    bias = facts.has("attn_output.bias")
    return _dense(facts, "llama", attention_bias=bias, mlp_bias=facts.has("ffn_up.bias"))


def _qwen2(facts: GgufFacts) -> Fields:
    return _dense(facts, "qwen2", use_sliding_window=False)


def _qwen3(facts: GgufFacts) -> Fields:
    return _dense(facts, "qwen3", use_sliding_window=False, attention_bias=facts.has("attn_output.bias"))


def _qwen2_moe(facts: GgufFacts) -> Fields:
    """Every layer has experts, and one gated shared expert."""
    return _decoder(
        facts,
        "qwen2_moe",
        use_sliding_window=False,
        qkv_bias=facts.has(*_QUERY_KEY_VALUE_BIAS),
        decoder_sparse_step=1,
        mlp_only_layers=[],
        intermediate_size=facts.size("feed_forward_length"),
        shared_expert_intermediate_size=_shared_width(facts),
        **_experts(facts, "num_experts"),
    )


def _shared_width(facts: GgufFacts) -> int:
    """The shared experts' width, from the metadata or (in older files) from the tensor."""
    given = facts.optional("expert_shared_feed_forward_length")
    tensor = facts.layer_tensor("ffn_up_shexp.weight")
    if given is None and tensor is None:
        facts.invalid("there is no shared expert")
    return given or (tensor.shape[1] if tensor else 0)


def _qwen3_moe(facts: GgufFacts) -> Fields:
    return _decoder(
        facts,
        "qwen3_moe",
        use_sliding_window=False,
        attention_bias=facts.has("attn_output.bias"),
        decoder_sparse_step=1,
        mlp_only_layers=[],
        intermediate_size=facts.size("feed_forward_length"),
        **_experts(facts, "num_experts"),
    )


def _qwen3_next(facts: GgufFacts) -> Fields:
    """Gated delta nets but for each ``full_attention_interval``-th layer; the state's sizes are under ``ssm``."""
    heads, value_dim = facts.size("ssm.time_step_rank"), facts.size("ssm.state_size")
    if facts.size("ssm.inner_size") != heads * value_dim:
        facts.invalid("ssm.inner_size is not ssm.time_step_rank heads of ssm.state_size")
    return _decoder(
        facts,
        "qwen3_next",
        linear_num_key_heads=facts.size("ssm.group_count"),
        linear_num_value_heads=heads,
        linear_key_head_dim=value_dim,
        linear_value_head_dim=value_dim,
        linear_conv_kernel_dim=facts.size("ssm.conv_kernel"),
        full_attention_interval=facts.size("full_attention_interval", default=4),
        decoder_sparse_step=1,
        mlp_only_layers=[],
        num_nextn_predict_layers=0,
        shared_expert_intermediate_size=_shared_width(facts),
        intermediate_size=facts.size("feed_forward_length", default=_shared_width(facts)),
        **_experts(facts, "num_experts"),
    )


def _gemma(facts: GgufFacts) -> Fields:
    return _dense(facts, "gemma")


def _gemma2(facts: GgufFacts) -> Fields:
    return _dense(facts, "gemma2", sliding_window=facts.size("attention.sliding_window", default=4096))


def _gemma3(facts: GgufFacts) -> Fields:
    """Five sliding layers and a full one: llama.cpp has the pattern in its code, newer files in their metadata."""
    window = facts.size("attention.sliding_window", default=1024)
    pattern = facts.file.metadata.get("gemma3.attention.sliding_window_pattern", 6)
    if not isinstance(pattern, int) or isinstance(pattern, bool):
        facts.refuse("a list of sliding layers is not understood")
    return _dense(facts, "gemma3_text", sliding_window=window, sliding_window_pattern=pattern)


def _phi3(facts: GgufFacts) -> Fields:
    window = facts.optional("attention.sliding_window")
    context = facts.optional("context_length") or 0
    rotated = facts.optional("rope.dimension_count")
    factor = rotated / facts.head_dim if rotated and rotated < facts.head_dim else 1.0
    return _dense(
        facts,
        "phi3",
        sliding_window=window if window and window < context else None,
        partial_rotary_factor=factor,
    )


def _deepseek2(facts: GgufFacts) -> Fields:
    """MLA; newer files keep K as the latent (``key_length``) and the heads' own sizes under ``*_mla``."""
    rope = facts.size("rope.dimension_count")
    key = facts.optional("attention.key_length_mla") or facts.size("attention.key_length")
    value = facts.optional("attention.value_length_mla") or facts.size("attention.value_length")
    if key <= rope:
        facts.invalid("a key head is not longer than its rotary part")
    corrected = facts.has("exp_probs_b.bias", "exp_probs_b")
    return {
        "model_type": "deepseek_v3" if corrected else "deepseek_v2",
        "hidden_size": facts.size("embedding_length"),
        "num_hidden_layers": facts.layers,
        "num_attention_heads": facts.heads,
        "q_lora_rank": facts.optional("attention.q_lora_rank") or None,
        "kv_lora_rank": facts.size("attention.kv_lora_rank"),
        "qk_rope_head_dim": rope,
        "qk_nope_head_dim": key - rope,
        "v_head_dim": value,
        "intermediate_size": facts.size("feed_forward_length"),
        "first_k_dense_replace": facts.optional("leading_dense_block_count") or 0,
        "moe_layer_freq": 1,
        "n_shared_experts": facts.optional("expert_shared_count") or 0,
        "num_nextn_predict_layers": 0,
        "attention_bias": False,
        "vocab_size": facts.vocabulary,
        "max_position_embeddings": facts.optional("context_length"),
        "tie_word_embeddings": facts.tied,
        **_experts(facts, "n_routed_experts"),
    }


def _gpt_oss(facts: GgufFacts) -> Fields:
    return _decoder(
        facts,
        "gpt_oss",
        attention_bias=True,
        sliding_window=facts.size("attention.sliding_window"),
        **_experts(facts, "num_local_experts", "intermediate_size"),
    )


def _glm4(facts: GgufFacts) -> Fields:
    return _dense(facts, "glm4", attention_bias=facts.has(*_QUERY_KEY_VALUE_BIAS))


def _chatglm(facts: GgufFacts) -> Fields:
    return _dense(facts, "glm", attention_bias=facts.has(*_QUERY_KEY_VALUE_BIAS))


def _glm4_moe(facts: GgufFacts) -> Fields:
    """``block_count`` includes the MTP layers, which llama.cpp doesn't run."""
    drafts = facts.optional("nextn_predict_layers") or 0
    if drafts >= facts.layers:
        facts.invalid(f"{drafts} of {facts.layers} layers can't be MTP layers")
    fields = _dense(
        facts,
        "glm4_moe",
        attention_bias=facts.has(*_QUERY_KEY_VALUE_BIAS),
        use_qk_norm=facts.has("attn_q_norm.weight"),
        n_shared_experts=facts.optional("expert_shared_count") or 0,
        first_k_dense_replace=facts.optional("leading_dense_block_count") or 0,
        num_nextn_predict_layers=drafts,
        **_experts(facts, "n_routed_experts"),
    )
    return {**fields, "num_hidden_layers": facts.layers - drafts}


def _falcon(facts: GgufFacts) -> Fields:
    """Two norms side by side are the mark of the newer architecture (40B, 180B)."""
    grouped = facts.has("attn_norm_2.weight")
    return {
        "model_type": "falcon",
        "hidden_size": facts.size("embedding_length"),
        "num_hidden_layers": facts.layers,
        "num_attention_heads": facts.heads,
        "num_kv_heads": facts.kv_heads,
        "multi_query": facts.kv_heads == 1,
        "new_decoder_architecture": grouped,
        "ffn_hidden_size": facts.size("feed_forward_length"),
        "parallel_attn": True,
        "bias": facts.has("attn_output.bias"),
        "alibi": False,
        "vocab_size": facts.vocabulary,
        "max_position_embeddings": facts.optional("context_length"),
        "tie_word_embeddings": facts.tied,
    }


def _starcoder2(facts: GgufFacts) -> Fields:
    """llama.cpp runs it without its window, and its files don't say it."""
    return _dense(facts, "starcoder2", use_bias=facts.has("attn_output.bias"), sliding_window=None)


def _command_r(facts: GgufFacts) -> Fields:
    return _dense(facts, "cohere", use_qk_norm=facts.has("attn_q_norm.weight"), attention_bias=False)


def _cohere2(facts: GgufFacts) -> Fields:
    window = facts.size("attention.sliding_window")
    return _dense(facts, "cohere2", sliding_window=window, sliding_window_pattern=4, attention_bias=False)


def _state_space(facts: GgufFacts, model_type: str, **more: Any) -> Fields:
    """What models without attention have."""
    return {
        "model_type": model_type,
        "hidden_size": facts.size("embedding_length"),
        "num_hidden_layers": facts.layers,
        "state_size": facts.size("ssm.state_size"),
        "conv_kernel": facts.size("ssm.conv_kernel"),
        "use_conv_bias": facts.has("ssm_conv1d.bias"),
        "use_bias": facts.has("ssm_in.bias"),
        "vocab_size": facts.vocabulary,
        "tie_word_embeddings": facts.tied,
        **more,
    }


def _mamba(facts: GgufFacts) -> Fields:
    inner, rank = facts.size("ssm.inner_size"), facts.size("ssm.time_step_rank")
    return _state_space(facts, "mamba", intermediate_size=inner, expand=2, time_step_rank=rank)


def _mamba2(facts: GgufFacts) -> Fields:
    """The number of heads stands where Mamba-1 has the rank of its step size."""
    hidden, inner = facts.size("embedding_length"), facts.size("ssm.inner_size")
    heads, groups = facts.size("ssm.time_step_rank"), facts.size("ssm.group_count")
    if inner % heads or inner % hidden:
        facts.refuse(f"a mixer of {inner} channels in {heads} heads over a hidden size of {hidden} is not understood")
    sizes = {"expand": inner // hidden, "num_heads": heads, "head_dim": inner // heads, "n_groups": groups}
    return _state_space(facts, "mamba2", **sizes)


def _granite(facts: GgufFacts) -> Fields:
    return _dense(facts, "granite", attention_bias=facts.has("attn_output.bias"), mlp_bias=facts.has("ffn_up.bias"))


def _olmo2(facts: GgufFacts) -> Fields:
    window = facts.optional("attention.sliding_window")
    if window:
        return _dense(facts, "olmo3", sliding_window=window, attention_bias=False)
    return _dense(facts, "olmo2", attention_bias=False)


def _smollm3(facts: GgufFacts) -> Fields:
    return _dense(facts, "smollm3", no_rope_layer_interval=4, use_sliding_window=False, attention_bias=False)


def _minimax_m2(facts: GgufFacts) -> Fields:
    rotated = facts.optional("rope.dimension_count") or facts.head_dim
    experts = _experts(facts, "num_local_experts", "intermediate_size")
    return _decoder(facts, "minimax_m2", rotary_dim=rotated, **experts)


ARCHITECTURES: dict[str, Callable[[GgufFacts], Fields]] = {
    "chatglm": _chatglm,
    "cohere2": _cohere2,
    "command-r": _command_r,
    "deepseek2": _deepseek2,
    "falcon": _falcon,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "glm4": _glm4,
    "glm4moe": _glm4_moe,
    "gpt-oss": _gpt_oss,
    "granite": _granite,
    "llama": _llama,
    "mamba": _mamba,
    "mamba2": _mamba2,
    "minimax-m2": _minimax_m2,
    "mistral3": _llama,
    "olmo2": _olmo2,
    "phi3": _phi3,
    "qwen2": _qwen2,
    "qwen2moe": _qwen2_moe,
    "qwen2vl": _qwen2,
    "qwen3": _qwen3,
    "qwen3moe": _qwen3_moe,
    "qwen3next": _qwen3_next,
    "qwen3vl": _qwen3,
    "qwen3vlmoe": _qwen3_moe,
    "smollm3": _smollm3,
    "starcoder2": _starcoder2,
}
"""The sizes of every architecture that is understood, under Hugging Face's keys, by ``general.architecture``."""
