"""Start-up logs of the four engines, a few lines each.

The words of every line are the engine's, as the page or source file beside it has them. So are the figures that the
page reports; the rest of a log was typed so that there is one of every line, and is no measurement.
"""

from __future__ import annotations

import time
from fractions import Fraction
from pathlib import Path

import pytest

from capplan.errors import InvalidFileError, NotFoundError, UsageError
from capplan.measured.engine_log import EngineLog
from capplan.measured.engine_logs import read_engine_log

GIB = 2**30
MIB = 2**20


@pytest.fixture
def read(tmp_path: Path):
    def reader(text: str, **options: object) -> EngineLog:
        path = tmp_path / "engine.log"
        path.write_text(text.lstrip("\n"), encoding="utf-8")
        return read_engine_log(path, **options)  # type: ignore[arg-type]

    return reader


def gib(log: EngineLog, name: str) -> float:
    figure = log.binding(name)
    assert figure is not None, name
    return float(figure.printed.value / GIB)


def number(log: EngineLog, name: str) -> float:
    figure = log.binding(name)
    assert figure is not None, name
    return float(figure.printed.value)


# https://github.com/vllm-project/vllm/pull/12569
FIRST_V1 = """
VLLM_USE_V1=1 vllm serve neuralmagic/Meta-Llama-3.1-70B-Instruct-quantized.w8a8 --max-model-len 2048 --gpu-memory-utilization 0.98
INFO 01-30 03:18:12 gpu_model_runner.py:848] Loading model weights took 67.7229 GB
INFO 01-30 03:19:14 kv_cache_utils.py:395] # GPU blocks: 1381
INFO 01-30 03:19:14 kv_cache_utils.py:398] Maximum concurrency for 2048 tokens per request: 10.79x
"""


def test_the_first_v1_form(read) -> None:
    log = read(FIRST_V1)
    assert log.engine == "vllm"
    assert log.version is None
    assert log.setting("model") == "neuralmagic/Meta-Llama-3.1-70B-Instruct-quantized.w8a8"
    assert log.setting("max_model_len") == 2048
    assert log.setting("gpu_memory_utilization") == 0.98
    weights = log.binding("weight_bytes")
    assert weights is not None
    assert weights.printed.value == Fraction(677229, 10000) * GIB
    assert weights.printed.half_digit == Fraction(1, 20000) * GIB
    assert (weights.line, weights.text) == (
        2,
        "INFO 01-30 03:18:12 gpu_model_runner.py:848] Loading model weights took 67.7229 GB",
    )
    assert number(log, "kv_blocks") == 1381
    assert number(log, "max_concurrency") == 10.79
    assert number(log, "concurrency_length") == 2048


def test_blanks_in_columns(read) -> None:
    # https://github.com/vllm-project/vllm/pull/10511
    log = read("""
$ vllm serve meta-llama/Meta-Llama-3-8B
INFO 12-13 19:54:18 worker.py:243] Memory profiling results:
INFO 12-13 19:54:18 worker.py:243] total_gpu_memory     79.22GiB
INFO 12-13 19:54:18 worker.py:243] gpu_memory_utilization       0.90
INFO 12-13 19:54:18 worker.py:243] the current vLLM instance can use    71.29GiB
INFO 12-13 19:54:18 worker.py:243] model weights take   14.96GiB
INFO 12-13 19:54:18 worker.py:243] non_torch_memory     1.79GiB
INFO 12-13 19:54:18 worker.py:243] PyTorch activation peak memory       1.26GiB
INFO 12-13 19:54:18 worker.py:243] available_kv_cache_memory    53.29GiB
""")
    assert gib(log, "device_memory_bytes") == pytest.approx(79.22)
    assert gib(log, "budget_bytes") == pytest.approx(71.29)
    assert gib(log, "weight_bytes") == pytest.approx(14.96)
    assert gib(log, "non_torch_bytes") == pytest.approx(1.79)
    assert gib(log, "activation_bytes") == pytest.approx(1.26)
    assert gib(log, "kv_pool_bytes") == pytest.approx(53.29)


