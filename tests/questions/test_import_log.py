"""Logs beside capplan's figures: what the engine printed is the oracle, and comes from the page that is named."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from capplan.cli.app import run
from capplan.errors import InvalidFileError, NotFoundError, UsageError
from capplan.questions.import_log import LogComparison, import_log
from capplan.questions.log_comparison import LogRow

LOGS = Path(__file__).parents[1] / "data" / "logs"


@pytest.fixture
def compare(tmp_path: Path):
    def comparison(text: str, **settings: Any) -> LogComparison:
        path = tmp_path / "engine.log"
        path.write_text(text.lstrip("\n"), encoding="utf-8")
        return import_log(path, **settings).result

    return comparison


def find(result: LogComparison, name: str, basis: str) -> list[LogRow]:
    return [row for row in result.rows if (row.name, row.basis) == (name, basis)]


def one(result: LogComparison, name: str, basis: str) -> LogRow:
    rows = find(result, name, basis)
    assert len(rows) == 1, [(row.name, row.basis) for row in result.rows]
    return rows[0]


def test_a_dense_model_on_one_card(compare) -> None:
    # https://github.com/vllm-project/vllm/issues/10517
    result = import_log(LOGS / "vllm-llama-3.1-8b.log", model="llama3.1-8b").result
    weights = one(result, "weight_bytes", "exact")
    assert weights.agrees
    assert weights.line == 2
    assert weights.text.endswith("Loading model weights took 14.9888 GB")
    concurrency = one(result, "max_concurrency", "tokens")
    assert concurrency.agrees
    assert concurrency.predicted == pytest.approx(1.5616)
    assert concurrency.difference == pytest.approx(1.5616 / 1.56 - 1)
    assert one(result, "device_memory_bytes", "budget").agrees
    assert result.fits


def test_a_quantised_model_in_the_first_v1_form(compare) -> None:
    # https://github.com/vllm-project/vllm/pull/12569; its weights are 67.7229 GiB, of which we find all but 0.1 MiB
    result = compare(
        """
vllm serve neuralmagic/Meta-Llama-3.1-70B-Instruct-quantized.w8a8 --max-model-len 2048 --gpu-memory-utilization 0.98
INFO 01-30 03:18:12 gpu_model_runner.py:848] Loading model weights took 67.7229 GB
INFO 01-30 03:19:14 kv_cache_utils.py:395] # GPU blocks: 1381
INFO 01-30 03:19:14 kv_cache_utils.py:398] Maximum concurrency for 2048 tokens per request: 10.79x
""",
        model="llama3.1-70b",
        weight_dtype="int8",
    )
    assert result.fits is None  # no device is known
    assert one(result, "weight_bytes", "exact").difference == pytest.approx(0, abs=2e-6)
    assert one(result, "max_concurrency", "tokens").agrees


@pytest.mark.parametrize(
    ("model", "line", "settings"),
    [
        # 40,960 tokens of Qwen3-32B, in a public file
        (
            "qwen3-32b",
            "max seq len (40960), (10.0 GiB KV cache is needed, which is larger than the available KV cache memory (4.91 GiB)",
            {"engine_version": "0.9.1"},
        ),
        # https://github.com/vllm-project/vllm/issues/16118
        (
            "llama-4-scout-17b-16e-instruct",
            "max seq len (1048576), (24.00 GiB KV cache is needed, which is larger than the available KV cache memory (10.00 GiB)",
            {"engine_version": "0.8.3", "tensor_parallel_size": 8},
        ),
    ],
)
def test_what_one_request_needs(compare, model: str, line: str, settings: dict[str, Any]) -> None:
    result = compare(f"ValueError: To serve at least one request with the models's {line}.", model=model, **settings)
    assert one(result, "needed_bytes", "exact").agrees
    assert result.refused is not None
    assert result.refused.line == 1


def test_the_longest_request_that_would_do(compare) -> None:
    # https://github.com/vllm-project/vllm/issues/25350: Qwen3-30B-A3B with an fp8 cache, 10.12 GiB needed for 221,000
    result = compare(
        "ValueError: To serve at least one request with the models's max seq len (221000), (10.12 GiB KV cache is"
        " needed, which is larger than the available KV cache memory (5.59 GiB). Based on the available memory, the"
        " estimated maximum model length is 122080.",
        model="qwen3-30b-a3b",
        kv_cache_dtype="fp8",
        engine_version="0.10.0",
    )
    assert one(result, "needed_bytes", "exact").agrees
    assert one(result, "estimated_max_model_len", "pool").agrees


def test_a_hybrids_block_and_the_requests_that_its_tokens_are_worth(compare) -> None:
    # https://github.com/noonghunna/club-3090/issues/612: vLLM 0.24.0, fp8 cache
    result = compare(
        """
