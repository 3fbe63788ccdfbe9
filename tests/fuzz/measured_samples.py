"""Sound start-up logs, result files, tables and mapping files, a few lines each, for the fuzzer to spoil.

The words and keys are those of the tools; where each was seen stands in ``tests/measured``.
"""

from __future__ import annotations

import json
from typing import Any

LOGS = {
    "vllm": """\
(APIServer pid=26101) INFO 11-06 10:49:02 [api_server.py:1971] vLLM API server version 0.11.1rc6
(APIServer pid=26101) INFO 11-06 10:49:02 [utils.py:253] non-default args: {'model_tag': 'Qwen/Qwen3-8B', 'api_key': ['x'], 'max_model_len': 32768, 'tensor_parallel_size': 2, 'gpu_memory_utilization': 0.95, 'compilation_config': {'max_num_seqs': 5}}
(EngineCore_DP0 pid=26283) INFO 11-06 10:49:12 [core.py:93] Initializing a V1 LLM engine (v0.11.1rc6) with config: model='Qwen/Qwen3-8B', speculative_config=None, dtype=torch.bfloat16, max_seq_len=32768, tensor_parallel_size=2, pipeline_parallel_size=1, quantization=None, enforce_eager=False, kv_cache_dtype=auto, enable_prefix_caching=True
(Worker_TP0 pid=26347) INFO 11-06 10:51:36 [gpu_model_runner.py:2850] Model loading took 7.64 GiB and 64.2 seconds
(Worker_TP1 pid=26348) INFO 11-06 10:51:36 [gpu_model_runner.py:2850] Model loading took 7.64 GiB and 66.0 seconds
(Worker_TP0 pid=26347) INFO 11-06 10:51:48 [gpu_worker.py:349] Available KV cache memory: 12.30 GiB
(EngineCore_DP0 pid=26283) INFO 11-06 10:51:48 [interface.py:986] Setting attention block size to 16 tokens to ensure that attention page size is >= mamba page size.
(EngineCore_DP0 pid=26283) INFO 11-06 10:51:48 [kv_cache_utils.py:1229] GPU KV cache size: 179,136 tokens
(EngineCore_DP0 pid=26283) INFO 11-06 10:51:48 [kv_cache_utils.py:1234] Maximum concurrency for 32,768 tokens per request: 5.47x
(EngineCore pid=1) INFO [gpu_worker.py:804] Free memory on device (23.28/23.51 GiB) on startup. Desired GPU memory utilization is (0.95, 22.33 GiB). Actual usage is 8.47 GiB for consumed memory (weights + non-torch), 0.79 GiB for peak activation, and 0.04 GiB for CUDAGraph memory. Current kv cache memory in use is 12.30 GiB.
""",
    "vllm-v0": """\
INFO 04-12 08:20:58 [llm_engine.py:243] Initializing a V0 LLM engine (v0.8.3) with config: model='meta-llama/Llama-3.1-8B', dtype=torch.float16, max_seq_len=8192, tensor_parallel_size=1, pipeline_parallel_size=1
INFO 04-12 08:21:19 [worker.py:267] the current vLLM instance can use total_gpu_memory (23.58GiB) x gpu_memory_utilization (0.90) = 21.22GiB
INFO 04-12 08:21:19 [worker.py:267] model weights take 14.99GiB; non_torch_memory takes 0.20GiB; PyTorch activation peak memory takes 1.37GiB; the rest of the memory reserved for KV Cache is 4.66GiB.
INFO 04-12 08:21:20 [executor_base.py:112] # cuda blocks: 2386, # CPU blocks: 2048
INFO 04-12 08:21:20 [executor_base.py:117] Maximum concurrency for 8192 tokens per request: 4.66x
INFO 04-12 08:21:32 [model_runner.py:1671] Graph capturing finished in 2 secs, took 0.13 GiB
""",
    "vllm-refusal": """\
(EngineCore pid=7) ValueError: To serve at least one request with the models's max seq len (131072), (16.0 GiB KV cache is needed, which is larger than the available KV cache memory (8.03 GiB). Based on the available memory, the estimated maximum model length is 65776.
""",
    "sglang": """\
[2025-07-22 05:25:33] server_args=ServerArgs(model_path='Qwen/Qwen3-8B', tokenizer_path='x', context_length=None, dtype='auto', quantization=None, kv_cache_dtype='auto', mem_fraction_static=0.88, chunked_prefill_size=8192, page_size=1, tp_size=2, pp_size=1, dp_size=1, ep_size=1, speculative_algorithm=None)
[2025-07-22 05:25:40 TP0] Load weight begin. avail mem=78.60 GB
[2025-07-22 05:26:40 TP0] Load weight end. type=Qwen3ForCausalLM, dtype=torch.bfloat16, avail mem=70.71 GB, mem usage=7.89 GB.
[2025-07-22 05:26:40 TP1] Load weight end. type=Qwen3ForCausalLM, dtype=torch.bfloat16, avail mem=70.75 GB, mem usage=7.85 GB.
[2025-07-22 05:26:41 TP0] Mamba Cache is allocated. max_mamba_cache_size: 22, conv_state size: 0.09GB, ssm_state size: 3.09GB
[2025-07-22 05:26:41 TP0] KV Cache is allocated. #tokens: 367404, K size: 25.23 GB, V size: 25.23 GB
[2025-07-22 05:26:41 TP0] Memory pool end. avail mem=5.05 GB
[2025-07-22 05:27:09 TP0] Capture cuda graph end. Time elapsed: 12.63 s. mem usage=1.93 GB. avail mem=3.10 GB.
[2025-07-22 05:27:10 TP0] max_total_num_tokens=367404, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=4096, context_len=40960, available_gpu_mem=3.10 GB
""",
    "trtllm": """\
[TensorRT-LLM] TensorRT-LLM version: 1.2.0
[TensorRT-LLM][INFO] MPI size: 1, rank: 0
[TensorRT-LLM][INFO] TRTGptModel maxNumSequences: 1024
[TensorRT-LLM][INFO] Loaded engine size: 6695 MiB
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 1332.13 MiB for execution context memory.
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 58.35 MB GPU memory for runtime buffers.
[07/24/2025-08:13:40] [TRT-LLM] [I] Peak memory during memory usage profiling (torch + non-torch): 91.46 GiB, available KV cache memory when calculating max tokens: 41.11 GiB, fraction is set 0.85, kv size is 35136. device total memory 139.81 GiB
[TensorRT-LLM][INFO] Max KV cache blocks per sequence: 65 [window size=2051], tokens per block=32, primary blocks=116617, secondary blocks=0, max sequence length=2051
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 78.30 GiB for max tokens in paged KV cache (3731744).
""",
    "llama.cpp": """\
build: 7123 (79c1160b) with cc (Ubuntu 13.3.0) 13.3.0 for x86_64-linux-gnu
llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce RTX 4090) - 23574 MiB free
llama_model_loader: loaded meta data with 35 key-value pairs and 459 tensors from /models/gpt-oss-20b-mxfp4.gguf (version GGUF V3 (latest))
load_tensors: offloaded 25/25 layers to GPU
load_tensors:        CUDA0 model buffer size = 10949.38 MiB
llama_context: n_seq_max     = 1
llama_context: n_ctx         = 131072
llama_context: n_ubatch      = 512
llama_kv_cache_iswa: creating non-SWA KV cache, size = 131072 cells
llama_kv_cache: size = 3072.00 MiB (131072 cells,  12 layers,  1/1 seqs), K (f16): 1536.00 MiB, V (f16): 1536.00 MiB
llama_kv_cache: size =   18.00 MiB (   768 cells,  12 layers,  1/1 seqs), K (f16):    9.00 MiB, V (f16):    9.00 MiB
llama_memory_recurrent: size =   50.25 MiB (     1 cells,  32 layers,  1 seqs), R (f32):    2.25 MiB, S (f32):   48.00 MiB
llama_context:      CUDA0 compute buffer size =   456.98 MiB
""",
}  # fmt: skip