def test_the_last_v0_form_with_workers(read) -> None:
    # https://github.com/vllm-project/vllm/pull/14447
    log = read("""
INFO 04-12 08:20:58 [llm_engine.py:243] Initializing a V0 LLM engine (v0.8.3.dev1) with config: model='/models/DeepSeek-R1-AWQ', speculative_config=None, dtype=torch.float16, max_seq_len=8192, tensor_parallel_size=16, pipeline_parallel_size=1, quantization=moe_wna16, enforce_eager=True, kv_cache_dtype=auto, seed=0, observability_config=ObservabilityConfig(model='no', max_seq_len=1), chunked_prefill_enabled=False
(VllmWorkerProcess pid=521) INFO 04-12 08:21:19 [worker.py:267] the current vLLM instance can use total_gpu_memory (23.58GiB) x gpu_memory_utilization (0.99) = 23.35GiB
(VllmWorkerProcess pid=521) INFO 04-12 08:21:19 [worker.py:267] model weights take 21.21GiB; non_torch_memory takes 0.20GiB; PyTorch activation peak memory takes 0.37GiB; the rest of the memory reserved for KV Cache is 1.57GiB.
(VllmWorkerProcess pid=507) INFO 04-12 08:21:19 [worker.py:267] model weights take 21.21GiB; non_torch_memory takes 0.21GiB; PyTorch activation peak memory takes 0.37GiB; the rest of the memory reserved for KV Cache is 1.56GiB.
INFO 04-12 08:21:20 [executor_base.py:112] # cuda blocks: 1404, # CPU blocks: 3640
INFO 04-12 08:21:20 [executor_base.py:117] Maximum concurrency for 8192 tokens per request: 2.74x
INFO 04-12 08:21:32 [model_runner.py:1671] Graph capturing finished in 2 secs, took 0.13 GiB
""")
    assert log.version == "0.8.3.dev1"
    assert log.setting("generation") == "V0"
    assert log.setting("model") == "/models/DeepSeek-R1-AWQ"
    assert log.setting("dtype") == "float16"
    assert log.setting("max_model_len") == 8192
    assert log.setting("tensor_parallel_size") == 16
    assert log.setting("enforce_eager") is True
    assert log.setting("kv_cache_dtype") == "auto"
    assert log.setting("speculative_config") is None
    assert gib(log, "kv_pool_bytes") == pytest.approx(1.56)  # the worker that has least
    assert gib(log, "non_torch_bytes") == pytest.approx(0.21)  # the worker that needs most
    assert number(log, "kv_blocks") == 1404
    assert number(log, "utilization") == 0.99


# https://github.com/vllm-project/vllm/issues/28228
KIMI_LINEAR = """
(APIServer pid=26101) INFO 11-06 10:49:02 [api_server.py:1971] vLLM API server version 0.11.1rc6
(APIServer pid=26101) INFO 11-06 10:49:02 [utils.py:253] non-default args: {'model_tag': 'moonshotai/Kimi-Linear-48B-A3B-Instruct', 'api_key': ['x, max_model_len: 7'], 'model': 'moonshotai/Kimi-Linear-48B-A3B-Instruct', 'trust_remote_code': True, 'max_model_len': 120000, 'tensor_parallel_size': 2, 'gpu_memory_utilization': 0.95, 'compilation_config': {'max_num_seqs': 5}}
(EngineCore_DP0 pid=26283) INFO 11-06 10:49:12 [core.py:93] Initializing a V1 LLM engine (v0.11.1rc6) with config: model='moonshotai/Kimi-Linear-48B-A3B-Instruct', speculative_config=None, dtype=torch.bfloat16, max_seq_len=120000, tensor_parallel_size=2, pipeline_parallel_size=1, data_parallel_size=1, quantization=None, enforce_eager=False, kv_cache_dtype=auto, enable_prefix_caching=False
(Worker_TP0 pid=26347) INFO 11-06 10:51:36 [gpu_model_runner.py:2850] Model loading took 45.78 GiB and 64.2 seconds
(Worker_TP1 pid=26348) INFO 11-06 10:51:36 [gpu_model_runner.py:2850] Model loading took 45.78 GiB and 66.0 seconds
(Worker_TP0 pid=26347) INFO 11-06 10:51:48 [gpu_worker.py:349] Available KV cache memory: 2.30 GiB
(Worker_TP1 pid=26348) INFO 11-06 10:51:48 [gpu_worker.py:349] Available KV cache memory: 2.41 GiB
(EngineCore_DP0 pid=26283) WARNING 11-06 10:51:48 [kv_cache_utils.py:979] Add 1 padding layers, may waste at most 5.00% KV cache memory
(EngineCore_DP0 pid=26283) INFO 11-06 10:51:48 [kv_cache_utils.py:1229] GPU KV cache size: 75,840 tokens
(EngineCore_DP0 pid=26283) INFO 11-06 10:51:48 [kv_cache_utils.py:1234] Maximum concurrency for 120,000 tokens per request: 2.48x
(EngineCore_DP0 pid=26283) INFO 11-06 10:51:48 [kv_cache_utils.py:1234] Maximum concurrency for 120,000 tokens per request: 2.48x
"""


