"""Whole models in llama.cpp's mixes, from their published configurations, against sizes that llama.cpp printed."""

import json
from pathlib import Path
from typing import Any

import pytest

from capplan.describe.gguf_mix import parse_mix
from capplan.describe.huggingface import read_config
from capplan.describe.model import ModelSpec
from capplan.errors import UnsupportedError
from capplan.memory.gguf_weights import LAYOUTS, gguf_shape, gguf_tensors, gguf_weights
from capplan.memory.weights import count_parameters

DATA = Path(__file__).parents[1] / "data"
MIXES = json.loads((DATA / "gguf_mixes.json").read_text())["mixes"]
CONFIGS = DATA / "model_truth" / "configs"

# Model of the table of mixes -> (configuration, elements of rope_freqs)
MODELS = {
    "Llama-2-70B": ("meta-llama--Llama-2-70b-hf", 0),
    "Llama-3.1-8B": ("meta-llama--Meta-Llama-3-8B", 64),
    "Llama-3.2-1B": ("meta-llama--Llama-3.2-1B", 32),
    "Mistral-7B": ("mistralai--Mistral-7B-v0.1", 0),
    "Mixtral-8x7B": ("mistralai--Mixtral-8x7B-v0.1", 0),
    "Qwen2.5-0.5B": ("Qwen--Qwen2-0.5B", 0),
}


def spec_of(name: str, **changes: Any) -> ModelSpec:
    config = json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8"))
    return read_config({**config, **changes}, where=name, name=name)


@pytest.mark.parametrize("mix", MIXES["Mixtral-8x7B"])
@pytest.mark.parametrize("model", MODELS)
def test_mixes_from_the_real_configurations(model: str, mix: str) -> None:
    config, rope_factors = MODELS[model]
    weights = gguf_weights(spec_of(config), parse_mix(mix), rope_factors=rope_factors)
    assert weights.total == MIXES[model][mix]["bytes"]
    assert weights.elements == MIXES[model][mix]["n_params"]
    assert weights.bytes_by_type() == {name: row[2] for name, row in MIXES[model][mix]["types"].items()}


def test_gpt_oss_in_mxfp4() -> None:
    """Two models as llama.cpp prints them: 59.02 GiB, 4.34 BPW, 116.83 B; and 11.27 GiB, 20.91 B."""
    pattern = ["sliding_attention", "full_attention"] * 18
    large = spec_of("openai--gpt-oss-20b", num_hidden_layers=36, num_local_experts=128, layer_types=pattern)
    weights = gguf_weights(large, parse_mix("MXFP4_MOE"))
    assert round(weights.total / 2**30, 2) == 59.02
    assert round(float(weights.bits_per_weight), 2) == 4.34
    assert round(weights.elements / 1e9, 2) == 116.83
    small = gguf_weights(spec_of("openai--gpt-oss-20b"), parse_mix("MXFP4_MOE"))
    assert round(small.total / 2**30, 2) == 11.27
    assert round(small.elements / 1e9, 2) == 20.91


ALL = sorted(CONFIGS.glob("*.json"))


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_no_parameter_is_lost_or_counted_twice(path: Path) -> None:
    spec = read_config(json.loads(path.read_text(encoding="utf-8")), where=path.name, name=path.stem)
    try:
        elements = sum(tensor.elements for tensor in gguf_tensors(spec))
    except UnsupportedError:
        assert spec.model_type not in LAYOUTS or "latent" in path.read_text(encoding="utf-8")
        return
    count = count_parameters(spec)
    assert elements == count.total - count.towers + count.buffers


def test_shape_of_the_choice() -> None:
    deepseek = gguf_shape(spec_of("deepseek-ai--DeepSeek-V3"))
    assert (deepseek.architecture, deepseek.kv_heads, deepseek.experts) == ("deepseek2", 1, 256)
    assert gguf_shape(spec_of("meta-llama--Llama-2-70b-hf")).is_seventy_billion
    assert not gguf_shape(spec_of("tiiuae--falcon-mamba-7b")).queries_per_kv_head


def test_an_unknown_conversion_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="stores the model type") as caught:
        gguf_tensors(spec_of("openai--whisper-medium"))
    assert caught.value.exit_code == 4