_STATISTICS = {"mean": 2.0, "median": 1.9, "std_dev": 0.3, "min": 1.0, "max": 9.0, "percentiles": {"p99": 5, "p001": 1}}
_EXPORT = {"unit": "ms", "avg": 120.5, "p1": 80.0, "p50": 110.0, "p99": 250.0, "std": 30.0}

RESULTS: dict[str, Any] = {
    "vllm": {
        "date": "20260115-101112", "endpoint_type": "openai", "backend": "vllm", "model_id": "Qwen/Qwen3-8B",
        "num_prompts": 640, "request_rate": "inf", "max_concurrency": 64, "duration": 160.0, "completed": 640,
        "failed": 0, "total_input_tokens": 655360, "total_output_tokens": 655360, "request_throughput": 4.0,
        "output_throughput": 4096.0, "total_token_throughput": 8192.0, "mean_ttft_ms": 251.5, "p99_ttft_ms": 400.0,
        "mean_tpot_ms": 15.5, "p99.9_itl_ms": 40.0, "ttfts": [0.25], "itls": [[0.01], []],
    },
    "sglang": {
        "backend": "sglang", "dataset_name": "sharegpt", "request_rate": 5.0, "max_concurrency": None,
        "duration": 204.5, "completed": 1000, "total_input_tokens": 302118, "total_output_tokens": 195775,
        "total_output_tokens_retokenized": 195324, "request_throughput": 4.889, "input_throughput": 1477.1,
        "output_throughput": 957.2, "mean_e2e_latency_ms": 2409.5, "mean_ttft_ms": 91.7, "p95_itl_ms": 18.8,
    },
    "aiperf": {
        "request_throughput": {"unit": "requests/sec", "avg": 9.7}, "time_to_first_token": _EXPORT,
        "output_token_throughput": {"unit": "tokens/sec", "avg": 2483.2}, "inter_token_latency": _EXPORT,
        "request_latency": {"unit": "sec", "avg": 3.2}, "input_sequence_length": {"unit": "tokens", "avg": 550.0},
        "output_sequence_length": {"unit": "tokens", "avg": 256.0}, "request_count": {"unit": "requests", "avg": 97.0},
        "input_config": {"endpoint": {"model_names": ["Qwen/Qwen3-8B"]}, "loadgen": {"concurrency": 32}},
    },
    "guidellm": {
        "metadata": {"version": 1}, "args": {"backend_kwargs": {"model": "m"}},
        "benchmarks": [{
            "config": {"strategy": {"type_": "concurrent", "streams": 32}, "backend": {}}, "duration": 381.0,
            "metrics": {"request_totals": {"successful": 380, "errored": 1, "incomplete": 2, "total": 383}, **{
                name: {"successful": _STATISTICS, "errored": None} for name in (
                    "requests_per_second", "request_concurrency", "request_latency", "prompt_token_count",
                    "output_token_count", "time_to_first_token_ms", "inter_token_latency_ms",
                    "output_tokens_per_second")}},
        }],
    },
    "inference-perf": {
        "load_summary": {"count": 2278, "requested_rate": 37.97, "achieved_rate": 37.98},
        "successes": {
            "count": 2278, "throughput": {"output_tokens_per_sec": 2366.2, "requests_per_sec": 37.7},
            "latency": {"request_latency": {"mean": 0.56, "p99.9": 0.64}, "time_to_first_token": {"mean": 0.03},
                        "time_per_output_token": {"mean": 0.004}, "inter_token_latency": {"mean": 0.004}},
            "prompt_len": {"mean": 200.9}, "output_len": {"mean": 62.8},
        },
        "failures": {"count": 0, "request_latency": None},
    },
    "llama-bench": [
        {"build_number": 5163, "model_filename": "m.gguf", "n_prompt": 512, "n_gen": 0, "avg_ts": 7285.7,
         "stddev_ts": 1.0},
        {"build_number": 5163, "model_type": "qwen2 7B", "n_prompt": 0, "n_gen": 128, "n_depth": 4096, "avg_ts": 119.9},
    ],
    "trtllm-bench": {
        "engine": {"model": "nvidia/Llama-3.1-8B-Instruct-FP8", "version": "1.2.0", "backend": "Pytorch"},
        "world_info": {"tp_size": 2, "pp_size": 1, "ep_size": None, "max_batch_size": 2048},
        "request_info": {"num_requests": 100, "avg_num_concurrent_requests": 31.5, "avg_input_length": 1024,
                         "avg_output_length": 128},
        "performance": {"total_latency_ms": 5000.0, "request_throughput_req_s": 20.0,
                        "system_output_throughput_tok_s": 2560.0, "request_latency_percentiles_ms": {"p50": 1400.0}},
        "streaming_metrics": {"avg_ttft_ms": 90.0, "avg_tpot_ms": 11.0, "ttft_percentiles": {"p50": 88.0}},
    },
}  # fmt: skip