def test_a_v1_hybrid_on_two_ranks(read) -> None:
    log = read(KIMI_LINEAR)
    assert log.version == "0.11.1rc6"
    assert log.setting("model") == "moonshotai/Kimi-Linear-48B-A3B-Instruct"
    assert log.setting("max_model_len") == 120000
    assert log.setting("max_num_seqs") is None
    assert log.setting("gpu_memory_utilization") == 0.95
    assert log.setting("enable_prefix_caching") is False
    assert log.setting("padding_layers") == 1
    assert gib(log, "weight_bytes") == pytest.approx(45.78)
    assert gib(log, "kv_pool_bytes") == pytest.approx(2.30)
    assert number(log, "kv_tokens") == 75840
    assert number(log, "max_concurrency") == 2.48
    assert {figure.rank for figure in log.all_of("kv_pool_bytes")} == {
        "Worker_TP0 pid=26347",
        "Worker_TP1 pid=26348",
    }


def test_tokens_and_concurrency_in_one_line(read) -> None:
    # https://github.com/vllm-project/vllm/issues/49011 and the usage line that versions from 0.21 print
    log = read(
        """
(EngineCore pid=1) INFO [gpu_model_runner.py:5515] Model loading took 10.24 GiB memory and 2.623740 seconds
(EngineCore pid=1) INFO [interface.py:986] Setting attention block size to 3072 tokens to ensure that attention page size is >= mamba page size.
(EngineCore pid=1) INFO [gpu_worker.py:578] Available KV cache memory: 3.01 GiB
(EngineCore pid=1) INFO [kv_cache_utils.py:1883] GPU KV cache size: 172,032 tokens, Maximum concurrency for 172,032 tokens per request: 1.00x
(EngineCore pid=1) INFO [gpu_worker.py:804] Free memory on device (15.28/15.51 GiB) on startup. Desired GPU memory utilization is (0.92, 14.3 GiB). Actual usage is 10.47 GiB for consumed memory (weights + non-torch), 0.79 GiB for peak activation, and 0.04 GiB for CUDAGraph memory. Current kv cache memory in use is 3.01 GiB.
""".replace("14.3 GiB", "14.27 GiB")
    )
    assert number(log, "attention_block_size") == 3072
    assert log.setting("generation") == "V1"
    assert number(log, "kv_tokens") == 172032
    assert number(log, "max_concurrency") == 1.0
    assert gib(log, "free_memory_bytes") == pytest.approx(15.28)
    assert gib(log, "device_memory_bytes") == pytest.approx(15.51)
    assert gib(log, "weight_and_non_torch_bytes") == pytest.approx(10.47)
    assert gib(log, "activation_bytes") == pytest.approx(0.79)


