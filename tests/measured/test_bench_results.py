"""Result files of benchmark tools: short files in each tool's own layout, with the source of the layout beside it.

Figures are those of the sample that the source shows, or were typed for the test; where a file holds a metric twice
(a rate and the tokens and seconds behind it), the second is the oracle.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from capplan.errors import InvalidFileError, NotFoundError
from capplan.measured.bench_results import read_bench_results
from capplan.measured.measured_run import MeasuredRun, statistic_name


@pytest.fixture
def read(tmp_path: Path):
    def reader(content: Any, name: str = "result.json") -> list[MeasuredRun]:
        path = tmp_path / name
        text = content if isinstance(content, str) else json.dumps(content)
        path.write_text(text, encoding="utf-8")
        return read_bench_results(path)

    return reader


# a result of sglang.bench_serving on ShareGPT; python/sglang/bench_serving.py writes these keys
SGLANG = {
    "backend": "sglang", "dataset_name": "sharegpt", "request_rate": 5.0, "max_concurrency": 256,
    "sharegpt_output_len": None, "random_input_len": 1024, "random_output_len": 1024, "random_range_ratio": 0.0,
    "duration": 204.53694480800186, "completed": 1000, "total_input_tokens": 302118, "total_output_tokens": 195775,
    "total_output_tokens_retokenized": 195324, "request_throughput": 4.88909229058201,
    "input_throughput": 1477.0827846460556, "output_throughput": 957.162043188693,
    "mean_e2e_latency_ms": 2409.499004891637, "median_e2e_latency_ms": 1537.8948565048631,
    "std_e2e_latency_ms": 2620.270331568627, "p99_e2e_latency_ms": 9813.89673267491, "mean_ttft_ms": 91.69221715730964,
    "median_ttft_ms": 76.41966750088613, "std_ttft_ms": 65.22224954470558, "p99_ttft_ms": 327.9139723521075,
    "mean_tpot_ms": 11.808901276564441, "median_tpot_ms": 11.829237894316, "std_tpot_ms": 1.9529553892334461,
    "p99_tpot_ms": 19.04175553412642, "mean_itl_ms": 11.917698144217361, "median_itl_ms": 10.71716399746947,
    "p95_itl_ms": 18.839622958330438, "p99_itl_ms": 21.477889133384465, "concurrency": 11.780263008980727,
    "accept_length": None,
}  # fmt: skip


def test_sglangs_bench_serving(read) -> None:
    (run,) = read(SGLANG, "result.jsonl")
    assert run.tool == "sglang.bench_serving"
    assert run.engine == "sglang"
    assert (run.request_rate, run.concurrency) == (5.0, 256)
    assert run.isl == pytest.approx(302.118)
    assert run.osl == pytest.approx(195.775)
    metrics = run.metrics
    assert metrics["mean_e2el_ms"] == 2409.499004891637
    assert metrics["p99_tpot_ms"] == 19.04175553412642
    assert metrics["request_throughput"] == pytest.approx(run.requests / run.duration_seconds)
    assert metrics["output_throughput"] == pytest.approx(195775 / run.duration_seconds)
    assert metrics["input_throughput"] == pytest.approx(302118 / run.duration_seconds)


def vllm(**changes: Any) -> dict[str, Any]:
    # the keys of vllm/benchmarks/serve.py
    return {
        "date": "20260115-101112", "endpoint_type": "openai", "backend": "openai", "label": None,
        "model_id": "Qwen/Qwen3-8B", "tokenizer_id": "Qwen/Qwen3-8B", "num_prompts": 640, "request_rate": "inf",
        "burstiness": 1.0, "max_concurrency": 64, "duration": 160.0, "completed": 640, "failed": 0,
        "total_input_tokens": 655360, "total_output_tokens": 655360, "request_throughput": 4.0,
        "request_goodput": None, "output_throughput": 4096.0, "total_token_throughput": 8192.0,
        "input_lens": [1024, 1024], "ttfts": [0.25, 0.3], "itls": [[0.01, 0.02], []],
        "mean_ttft_ms": 251.5, "median_ttft_ms": 240.0, "std_ttft_ms": 30.0, "p99_ttft_ms": 400.0,
        "mean_tpot_ms": 15.5, "p99.9_itl_ms": 40.0, "tensor_parallel_size": "8", **changes,
    }  # fmt: skip


def test_vllm_bench_serve(read) -> None:
    (run,) = read(vllm())
    assert run.tool == "vllm bench serve"
    assert run.model == "Qwen/Qwen3-8B"
    assert (run.isl, run.osl, run.concurrency, run.request_rate) == (1024, 1024, 64, None)
    assert run.metrics["median_ttft_ms"] == 240.0
    assert run.metrics["p99.9_itl_ms"] == 40.0
    assert run.settings["tensor_parallel_size"] == "8"
    assert run.requests == 640
    assert run.where.endswith("result.json:1")


def test_a_rate_without_bound_and_without_cap_sends_all_at_once(read) -> None:
    (run,) = read(vllm(max_concurrency=None))
    assert (run.concurrency, run.request_rate) == (640, None)
    (run,) = read(json.dumps(vllm(max_concurrency=None, request_rate=float("inf"))))
    assert (run.concurrency, run.request_rate) == (640, None)
    (run,) = read(vllm(max_concurrency=None, request_rate=4.5))
    assert (run.concurrency, run.request_rate) == (None, 4.5)


def test_one_result_a_line_and_results_behind_each_other(read) -> None:
    lines = read("\n".join(json.dumps(vllm(max_concurrency=size)) for size in (1, 2, 4)))
    assert [run.concurrency for run in lines] == [1, 2, 4]
    assert [run.where.rsplit(":", 1)[1] for run in lines] == ["1", "2", "3"]
    assert len(read(json.dumps(vllm(), indent=1) + json.dumps(vllm()))) == 2
    assert len(read([vllm(), vllm()])) == 2


PRINTED = """
Traffic request rate: inf
Burstiness factor: 1.0 (Poisson process)
Maximum request concurrency: 32
100%|██████████| 32/32 [02:30<00:00,  4.71s/it]
============ Serving Benchmark Result ============
Successful requests:                     32
Benchmark duration (s):                  150.87
Total input tokens:                      65536
Total generated tokens:                  65536
Request throughput (req/s):              0.21
Output token throughput (tok/s):         434.40
Total Token throughput (tok/s):          868.80
---------------Time to First Token----------------
Mean TTFT (ms):                          7279.56
Median TTFT (ms):                        7099.88
P99 TTFT (ms):                           10999.46
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          70.14
Median TPOT (ms):                        70.23
P99 TPOT (ms):                           72.63
---------------Inter-token Latency----------------
Mean ITL (ms):                           70.14
Median ITL (ms):                         68.15
P99 ITL (ms):                            72.47
==================================================
"""


def test_the_table_that_the_benchmark_prints(read) -> None:
    first, second = read(
        PRINTED + PRINTED.replace("70.14", "71.5").replace("concurrency: 32", "concurrency: 16"), "out.txt"
    )
    assert (first.concurrency, second.concurrency) == (32, 16)
    assert first.metrics["mean_tpot_ms"] == 70.14
    assert second.metrics["mean_tpot_ms"] == 71.5
    assert first.isl == first.osl == 2048
    assert first.metrics["output_throughput"] == pytest.approx(65536 / 150.87, rel=1e-4)
    assert first.where.endswith("out.txt:6")


# the layout of aiperf/common/models/export_models.py and aiperf/common/config
AIPERF = {
    "request_throughput": {"unit": "requests/sec", "avg": 9.7},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 2483.2},
    "output_token_throughput_per_user": {"unit": "tokens/sec/user", "avg": 80.0},
    "time_to_first_token": {
        "unit": "ms",
        "avg": 120.5,
        "p1": 80.0,
        "p50": 110.0,
        "p90": 180.0,
        "p99": 250.0,
        "std": 30.0,
    },
    "inter_token_latency": {"unit": "ms", "avg": 12.0, "p50": 11.0, "p99": 20.0},
    "inter_chunk_latency": {"unit": "us", "avg": 12500.0},
    "request_latency": {"unit": "sec", "avg": 3.2, "p50": 3.1, "p99": 4.5},
    "input_sequence_length": {"unit": "tokens", "avg": 550.0},
    "output_sequence_length": {"unit": "tokens", "avg": 256.0},
    "request_count": {"unit": "requests", "avg": 97.0},
    "error_request_count": {"unit": "requests", "avg": 3.0},
    "benchmark_duration": {"unit": "sec", "avg": 10.0},
    "input_config": {
        "endpoint": {"model_names": ["Qwen/Qwen3-8B"], "type": "chat"},
        "loadgen": {"concurrency": 32, "request_count": 100},
    },
    "was_cancelled": False,
}


def test_aiperf(read) -> None:
    (run,) = read(AIPERF, "profile_export_aiperf.json")
    assert run.tool == "aiperf"
    assert run.model == "Qwen/Qwen3-8B"
    assert (run.concurrency, run.request_rate, run.isl, run.osl) == (32, None, 550, 256)
    assert (run.requests, run.failed, run.duration_seconds) == (97, 3, 10.0)
    assert run.metrics == {
        "request_throughput": 9.7,
        "output_throughput": 2483.2,
        "mean_ttft_ms": 120.5,
        "p1_ttft_ms": 80.0,
        "median_ttft_ms": 110.0,
        "p90_ttft_ms": 180.0,
        "p99_ttft_ms": 250.0,
        "std_ttft_ms": 30.0,
        "mean_tpot_ms": 12.0,  # its inter-token latency is an average over the request
        "median_tpot_ms": 11.0,
        "p99_tpot_ms": 20.0,
        "mean_itl_ms": 12.5,
        "mean_e2el_ms": 3200.0,
        "median_e2el_ms": 3100.0,
        "p99_e2el_ms": 4500.0,
    }


@pytest.mark.parametrize(
    "config",
    [
        # genai_perf/config/input (template of 2025)
        {"model_names": ["gpt2"], "endpoint": {"backend": "vllm"}, "perf_analyzer": {"stimulus": {"concurrency": 8}}},
        # genai_perf/parser.py (arguments of 2024)
        {"model": ["gpt2"], "backend": "vllm", "concurrency": 8, "request_rate": None},
    ],
)
def test_genai_perf(read, config: dict[str, Any]) -> None:
    result = {key: value for key, value in AIPERF.items() if key not in ("input_config", "was_cancelled")}
    (run,) = read({**result, "input_config": config}, "profile_export_genai_perf.json")
    assert run.tool == "genai-perf"
    assert run.model == "gpt2"
    assert run.engine == "vllm"
    assert run.concurrency == 8


def guidellm() -> dict[str, Any]:
    # guidellm/benchmark/schemas (report versions 1 and 2)
    def stat(mean: float, **percentiles: float) -> dict[str, Any]:
        one = {"mean": mean, "median": mean, "mode": mean, "variance": 0.1, "std_dev": 2.0, "min": 1.0, "max": 90.0,
               "count": 5, "total_sum": 5 * mean, "percentiles": percentiles}  # fmt: skip
        return {"successful": one, "errored": None, "incomplete": None, "total": one}

    return {
        "metadata": {"version": 1, "guidellm_version": "0.6.0"},
        "args": {"backend_kwargs": {"model": "deepseek-ai/DeepSeek-R1-0528"}},
        "benchmarks": [
            {
                "type_": "generative_benchmark",
                "config": {"strategy": {"type_": "concurrent", "streams": 32, "max_concurrency": 32}, "backend": {}},
                "duration": 381.0,
                "metrics": {
                    "request_totals": {"successful": 380, "errored": 1, "incomplete": 2, "total": 383},
                    "requests_per_second": stat(1.0),
                    "request_concurrency": stat(31.4),
                    "request_latency": stat(30.0, p001=3.0, p01=4.0, p99=40.0, p999=45.0),
                    "prompt_token_count": stat(400.0),
                    "output_token_count": stat(1020.0),
                    "time_to_first_token_ms": stat(250.0, p95=500.0),
                    "inter_token_latency_ms": stat(29.0),
                    "time_per_output_token_ms": stat(29.4),
                    "output_tokens_per_second": stat(1020.0),
                    "tokens_per_second": stat(1420.0),
                },
            },
            {
                "config": {"strategy": {"type_": "constant", "rate": 2.5, "max_concurrency": 512}},
                "metrics": {"requests_per_second": stat(2.5), "request_concurrency": stat(20.0)},
            },
            {"args": {"strategy": {"type_": "synchronous"}}, "metrics": {"requests_per_second": stat(0.1)}},
        ],
    }


def test_guidellm(read) -> None:
    closed, open_loop, alone = read(guidellm(), "benchmarks.json")
    assert closed.model == "deepseek-ai/DeepSeek-R1-0528"
    assert (closed.concurrency, closed.request_rate) == (32, None)
    assert (closed.isl, closed.osl, closed.requests, closed.failed) == (400, 1020, 380, 3)
    metrics = closed.metrics
    assert metrics["mean_tpot_ms"] == 29.0  # not the one that counts the first token in
    assert metrics["mean_e2el_ms"] == 30000.0
    assert metrics["p0.1_e2el_ms"] == 3000.0
    assert metrics["p1_e2el_ms"] == 4000.0
    assert metrics["p99.9_e2el_ms"] == 45000.0
    assert metrics["p95_ttft_ms"] == 500.0
    assert metrics["total_token_throughput"] == 1420.0
    assert (open_loop.concurrency, open_loop.request_rate) == (None, 2.5)
    assert (alone.concurrency, alone.request_rate) == (1, None)
    assert closed.where.endswith("benchmarks.json:1: benchmarks[0]")


def test_inference_perf(read) -> None:
    # a stage of demos/kubecon-na-2025 in kubernetes-sigs/inference-perf, its percentiles shortened
    stage = {
        "load_summary": {
            "count": 2278,
            "schedule_delay": {"mean": 0.0008001530579662505},
            "send_duration": 59.971021658042446,
            "requested_rate": 37.97,
            "achieved_rate": 37.985012377965845,
        },
        "successes": {
            "count": 2278,
            "latency": {
                "request_latency": {
                    "mean": 0.5643447394640908,
                    "median": 0.560724814014975,
                    "p99.9": 0.6407534108272522,
                },
                "normalized_time_per_output_token": {"mean": 0.009072400244465602},
                "time_per_output_token": {"mean": 0.004123063848553224, "p99": 0.0045826003086561875},
                "time_to_first_token": {"mean": 0.03129434523387723, "p0.1": 0.021753931680461393},
                "inter_token_latency": {"mean": 0.004123063848553224},
            },
            "throughput": {
                "input_tokens_per_sec": 7570.1385637998965,
                "output_tokens_per_sec": 2366.1706737582767,
                "total_tokens_per_sec": 9936.309237558173,
                "requests_per_sec": 37.67587543386517,
            },
            "prompt_len": {"mean": 200.928007023705},
            "output_len": {"mean": 62.803336259877085},
        },
        "failures": {"count": 0, "request_latency": None, "prompt_len": None},
    }
    (run,) = read(stage, "stage_1_lifecycle_metrics.json")
    assert (run.request_rate, run.concurrency, run.requests, run.failed) == (37.97, None, 2278, 0)
    assert run.metrics["mean_ttft_ms"] == pytest.approx(31.29434523387723)
    assert run.metrics["p99_tpot_ms"] == pytest.approx(4.5826003086561875)
    assert run.metrics["p99.9_e2el_ms"] == pytest.approx(640.7534108272522)
    assert run.metrics["output_throughput"] == pytest.approx(run.metrics["request_throughput"] * run.osl)


# tools/llama-bench/README.md
LLAMA_CSV = """build_commit,build_number,cpu_info,gpu_info,backends,model_filename,model_type,model_size,model_n_params,n_batch,n_ubatch,n_threads,cpu_mask,cpu_strict,poll,type_k,type_v,n_gpu_layers,split_mode,main_gpu,no_kv_offload,flash_attn,tensor_split,use_mmap,embeddings,n_prompt,n_gen,n_depth,test_time,avg_ns,stddev_ns,avg_ts,stddev_ts
"8cf427ff","5163","AMD Ryzen 7 7800X3D 8-Core Processor","NVIDIA GeForce RTX 4080","CUDA","models/Qwen2.5-7B-Instruct-Q4_K_M.gguf","qwen2 7B Q4_K - Medium","4677120000","7615616512","2048","512","8","0x0","0","50","f16","f16","99","layer","0","0","0","0.00","1","0","512","0","0","2025-04-24T11:57:09Z","70285660","982040","7285.676949","100.064434"
"8cf427ff","5163","AMD Ryzen 7 7800X3D 8-Core Processor","NVIDIA GeForce RTX 4080","CUDA","models/Qwen2.5-7B-Instruct-Q4_K_M.gguf","qwen2 7B Q4_K - Medium","4677120000","7615616512","2048","512","8","0x0","0","50","f16","f16","99","layer","0","0","0","0.00","1","0","0","128","0","2025-04-24T11:57:10Z","1067431600","3834831","119.915244","0.430617"
"""
LLAMA_MARKDOWN = """
| model                          |       size |     params | backend    | ngl |          test |                  t/s |
| ------------------------------ | ---------: | ---------: | ---------- | --: | ------------: | -------------------: |
| qwen2 7B Q4_K - Medium         |   4.36 GiB |     7.62 B | CUDA       |  99 |         pp512 |      7340.20 ± 23.45 |
| qwen2 7B Q4_K - Medium         |   4.36 GiB |     7.62 B | CUDA       |  99 |         tg128 |        120.60 ± 0.59 |
| qwen2 7B Q4_K - Medium         |   4.36 GiB |     7.62 B | CUDA       |  99 |  pp512 @ d512 |      6425.91 ± 18.88 |
| qwen2 7B Q4_K - Medium         |   4.36 GiB |     7.62 B | CUDA       |  99 |   pp512+tg128 |        512.00 ± 1.00 |
| qwen2 7B Q4_K - Medium         |   4.36 GiB |     7.62 B | CUDA       |  99 | tg 128 @ d512 |               116.71 |

