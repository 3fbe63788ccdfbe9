"""What the questions about time answer: the bound by hand, the prediction in its interval, and what they refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest

import capplan
from capplan.cli.app import run
from capplan.describe.gguf import GgufEntry, GgufFile
from capplan.describe.gguf_mix import GgufMix
from capplan.describe.weight_dtype import parse_weight_dtype
from capplan.errors import CapplanError, NotFoundError, UsageError
from capplan.memory.gguf_plan import file_plan, mix_plan
from capplan.memory.gguf_weights import gguf_weights
from capplan.questions.setting import UNCORRECTED, resolve_setting
from capplan.questions.timed import StepFigures
from tests.work.models import published

AD_HOC: dict[str, Any] = {"gpu_memory": "24GiB", "memory_bandwidth": "1008GB/s", "tflops": "165"}


def adds_up(figures: StepFigures) -> None:
    """Operators and terms are the whole, and so are the operators' figures."""
    assert figures.seconds is not None
    operators = sum(row.seconds or 0.0 for row in figures.operators)
    assert operators + sum(term.seconds for term in figures.terms) == pytest.approx(figures.seconds, rel=1e-9)
    assert sum(row.share for row in figures.operators) == pytest.approx(1)
    assert figures.fitted_share + figures.extrapolated_share + figures.assumed_share == pytest.approx(1)
    assert sum(row.flops for row in figures.operators) == pytest.approx(figures.flops)
    assert sum(row.bytes for row in figures.operators) == pytest.approx(figures.bytes)
    parts = figures.weight_bytes + figures.kv_bytes + figures.state_bytes + figures.activation_bytes
    assert parts == pytest.approx(figures.bytes)
    assert figures.seconds_low is not None
    assert figures.seconds_high is not None
    assert figures.bound_seconds <= figures.seconds_low <= figures.seconds <= figures.seconds_high


def test_llama2_70b_on_four_h100(capsys: pytest.CaptureFixture[str]) -> None:
    """(137.43 + 1.34) GB over 4 x 3.35 TB/s are 10.36 ms; the corrected value lies above, in an interval."""
    result = capplan.decode("llama2-70b", "h100-sxm-80gb", context=4096, tensor_parallel_size=4).result
    assert f"{result.tpot_bound_ms:.2f}" == "10.36"
    assert result.tpot_ms is not None
    assert 11 < result.tpot_ms < 20
    assert result.fits
    adds_up(result.step)
    argv = ["decode", "--model", "llama2-70b", "--gpu", "h100-sxm-80gb", "-tp", "4", "--context", "4096"]
    assert run([*argv, "--explain"]) == 0
    text = capsys.readouterr().out
    assert "TPOT bound" in text
    assert "10.36 ms" in text
    assert f"{result.tpot_ms:.2f} ms" in text
    for name in ("qkv_proj", "attention (decode)", "gate_up_proj", "all-reduce after down_proj", "lm_head"):
        assert name in text
    assert "Σ (weights + KV + state) / BW" in text
    assert "34,359,246,848" in text  # a rank's weights: a quarter, and the norms
    assert "profile h100-sxm-80gb, fitted" in text


