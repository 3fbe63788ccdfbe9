"""GGUF headers as llama.cpp's conversion writes them are read back as the model that they came from.

The oracle is the published configuration: its parameters, and the bytes of its cache, must come out of the metadata
and the tensor table alone.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from capplan.describe.config import class_defaults
from capplan.describe.formats import ggml_type
from capplan.describe.gguf import GgufEntry, GgufFile
from capplan.describe.gguf_model import ARCHITECTURES, gguf_spec, read_gguf_spec
from capplan.describe.huggingface import read_config
from capplan.describe.model import ModelSpec
from capplan.errors import CapplanError, InvalidFileError, UnsupportedError
from capplan.memory.gguf_weights import gguf_tensors, layout_of, unexplained_elements
from capplan.memory.sequence_memory import Lengths, sequence_memory
from capplan.memory.weights import count_parameters

CONFIGS = Path(__file__).parents[1] / "data" / "model_truth" / "configs"

# Hugging Face's keys and those under which convert_hf_to_gguf.py writes them.
WRITTEN = {
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "intermediate_size": "feed_forward_length",
    "ffn_hidden_size": "feed_forward_length",
    "max_position_embeddings": "context_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "num_kv_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "num_experts_per_tok": "expert_used_count",
    "experts_per_token": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    "n_shared_experts": "expert_shared_count",
    "first_k_dense_replace": "leading_dense_block_count",
    "num_nextn_predict_layers": "nextn_predict_layers",
    "q_lora_rank": "attention.q_lora_rank",
    "kv_lora_rank": "attention.kv_lora_rank",
    "rotary_dim": "rope.dimension_count",
    "conv_kernel": "ssm.conv_kernel",
    "state_size": "ssm.state_size",
    "linear_conv_kernel_dim": "ssm.conv_kernel",
    "linear_key_head_dim": "ssm.state_size",
    "linear_num_key_heads": "ssm.group_count",
    "linear_num_value_heads": "ssm.time_step_rank",
    "time_step_rank": "ssm.time_step_rank",
}
WRITTEN |= dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), "expert_count")
WINDOWS = {"gemma2", "gemma3", "phi3", "gpt-oss", "cohere2", "olmo2"}


def header_of(config: dict[str, Any], spec: ModelSpec) -> GgufFile:
    """The header that the conversion of a model writes."""
    text = config.get("text_config", config)
    text = {**class_defaults().get(text.get("model_type", ""), {}), **text}
    architecture = layout_of(spec).architecture
    metadata: dict[str, Any] = {"general.architecture": architecture}
    for theirs, ours in WRITTEN.items():
        if isinstance(text.get(theirs), int):
            metadata.setdefault(f"{architecture}.{ours}", text[theirs])
    if text.get("sliding_window") and architecture in WINDOWS:
        metadata[f"{architecture}.attention.sliding_window"] = text["sliding_window"]
    if architecture == "deepseek2":
        key, rope = text["qk_nope_head_dim"] + text["qk_rope_head_dim"], text["qk_rope_head_dim"]
        metadata |= {
            "deepseek2.attention.head_count_kv": 1,
            "deepseek2.attention.key_length": text["kv_lora_rank"] + rope,
            "deepseek2.attention.value_length": text["kv_lora_rank"],
            "deepseek2.attention.key_length_mla": key,
            "deepseek2.attention.value_length_mla": text["v_head_dim"],
            "deepseek2.rope.dimension_count": rope,
            "deepseek2.leading_dense_block_count": spec.order.count("dense"),
        }
    if architecture == "falcon":
        metadata["falcon.feed_forward_length"] = 4 * text["hidden_size"]
    if architecture in ("mamba", "mamba2"):
        metadata[f"{architecture}.ssm.inner_size"] = text.get("intermediate_size", 2 * text["hidden_size"])
    if architecture == "mamba2":
        metadata |= {"mamba2.ssm.time_step_rank": text["num_heads"], "mamba2.ssm.group_count": text["n_groups"]}
    if architecture == "qwen3next":
        heads = text["linear_num_value_heads"]
        metadata["qwen3next.ssm.inner_size"] = heads * text["linear_value_head_dim"]
    f16 = ggml_type("F16")
    entries = []
    for tensor in gguf_tensors(spec):
        name = tensor.name.replace("layer_0_norm", "attn_norm").replace("layer_1_norm", "attn_norm_2")
        entries.append(GgufEntry(name, f16, tensor.shape, 0, 2 * tensor.elements))
    return GgufFile("model.gguf", 3, metadata, {}, tuple(entries))


def load(name: str) -> tuple[dict[str, Any], ModelSpec]:
    if name in class_defaults():  # a model as its class is by default
        return {"model_type": name}, read_config({"model_type": name}, where=name, name=name)
    config = json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8"))
    return config, read_config(config, where=name, name=name)


# Configurations whose architecture is in the table. Windows that llama.cpp doesn't keep are left out of the comparison.
MODELS = {
    "meta-llama--Llama-3.2-1B": True,
    "mistralai--Mistral-Small-Instruct-2409": True,
    "mistralai--Mixtral-8x7B-v0.1": True,
    "codellama--CodeLlama-70b-hf": True,
    "HuggingFaceTB--SmolLM3-3B": True,
    "Qwen--Qwen2.5-7B": True,
    "Qwen--Qwen1.5-MoE-A2.7B": True,
    "Qwen--Qwen3-32B": True,
    "Qwen--Qwen3-30B-A3B": True,
    "Qwen--Qwen3-Next-80B-A3B-Instruct": True,
    "google--gemma-2b": True,
    "google--gemma-2-2b": True,
    "google--gemma-3-1b-it": True,
    "google--gemma-3-27b-it": True,
    "microsoft--Phi-3-mini-4k-instruct": True,
    "microsoft--Phi-4-mini-instruct": True,
    "deepseek-ai--DeepSeek-V2": True,
    "deepseek-ai--DeepSeek-V3": True,
    "moonshotai--Kimi-K2-Instruct": True,
    "moonshotai--Moonlight-16B-A3B": True,
    "zai-org--GLM-4.7-Flash": True,
    "openai--gpt-oss-20b": True,
    "THUDM--GLM-4-9B-0414": True,
    "THUDM--GLM-4-32B-0414": True,
    "THUDM--glm-4-9b-chat-hf": True,
    "zai-org--GLM-4.5-Air": True,
    "tiiuae--falcon-40b": True,
    "bigcode--starcoder2-7b": False,
    "mistralai--Mistral-7B-v0.1": False,
    "CohereForAI--c4ai-command-r-plus": True,
    "CohereForAI--c4ai-command-r-v01": True,
    "tiiuae--falcon-mamba-7b": True,
    "ibm-granite--granite-3.3-8b-instruct": True,
    "allenai--OLMo-2-1124-7B": True,
    "allenai--Olmo-3-1025-7B": True,
    "MiniMaxAI--MiniMax-M2.7": True,
    "mamba2": True,
    "cohere2": True,
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_comes_back_out_of_its_header(name: str) -> None:
    config, spec = load(name)
    file = header_of(config, spec)
    drafts = file.metadata.get("glm4moe.nextn_predict_layers")
    if isinstance(drafts, int):  # GLM's block_count has its MTP layers in it
        file.metadata["glm4moe.block_count"] = spec.depth + drafts
    found = gguf_spec(file, name=name)
    want, got = count_parameters(spec), count_parameters(found)
    assert got.total == want.total - want.towers
    assert unexplained_elements(found, file) == 0
    for length in (4096, 65536):
        if MODELS[name]:
            lengths = Lengths(length, encoder=length)
            assert sequence_memory(found, lengths).total_bytes == sequence_memory(spec, lengths).total_bytes


def test_every_architecture_of_the_table_is_tried() -> None:
    tried = {layout_of(load(name)[1]).architecture for name in MODELS}
    # The rest have the reader of one that is tried, or no configuration among the test data.
    assert set(ARCHITECTURES) - tried <= {"mistral3", "qwen2vl", "qwen3vl", "qwen3vlmoe"}


def test_tensors_that_the_model_does_not_explain() -> None:
    config, spec = load("meta-llama--Llama-3.2-1B")
    file = header_of(config, spec)
    f32 = ggml_type("F32")
    more = [GgufEntry("rope_freqs.weight", f32, (32,), 0, 128), GgufEntry("blk.16.eh_proj.weight", f32, (64,), 0, 256)]
    assert unexplained_elements(spec, replace(file, tensors=(*file.tensors, *more))) == 0
    lora = GgufEntry("blk.3.attn_q.lora_a", f32, (64, 8), 0, 2048)
    assert unexplained_elements(spec, replace(file, tensors=(*file.tensors, lora))) == 512
    assert unexplained_elements(spec, replace(file, tensors=file.tensors[1:])) == -file.tensors[0].elements


def change(file: GgufFile, **metadata: Any) -> GgufFile:
    return replace(
        file, metadata={**file.metadata, **{key.replace("__", "."): value for key, value in metadata.items()}}
    )


def test_what_is_not_understood_is_refused() -> None:
    file = header_of(*load("meta-llama--Llama-3.2-1B"))
    with pytest.raises(UnsupportedError, match="rwkv") as caught:
        gguf_spec(change(file, general__architecture="rwkv7"), name="m")
    assert caught.value.exit_code == 4
    with pytest.raises(UnsupportedError):
        gguf_spec(change(file, general__architecture=7), name="m")
    with pytest.raises(UnsupportedError, match="differs by layer"):
        gguf_spec(change(file, llama__attention__head_count_kv=(8,) * 15 + (4,)), name="m")
    with pytest.raises(UnsupportedError, match="rows"):
        gguf_spec(change(file, llama__attention__head_count_kv=4), name="m")


@pytest.mark.parametrize(
    "metadata",
    [
        {"llama__block_count": None},
        {"llama__block_count": 0},
        {"llama__block_count": 1 << 40},
        {"llama__block_count": "16"},
        {"llama__embedding_length": 1.5},
        {"llama__attention__head_count": True},
        {"llama__attention__head_count": 7, "llama__attention__key_length": None},
    ],
)
def test_metadata_that_contradicts_itself(metadata: dict[str, Any]) -> None:
    file = header_of(*load("meta-llama--Llama-3.2-1B"))
    with pytest.raises(InvalidFileError):
        gguf_spec(change(file, **metadata), name="m")


def test_a_file_without_tensors() -> None:
    file = header_of(*load("meta-llama--Llama-3.2-1B"))
    with pytest.raises(CapplanError, match="token table"):
        gguf_spec(replace(file, tensors=()), name="m")


def test_a_real_file(tmp_path: Path) -> None:
    """A llama of two layers, written by the gguf package."""
    writer = gguf.GGUFWriter(tmp_path / "tiny.gguf", "llama")
    writer.add_block_count(2)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(128)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_context_length(512)
    shapes = {"token_embd.weight": (100, 64), "output_norm.weight": (64,)}
    for layer in range(2):
        shapes |= {
            f"blk.{layer}.attn_q.weight": (64, 64),
            f"blk.{layer}.attn_k.weight": (32, 64),
            f"blk.{layer}.attn_v.weight": (32, 64),
            f"blk.{layer}.attn_output.weight": (64, 64),
            f"blk.{layer}.ffn_gate.weight": (128, 64),
            f"blk.{layer}.ffn_up.weight": (128, 64),
            f"blk.{layer}.ffn_down.weight": (64, 128),
            f"blk.{layer}.attn_norm.weight": (64,),
            f"blk.{layer}.ffn_norm.weight": (64,),
        }
    for name, shape in shapes.items():
        writer.add_tensor(name, np.zeros(shape, np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    spec, file = read_gguf_spec(tmp_path / "tiny.gguf")
    assert spec.name == "tiny"
    assert spec.embedding.tied
    assert count_parameters(spec).total == file.elements == sum(int(np.prod(shape)) for shape in shapes.values())
    assert sequence_memory(spec, Lengths(100, encoder=0)).total_bytes == 2 * 2 * 2 * 16 * 100 * 2