build: 8cf427ff (5163)
"""


def test_llama_bench_in_each_of_its_forms(read) -> None:
    prompt, generation = read(LLAMA_CSV, "bench.csv")
    assert prompt.model == "models/Qwen2.5-7B-Instruct-Q4_K_M.gguf"
    assert prompt.engine == "llama.cpp"
    assert prompt.engine_version == "5163"
    assert (prompt.isl, prompt.osl, prompt.context, prompt.concurrency) == (512, 0, 0, 1)
    assert prompt.metrics == {"prefill_throughput": 7285.676949, "std_prefill_throughput": 100.064434}
    assert generation.metrics["decode_throughput"] == 119.915244
    assert generation.metrics["mean_tpot_ms"] == pytest.approx(1067431600 / 128 / 1e6, rel=1e-4)
    assert generation.settings["n_gpu_layers"] == "99"
    rows = [
        {
            "build_number": 5163,
            "model_filename": "m.gguf",
            "n_prompt": 512,
            "n_gen": 0,
            "avg_ts": 7285.7,
            "stddev_ts": 1.0,
        },
        {
            "build_number": 5163,
            "model_filename": "m.gguf",
            "n_prompt": 0,
            "n_gen": 128,
            "n_depth": 4096,
            "avg_ts": 119.9,
        },
    ]
    for text in (json.dumps(rows), "\n".join(map(json.dumps, rows))):
        first, second = read(text)
        assert first.metrics["prefill_throughput"] == 7285.7
        assert (second.context, second.metrics["decode_throughput"]) == (4096, 119.9)


def test_llama_benchs_table(read) -> None:
    runs = read(LLAMA_MARKDOWN, "bench.md")
    assert [(run.isl, run.osl, run.context) for run in runs] == [
        (512, 0, 0), (0, 128, 0), (512, 0, 512), (512, 128, 0), (0, 128, 512),
    ]  # fmt: skip
    assert runs[1].metrics["decode_throughput"] == 120.60
    assert runs[1].metrics["std_decode_throughput"] == 0.59
    assert runs[3].metrics == {"total_token_throughput": 512.0, "std_total_token_throughput": 1.0}
    assert runs[0].settings["ngl"] == "99"
    assert runs[2].where.endswith("bench.md:6")


# tensorrt_llm/bench/dataclasses/reporting.py; figures of a public run of Llama-3.2-3B
TRTLLM_PRINTED = """
===========================================================
= PYTORCH BACKEND
===========================================================
Model:                  meta-llama/Llama-3.2-3B-Instruct
Model Path:             None
TensorRT-LLM Version:   1.1.0rc2
Dtype:                  bfloat16
KV Cache Dtype:         None
Quantization:           None