(EngineCore pid=187) INFO 07-06 20:45:53 [core.py:93] Initializing a V1 LLM engine (v0.24.0) with config: model='nvidia/Qwen3.6-35B-A3B-NVFP4', dtype=torch.bfloat16, max_seq_len=131072, tensor_parallel_size=1, pipeline_parallel_size=1, kv_cache_dtype=fp8
(EngineCore pid=187) INFO 07-06 20:45:53 [interface.py:606] Setting attention block size to 2096 tokens to ensure that attention page size is >= mamba page size.
(EngineCore pid=187) INFO 07-06 20:46:53 [kv_cache_utils.py:1883] GPU KV cache size: 567,978 tokens, Maximum concurrency for 131,072 tokens per request: 4.33x
""",
        model="qwen3.6-35b-a3b",
    )
    assert result.engine_version == "0.24.0"
    assert one(result, "attention_block_size", "exact").predicted == 2096
    assert one(result, "max_concurrency", "tokens").predicted == pytest.approx(13 / 3)
    assert one(result, "max_concurrency", "tokens").agrees


def test_sglangs_keys_and_values(compare) -> None:
    # https://github.com/vllm-project/vllm/issues/21348
    result = compare(
        """
python3 -m sglang.launch_server --model /path/to/Qwen3-235B-A22B-FP8 --tp 4 --trust-remote-code --mem-fraction-static 0.93
[2025-07-22 05:26:41 TP0] KV Cache is allocated. #tokens: 367404, K size: 8.23 GB, V size: 8.23 GB
""",
        model="qwen3-235b-a22b",
    )
    assert one(result, "k_bytes", "tokens").agrees
    assert one(result, "v_bytes", "tokens").agrees
    settings = {setting.name: setting.value for setting in result.settings}
    assert settings["tensor_parallel_size"] == 4
    assert settings["gpu_memory_utilization"] == 0.93


def test_sglangs_windowed_layers_come_first(compare) -> None:
    # https://github.com/sgl-project/sglang/pull/18039
    result = compare(
        """
python3 -m sglang.launch_server --model-path XiaomiMiMo/MiMo-V2-Flash --tp-size 4 --mem-fraction-static 0.7 --page-size 64
[2026-01-31 13:50:39 TP2] Use sliding window memory pool. full_layer_tokens=375360, swa_layer_tokens=300288
[2026-01-31 13:50:39 TP1] Use sliding window memory pool. full_layer_tokens=375360, swa_layer_tokens=300288
[2026-01-31 13:50:39 TP1] KV Cache is allocated. #tokens: 300288, K size: 8.38 GB, V size: 5.59 GB
[2026-01-31 13:50:39 TP2] KV Cache is allocated. #tokens: 300288, K size: 8.38 GB, V size: 5.59 GB
""",
        model="mimo-v2-flash",
    )
    for name in ("full_tokens", "windowed_tokens", "pool_tokens", "k_bytes", "v_bytes"):
        assert one(result, name, "tokens").agrees, name


def test_sglangs_states(compare) -> None:
    # sizes of a public run of Nemotron-Nano-9B-v2; its tokens follow from them, the convolutions' size was typed
    result = compare(
        """
