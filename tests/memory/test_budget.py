"""Budgets: sums that must come out, orders that must hold, and counts made in another way."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import capplan
from capplan.describe.deployment import Parallel
from capplan.describe.engine import engine_names, engine_rules
from capplan.describe.formats import BF16
from capplan.describe.model import Attention, Block, Dense, Embedding, ModelSpec
from capplan.describe.quantisation import unquantised_plan
from capplan.describe.resolve import resolve_model
from capplan.errors import CapplanError, UsageError
from capplan.memory.activations import activation_peak, adapter_bytes
from capplan.memory.offload import expected_experts
from capplan.memory.quantised_weights import quantised_weights
from capplan.memory.stage_weights import WeightLayout, stage_layers, stage_weights
from capplan.questions.fit import FitResult

GIB = 2**30
MODELS = (
    "llama3.1-8b",
    "qwen3-32b",
    "gemma-3-27b-it",
    "deepseek-v2-lite",
    "qwen3.6-27b",
    "gpt-oss-20b",
    "qwen3-30b-a3b",
)
GPUS = ("l4", "rtx-5090", "a100-sxm-80gb", "h200", "b200-sxm-180gb")
SLOW = settings(max_examples=20, deadline=None)


def ask(model: Any, **settings: Any) -> FitResult:
    return capplan.fit(model, **settings).result


def small(layers: int = 8, kv_heads: int = 4) -> ModelSpec:
    mixer = Attention(heads=16, kv_heads=kv_heads, head_dim=64)
    return ModelSpec(
        name="small",
        hidden_size=1024,
        blocks={"layer": Block(mixer=mixer, ffn=Dense(intermediate_size=4096))},
        layers=f"{layers}*layer",
        embedding=Embedding(vocab_size=32000),
        max_positions=32768,
    )


@SLOW
@given(
    model=st.sampled_from(MODELS),
    gpu=st.sampled_from(GPUS),
    engine=st.sampled_from([name for name in engine_names() if name != "llama.cpp"]),
    length=st.sampled_from([2048, 8192, 32768]),
    tp=st.sampled_from([1, 2, 4]),
    in_use=st.sampled_from([0, 2 * GIB]),
)
def test_the_terms_add_up_and_a_plan_that_fits_fits(
    model: str, gpu: str, engine: str, length: int, tp: int, in_use: int
) -> None:
    found = ask(
        model, gpu=gpu, engine=engine, max_model_len=length, tensor_parallel_size=tp, memory_in_use=in_use,
        max_num_seqs=64,
    )  # fmt: skip
    budget = found.budget
    assert budget.device_bytes is not None
    assert budget.total_bytes == sum(term.bytes for term in budget.terms)
    assert budget.total_bytes + (budget.unclaimed_bytes or 0) == budget.device_bytes
    assert all(term.bytes_low <= term.bytes <= term.bytes_high for term in budget.terms)
    if found.fits:
        assert found.missing_bytes == 0
        assert budget.total_bytes <= budget.device_bytes
        assert found.max_concurrency >= 1 or engine == "llama.cpp"
        assert not found.suggestions
    else:
        assert found.missing_bytes > 0
        assert found.reasons
    assert found.kv_pool_bytes_per_rank_low <= found.kv_pool_bytes_per_rank <= found.kv_pool_bytes_per_rank_high
    assert found.kv_request_bytes >= found.kv_architectural_bytes


@SLOW
@given(model=st.sampled_from(MODELS), gpu=st.sampled_from(GPUS), engine=st.sampled_from(["vllm", "sglang", "trtllm"]))
def test_more_devices_never_hold_less(model: str, gpu: str, engine: str) -> None:
    held = [
        ask(model, gpu=gpu, engine=engine, max_model_len=8192, tensor_parallel_size=tp).replica_concurrency
        for tp in (1, 2, 4)
    ]
    assert held == sorted(held)
    staged = [
        ask(model, gpu=gpu, engine=engine, max_model_len=8192, pipeline_parallel_size=pp).max_concurrency
        for pp in (1, 2)
    ]
    assert staged == sorted(staged)
    groups = [
        ask(model, gpu=gpu, engine=engine, max_model_len=8192, data_parallel_size=dp).replica_concurrency
        for dp in (1, 2)
    ]
    assert groups == sorted(groups)


@SLOW
@given(
    layers=st.integers(2, 20),
    length=st.integers(16, 20000),
    engine=st.sampled_from(engine_names()),
    more=st.integers(1, 12),
)
def test_memory_grows_with_layers_context_and_bits(layers: int, length: int, engine: str, more: int) -> None:
    settings: dict[str, Any] = {"gpu": "h200", "engine": engine, "max_model_len": length}
    if engine == "llama.cpp":
        settings["gpu_layers"] = 99
    base = ask(small(layers), **settings)
    deeper = ask(small(layers + more), **settings)
    longer = ask(small(layers), **settings | {"max_model_len": length + 16 * more})
    assert deeper.weight_bytes_per_rank > base.weight_bytes_per_rank
    assert deeper.kv_request_bytes > base.kv_request_bytes
    assert longer.kv_request_bytes >= base.kv_request_bytes
    assert longer.max_concurrency <= base.max_concurrency
    wide, narrow = (ask(small(layers), **settings, kv_cache_dtype=name) for name in ("bf16", "fp8"))
    assert wide.kv_request_bytes == 2 * narrow.kv_request_bytes
    if engine != "llama.cpp":
        eight = ask(small(layers), **settings, weight_dtype="fp8")
        assert eight.weight_bytes_per_rank < base.weight_bytes_per_rank


@pytest.mark.parametrize("model", ["llama3.1-8b", "gemma-3-27b-it", "deepseek-v2-lite", "gpt-oss-20b"])
def test_eight_bit_caches_are_half(model: str) -> None:
    settings: dict[str, Any] = {"available_kv_bytes": 20 * GIB, "max_model_len": 8192, "engine_version": "0.9.1"}
    wide, narrow = (ask(model, **settings, kv_cache_dtype=name) for name in ("bf16", "fp8"))
    assert wide.kv_request_bytes == 2 * narrow.kv_request_bytes


def test_eight_bits_leave_states_as_they_are() -> None:
    settings: dict[str, Any] = {"available_kv_bytes": 40 * GIB, "engine": "sglang", "max_model_len": 8192}
    wide, narrow = (ask("qwen3.6-27b", **settings, kv_cache_dtype=name) for name in ("bf16", "fp8"))
    state = wide.kv_request_bytes - 8192 * 65536
    assert narrow.kv_request_bytes - 8192 * 32768 == state > 0


@pytest.mark.parametrize("model", MODELS)
def test_one_rank_holds_the_model_once(model: str) -> None:
    """At tp = pp = 1 the weights are the inventory's, with no replica and nothing beside it but padded vocabularies."""
    spec = resolve_model(model).spec
    rules = engine_rules("transformers").rules
    plan = unquantised_plan(BF16)
    (stage,) = stage_weights(spec, WeightLayout(plan, rules, Parallel()))
    assert stage.total == quantised_weights(spec, plan).total


