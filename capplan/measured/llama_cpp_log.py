"""llama.cpp's start-up log, also as ollama, LM Studio and others pass it on.

A cache is printed for each kind of layer (all positions, a sliding window), a state for recurrent layers, and buffers
for each device. Sizes are in MiB.

Source: src/llama-kv-cache.cpp, src/llama-kv-cache-iswa.cpp, src/llama-memory-recurrent.cpp, src/llama-context.cpp,
src/llama-model.cpp; logs in the project's issues, 2023 to 2026.
"""

from __future__ import annotations

import re

from capplan.measured.log_engine import LogEngine, line
from capplan.measured.log_settings import LogSetting, command_settings

_NAMES = {
    "model": "model",
    "m": "model",
    "ctx_size": "max_model_len",
    "c": "max_model_len",
    "parallel": "max_num_seqs",
    "np": "max_num_seqs",
    "n_gpu_layers": "n_gpu_layers",
    "gpu_layers": "n_gpu_layers",
    "ngl": "n_gpu_layers",
    "cache_type_k": "cache_type_k",
    "ctk": "cache_type_k",
    "cache_type_v": "cache_type_v",
    "ctv": "cache_type_v",
    "batch_size": "max_num_batched_tokens",
    "b": "max_num_batched_tokens",
    "ubatch_size": "n_ubatch",
    "ub": "n_ubatch",
    "swa_full": "swa_full",
}

_PROGRAM = re.compile(r"\bllama-(?:server|cli|bench|completion)(?:\.exe)?\s")


def _settings(text: str, number: int) -> list[LogSetting]:
    command = _PROGRAM.search(text)
    return command_settings(text[command.end() :], _NAMES, number) if command else []


LLAMA_CPP = LogEngine(
    name="llama.cpp",
    title="llama.cpp",
    lines=(
        line("build: <version:word> (", "last"),
        line("build_info: <version:word>", "last"),
        line("meta data with ... tensors from <model:path> (version GGUF", "last"),
        line("general.name str = <general_name:rest>", "last"),
        line("print_info: general.name = <general_name:rest>", "last"),
        line("using device <rank:word> (<device_name:name>) ... - <free_memory_bytes:MiB> MiB free"),
        line("offloaded <n_gpu_layers:count>/<model_layers:count> layers to GPU", "last"),
        line(" <rank:word> model buffer size = <weight_bytes:MiB> MiB", "each"),
        line("load_tensors: <rank:word> buffer size = <weight_bytes:MiB> MiB", "each"),
        line(": n_seq_max = <max_num_seqs:count>", "last"),
        line(": n_ctx = <max_model_len:count>", "last"),
        line(": n_batch = <max_num_batched_tokens:count>", "last"),
        line(": n_ubatch = <n_ubatch:count>", "last"),
        line(": kv_unified = <kv_unified:word>", "last"),
        line(": flash_attn = <flash_attn:word>", "last"),
        line(" <rank:word> KV buffer size = <kv_buffer_bytes:MiB> MiB", "each"),
        line(": size = <kv_bytes:MiB> MiB (<cells:slots> cells, <layers:slots> layers"
             "...), K (<cache_type_k:word>): <k_bytes:MiB> MiB, V (<cache_type_v:word>): <v_bytes:MiB> MiB", "each"),
        line("KV self size = <kv_bytes:MiB> MiB, K (<cache_type_k:word>): <k_bytes:MiB> MiB,"
             " V (<cache_type_v:word>): <v_bytes:MiB> MiB", "each"),
        line("using full-size SWA cache <swa_full:word>", "last"),
        line(" <rank:word> RS buffer size = <state_buffer_bytes:MiB> MiB", "each"),
        line(": size = <state_bytes:MiB> MiB (<state_cells:slots> cells, <state_layers:slots> layers"
             "...), R (<conv_state_type:word>): <conv_state_bytes:MiB> MiB,"
             " S (<ssm_state_type:word>): <ssm_state_bytes:MiB> MiB", "each"),
        line(" <rank:word> compute buffer size = <compute_buffer_bytes:MiB> MiB", "last"),
        line(" <rank:word> output buffer size = <output_buffer_bytes:MiB> MiB", "last"),
        line("llama_kv_cache_init: kv_size = <cells:slots>, ... n_layer = <layers:slots>,", "each"),
    ),
    tells=("llama-server", "llama-cli", "llama-bench", "llama-completion"),
    settings=_settings,
    starts=("loaded meta data with",),
    speaker=re.compile(r"(?!)"),
    refusals=("failed to allocate buffer for kv cache", "unable to allocate backend buffer", "unable to load model"),
)  # fmt: skip
"""The lines of llama.cpp."""
