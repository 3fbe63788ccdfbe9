"""The plan of a mix, module by module, adds up to the file that the mix makes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from capplan.describe.gguf_mix import parse_mix
from capplan.describe.huggingface import read_config
from capplan.memory.gguf_plan import mix_plan
from capplan.memory.gguf_weights import gguf_weights
from capplan.memory.quantised_weights import rank_weights

CONFIGS = Path(__file__).parents[1] / "data" / "model_truth" / "configs"


@pytest.mark.parametrize("mix", ["Q4_K_M", "Q8_0", "Q6_K", "IQ4_XS", "Q2_K", "F16"])
@pytest.mark.parametrize(
    "name",
    ["meta-llama--Llama-2-7b-hf", "Qwen--Qwen2.5-7B", "mistralai--Mixtral-8x7B-v0.1", "bigscience--bloom-560m"],
)
def test_modules_add_up_to_the_file(name: str, mix: str) -> None:
    data = json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8"))
    spec = read_config(data, where=name, name=name)
    weights, plan = gguf_weights(spec, parse_mix(mix)), mix_plan(spec, parse_mix(mix))
    tables = ("token_embd.weight", "position_embd.weight")
    file = sum(
        ggml.bytes_for(tensor.rows, tensor.columns) for tensor, ggml in weights.tensors if tensor.name not in tables
    )
    terms = rank_weights(spec, plan, tp=1).terms
    assert sum(term.bytes for term in terms if term.component != "embedding") == file
