"""Names and notes of public tables: what they mean here, and what they are not mistaken for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.describe.weight_dtype import parse_weight_dtype
from capplan.errors import UsageError
from capplan.measured.public_names import KINDS, engine_named, models_named, precision_named, public_names
from capplan.measured.table_notes import NoteFacts, read_notes
from capplan.serving.measured_server import ENGINES, PRECISIONS, measured_checkpoint


def test_every_name_of_the_file_means_something() -> None:
    """Models are in the catalog, engines are described, precisions are formats."""
    names = public_names()
    assert set(names) == set(KINDS)
    for model in names["models"].values():
        measured_checkpoint(model, None)
    assert set(names["engines"].values()) <= set(ENGINES.values())
    for precision in names["precisions"].values():
        assert not precision or precision in PRECISIONS or parse_weight_dtype(precision)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("vLLM", "vllm"),
        ("NIM (TensorRT-LLM)", "trtllm"),
        ("TensorRT-LLM (guide LLMBenchmark.py)", "trtllm"),
        ("trt-llm", "trtllm"),
        ("llama.cpp (llama-batched-bench)", "llama.cpp"),
        ("AutoAWQ (HF fused)", "transformers"),
    ],
)
def test_engines(theirs: str, ours: str) -> None:
    assert engine_named(theirs) == ours


@pytest.mark.parametrize("name", ["TGI", "Transformers NeuronX", "gpt-fast (PyTorch compile)", "MLC LLM", ""])
def test_engines_that_nobody_described_are_not_guessed(name: str) -> None:
    with pytest.raises(UsageError, match="not an engine"):
        engine_named(name)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("BF16", "bf16"),
        ("FP8 (native)", "fp8"),
        ("as released (see model_id)", None),
        ("", None),
        ("Q4_K_M", "gguf:Q4_K_M"),
        ("deepseek2 30B.A3B Q8_0", "gguf:Q8_0"),
        ("gpt-oss 20B MXFP4 MoE", "fp4"),
        ("int8 w-only", "w8a16-channel"),
        ("AWQ int4 g128 GEMM", "awq-int4-g128"),
        ("fp8 (as ND_H100_v5)", "fp8"),
        ("weights bf16", "bf16"),
    ],
)
def test_precisions(theirs: str, ours: str | None) -> None:
    assert precision_named(theirs) == ours


def test_models_lose_the_names_of_their_tuning_last() -> None:
    assert models_named("Llama-3.3-70B-Instruct")[-1] == "llama3.1-70b"
    assert models_named("ggml-org/Qwen2.5-Coder-7B-Q8_0-GGUF")[-1] == "qwen2.5-7b"
    assert models_named("meta-llama/Llama-3.1-8B-Instruct")[0] == "meta-llama/Llama-3.1-8B-Instruct"


@pytest.mark.parametrize(
    ("notes", "facts"),
    [
        ("static batching; TP=4; page reports out tok/s/GPU", NoteFacts(tp=4, static=True)),
        ("parallelism tep8; num_prompts = 10 x concurrency", NoteFacts(tp=8, ep=8, waves=10)),
        ("parallelism dep8; slurm", NoteFacts(dp=8, ep=8)),
        ("8 GPUs TP8; random dataset, 500 requests, max_concurrency=128", NoteFacts(tp=8, prompts=500)),
        (
            "cmd: --tp-size=8 --dp-size=8 --enable-dp-attention --moe-a2a-backend=deepep --max-running-requests=256 "
            "--kv-cache-dtype=fp8_e4m3 --chunked-prefill-size=4096",
            NoteFacts(
                tp=8, dp=8, dp_attention=True, expert_parallel=True, max_num_seqs=256, fp8_cache=True,
                max_num_batched_tokens=4096,
            ),
        ),
        ("vllm serve x --async-scheduling -tp 2", NoteFacts(tp=2)),
        ("[Other / Rate 4] profile ShareGPT 8RPS", NoteFacts(request_rate=4)),
        ("profile ShareGPT 8RPS", NoteFacts(request_rate=8)),
        ('--speculative-config={"method":"mtp","num_speculative_tokens":1}', NoteFacts(draft_tokens=1, speculative=True)),
        ("PD-disaggregated: 1 prefill + 1 decode workers, TP=2 each", NoteFacts(tp=2, disaggregated=True)),
        ("pp 512; ngl 99; multi-GPU = layer split (no tensor parallel)", NoteFacts(layer_split=True)),
        ("tg32: depth (tokens already in KV)=16384; n_ubatch=2048", NoteFacts(depth=16384, max_num_batched_tokens=2048)),
        ("SUSPECT: below the weights' read time", NoteFacts(suspect=True)),
        ("batch 1, generate 2048 tokens", NoteFacts(static=True)),
        ("a remark about HTTP8 and STEP4, nothing else", NoteFacts()),
        ("", NoteFacts()),
    ],
)  # fmt: skip
def test_notes(notes: str, facts: NoteFacts) -> None:
    assert read_notes(notes) == facts


@given(st.text(max_size=300))
def test_any_note_is_read(notes: str) -> None:
    facts = read_notes(notes)
    assert all(value is None or value >= 0 for value in vars(facts).values())