def test_closing_zeros_are_dropped_and_meant(read) -> None:
    # https://github.com/vllm-project/vllm/issues/16118 prints "24.0 GiB" where it rounds to two digits
    log = read(
        "(EngineCore pid=7) ValueError: To serve at least one request with the models's max seq len (1048576),"
        " (24.0 GiB KV cache is needed, which is larger than the available KV cache memory (8.03 GiB)."
        " Based on the available memory, the estimated maximum model length is 350832."
    )
    needed = log.binding("needed_bytes")
    assert needed is not None
    assert needed.printed.value == 24 * GIB
    assert needed.printed.half_digit == Fraction(GIB, 200)
    assert gib(log, "available_bytes") == pytest.approx(8.03)
    assert number(log, "refused_length") == 1048576
    assert number(log, "estimated_max_model_len") == 350832
    assert log.refusal is not None
    assert log.refusal.number == 1


@pytest.mark.parametrize(
    ("text", "figures"),
    [
        # https://github.com/vllm-project/vllm/issues/2418
        (
            "ValueError: The model's max seq len (4096) is larger than the maximum number of tokens that can be stored"
            " in KV cache (3664). Try increasing `gpu_memory_utilization` or decreasing `max_model_len`",
            {"refused_length": 4096, "kv_tokens": 3664},
        ),
        (
            "ValueError: max_num_seqs (256) exceeds available Mamba cache blocks (184). Each decode sequence requires"
            " one Mamba cache block",
            {"refused_seqs": 256, "state_blocks": 184},
        ),
    ],
)
def test_refusals(read, text: str, figures: dict[str, int]) -> None:
    log = read(text)
    assert log.refusal is not None
    assert {name: number(log, name) for name in figures} == figures


# https://github.com/vllm-project/vllm/issues/21348 (K and V), python/sglang/srt/model_executor/model_runner.py (words)
SGLANG = """
[2025-07-22 05:25:33] server_args=ServerArgs(model_path='Qwen/Qwen3-235B-A22B-FP8', tokenizer_path='x', context_length=None, dtype='auto', quantization=None, kv_cache_dtype='auto', mem_fraction_static=0.93, max_running_requests=None, chunked_prefill_size=8192, page_size=1, tp_size=4, pp_size=1, dp_size=1, ep_size=1, speculative_algorithm=None)
[2025-07-22 05:25:40 TP0] Load weight begin. avail mem=78.60 GB
[2025-07-22 05:26:40 TP0] Load weight end. type=Qwen3MoeForCausalLM, dtype=torch.bfloat16, avail mem=22.71 GB, mem usage=55.89 GB.
[2025-07-22 05:26:40 TP1] Load weight end. type=Qwen3MoeForCausalLM, dtype=torch.bfloat16, avail mem=22.75 GB, mem usage=55.85 GB.
[2025-07-22 05:26:41 TP0] KV Cache is allocated. #tokens: 367404, K size: 8.23 GB, V size: 8.23 GB
[2025-07-22 05:26:41 TP1] KV Cache is allocated. #tokens: 367404, K size: 8.23 GB, V size: 8.23 GB
[2025-07-22 05:26:41 TP0] Memory pool end. avail mem=5.05 GB
[2025-07-22 05:27:09 TP0] Capture cuda graph end. Time elapsed: 12.63 s. mem usage=1.93 GB. avail mem=3.10 GB.
[2025-07-22 05:27:10 TP0] max_total_num_tokens=367404, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=4096, context_len=40960, available_gpu_mem=3.10 GB
"""


def test_sglang(read) -> None:
    log = read(SGLANG)
    assert log.engine == "sglang"
    assert log.setting("model") == "Qwen/Qwen3-235B-A22B-FP8"
    assert log.setting("tensor_parallel_size") == 4
    assert log.setting("gpu_memory_utilization") == 0.93
    assert log.setting("max_model_len") == 40960
    assert log.setting("max_num_seqs") == 4096
    assert gib(log, "k_bytes") == pytest.approx(8.23)
    assert gib(log, "v_bytes") == pytest.approx(8.23)
    assert gib(log, "weight_bytes") == pytest.approx(55.89)
    assert gib(log, "graph_bytes") == pytest.approx(1.93)
    assert gib(log, "free_after_weights_bytes") == pytest.approx(22.71)
    assert number(log, "kv_tokens") == 367404
    assert {figure.rank for figure in log.all_of("pool_tokens")} == {"TP0", "TP1"}