@pytest.mark.parametrize(("model", "tp"), list(itertools.product(MODELS, (2, 4, 8))))
def test_ranks_together_hold_the_model_at_least_once(model: str, tp: int) -> None:
    spec = resolve_model(model).spec
    rules = engine_rules("transformers").rules
    plan = unquantised_plan(BF16)
    whole = quantised_weights(spec, plan).total
    (stage,) = stage_weights(spec, WeightLayout(plan, rules, Parallel(tp=tp)))
    assert whole <= tp * stage.total
    assert stage.total < whole


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("pp", [2, 3, 4])
def test_stages_together_hold_the_model(model: str, pp: int) -> None:
    """Stages share out the model exactly; only a tied table stands twice, with the first stage and with the last."""
    spec = resolve_model(model).spec
    rules = engine_rules("transformers").rules
    plan = unquantised_plan(BF16)
    stages = stage_weights(spec, WeightLayout(plan, rules, Parallel(pp=pp)))
    twice = spec.embedding.vocab_size * spec.hidden_size * 2 if spec.embedding.tied else 0
    assert sum(stage.total for stage in stages) == quantised_weights(spec, plan).total + twice
    assert [layer for stage in stages for layer in stage.layers] == list(range(spec.depth))


@given(depth=st.integers(1, 200), pp=st.integers(1, 16))
def test_stages_are_even_and_the_extra_layers_stand_before_the_last(depth: int, pp: int) -> None:
    if pp > depth:
        with pytest.raises(UsageError):
            stage_layers(depth, Parallel(pp=pp))
        return
    sizes = [len(stage) for stage in stage_layers(depth, Parallel(pp=pp))]
    assert sum(sizes) == depth
    assert max(sizes) - min(sizes) <= 1
    assert sizes[-1] == depth // pp