TEXTS = {
    "llama-bench.csv": "build_number,model_filename,model_type,n_prompt,n_gen,n_depth,avg_ts,stddev_ts\n"
    '"5163","m.gguf","qwen2 7B","512","0","0","7285.676949","100.064434"\n'
    '"5163","m.gguf","qwen2 7B","0","128","0","119.915244","0.430617"\n',
    "llama-bench.md": "| model | size | params | backend | ngl |          test |                  t/s |\n"
    "| ----- | ---: | -----: | ------- | --: | ------------: | -------------------: |\n"
    "| qwen2 7B | 4.36 GiB | 7.62 B | CUDA | 99 |         pp512 |      7340.20 ± 23.45 |\n"
    "| qwen2 7B | 4.36 GiB | 7.62 B | CUDA | 99 | tg128 @ d512 |               120.60 ± 0.59 |\n",
    "vllm.txt": "Maximum request concurrency: 32\n============ Serving Benchmark Result ============\n"
    "Successful requests:                     32        \nBenchmark duration (s):                  150.87    \n"
    "Total input tokens:                      65536     \nTotal generated tokens:                  65536     \n"
    "Request throughput (req/s):              0.21      \nMean TTFT (ms):                          7279.56   \n"
    "Mean TPOT (ms):                          70.14     \nP99 ITL (ms):                            72.47     \n"
    "==================================================\n",
    "trtllm.txt": "= PYTORCH BACKEND\nModel:                  meta-llama/Llama-3.2-3B-Instruct\n"
    "TensorRT-LLM Version:   1.1.0rc2\n= REQUEST DETAILS\nNumber of requests:             16\n"
    "Number of concurrent requests:  7.9940\nAverage Input Length (tokens):  13.0000\n"
    "Average Output Length (tokens): 256.0000\nTP Size:                1\n= PERFORMANCE OVERVIEW\n"
    "Request Throughput (req/sec):                     4.7501\nTotal Latency (ms):         3368.3769\n"
    "Average time-to-first-token [TTFT] (ms):          25.5000\n[Latency] P50    : 1683.3179\n",
    "gpt.txt": "[BENCHMARK] num_samples 500\n[BENCHMARK] total_latency(ms) 52372.21\n"
    "[BENCHMARK] seq_throughput(seq/sec) 9.55\n[BENCHMARK] avg_sequence_latency(ms) 2755.07\n",
}