def test_documents_have_intervals_and_provenance(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["decode", "--model", "llama3.1-8b", "--gpu", "h100", "--context", "4k", "--batch", "16", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    result = document["result"]
    assert result["tpot_bound_ms"] <= result["tpot_ms_low"] <= result["tpot_ms"] <= result["tpot_ms_high"]
    assert result["output_throughput"] == pytest.approx(16e3 / result["tpot_ms"])
    assert document["provenance"] == {"tpot_bound_ms": "exact", "tpot_ms": "fitted", "output_throughput": "fitted"}
    assert document["inputs"]["profile"] == "h100-sxm-80gb"


@pytest.mark.parametrize("device", [{"gpu": "mi250x"}, AD_HOC])
def test_without_a_profile_there_are_bounds_alone(device: dict[str, Any]) -> None:
    answers = [
        capplan.decode("llama3.1-8b", context=4096, **device),
        capplan.prefill("llama3.1-8b", isl=4096, **device),
        capplan.step("llama3.1-8b", decode=[(4, 100)], **device),
        capplan.roofline("llama3.1-8b", batches=[1], **device),
    ]
    for answer in answers:
        assert UNCORRECTED in answer.warnings[0]
        assert answer.inputs["profile"] is None
    decoded, prefilled = answers[0].result, answers[1].result
    assert decoded.tpot_ms is decoded.tpot_ms_low is decoded.output_throughput is None
    assert prefilled.ttft_ms is None
    assert decoded.tpot_bound_ms > 0
    assert answers[0].provenance == {"tpot_bound_ms": "exact"}
    assert {row.basis for row in decoded.step.operators} == {"bound"}


def test_constants_are_carried_to_relatives_and_said_so() -> None:
    answer = capplan.decode("llama3.1-8b", "h100-pcie-80gb", context=1000)
    assert "was not measured" in answer.assumptions[-1]
    assert "median error" in answer.assumptions[-1]
    assert answer.provenance["tpot_ms"] == "extrapolated"
    own = capplan.decode("llama3.1-8b", "h100-sxm-80gb", context=1000).result
    carried = answer.result
    assert carried.tpot_ms_high / carried.tpot_ms > own.tpot_ms_high / own.tpot_ms  # type: ignore[operator]


def test_figures_that_are_replaced_count() -> None:
    """A device with other figures is not the one that was measured: its constants are carried."""
    plain = capplan.decode("llama3.1-8b", "h100", context=1000)
    quick = capplan.decode("llama3.1-8b", "h100", context=1000, memory_bandwidth="6.7TB/s")
    assert quick.inputs["gpu"] == "h100-sxm-80gb-changed"
    assert quick.result.tpot_bound_ms == pytest.approx(plain.result.tpot_bound_ms / 2)
    assert quick.result.tpot_ms < plain.result.tpot_ms  # type: ignore[operator]
    larger = capplan.decode("llama3.1-8b", "h100", context=1000, gpu_memory="40GiB")
    assert larger.inputs["gpu"] == "h100-sxm-80gb"
    assert larger.result.tpot_ms == plain.result.tpot_ms


def test_what_does_not_fit_is_said_first(capsys: pytest.CaptureFixture[str]) -> None:
    """138.0 GB of 16-bit weights and 1.3 GB of cache on an H100, which shows CUDA 85.0 GB (79.2 GiB)."""
    result = capplan.decode("llama2-70b", "h100", context=4096).result
    assert not result.fits
    assert 54e9 < result.missing_bytes < 55e9
    assert run(["decode", "--model", "llama2-70b", "--gpu", "h100", "--context", "4096"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("DOES NOT FIT")
    assert capplan.decode("llama2-70b", "h100", context=4096, weight_dtype="fp8").result.fits


def test_prompts_go_through_in_chunks() -> None:
    answer = capplan.prefill("llama3.1-8b", "h100", isl=20_000, prefix=1000, max_num_batched_tokens=8192)
    steps = [(step.tokens, step.prefix) for step in answer.result.steps]
    assert steps == [(8192, 1000), (8192, 9192), (2616, 17384)]
    assert answer.result.ttft_bound_ms == pytest.approx(sum(step.bound_ms for step in answer.result.steps))
    adds_up(answer.result.prefill)
    names = [term.name for term in answer.result.prefill.terms]
    assert "front end" in names
    whole = capplan.prefill("llama3.1-8b", "h100", isl=20_000).result
    assert whole.ttft_ms > answer.result.ttft_ms  # type: ignore[operator]


def test_flops_of_a_prompt_are_those_of_its_chunks() -> None:
    """But for MLA, which expands its prefix again: Llama's prompt has the same FLOPs in one step and in five."""
    one = capplan.prefill("llama3.1-8b", "h100", isl=10_000, max_num_batched_tokens=10_000).result.prefill
    five = capplan.prefill("llama3.1-8b", "h100", isl=10_000, max_num_batched_tokens=2000).result.prefill
    assert one.flops == five.flops
    assert one.weight_bytes < five.weight_bytes


def test_encoders_have_a_prefill_and_no_decode() -> None:
    spec = published("FacebookAI--xlm-roberta-large")
    answer = capplan.prefill(spec, "h100", isl=512, batch=16)
    assert "is an encoder" in " ".join(answer.assumptions)
    assert len(answer.result.steps) == 1
    (attention,) = [row for row in answer.result.prefill.operators if row.kind == "prefill_attention"]
    assert attention.flops == 24 * 16 * 4 * 16 * 64 * 512**2
    assert not any(row.kind in ("head", "sampling") for row in answer.result.prefill.operators)
    with pytest.raises(UsageError, match="is an encoder"):
        capplan.decode(spec, "h100", context=512)
    assert [step.phase for step in capplan.roofline(spec, "h100").result.steps] == ["prefill"]


def test_encoder_decoders_read_the_prompt_with_their_encoder() -> None:
    answer = capplan.prefill("t5-base", "h100", isl=512)
    assert answer.inputs["source_seq"] == 512
    assert answer.result.steps[0].tokens == 1
    assert "the decoder starts with one token" in " ".join(answer.assumptions)
    whisper = capplan.prefill("whisper-large-v3", "h100", isl=4)
    assert whisper.result.steps[0].tokens == 4
    assert whisper.result.prefill.flops > 1e12  # 1,500 frames through 32 layers of the encoder


def test_a_mixed_step_is_its_parts() -> None:
    both = capplan.step("deepseek-v3", "h200", decode=[(64, 4096)], prefill=[(2048, 0)], tensor_parallel_size=8, enable_expert_parallel=True)  # fmt: skip
    assert both.inputs["expert_parallel_size"] == 8
    adds_up(both.result.step)
    kinds = {(row.kind, row.detail) for row in both.result.step.operators}
    assert {("mla_prefill", "prefill"), ("mla_decode", "decode")} <= kinds
    decoded = capplan.step("deepseek-v3", "h200", decode=[(64, 4096)], tensor_parallel_size=8, enable_expert_parallel=True)  # fmt: skip
    alone = capplan.decode("deepseek-v3", "h200", batch=64, context=4096, tensor_parallel_size=8, enable_expert_parallel=True)  # fmt: skip
    assert decoded.result.step_ms == alone.result.tpot_ms
    assert both.result.step_ms > decoded.result.step_ms  # type: ignore[operator]


def test_the_roofline_has_every_operator() -> None:
    answer = capplan.roofline("llama3.1-70b", "h100-sxm-80gb", batches=[1, 8, 32, 128, 512], tensor_parallel_size=4)
    result = answer.result
    assert [(step.phase, step.batch) for step in result.steps] == [("decode", 1), ("decode", 8), ("decode", 32), ("decode", 128), ("decode", 512), ("prefill", 1)]  # fmt: skip
    assert result.roofs[0].ridge_point == pytest.approx(989.4 / 3.35)
    assert result.ridge_batch == 296
    assert result.step_ridge_batch is None
    assert "these batches do not fit into memory: 512" in answer.warnings
    for step in result.steps:
        adds_up(step.step)
        assert step.attained_flops <= result.roofs[0].peak_flops
    assert result.steps[-1].step.limit == "compute"
    products = [row for row in result.steps[0].step.operators if row.kind == "gemm"]
    assert all(row.arithmetic_intensity == pytest.approx(1, rel=1e-3) for row in products)  # 2 FLOPs, 2 bytes


def test_a_gguf_file_works_as_its_mix_does() -> None:
    """The types of a file's table, module by module, against those that llama-quantize chooses."""
    spec = published("Qwen--Qwen2.5-7B")
    mix = parse_weight_dtype("gguf:Q4_K_M")
    assert isinstance(mix, GgufMix)
    tensors = gguf_weights(spec, mix).tensors
    entries = tuple(GgufEntry(tensor.name, kind, tensor.shape, 0, 0) for tensor, kind in tensors)
    read = file_plan(spec, GgufFile("x.gguf", 3, {}, {}, entries))
    chosen = mix_plan(spec, mix)
    for layer in range(28):
        for module in ("self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj"):
            path = f"model.layers.{layer}.{module}"
            assert read.scheme_for(path, "mlp", (1, 1)) == chosen.scheme_for(path, "mlp", (1, 1))


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"gpu": "h10"}, NotFoundError, "h10"),
        ({}, UsageError, "--gpu-memory"),
        ({"gpu": "h100", "engine": "vlm"}, UsageError, "vlm"),
        ({"gpu": "h100", "weight_dtype": "fp9"}, UsageError, "fp9"),
        ({"gpu": "h100", "kv_cache_dtype": "fp9"}, UsageError, "fp9"),
        ({"gpu": "h100", "tensor_parallel_size": 0}, UsageError, "at least 1"),
        ({"gpu": "h100", "tensor_parallel_size": 64}, UsageError, "heads"),
        ({"gpu": "h100", "tensor_parallel_size": 4, "decode_context_parallel_size": 3}, UsageError, "cannot share"),
        ({"gpu": "h100", "pipeline_parallel_size": 99}, UsageError, "stages"),
        ({"gpu": "h100", "batch": 0}, UsageError, "at least 1"),
        ({"gpu": "h100", "max_num_batched_tokens": 0}, UsageError, "at least 1"),
    ],
)
def test_mistakes_are_told(options: dict[str, Any], error: type[CapplanError], said: str) -> None:
    with pytest.raises(error, match=said):
        capplan.decode("llama3.1-8b", **{"context": 100} | options)