def test_an_adapter_holds_its_matrices() -> None:
    """Every linear map W of N x K gets A of r x K and B of N x r, counted map by map."""
    spec, rank, count = small(), 8, 3
    maps = [(1024, 1024), (256, 1024), (256, 1024), (1024, 1024), (4096, 1024), (4096, 1024), (1024, 4096)]
    expected = spec.depth * sum(rank * (rows + columns) for rows, columns in maps) * 2 * count
    assert adapter_bytes(spec, range(spec.depth), rank=rank, adapters=count, tp=1, dtype="bf16") == expected


@pytest.mark.parametrize(("experts", "top_k", "tokens"), [(4, 1, 3), (4, 2, 2), (5, 3, 2), (6, 2, 3)])
def test_distinct_experts_against_all_choices(experts: int, top_k: int, tokens: int) -> None:
    choices = list(itertools.combinations(range(experts), top_k))
    counts = [len(set().union(*drawn)) for drawn in itertools.product(choices, repeat=tokens)]
    assert expected_experts(experts, top_k, tokens) == Fraction(sum(counts), len(counts))


def test_distinct_experts_of_many_tokens_are_all() -> None:
    assert expected_experts(256, 8, 100_000) == 256
    assert float(expected_experts(128, 4, 4)) == pytest.approx(15.3, abs=0.05)


@pytest.mark.parametrize(
    ("tokens", "sequences", "gib"),
    [(20000, 1, 17.06 - 14.99), (29000, 1, 17.98 - 14.99), (8192, 256, 1.26)],
)
def test_the_activation_peak_of_start_up_logs(tokens: int, sequences: int, gib: float) -> None:
    """Llama-3.1-8B on vLLM 0.6: github.com/vllm-project/vllm/issues/10517 and pull/10511."""
    spec = resolve_model("llama3.1-8b").spec
    peak = activation_peak(
        spec, tokens=tokens, sequences=sequences, tp=1, moe_tp=1, dtype="bf16", logit_bytes=engine_rules("vllm").rules.logit_bytes
    )  # fmt: skip
    assert peak.bytes / GIB == pytest.approx(gib, rel=0.05)
    assert peak.low <= gib * GIB <= peak.high


def test_offloaded_and_kept_weights_are_all_weights() -> None:
    whole = ask("qwen3-30b-a3b", gpu="h200", max_model_len=8192)
    split = ask("qwen3-30b-a3b", gpu="rtx-5090", max_model_len=8192, offload="experts", host_memory=100 * GIB)
    assert split.offload is not None
    assert split.weight_bytes_per_rank + split.offload.host_bytes == whole.weight_bytes_per_rank
    assert 0 < split.offload.step_bytes <= split.offload.host_bytes
    assert split.fits


def test_too_little_host_memory_is_said() -> None:
    found = ask("qwen3-30b-a3b", gpu="rtx-5090", max_model_len=8192, offload="experts", host_memory=10 * GIB)
    assert not found.fits
    assert any("host memory" in reason for reason in found.reasons)


def test_layers_of_llama_cpp_move_with_their_caches() -> None:
    settings: dict[str, Any] = {
        "gpu": "rtx-4090",
        "engine": "llama.cpp",
        "weight_dtype": "gguf:Q4_K_M",
        "ctx_size": 8192,
    }
    results = [ask("llama3.1-8b", **settings, gpu_layers=layers) for layers in (0, 1, 17, 33)]
    weights = [found.weight_bytes_per_rank for found in results]
    assert weights == sorted(weights)
    assert weights[0] == 0
    caches = [sum(group.key_bytes + group.value_bytes for group in found.cache) for found in results]
    assert caches == [layers * 8192 * 4096 for layers in (0, 0, 16, 32)]