= REQUEST DETAILS
Number of requests:             16
Number of concurrent requests:  7.9940
Average Input Length (tokens):  13.0000
Average Output Length (tokens): 256.0000
= WORLD + RUNTIME INFORMATION
TP Size:                1
PP Size:                1
EP Size:                None
Max Runtime Batch Size: 2816
Max Runtime Tokens:     3072
Scheduling Policy:      GUARANTEED_NO_EVICT
KV Memory Percentage:   90.00%
Issue Rate (req/sec):   1.0535E+17

= PERFORMANCE OVERVIEW
Request Throughput (req/sec):                     4.7501
Total Output Throughput (tokens/sec):             1216.0159
Total Token Throughput (tokens/sec):              1277.7668
Total Latency (ms):                               3368.3769
Average request latency (ms):                     1682.9355
Per User Output Throughput [w/ ctx] (tps/user):   152.1153
Per GPU Output Throughput (tps/gpu):              1216.0159
Average time-to-first-token [TTFT] (ms):          25.5000
Average time-per-output-token [TPOT] (ms):        6.5000

-- Request Latency Breakdown (ms) -----------------------

[Latency] P50    : 1683.3179
[Latency] P99    : 1683.9602
[Latency] MINIMUM: 1678.1686
[TTFT] P90    : 30.1250
"""


def test_what_trtllm_bench_prints(read) -> None:
    first, second = read(TRTLLM_PRINTED + TRTLLM_PRINTED.replace("4.7501", "9.5"), "out.txt")
    assert first.model == "meta-llama/Llama-3.2-3B-Instruct"
    assert first.engine_version == "1.1.0rc2"
    assert (first.isl, first.osl, first.concurrency, first.requests) == (13, 256, 7.994, 16)
    assert first.metrics["request_throughput"] == 4.7501
    assert second.metrics["request_throughput"] == 9.5
    assert first.metrics["output_throughput"] == pytest.approx(16 * 256 / 3.3683769)
    assert first.metrics["mean_tpot_ms"] == 6.5
    assert first.metrics["median_e2el_ms"] == 1683.3179
    assert first.metrics["min_e2el_ms"] == 1678.1686
    assert first.metrics["p90_ttft_ms"] == 30.125
    assert first.settings["tensor_parallel_size"] == "1"
    assert "quantization" not in first.settings


def test_trtllm_benchs_report(read) -> None:
    (run,) = read(
        {
            "engine": {"model": "nvidia/Llama-3.1-8B-Instruct-FP8", "version": "1.2.0", "backend": "Pytorch",
                       "dtype": "bfloat16", "kv_cache_dtype": "FP8", "quantization": "FP8"},
            "world_info": {"tp_size": 2, "pp_size": 1, "ep_size": None, "world_size": 2, "max_batch_size": 2048},
            "request_info": {"num_requests": 100, "avg_num_concurrent_requests": 31.5, "avg_input_length": 1024,
                             "avg_output_length": 128},
            "performance": {"total_latency_ms": 5000.0, "avg_request_latency_ms": 1500.0,
                            "request_throughput_req_s": 20.0, "system_output_throughput_tok_s": 2560.0,
                            "system_total_throughput_tok_s": 23040.0, "output_throughput_per_gpu_tok_s": 1280.0,
                            "request_latency_percentiles_ms": {"p50": 1400.0, "p99": 1900.0, "average": 1500.0}},
            "streaming_metrics": {"avg_ttft_ms": 90.0, "avg_tpot_ms": 11.0, "token_output_speed_tok_s": 90.0,
                                  "ttft_percentiles": {"p50": 88.0, "minimum": 50.0, "maximum": 200.0},
                                  "tpot_percentiles": {"p99": 15.0}},
            "dataset": {"isl": 1024},
        },
        "report.json",
    )  # fmt: skip
    assert run.engine == "trtllm"
    assert run.metrics["request_throughput"] * run.osl == run.metrics["output_throughput"]
    assert run.metrics["mean_ttft_ms"] == 90.0
    assert run.metrics["median_ttft_ms"] == 88.0
    assert run.metrics["max_ttft_ms"] == 200.0
    assert run.metrics["p99_tpot_ms"] == 15.0
    assert run.metrics["median_e2el_ms"] == 1400.0
    assert run.settings == {
        "tensor_parallel_size": 2, "pipeline_parallel_size": 1, "max_num_seqs": 2048, "dtype": "bfloat16",
        "kv_cache_dtype": "FP8", "quantization": "FP8",
    }  # fmt: skip


def test_gpt_manager_benchmark(read) -> None:
    # benchmarks/cpp/gptManagerBenchmark.cpp; a public run of Llama-2-7B
    (run,) = read(
        """