[2026-09-01 13:50:35] server_args=ServerArgs(model_path='x', context_length=16384, tp_size=1)
[2026-09-01 13:50:39] Mamba Cache is allocated. max_mamba_cache_size: 48, conv_state size: 0.09GB, ssm_state size: 6.46GB
[2026-09-01 13:50:39] KV Cache is allocated. #tokens: 2618880, K size: 19.98 GB, V size: 19.98 GB
""",
        model="nemotron-nano-9b-v2",
    )
    for name in ("state_slots", "ssm_state_bytes", "conv_state_bytes", "k_bytes", "v_bytes"):
        assert one(result, name, "tokens").agrees, name


def test_the_figures_of_many_ranks_are_compared_in_time(compare) -> None:
    rank = "[2025-07-22 05:26:41 TP{0}] KV Cache is allocated. #tokens: 367404, K size: 8.23 GB, V size: 8.23 GB\n"
    log = "python3 -m sglang.launch_server --model x --tp 4\n" + "".join(rank.format(n) for n in range(1000)) * 3
    start = time.process_time()
    result = compare(log, model="qwen3-235b-a22b")
    assert time.process_time() - start < 5  # about 0.5 s
    assert len(result.rows) == 9


def test_tensorrt_llms_pool(compare) -> None:
    # https://github.com/NVIDIA/TensorRT-LLM/issues/1400
    result = compare(
        """
[TensorRT-LLM][INFO] Allocate 69524783104 bytes for k/v cache.
[TensorRT-LLM][INFO] Using 132608 total tokens in paged KV cache, and 32 blocks per sequence
""",
        model="llama2-7b",
        block_size=128,
        engine_version="0.8.0",
    )
    assert one(result, "kv_tokens", "pool").predicted == 132608
    assert one(result, "kv_tokens", "pool").agrees


def test_a_hybrids_tokens_tell_its_model(tmp_path: Path) -> None:
    # https://github.com/vllm-project/vllm/issues/40691: 371 blocks of 784 tokens, so the 27B, not the 35B-A3B
    path = tmp_path / "engine.log"
    path.write_text(
        "INFO [kv_cache_utils.py:1319] GPU KV cache size: 290,864 tokens\n"
        "INFO [kv_cache_utils.py:1324] Maximum concurrency for 32,768 tokens per request: 33.04x\n"
    )
    right = import_log(path, model="qwen3.5-27b", engine_version="0.19.0")
    assert one(right.result, "max_concurrency", "tokens").agrees
    assert right.warnings == ()
    wrong = import_log(path, model="qwen3.5-35b-a3b", engine_version="0.19.0")
    assert any("no pool of this model has just 290,864 tokens" in warning for warning in wrong.warnings)


def test_tokens_of_several_windows_are_not_compared(compare) -> None:
    result = compare(
        """
[TensorRT-LLM][INFO] Max KV cache blocks per sequence: 5 [window size=128], tokens per block=32, primary blocks=200, secondary blocks=0, max sequence length=2051
[TensorRT-LLM][INFO] Max KV cache blocks per sequence: 65 [window size=2051], tokens per block=32, primary blocks=800, secondary blocks=0, max sequence length=2051
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 1.00 GiB for max tokens in paged KV cache (32000).
""",
        model="gpt-oss-20b",
    )
    assert [(row.name, row.agrees) for row in result.rows] == [
        ("window_blocks", None), ("window_blocks", None), ("kv_pool_bytes", None), ("kv_tokens", None),
    ]  # fmt: skip


def test_llama_cpps_caches_one_by_one(compare) -> None:
    # https://github.com/ollama/ollama/pull/17037: gemma-3-4b-it with 131,072 cells
    result = compare(
        """