def test_sglang_states_and_a_draft_model(read) -> None:
    # figures of Qwen3.6-27B with an EAGLE draft, in the words of python/sglang/srt/mem_cache/memory_pool.py
    log = read("""
[2026-09-22 19:53:22] server_args=ServerArgs(model_path='/m', speculative_algorithm='EAGLE', tp_size=1)
[2026-09-22 19:53:22] Load weight end. elapsed=118.38 s, type=Qwen3_5ForConditionalGeneration, avail mem=92.04 GB, mem usage=21.89 GB.
[2026-09-22 19:53:37] Mamba Cache is allocated. max_mamba_cache_size: 22, conv_state size: 0.09GB, ssm_state size: 3.09GB
[2026-09-22 19:53:38] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 171008, K size: 5.22 GB, V size: 5.22 GB
[2026-09-22 19:53:40] Load weight end. elapsed=9.44 s, type=Draft, avail mem=80.67 GB, mem usage=-1.86 GB.
[2026-09-22 19:53:41] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 171008, K size: 0.33 GB, V size: 0.33 GB
""")
    assert [float(figure.printed.value / GIB) for figure in log.all_of("k_bytes")] == pytest.approx([5.22, 0.33])
    assert gib(log, "ssm_state_bytes") == pytest.approx(3.09)
    assert number(log, "state_slots") == 22
    assert log.setting("pool_dtype") == "bfloat16"
    assert [float(figure.printed.value / GIB) for figure in log.all_of("weight_bytes")] == pytest.approx([21.89, -1.86])


def test_tensorrt_llm(read) -> None:
    # words of kvCacheManager.cpp and tllmRuntime.cpp; memory, blocks and pool of a run on an H100 with 0.12.0.dev
    log = read("""
[TensorRT-LLM][INFO] Engine version 0.12.0.dev2024070200 found in the config file, assuming engine(s) built by new builder API.
[TensorRT-LLM][INFO] MPI size: 1, rank: 0
[TensorRT-LLM][INFO] TRTGptModel maxNumSequences: 1024
[TensorRT-LLM][INFO] TRTGptModel maxBatchSize: 1024
[TensorRT-LLM][INFO] Loaded engine size: 6695 MiB
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 1332.13 MiB for execution context memory.
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 58.35 MB GPU memory for runtime buffers.
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 1.21 GB GPU memory for decoder.
[TensorRT-LLM][INFO] Memory usage when calculating max tokens in paged kv cache: total: 79.10 GiB, available: 63.62 GiB
[TensorRT-LLM][INFO] Number of blocks in KV cache primary pool: 4607
[TensorRT-LLM][INFO] Max KV cache pages per sequence: 65
[TensorRT-LLM][INFO] Number of tokens per block: 64.
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 62.99 GiB for max tokens in paged KV cache (294848).
""")
    assert log.engine == "trtllm"
    assert log.version == "0.12.0.dev2024070200"
    assert log.setting("block_size") == 64
    assert log.setting("max_num_seqs") == 1024
    assert number(log, "weight_bytes") == 6695 * MIB
    assert gib(log, "kv_pool_bytes") == pytest.approx(62.99)
    assert gib(log, "decoder_bytes") == pytest.approx(1.21)
    assert number(log, "runtime_buffers_bytes") == pytest.approx(58.35 * MIB)
    assert number(log, "kv_tokens") == 294848 == 4607 * 64
    assert gib(log, "device_memory_bytes") == pytest.approx(79.10)
    assert gib(log, "free_after_load_bytes") == pytest.approx(63.62)


