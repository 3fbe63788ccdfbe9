"""Published quantised checkpoints, byte for byte: their configuration, their exclude lists, their totals."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.describe.formats import BF16, FP8_E4M3
from capplan.describe.huggingface import read_config
from capplan.describe.model import ModelSpec
from capplan.describe.quantisation import QuantisationPlan, default_plan, unquantised_plan
from capplan.describe.quantisation_config import read_quantisation
from capplan.describe.weight_schemes import (
    FP8_BLOCK,
    Awq,
    Gptq,
    Mxfp4,
    Nvfp4,
    ScaledEightBit,
    tensor_bytes,
)
from capplan.memory.quantised_weights import quantised_weights, rank_shape, rank_weights
from capplan.memory.tensors import Split, Tensor
from capplan.memory.weights import count_parameters

DATA = Path(__file__).parents[1] / "data"
ROWS = {row["id"]: row for row in json.loads((DATA / "quantised_checkpoints.json").read_text())["checkpoints"]}
BLOCK_FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}

# checkpoint -> (the configuration of its model, its quantization_config where the published one isn't in that file)
CHECKPOINTS: dict[str, tuple[str, dict[str, Any] | str | None]] = {
    "Qwen/Qwen3-30B-A3B-FP8": ("Qwen--Qwen3-30B-A3B", BLOCK_FP8),
    "Qwen/Qwen3-235B-A22B-FP8": ("Qwen3-235B-A22B", BLOCK_FP8),
    "MiniMaxAI/MiniMax-M2.5": ("MiniMaxAI--MiniMax-M2.7", None),
    "zai-org/GLM-5-FP8": ("zai-org--GLM-5", BLOCK_FP8),
    "nvidia/Llama-3.1-70B-Instruct-FP8": ("Llama-3.1-70B-Instruct", "nvidia--Llama-3.1-70B-Instruct-FP8"),
    "nvidia/DeepSeek-V3.1-NVFP4": ("deepseek-ai--DeepSeek-V3", "nvidia--DeepSeek-V3.1-NVFP4"),
    "nvidia/DeepSeek-V3.2-NVFP4": ("deepseek-ai--DeepSeek-V3.2", "nvidia--DeepSeek-V3.2-NVFP4"),
    "nvidia/Qwen3.5-397B-A17B-NVFP4": ("Qwen3.5-397B-A17B", "nvidia--Qwen3.5-397B-A17B-NVFP4"),
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4": (
        "NVIDIA-Nemotron-3-Nano-30B-A3B",
        "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4",
    ),
    "moonshotai/Kimi-K2.5": ("moonshotai--Kimi-K2.5", None),
    "mistralai/Devstral-2-123B-Instruct-2512": ("mistralai--Devstral-2-123B-Instruct-2512", None),
    "openai/gpt-oss-20b": ("openai--gpt-oss-20b", None),
    "nvidia/Gemma-4-31B-IT-NVFP4": ("nvidia--Gemma-4-31B-IT-NVFP4", None),
}


def config_of(name: str) -> dict[str, Any]:
    own = DATA / "quantised_models" / f"{name}.json"
    path = own if own.exists() else DATA / "model_truth" / "configs" / f"{name}.json"
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def checkpoint(identifier: str) -> tuple[ModelSpec, QuantisationPlan]:
    name, quantisation = CHECKPOINTS[identifier]
    config, hf_quant_config = config_of(name), None
    spec = read_config(config, where=name, name=identifier)
    if isinstance(quantisation, str):
        config.pop("quantization_config", None)
        hf_quant_config = json.loads((DATA / "quantisation_configs" / f"{quantisation}.json").read_text())
    elif quantisation is not None:
        config["quantization_config"] = quantisation
    return spec, read_quantisation(config, where=name, hf_quant_config=hf_quant_config)


def test_every_checkpoint_of_the_table_is_here() -> None:
    assert set(CHECKPOINTS) == set(ROWS)


@pytest.mark.parametrize("identifier", CHECKPOINTS)
def test_checkpoint_byte_for_byte(identifier: str) -> None:
    row = ROWS[identifier]
    weights = quantised_weights(*checkpoint(identifier))
    assert weights.total == row["bytes"]
    if "quant_params" in row:
        assert sum(term.elements for term in weights.quantised) == row["quant_params"]
        assert sum(term.bytes for term in weights.quantised) == row["quant_bytes"]
        assert sum(term.matrices for term in weights.quantised) == row["quant_matrices"]
        assert sum(term.bytes for term in weights.unquantised) == row["unquant_bytes"]
        by_category: dict[str, int] = {}
        for term in weights.quantised:
            by_category[term.component] = by_category.get(term.component, 0) + term.elements
        assert by_category == row["quantised_by_category"]
        assert sum(term.stored_elements for term in weights.terms) == row["hub_style_total_elements"]


def test_a_flat_rule_would_be_far_too_low() -> None:
    """Gemma-4-31B in NVFP4 is 32.6 GB and not 17.6: 8.35 bits a parameter, since attention stays bf16."""
    weights = quantised_weights(*checkpoint("nvidia/Gemma-4-31B-IT-NVFP4"))
    bits = Fraction(8 * weights.total, weights.elements)
    assert round(float(bits), 2) == 8.35


LLAMA = checkpoint("nvidia/Llama-3.1-70B-Instruct-FP8")[0]
SCHEMES = [FP8_BLOCK, Gptq(4, 128), Awq(4, 128), Nvfp4(), Mxfp4(), ScaledEightBit(FP8_E4M3, "channel")]


def test_an_unquantised_model_is_its_parameters() -> None:
    assert quantised_weights(LLAMA, unquantised_plan(BF16)).total == 2 * count_parameters(LLAMA).total


@pytest.mark.parametrize("scheme", SCHEMES)
def test_terms_and_linears(scheme: Any) -> None:
    weights = quantised_weights(LLAMA, default_plan(scheme))
    layer = [(8192, 8192)] * 2 + [(1024, 8192)] * 2 + [(28672, 8192)] * 2 + [(8192, 28672)]
    linears = 80 * sum(tensor_bytes(scheme, n, k).total for n, k in layer)
    assert weights.total == linears + 2 * (2 * 128256 * 8192 + 161 * 8192)
    assert sum(term.bytes for term in weights.terms) == weights.total


def test_an_fp8_llama_70b_as_an_engine_loads_it() -> None:
    """RedHatAI's FP8-dynamic Llama-3.3-70B: vLLM 0.11 prints 67.72 GiB on one GPU and 33.88 GiB on each of two.

    vLLM keeps the channels' scales in fp32, and counts its rotary table of 131,072 positions by 128 in bf16.
    """
    plan = default_plan(ScaledEightBit(FP8_E4M3, "channel"))
    rotary = 131072 * 128 * 2
    assert round((quantised_weights(LLAMA, plan).total + rotary) / 2**30, 2) == 67.72
    assert (rank_weights(LLAMA, plan, tp=2).total + rotary) / 2**30 == pytest.approx(33.88, rel=0.001)


def test_an_fp8_llama_405b_is_far_from_one_byte_a_parameter() -> None:
    """Meta's FP8 checkpoint quantises the MLPs of layers 1 to 124 alone: vLLM prints 57.752 GiB on each of 8 GPUs."""
    config = {**config_of("meta-llama--Meta-Llama-3.1-405B")}
    skipped = [f"model.layers.{layer}.self_attn" for layer in range(126)]
    skipped += [f"model.layers.{layer}.mlp" for layer in (0, 125)]
    config["quantization_config"] = {"quant_method": "fbgemm_fp8", "modules_to_not_convert": skipped}
    spec = read_config(config, where="config.json", name="llama")
    plan = read_quantisation(config, where="config.json")
    assert rank_weights(spec, plan, tp=8).total / 2**30 == pytest.approx(57.752, rel=0.02)