llama_context: n_seq_max     = 1
llama_context: n_ctx         = 131072
llama_context: n_ubatch      = 512
llama_kv_cache: size = 2560.00 MiB (131072 cells,   5 layers,  1/1 seqs), K (f16): 1280.00 MiB, V (f16): 1280.00 MiB
llama_kv_cache: size =  174.00 MiB (  1536 cells,  29 layers,  1/1 seqs), K (f16):   87.00 MiB, V (f16):   87.00 MiB
""",
        model="gemma-3-4b-it",
    )
    for name in ("kv_bytes", "k_bytes", "v_bytes", "cells"):
        rows = find(result, name, "context")
        assert [row.agrees for row in rows] == [True, True], name
        assert [row.line for row in rows] == [4, 5]


def test_llama_cpps_states(compare) -> None:
    # https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/1862: Qwen3.6-27B, four slots
    result = compare(
        """
llama_context: n_seq_max     = 4
llama_context: n_ctx         = 262144
llama_kv_cache: size = 16384.00 MiB (262144 cells,  16 layers,  4/1 seqs), K (f16): 8192.00 MiB, V (f16): 8192.00 MiB
llama_memory_recurrent: size =  598.50 MiB (     4 cells,  64 layers,  4 seqs), R (f32):   22.50 MiB, S (f32):  576.00 MiB
""",
        model="qwen3.6-27b",
    )
    assert one(result, "state_bytes", "context").agrees


def test_flags_override_the_log(compare) -> None:
    log = (LOGS / "vllm-llama-3.1-8b.log").read_text(encoding="utf-8")
    wrong = compare(log, model="llama3.1-8b", block_size=32)
    assert one(wrong, "max_concurrency", "tokens").agrees is False
    narrow = compare(log, model="llama3.1-8b", tensor_parallel_size=2)
    assert one(narrow, "weight_bytes", "exact").agrees is False


def test_a_device_that_the_log_contradicts_shows_as_a_difference(compare) -> None:
    log = (LOGS / "vllm-llama-3.1-8b.log").read_text(encoding="utf-8")
    other = compare(log, model="llama3.1-8b", gpu="h200")
    assert one(other, "device_memory_bytes", "budget").agrees is False
    assert one(other, "kv_pool_bytes", "budget").agrees is False if find(other, "kv_pool_bytes", "budget") else True


@pytest.mark.parametrize(
    ("text", "settings", "error", "message"),
    [
        ("INFO GPU KV cache size: 75,840 tokens", {}, UsageError, "which model"),
        ("vllm serve /data/private-model\nINFO GPU KV cache size: 75,840 tokens", {}, NotFoundError, "private-model"),
        ("nothing here", {"model": "llama3.1-8b"}, InvalidFileError, "no figure"),
        (
            "[TensorRT-LLM][INFO] MPI size: 4, rank: 0\nUsing 132608 total tokens in paged KV cache\n",
            {"model": "llama2-7b"},
            UsageError,
            "4 ranks",
        ),
    ],
)
def test_mistakes(compare, text: str, settings: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        compare(text, **settings)


def test_a_folder_of_the_hugging_face_cache_is_the_id_that_it_stands_for(compare) -> None:
    with pytest.raises(NotFoundError, match="some-org/Some-Model-7B") as caught:
        compare(
            "vllm serve /root/.cache/huggingface/hub/models--some-org--Some-Model-7B/snapshots/9c92\n"
            "INFO GPU KV cache size: 75,840 tokens"
        )
    assert caught.value.where.endswith("engine.log:1")  # type: ignore[attr-defined]
    assert "--model" in caught.value.hint  # type: ignore[attr-defined]


def test_the_command_prints_one_line_a_figure(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["import-log", str(LOGS / "vllm-llama-3.1-8b.log"), "--model", "llama3.1-8b", "--gpu", "rtx-3090"]
    assert run(argv) == 0
    out = capsys.readouterr().out
    assert "14.99 GiB" in out
    assert "the log's blocks" in out
    assert run([*argv, "--csv"]) == 0
    header, *lines = capsys.readouterr().out.strip().splitlines()
    assert header.split(",")[:5] == ["line", "name", "rank", "unit", "logged"]
    assert any(line.startswith("4,kv_blocks,,blocks,1952") for line in lines)
    assert run(["import-log", str(LOGS / "none.log")]) == 3
    assert run([*argv, "--gpu-memory-utilization", "1.5"]) == 2