WIDE = [
    ["id", "model", "system", "backend", "backend_version", "precision", "isl", "osl", "mean_len_factor", "concurrency",
     "gpus", "tp", "attn_dp", "moe_tp", "moe_ep", "chunked_prefill", "ttft_ms", "tpot_ms", "ttft_regime", "quality"],
    ["a", "DeepSeek-R1", "b200_sxm", "sglang", "0.5.9", "fp4", "1024", "1024", "0.9", "4", "4", "4", "1", "1", "4", "1",
     "208.446", "9.0014", "steady", "ok"],
    ["b", "Llama-3.1-8B", "h100_sxm", "vllm", "", "fp8", "1024", "128", "1.0", "64", "1", "1", "1", "1", "1", "0",
     "470.383", "15.8869", "capacity_queue", "ok"],
]  # fmt: skip

LONG = [
    ["source", "model", "kv_dtype", "gpu", "n_gpus", "engine", "version", "isl", "osl", "batch_or_concurrency",
     "metric", "value", "unit", "notes"],
    ["page", "GPT-J 6B", "fp8", "H100", "1", "TensorRT-LLM", "0.5.0", "128", "128", "64", "output_tokens_per_s",
     "10907", "tokens/s (all GPUs)", "TP=1"],
    ["page", "Qwen3-8B", "", "H200", "2", "vLLM", "", "270.2", "0", "1", "ttft_p50", "28.5", "ms", ""],
    ["page", "Qwen3-8B", "", "H200", "2", "NIM", "", "5000", "500", "1", "itl_mean", "28.5", "ms", "a, \"b\""],
    ["page", "Qwen3-8B", "", "H200", "2", "vLLM", "", "1", "5", "1", "output_tokens_per_s_per_gpu", "2", "tokens/s/GPU",
     ""],
]  # fmt: skip

MAPPINGS: list[dict[str, Any]] = [
    {"schema": 1},
    {"schema": 1, "columns": {"model": "model", "gpu": "system"}, "factors": {"ttft_ms": 1000}},
    {"schema": 1, "constants": {"kv_format": "fp8"}, "values": {"model": {"Qwen3-8B": "qwen3-8b"}}},
    {"schema": 1, "metrics": {"ttft_p50": "median_ttft_ms"}, "per_gpu": ["output_throughput"], "ignore": ["notes"]},
]


def result_text(result: Any) -> str:
    """A result as its tool writes it."""
    return json.dumps(result)