[BENCHMARK] num_samples 500
[BENCHMARK] num_error_samples 0

[BENCHMARK] num_samples 500
[BENCHMARK] total_latency(ms) 52372.21
[BENCHMARK] seq_throughput(seq/sec) 9.55
[BENCHMARK] token_throughput(token/sec) 2870.80

[BENCHMARK] avg_sequence_latency(ms) 2755.07
[BENCHMARK] p99_sequence_latency(ms) 3108.04
[BENCHMARK] p50_sequence_latency(ms) 2747.11
""",
        "out.txt",
    )
    assert run.tool == "gptManagerBenchmark"
    assert run.requests == 500
    assert run.metrics == {
        "request_throughput": 9.55, "output_throughput": 2870.80, "mean_e2el_ms": 2755.07, "p99_e2el_ms": 3108.04,
        "median_e2el_ms": 2747.11,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("content", "name", "message", "where"),
    [
        ("", "a.json", "no result", "a.json"),
        ("{", "a.json", "not JSON", "a.json:1:2"),
        ('{"a": 1}\n{"b": }', "a.json", "not JSON", "a.json:2:7"),
        ('{"request_throughput": 1, "completed": 1}\n{"b": }', "a.json", "not JSON", "a.json:2:7"),
        ("[" * 100_000, "a.json", "nested|not JSON", "a.json:1"),
        ('{"a": 1, "a": 2}', "a.json", "twice", "a.json:1"),
        ({"hello": "world"}, "a.json", "no result of a known tool", "a.json:1"),
        ([[1], [2]], "a.json", "expected an object", "a.json:1: [0]"),
        ([1, 2], "a.json", "no result", "a.json"),
        (vllm(mean_ttft_ms=-1), "a.json", "not negative", "mean_ttft_ms"),
        (vllm(mean_ttft_ms="12"), "a.json", "expected a number", "mean_ttft_ms"),
        (vllm(mean_ttft_ms=True), "a.json", "expected a number", "mean_ttft_ms"),
        ({**AIPERF, "request_latency": {"unit": ["ms"], "avg": 1}}, "a.json", "no unit of time", "request_latency.unit"),
        (vllm(mean_tpot_ms=float("nan")), "a.json", "finite", "mean_tpot_ms"),
        (vllm(request_throughput=float("inf")), "a.json", "finite", "request_throughput"),
        (vllm(completed=0), "a.json", "no request", "completed"),
        (vllm(completed=1.5), "a.json", "whole", "completed"),
        (vllm(duration=10**400), "a.json", "finite", "duration"),
        (vllm(model_id=["x"]), "a.json", "expected a text", "model_id"),
        ({**AIPERF, "time_to_first_token": {"unit": "h", "avg": 1}}, "a.json", "no unit of time", "time_to_first_token.unit"),
        ({**AIPERF, "request_latency": {"unit": "ms", "avg": "x"}}, "a.json", "expected a number", "request_latency.avg"),
        ({"benchmarks": []}, "a.json", "no benchmark", "benchmarks"),
        ({"benchmarks": [{"metrics": {}}]}, "a.json", "no figure", "benchmarks[0]"),
        ({"benchmarks": [3]}, "a.json", "expected an object", "benchmarks[0]"),
        ({"load_summary": {}, "successes": {}}, "a.json", "no figure", "a.json"),
        ({"n_prompt": 0, "n_gen": 0, "avg_ts": 3}, "a.json", "tokens to process", "a.json"),
        ({"n_prompt": 1, "n_gen": 0, "avg_ts": 0}, "a.json", "no rate", "a.json"),
        (LLAMA_CSV.replace('"7285.676949"', '"fast"'), "b.csv", "expected a number", "b.csv:2: avg_ts"),
        (LLAMA_CSV.replace(',"100.064434"', ""), "b.csv", "32 cells", "b.csv:2"),
        (LLAMA_MARKDOWN.replace("pp512 |", "xx512 |"), "b.md", "expected a test", "b.md:4"),
        (LLAMA_MARKDOWN.replace("120.60 ± 0.59", "quick"), "b.md", "expected a rate", "b.md:5"),
        (LLAMA_MARKDOWN.replace("|  99 |         tg128", "|         tg128"), "b.md", "6 cells", "b.md:5"),
        (PRINTED.replace("70.14", "7O.14"), "c.txt", "expected a number", "c.txt:19"),
        (PRINTED.replace("Request throughput (req/s):              0.21\n", ""), "c.txt", "no request throughput", "c.txt:6"),
        (TRTLLM_PRINTED.replace("4.7501", "4,7501"), "d.txt", "expected a number", "d.txt:28"),
        ("nothing to see\n", "e.txt", "no result", "e.txt"),
        ("\x00\x01", "e.bin", "NUL", "e.bin:1"),
    ],
)  # fmt: skip
def test_malformed_files_are_named_with_their_place(read, content: Any, name: str, message: str, where: str) -> None:
    with pytest.raises(InvalidFileError, match=message) as caught:
        read(content, name)
    assert where in caught.value.where


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        read_bench_results(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("avg", "mean"),
        ("p50", "median"),
        ("p01", "p1"),
        ("p001", "p0.1"),
        ("p999", "p99.9"),
        ("p99.9", "p99.9"),
        ("p5", "p5"),
    ],
)
def test_statistics_have_one_name(given: str, name: str) -> None:
    assert statistic_name(given) == name
