"""transformers' own generate on random weights: configurations that lose nothing, and caches of the right size."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from calibrate.device import open_device  # noqa: E402
from calibrate.phase_load import Load  # noqa: E402
from calibrate.shrink import weight_bytes  # noqa: E402
from calibrate.transformers_config import configuration, shortened  # noqa: E402
from calibrate.transformers_runner import cache_tensors, run_generate  # noqa: E402
from capplan.describe.model import (  # noqa: E402
    Attention,
    Block,
    Dense,
    Embedding,
    GatedDeltaNet,
    LatentAttention,
    MixtureOfExperts,
    ModelSpec,
    SharedExperts,
)
from capplan.errors import UnsupportedError  # noqa: E402

pytestmark = pytest.mark.torch

DENSE = Dense(intermediate_size=96)
EXPERTS = MixtureOfExperts(experts=8, top_k=2, intermediate_size=32)
GROUPED = Attention(heads=4, kv_heads=2, head_dim=16)


def spec(mixer: Any, ffn: Any = DENSE, **embedding: Any) -> ModelSpec:
    block = Block(mixer=mixer, ffn=ffn)
    return ModelSpec(
        name="tiny", hidden_size=64, blocks={"a": block}, layers="2*a", embedding=Embedding(vocab_size=300, **embedding)
    )


LATENT = LatentAttention(heads=4, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16)
SHARED = replace(EXPERTS, shared=SharedExperts(intermediate_size=32), correction_bias=True)
DEEPSEEK = ModelSpec(
    name="latent",
    hidden_size=64,
    blocks={"dense": Block(mixer=LATENT, ffn=DENSE), "moe": Block(mixer=LATENT, ffn=SHARED)},
    layers="dense + 2*moe",
    embedding=Embedding(vocab_size=300),
)

SPECS = {
    "LlamaConfig": spec(GROUPED),
    "Qwen2Config": spec(replace(GROUPED, bias=("q", "k", "v")), tied=True),
    "Qwen3Config": spec(replace(GROUPED, qk_norm="head")),
    "MixtralConfig": spec(GROUPED, EXPERTS),
    "Qwen3MoeConfig": spec(replace(GROUPED, qk_norm="head"), EXPERTS),
    "DeepseekV3Config": DEEPSEEK,
}


@pytest.mark.parametrize("name", SPECS)
def test_generate_keeps_what_capplan_says(name: str) -> None:
    config = configuration(SPECS[name])
    assert type(config).__name__ == name
    phases = run_generate(config, SPECS[name], Load(2, 12, 4), open_device("cpu"), budget=0.0)
    assert phases.cache_bytes == phases.expected_bytes
    least = weight_bytes(SPECS[name], "bf16")
    assert least <= phases.weight_bytes <= least * 1.05  # routers of some families stay in float32
    assert phases.ttft.seconds > 0
    assert phases.tpot.seconds > 0


def test_what_no_family_has_is_refused() -> None:
    delta = GatedDeltaNet(key_heads=2, value_heads=4, key_dim=16, value_dim=16, conv_kernel=4)
    with pytest.raises(UnsupportedError, match="gated delta net"):
        configuration(spec(delta))
    with pytest.raises(UnsupportedError, match="parameters"):
        configuration(spec(replace(GROUPED, output_gate="full")))


def test_a_configuration_is_shortened_with_its_list_of_layers() -> None:
    config = configuration(SPECS["Qwen3Config"])
    config.layer_types = ["full_attention", "full_attention"]
    assert shortened(config, 1).num_hidden_layers == 1
    assert config.layer_types == ["full_attention"]


def test_every_tensor_of_a_cache_counts_once() -> None:
    from types import SimpleNamespace

    keys, states = torch.zeros(2, 3), torch.zeros(4, 4)
    layer = SimpleNamespace(keys=keys, values=torch.zeros(2, 3), again=keys, many=[states], length=3)
    found = list(cache_tensors(SimpleNamespace(layers=[layer])))
    assert sum(tensor.numel() for tensor in found) == 6 + 6 + 16