def test_of_tensorrt_llms_pools_the_last_counts(read) -> None:
    # the words of tensorrt_llm/_torch/pyexecutor/_util.py; a pool for profiling comes before the real one
    log = read("""
[TensorRT-LLM] TensorRT-LLM version: 1.2.0
[07/24/2025-08:13:02] [TRT-LLM] [RANK 0] [I] Rank 0 uses 8.46 GB for model weights.
[TensorRT-LLM][INFO] Max KV cache blocks per sequence: 65 [window size=2051], tokens per block=32, primary blocks=129, secondary blocks=0, max sequence length=2051
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 0.50 GiB for max tokens in paged KV cache (4128).
[07/24/2025-08:13:40] [TRT-LLM] [I] Peak memory during memory usage profiling (torch + non-torch): 91.46 GiB, available KV cache memory when calculating max tokens: 41.11 GiB, fraction is set 0.85, kv size is 35136. device total memory 139.81 GiB
[TensorRT-LLM][INFO] Max KV cache blocks per sequence: 65 [window size=2051], tokens per block=32, primary blocks=116617, secondary blocks=0, max sequence length=2051
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 78.30 GiB for max tokens in paged KV cache (3731744).
""")
    assert log.version == "1.2.0"
    assert number(log, "kv_tokens") == 3731744 == 116617 * 32
    assert gib(log, "kv_pool_bytes") == pytest.approx(78.30)
    assert number(log, "token_bytes") == 35136
    assert number(log, "utilization") == 0.85
    assert log.setting("max_model_len") == 2051


def test_tensorrt_llms_windows_of_several_sizes(read) -> None:
    # the words and the sum of cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp (allocatePools); figures typed
    pool = """
[TensorRT-LLM][INFO] Max KV cache blocks per sequence: 5 [window size=128], tokens per block=32, primary blocks={0}, secondary blocks=0, max sequence length=2051
[TensorRT-LLM][INFO] Max KV cache blocks per sequence: 65 [window size=2051], tokens per block=32, primary blocks={1}, secondary blocks=0, max sequence length=2051
[TensorRT-LLM][INFO] Number of tokens per block: 32.
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 1.00 GiB for max tokens in paged KV cache ({2}).
"""
    log = read(pool.format(10, 90, 3200) + pool.format(200, 800, 32000))
    assert {figure.rank: figure.printed.value for figure in log.all_of("window_blocks")} == {"128": 200, "2051": 800}
    assert log.binding("kv_blocks") is None
    assert number(log, "kv_tokens") == 32000
    one = pool.replace("window size=128", "window size=2051")
    assert number(read(one.format(90, 90, 2880) + one.format(800, 800, 25600)), "kv_blocks") == 800
    with pytest.raises(InvalidFileError, match="blocks · tokens per block"):
        read(pool.format(200, 800, 32001))


def test_tensorrt_llms_oldest_words(read) -> None:
    # https://github.com/NVIDIA/TensorRT-LLM/issues/1400
    log = read("""
[TensorRT-LLM][INFO] Allocate 69524783104 bytes for k/v cache.
[TensorRT-LLM][INFO] Using 132608 total tokens in paged KV cache, and 32 blocks per sequence
""")
    pool = log.binding("kv_pool_bytes")
    assert pool is not None
    assert pool.printed.value == 69524783104 == 132608 * 524288
    assert pool.printed.half_digit == 0
    assert number(log, "kv_tokens") == 132608


