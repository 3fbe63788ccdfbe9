"""TensorRT-LLM's start-up log, of the TensorRT engine and of the PyTorch backend.

KB, MB and GB are powers of 1024. A run that profiles its memory allocates a small pool first and the real one after:
of the pool's lines the last one counts. Where layers have windows of several sizes, each has blocks of its own, and the
pool's tokens are those of all. Ranks mostly speak without saying so, and agree on the pool.

Source: cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp, cpp/tensorrt_llm/runtime/tllmRuntime.cpp,
tensorrt_llm/_torch/pyexecutor/_util.py; logs in the project's issues and example pages, 2023 to 2026.
"""

from __future__ import annotations

import re

from capplan.measured.log_engine import LogEngine, line
from capplan.measured.log_settings import LogSetting, command_settings, known_settings, outermost_pairs

_NAMES = {
    "tensor_parallel_size": "tensor_parallel_size",
    "tp_size": "tensor_parallel_size",
    "pipeline_parallel_size": "pipeline_parallel_size",
    "pp_size": "pipeline_parallel_size",
    "moe_expert_parallel_size": "expert_parallel_size",
    "ep_size": "expert_parallel_size",
    "max_batch_size": "max_num_seqs",
    "max_num_tokens": "max_num_batched_tokens",
    "max_seq_len": "max_model_len",
    "free_gpu_memory_fraction": "gpu_memory_utilization",
    "kv_cache_free_gpu_memory_fraction": "gpu_memory_utilization",
    "kv_cache_free_gpu_mem_fraction": "gpu_memory_utilization",
    "model": "model",
    "dtype": "dtype",
}


def _settings(text: str, number: int) -> list[LogSetting]:
    for needle in ("engine args: {", "LLM Args:", "TorchLlmArgs(", "TrtLlmArgs("):
        position = text.find(needle)
        if position >= 0:
            return known_settings(outermost_pairs(text[position + len(needle) :]), _NAMES, number)
    command = re.search(r"trtllm-(?:serve|bench)\s", text)
    if command is None:
        return []
    rest = text[command.end() :]
    found = command_settings(rest, _NAMES, number)
    words = [word for word in rest.split()[:2] if word != "serve"]
    if "serve" in command[0] and words and not words[0].startswith("-"):
        found.insert(0, LogSetting("model", words[0].strip("'\"`"), number, f"trtllm-serve {words[0][:200]}"))
    return found


TRTLLM = LogEngine(
    name="trtllm",
    title="TensorRT-LLM",
    lines=(
        line("TensorRT-LLM version: <version:word>", "last"),
        line("Engine version <version:word> found in the config file", "last"),
        line("MPI size: <world_size:count>", "last"),
        line("Rank <rank:count> uses <weight_bytes:GiB> GB for model weights"),
        line("Loaded engine size: <weight_bytes:MiB> MiB", "last"),
        line("TRTGptModel maxNumSequences: <max_num_seqs:count>", "last"),
        line("TRTGptModel maxSequenceLen: <max_model_len:count>", "last"),
        line("TRTGptModel maxNumTokens: <max_num_batched_tokens:count>", "last"),
        line("TRTGptModel maxBeamWidth: <beam_width:count>", "last"),
        line("max_seq_len=<max_model_len:count>, max_num_requests=<max_num_seqs:count>,"
             " max_num_tokens=<max_num_batched_tokens:count>", "last"),
        line("Allocated <activation_bytes:size> for execution context memory", "last"),
        line("Allocated <runtime_buffers_bytes:size> GPU memory for runtime buffers", "last"),
        line("Allocated <decoder_bytes:size> GPU memory for decoder", "last"),
        line("max tokens in paged kv cache: total: <device_memory_bytes:GiB> GiB,"
             " available: <free_after_load_bytes:GiB> GiB", "last"),
        line("Number of blocks in KV cache primary pool: <kv_blocks:blocks>", "last"),
        line("[window size=<rank:count>], tokens per block=<block_size:count>, primary blocks=<window_blocks:blocks>",
             "each"),
        line("Max KV cache blocks per sequence: <blocks_per_sequence:count> [window size=<window:count>]", "last"),
        line("secondary blocks=... max sequence length=<max_model_len:count>", "last"),
        line("Number of tokens per block: <block_size:count>", "last"),
        line("Allocated <kv_pool_bytes:size> for max tokens in paged KV cache (<kv_tokens:tokens>)", "last"),
        line("Allocate <kv_pool_bytes:bytes> bytes for k/v cache", "last"),
        line("Using <kv_tokens:tokens> tokens in paged KV cache", "last"),
        line("Using <kv_tokens:tokens> total tokens in paged KV cache", "last"),
        line("Peak memory during memory usage profiling (torch + non-torch): <peak_bytes:GiB> GiB, available KV cache"
             " memory when calculating max tokens: <available_bytes:GiB> GiB", "last"),
        line("when calculating max tokens: ... fraction is set <utilization:share>", "last"),
        line("when calculating max tokens: ... kv size is <token_bytes:bytes>", "last"),
        line("when calculating max tokens: ... kv size per token is <token_bytes:bytes>", "last"),
        line("when calculating max tokens: ... device total memory <device_memory_bytes:GiB> GiB", "last"),
        line("Memory used after loading model weights (inside torch) in memory usage profiling:"
             " <weight_bytes:GiB> GiB", "last"),
        line("Estimated max memory in KV cache : <kv_pool_estimate_bytes:GiB> GiB", "last"),
    ),
    tells=("engine args: {", "LLM Args:", "LlmArgs(", "trtllm-serve", "trtllm-bench"),
    settings=_settings,
    starts=("TensorRT-LLM version:",),
    speaker=re.compile(r"\[RANK (\d{1,4})\]", re.IGNORECASE),
    refusals=("must be large enough to process at least 1 sequence to completion",),
)  # fmt: skip
"""The lines of TensorRT-LLM."""
