"""SGLang's start-up log.

"GB" is 2^30: the engine divides by 2^30. Every rank speaks for itself, with its place in the line's brackets
(``[2026-01-14 05:25:33 TP0]``). A second pool of one rank is another cache: the windowed layers' comes
first, then that of the full ones, then a draft model's.

Source: python/sglang/srt/model_executor/model_runner.py, python/sglang/srt/mem_cache/memory_pool.py,
python/sglang/srt/managers/scheduler.py; logs in the project's issues, 2024 to 2026.
"""

from __future__ import annotations

import re

from capplan.measured.log_engine import LogEngine, line
from capplan.measured.log_settings import LogSetting, command_settings, known_settings, outermost_pairs

_NAMES = {
    "model_path": "model",
    "model": "model",
    "dtype": "dtype",
    "quantization": "quantization",
    "context_length": "max_model_len",
    "tp_size": "tensor_parallel_size",
    "tp": "tensor_parallel_size",
    "tensor_parallel_size": "tensor_parallel_size",
    "pp_size": "pipeline_parallel_size",
    "pp": "pipeline_parallel_size",
    "dp_size": "data_parallel_size",
    "dp": "data_parallel_size",
    "ep_size": "expert_parallel_size",
    "ep": "expert_parallel_size",
    "enable_dp_attention": "enable_dp_attention",
    "mem_fraction_static": "gpu_memory_utilization",
    "kv_cache_dtype": "kv_cache_dtype",
    "page_size": "block_size",
    "max_running_requests": "max_num_seqs",
    "max_total_tokens": "max_total_tokens",
    "chunked_prefill_size": "max_num_batched_tokens",
    "disable_cuda_graph": "enforce_eager",
    "disable_radix_cache": "disable_radix_cache",
    "speculative_algorithm": "speculative_config",
    "speculative_num_draft_tokens": "num_speculative_tokens",
    "speculative_draft_model_path": "draft_model",
    "mamba_ssm_dtype": "state_dtype",
    "max_mamba_cache_size": "max_state_slots",
}


def _settings(text: str, number: int) -> list[LogSetting]:
    position = text.find("server_args=ServerArgs(")
    if position >= 0:
        return known_settings(outermost_pairs(text[position + len("server_args=ServerArgs(") :]), _NAMES, number)
    position = text.find("sglang.launch_server")
    return command_settings(text[position:], _NAMES, number) if position >= 0 else []


SGLANG = LogEngine(
    name="sglang",
    title="SGLang",
    lines=(
        line("Load weight end. ... avail mem=<free_after_weights_bytes:GiB> GB", "each"),
        line("Load weight end. ... mem usage=<weight_bytes:GiB> GB", "each"),
        line("Load weight begin. avail mem=<free_memory_bytes:GiB> GB", "each"),
        line("Memory profiling: available_gpu_memory=<free_memory_bytes:GiB> GB"),
        line("KV Cache is allocated. ... K size: <k_bytes:GiB> GB, V size: <v_bytes:GiB> GB", "each"),
        line("KV Cache is allocated. ... KV size: <kv_bytes:GiB> GB", "each"),
        line("KV Cache is allocated. ... #tokens: <pool_tokens:tokens>", "each"),
        line("KV Cache is allocated. dtype: torch.<pool_dtype:word>", "last"),
        line("liding window memory pool. full_layer_tokens=<full_tokens:tokens>,"
             " swa_layer_tokens=<windowed_tokens:tokens>", "ranks"),
        line("SWAKVPool mem usage: ... swa size: <windowed_tokens:tokens>, full size: <full_tokens:tokens>", "ranks"),
        line("SWAKVPool mem usage: <windowed_pools_bytes:GiB> GB", "each"),
        line("Mamba Cache is allocated. max_mamba_cache_size: <state_slots:slots>,"
             " conv_state size: <conv_state_bytes:GiB> GB, ssm_state size: <ssm_state_bytes:GiB> GB", "each"),
        line("Mamba Cache is allocated. ... intermediate_ssm_state_cache size: <draft_ssm_bytes:GiB> GB", "each"),
        line("Memory pool end. avail mem=<free_after_pool_bytes:GiB> GB", "each"),
        line("apture ... graph end. ... mem usage=<graph_bytes:GiB> GB", "each"),
        line("max_total_num_tokens=<kv_tokens:tokens>, ... context_len=<max_model_len:count>", "ranks"),
        line("max_total_num_tokens=<kv_tokens:tokens>", "ranks"),
        line("max_total_num_tokens= ... chunked_prefill_size=<max_num_batched_tokens:count>,", "last"),
        line("max_total_num_tokens= ... max_running_requests=<max_num_seqs:count>", "last"),
        line("max_total_num_tokens= ... available_gpu_mem=<free_when_ready_bytes:GiB> GB", "last"),
        line("SGLang version: <version:word>", "last"),
        line("sglang: <version:word>", "last"),
    ),
    tells=("server_args=ServerArgs(", "sglang.launch_server"),
    settings=_settings,
    starts=("server_args=ServerArgs(",),
    speaker=re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ((?:[A-Z]{2,3}\d{1,4} ?){1,6})\]|\[gpu(?:_id)?=(\d{1,3})\]"),
    refusals=("Not enough memory. Please try to increase --mem-fraction-static",),
)  # fmt: skip
"""The lines of SGLang."""