@given(st.sampled_from(SCHEMES), st.sampled_from([1, 2, 4, 8]))
def test_ranks_hold_at_least_their_share(scheme: Any, tp: int) -> None:
    plan = default_plan(scheme)
    whole, rank = quantised_weights(LLAMA, plan).total, rank_weights(LLAMA, plan, tp=tp).total
    assert rank * tp >= whole
    assert rank * tp < whole * 1.01
    assert tp > 1 or rank == whole


def test_shape_of_a_rank() -> None:
    kv = Tensor("self_attn.k_proj.weight", "attention", (1024, 8192), split=Split(0, 8))
    assert rank_shape(kv, 4) == (256, 8192)
    assert rank_shape(kv, 16) == (128, 8192)
    assert rank_shape(Tensor("norm.weight", "norms", (8192,)), 4) == (8192,)


def test_mtp_layers_count_only_when_asked() -> None:
    spec, plan = checkpoint("nvidia/DeepSeek-V3.1-NVFP4")
    assert quantised_weights(spec, plan, mtp=True).total > quantised_weights(spec, plan).total


def quantised_with(config_name: str, quantisation: str) -> tuple[ModelSpec, QuantisationPlan]:
    config = config_of(config_name)
    hf_quant_config = json.loads((DATA / "quantisation_configs" / f"{quantisation}.json").read_text())
    spec = read_config(config, where=config_name, name=config_name)
    return spec, read_quantisation(config, where=config_name, hf_quant_config=hf_quant_config)


def test_a_hybrid_in_mixed_precision_as_an_engine_loads_it() -> None:
    """nvidia/Qwen3.6-35B-A3B-NVFP4: vLLM 0.24 prints 21.9 GiB, with the layers that draft and its rotary table."""
    spec, plan = quantised_with("Qwen--Qwen3.5-35B-A3B", "nvidia--Qwen3.6-35B-A3B-NVFP4")
    rotary = 262144 * 64 * 2
    assert (quantised_weights(spec, plan, mtp=True).total + rotary) / 2**30 == pytest.approx(21.9, rel=0.005)


def test_the_gate_of_attention_lies_in_the_query_matrix() -> None:
    spec, plan = quantised_with("Qwen--Qwen3.5-35B-A3B", "nvidia--Qwen3.6-35B-A3B-NVFP4")
    attention = [term for term in quantised_weights(spec, plan).quantised if term.component == "attention"]
    assert [(term.matrices, term.elements) for term in attention] == [(40, 10 * (2 * 4096 + 2 * 512 + 4096) * 2048)]


def test_experts_beside_a_dense_feed_forward_are_not_part_of_it() -> None:
    """Gemma-4-26B's exclude list names ``mlp*``, and still its experts are in NVFP4."""
    spec, plan = quantised_with("google--gemma-4-26B-A4B", "nvidia--Gemma-4-26B-A4B-NVFP4")
    assert {term.component for term in quantised_weights(spec, plan).quantised} == {"experts_routed"}