# words of src/llama-kv-cache-iswa.cpp, src/llama-context.cpp and src/llama-model.cpp; caches of gpt-oss with 131,072 cells
LLAMA = """
build: 7123 (79c1160b) with cc (Ubuntu 13.3.0) 13.3.0 for x86_64-linux-gnu
llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce RTX 4090) - 23574 MiB free
llama_model_loader: loaded meta data with 35 key-value pairs and 459 tensors from /models/gpt-oss-20b-mxfp4.gguf (version GGUF V3 (latest))
llama_model_loader: - kv   1:                               general.name str              = Gpt Oss 20b
load_tensors: offloaded 25/25 layers to GPU
load_tensors:        CUDA0 model buffer size = 10949.38 MiB
load_tensors:   CPU_Mapped model buffer size =   586.82 MiB
llama_context: n_seq_max     = 1
llama_context: n_ctx         = 131072
llama_context: n_batch       = 2048
llama_context: n_ubatch      = 512
llama_context: kv_unified    = false
llama_kv_cache_iswa: creating non-SWA KV cache, size = 131072 cells
llama_kv_cache:      CUDA0 KV buffer size =  3072.00 MiB
llama_kv_cache: size = 3072.00 MiB (131072 cells,  12 layers,  1/1 seqs), K (f16): 1536.00 MiB, V (f16): 1536.00 MiB
llama_kv_cache_iswa: creating     SWA KV cache, size = 768 cells
llama_kv_cache:      CUDA0 KV buffer size =    18.00 MiB
llama_kv_cache: size =   18.00 MiB (   768 cells,  12 layers,  1/1 seqs), K (f16):    9.00 MiB, V (f16):    9.00 MiB
llama_context:      CUDA0 compute buffer size =   456.98 MiB
llama_context:  CUDA_Host compute buffer size =   263.15 MiB
"""


def test_llama_cpp(read) -> None:
    log = read(LLAMA)
    assert log.engine == "llama.cpp"
    assert log.version == "7123"
    assert log.setting("model") == "/models/gpt-oss-20b-mxfp4.gguf"
    assert log.setting("general_name") == "Gpt Oss 20b"
    assert log.setting("n_gpu_layers") == 25
    assert log.setting("max_model_len") == 131072
    assert log.setting("n_ubatch") == 512
    assert log.setting("cache_type_k") == "f16"
    assert {figure.rank: float(figure.printed.value / MIB) for figure in log.all_of("weight_bytes")} == {
        "CUDA0": 10949.38,
        "CPU_Mapped": 586.82,
    }
    assert [float(figure.printed.value / MIB) for figure in log.all_of("kv_bytes")] == [3072.0, 18.0]
    assert [float(figure.printed.value) for figure in log.all_of("cells")] == [131072, 768]
    assert number(log, "free_memory_bytes") == 23574 * MIB
    assert {figure.rank for figure in log.all_of("compute_buffer_bytes")} == {"CUDA0", "CUDA_Host"}


def test_llama_cpps_states(read) -> None:
    # https://github.com/ggml-org/llama.cpp/pull/13979 (words), a Qwen3.5-4B on an integrated device (figures)
    log = read("""
0.27.253.065 I llama_kv_cache:        CPU KV buffer size =    96.00 MiB
0.27.302.186 I llama_kv_cache:    Vulkan1 KV buffer size =   160.00 MiB
0.27.795.572 I llama_memory_recurrent:        CPU RS buffer size =    20.94 MiB
0.27.840.222 I llama_memory_recurrent:    Vulkan1 RS buffer size =    29.31 MiB
0.27.840.260 I llama_memory_recurrent: size =   50.25 MiB (     1 cells,  32 layers,  1 seqs  0 rs_seq), R (f32):    2.25 MiB, S (f32):   48.00 MiB
""")
    state = log.binding("state_bytes")
    assert state is not None
    assert state.printed.value == Fraction(5025, 100) * MIB
    assert {figure.rank for figure in log.all_of("state_buffer_bytes")} == {"CPU", "Vulkan1"}
    assert number(log, "state_layers") == 32


def test_llama_cpps_oldest_words(read) -> None:
    log = read("""
llm_load_tensors:      CUDA0 buffer size = 21000.62 MiB
llama_kv_cache_init:      CUDA0 KV buffer size =   896.00 MiB
llama_new_context_with_model: KV self size  =  896.00 MiB, K (f16):  448.00 MiB, V (f16):  448.00 MiB
""")
    assert number(log, "kv_bytes") == 896 * MIB
    assert number(log, "weight_bytes") == pytest.approx(21000.62 * MIB)