@pytest.mark.parametrize(
    "argv",
    [
        ["step", "--model", "llama3.1-8b", "--gpu", "h100"],
        ["step", "--model", "llama3.1-8b", "--gpu", "h100", "--decode", "64"],
        ["step", "--model", "llama3.1-8b", "--gpu", "h100", "--decode", "0@10"],
        ["step", "--model", "llama3.1-8b", "--gpu", "h100", "--prefill", "10@@3"],
        ["prefill", "--model", "llama3.1-8b", "--gpu", "h100", "--isl", "10", "--prefix", "10"],
        ["prefill", "--model", "llama3.1-8b", "--gpu", "h100", "--isl", "4k", "--max-num-batched-tokens", "1"],
        ["decode", "--gpu", "h100", "--context", "10"],
        ["roofline", "--model", "llama3.1-8b", "--gpu", "h100", "--batch", "1,,2"],
        ["roofline", "--model", "llama3.1-8b", "--gpu", "h100", "--batch", ",".join(["1"] * 65)],
    ],
)
def test_mistakes_on_the_command_line_exit_with_two(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")


def test_a_device_without_known_links_times_no_messages() -> None:
    answer = capplan.decode("llama3.1-8b", context=100, tensor_parallel_size=2, **AD_HOC)
    assert any("links of ad-hoc are not known" in text for text in answer.warnings)
    assert answer.result.step.link_seconds == 0


def test_a_format_without_units_is_multiplied_in_sixteen_bits() -> None:
    """fp8 weights on an A100 are read as 8 bits and multiplied as 16."""
    plain, eight = (
        capplan.decode("llama3.1-8b", "a100", context=100, weight_dtype=dtype).result.step for dtype in (None, "fp8")
    )
    assert eight.compute_seconds == pytest.approx(plain.compute_seconds)
    assert eight.weight_bytes < 0.6 * plain.weight_bytes
    setting = resolve_setting("llama3.1-8b", "a100", weight_dtype="fp8")
    assert setting.formats.math == {"int8"}