def test_a_suggestion_makes_it_fit() -> None:
    asked: dict[str, Any] = {"gpu": "l4", "max_model_len": 131072}
    refused = capplan.fit("llama3.1-8b", **asked, check=True)
    assert refused.exit_code == 1
    tried = {remedy.flags: remedy for remedy in refused.result.suggestions}
    assert tried
    length = next(flags.split()[1] for flags in tried if flags.startswith("--max-model-len"))
    assert ask("llama3.1-8b", **asked | {"max_model_len": int(length)}).fits
    assert not ask("llama3.1-8b", **asked | {"max_model_len": int(length) + 1}).fits
    if "--tensor-parallel-size 2" in tried:
        two = ask("llama3.1-8b", **asked, tensor_parallel_size=2)
        assert two.max_concurrency == tried["--tensor-parallel-size 2"].max_concurrency


def test_what_others_hold_keeps_an_engine_from_starting() -> None:
    found = ask("qwen3-0.6b", gpu="l4", max_model_len=4096, memory_in_use=6 * GIB)
    assert not found.fits
    assert any(remedy.flags.startswith("--gpu-memory-utilization") for remedy in found.suggestions)


def test_a_pool_that_is_set_must_fit() -> None:
    assert ask("qwen3-0.6b", gpu="l4", max_model_len=4096, kv_cache_memory_bytes=8 * GIB).fits
    refused = ask("qwen3-0.6b", gpu="l4", max_model_len=4096, kv_cache_memory_bytes=22 * GIB)
    assert not refused.fits
    assert refused.missing_bytes > 0


def test_a_draft_model_takes_weights_and_cache() -> None:
    settings: dict[str, Any] = {"gpu": "h200", "max_model_len": 8192}
    alone, drafted = (
        ask("qwen3-32b", **settings),
        ask("qwen3-32b", **settings, draft_model="qwen3-0.6b", num_speculative_tokens=4),
    )
    assert drafted.weight_bytes_per_rank > alone.weight_bytes_per_rank
    assert drafted.kv_request_bytes > alone.kv_request_bytes
    assert drafted.max_concurrency < alone.max_concurrency


def test_adapters_and_medusa_heads_are_terms() -> None:
    found = ask("qwen3-8b", gpu="h200", max_model_len=8192, max_loras=4, lora_rank=32, medusa_heads=3)
    names = {term.name: term for term in found.budget.terms}
    assert names["LoRA adapters"].bytes > 0
    assert names["Medusa heads"].bytes == 3 * (4096 * 4096 + 4096 + 4096 * 151936) * 2


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"gpu": "h100", "engine": "vlm"},
        {"gpu": "h100", "tensor_parallel_size": 3},
        {"gpu": "h100", "tensor_parallel_size": 0},
        {"gpu": "h100", "pipeline_parallel_size": 40},
        {"gpu": "h100", "stage_layers": (1, 2), "pipeline_parallel_size": 2},
        {"gpu": "h100", "gpu_memory_utilization": 1.5},
        {"gpu": "h100", "offload": "experts"},
        {"gpu": "h100", "offload": "everything"},
        {"gpu": "h100", "offload": "layers"},
        {"gpu": "h100", "kv_cache_dtype": "fp9"},
        {"gpu": "h100", "weight_dtype": "int3"},
        {"gpu": "h100", "prefix_caching_mode": "always"},
        {"gpu": "h100", "decode_context_parallel_size": 2},
        {"gpu": "h100", "available_kv_bytes": GIB, "kv_cache_memory_bytes": GIB},
        {"available_kv_bytes": (GIB, GIB)},
        {"gpu": "h100", "engine": "llama.cpp", "tensor_parallel_size": 2, "weight_dtype": "gguf:Q4_0"},
        {"gpu": "nvidia-h9000"},
    ],
)
def test_mistakes_are_told(settings: dict[str, Any]) -> None:
    with pytest.raises(CapplanError) as error:
        capplan.fit("llama3.1-8b", **settings)
    assert error.value.where
    assert error.value.exit_code in (2, 3, 4)


def test_an_unknown_setting_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="utilisation"):
        capplan.fit("llama3.1-8b", gpu="h100", utilisation=0.9)


def test_an_encoder_without_caches_is_held_back_by_the_engine_alone():
    result = capplan.fit("bert-base-uncased", gpu="l4", max_num_seqs=64).result
    assert result.fits
    assert (result.kv_request_bytes, result.cache) == (0, ())
    assert result.max_concurrency == 64