def test_colours_and_prefixes_do_not_matter(read) -> None:
    log = read(
        "2026-05-01T22:45:53Z node-1 \x1b[36m(EngineCore pid=187)\x1b[0;0m INFO GPU KV cache size: 1,823,372 tokens"
    )
    assert number(log, "kv_tokens") == 1823372


def test_two_starts_must_be_told_apart(read) -> None:
    second = KIMI_LINEAR.replace("75,840", "80,000").replace("2.48x", "2.61x")
    with pytest.raises(InvalidFileError, match="holds 2 starts") as caught:
        read(KIMI_LINEAR + second.lstrip("\n"))
    assert "--start" in caught.value.hint
    assert number(read(KIMI_LINEAR + second.lstrip("\n"), start=2), "kv_tokens") == 80000
    assert number(read(KIMI_LINEAR + second.lstrip("\n"), start=1), "kv_tokens") == 75840
    with pytest.raises(UsageError, match="no start 3"):
        read(KIMI_LINEAR + second.lstrip("\n"), start=3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("INFO GPU KV cache size: 75,840 tokens\nINFO GPU KV cache size: 75,856 tokens\n", "contradicts itself"),
        (
            "INFO Model loading took 10.24 GiB memory\nINFO Model loading took 10.24 GiB memory\n"
            "INFO Available KV cache memory: 3.01 GiB\nINFO Available KV cache memory: 3.05 GiB\n",
            "contradicts itself on kv_pool_bytes",
        ),
        (
            "the current vLLM instance can use total_gpu_memory (23.58GiB) x gpu_memory_utilization (0.99) = 13.35GiB",
            "utilization · device memory",
        ),
        (
            "llama_kv_cache: size = 3072.00 MiB (131072 cells,  12 layers,  1/1 seqs), K (f16): 1536.00 MiB, V (f16): 153.00 MiB",
            "k_bytes \\+ v_bytes",
        ),
        (
            "Number of blocks in KV cache primary pool: 4607\nNumber of tokens per block: 32.\n"
            "Allocated 62.99 GiB for max tokens in paged KV cache (294848).\n",
            "blocks · tokens per block",
        ),
        ("", "no figure"),
        ("hello\nworld\n", "no figure"),
        ("INFO GPU KV cache size: 75,84 tokens\n", "no figure"),
        ("INFO Available KV cache memory: 2.3\n", "no figure"),
        ("INFO Available KV cache memory: 2.3.1 GiB\n", "no figure"),
        ("INFO Available KV cache memory: nan GiB\n", "no figure"),
        ("INFO GPU KV cache size: 75,840 tokens\nKV Cache is allocated. #tokens: 367404, K size: 8.23 GB, V size: 8.23 GB\n", "more than one engine"),
        ("INFO GPU KV cache size: 75,840 tokens\x00\n", "NUL"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_with_certainty_is_an_error(read, text: str, message: str) -> None:
    with pytest.raises(InvalidFileError, match=message) as caught:
        read(text)
    assert "engine.log" in caught.value.where


def test_ranks_may_differ_where_there_are_several(read) -> None:
    lines = "INFO GPU KV cache size: 807,792 tokens\nINFO GPU KV cache size: 820,000 tokens\n"
    log = read("vllm serve m -tp 2 -pp 2\n" + lines)
    assert number(log, "kv_tokens") == 807792


def test_missing_file_and_unknown_engine(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        read_engine_log(tmp_path / "none.log")
    with pytest.raises(UsageError, match="no reader"):
        read_engine_log(tmp_path / "none.log", engine="vlm")
    with pytest.raises(InvalidFileError, match="folder"):
        read_engine_log(tmp_path)


def test_a_line_that_is_repeated_without_end_is_read_in_time(read) -> None:
    start = time.process_time()
    log = read("INFO GPU KV cache size: 75,840 tokens\n" * 20_000 + "no figure\n" * 200_000)
    assert number(log, "kv_tokens") == 75840
    assert time.process_time() - start < 5  # about 1 s
