"""vLLM's start-up log, of the V0 engine (to 0.7) and the V1 engine.

"GB" is 2^30 here as well: the engine divides by 2^30 and wrote GB until 0.8. Sizes are printed with two digits, the
weights with four in some versions; newer versions drop closing zeros (``30.9 GiB`` is 30.90).

Source: vllm/worker/worker.py, vllm/executor/executor_base.py (V0); vllm/v1/worker/gpu_worker.py,
vllm/v1/core/kv_cache_utils.py, vllm/v1/worker/gpu_model_runner.py (V1); logs in the project's issues, 2024 to 2026.
"""

from __future__ import annotations

import re

from capplan.measured.log_engine import LogEngine, line
from capplan.measured.log_settings import LogSetting, command_settings, known_settings, outermost_pairs

_NAMES = {
    "model": "model",
    "model_tag": "model",
    "dtype": "dtype",
    "quantization": "quantization",
    "max_seq_len": "max_model_len",
    "max_model_len": "max_model_len",
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "tensor_parallel_size": "tensor_parallel_size",
    "tp": "tensor_parallel_size",
    "pipeline_parallel_size": "pipeline_parallel_size",
    "pp": "pipeline_parallel_size",
    "data_parallel_size": "data_parallel_size",
    "dp": "data_parallel_size",
    "enable_expert_parallel": "enable_expert_parallel",
    "decode_context_parallel_size": "decode_context_parallel_size",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "kv_cache_dtype": "kv_cache_dtype",
    "kv_cache_memory_bytes": "kv_cache_memory_bytes",
    "block_size": "block_size",
    "enable_prefix_caching": "enable_prefix_caching",
    "mamba_cache_mode": "prefix_caching_mode",
    "enforce_eager": "enforce_eager",
    "num_gpu_blocks_override": "num_gpu_blocks_override",
    "disable_hybrid_kv_cache_manager": "disable_hybrid_kv_cache_manager",
    "enable_lora": "enable_lora",
    "max_loras": "max_loras",
    "max_lora_rank": "max_lora_rank",
    "chunked_prefill_enabled": "enable_chunked_prefill",
    "enable_chunked_prefill": "enable_chunked_prefill",
}

_COMMAND = re.compile(r"(?:vllm serve|vllm\.entrypoints\.[\w.]{1,60}|vllm bench \w{1,20})\s")

_FILES = re.compile(
    r"\b(?:(kv_cache_utils|gpu_worker|gpu_model_runner)|(?<!_)worker|(?:distributed_)?gpu_executor|executor_base)\.py:"
)


def _settings(text: str, number: int) -> list[LogSetting]:
    for needle in (") with config:", "engine with config:", "non-default args:", "args: Namespace("):
        position = text.find(needle)
        if position >= 0:
            rest = text[position + len(needle) :].lstrip(" {")
            pairs = list(outermost_pairs(rest))
            return known_settings(pairs, _NAMES, number) + _drafting(pairs, number)
    command = _COMMAND.search(text)
    if command is None:
        return _generation(text, number)
    rest = text[command.end() :]
    found = command_settings(rest, _NAMES, number)
    model = rest.split(maxsplit=1)[0] if rest.split() else "-"
    if "vllm serve" in command[0] and not model.startswith("-"):
        found.insert(0, LogSetting("model", model.strip("'\"`"), number, f"vllm serve {model[:200]}"))
    return found


def _drafting(pairs: list[tuple[str, str]], number: int) -> list[LogSetting]:
    """Speculative decoding, which is told as a table: that there is some, and the tokens of a step."""
    raw = next((raw for key, raw in pairs if key == "speculative_config" and raw not in ("None", "''")), None)
    if raw is None:
        return []
    shown = f"speculative_config={raw[:200]}"
    found = [LogSetting("speculative_config", raw[:200], number, shown)]
    tokens = re.search(r"num_spec(?:ulative)?_tokens['\"]?\s{0,4}[:=]\s{0,4}(\d{1,4})", raw[:4000])
    return found + ([LogSetting("num_speculative_tokens", int(tokens[1]), number, shown)] if tokens else [])


def _generation(text: str, number: int) -> list[LogSetting]:
    """V0 or V1 by the engine's source file that prints the line."""
    file = _FILES.search(text)
    if file is None:
        return []
    return [LogSetting("generation", "V1" if file[1] else "V0", number, file[0])]


VLLM = LogEngine(
    name="vllm",
    title="vLLM",
    lines=(
        line("vLLM API server version <version:word>", "last"),
        line("LLM engine (v<version:word>) with config", "last"),
        line("█ version <version:word>", "last"),
        line("vLLM Version : <version:word>", "last"),
        line("Initializing a <generation:word> LLM engine", "last"),
        line("Using max model len <max_model_len:count>", "last"),
        line("Chunked prefill is enabled with max_num_batched_tokens=<max_num_batched_tokens:count>", "last"),
        line("Auto-fit max_model_len: reduced from <asked_model_len:count> to <max_model_len:count>", "last"),
        line("Setting attention block size to <attention_block_size:tokens> tokens", "last"),
        line("Padding mamba page size by <state_page_padding_percent:ratio>%", "last"),
        line("Add <padding_layers:count> padding layers", "last"),
        line("Overriding num_gpu_blocks=... with num_gpu_blocks_override=<num_gpu_blocks_override:count>", "last"),
        line("Loading model weights took <weight_bytes:GiB> GB", "ranks"),
        line("Loading model weights took <weight_bytes:GiB> GiB", "ranks"),
        line("Model loading took <weight_bytes:GiB> GiB", "ranks"),
        line("Model loading took <weight_bytes:GiB> GB", "ranks"),
        line("model weights take <weight_bytes:GiB>GiB"),
        line("weights memory: <weight_bytes:GiB>GiB"),
        line("GiB for weight, <activation_bytes:GiB> GiB for peak activation, <non_torch_bytes:GiB> GiB for non-torch"),
        line("Actual usage is <weight_bytes:GiB> GiB for weight"),
        line("Actual usage is <weight_and_non_torch_bytes:GiB> GiB for consumed memory (weights + non-torch),"
             " <activation_bytes:GiB> GiB for peak activation"),
        line("total_gpu_memory (<device_memory_bytes:GiB>GiB) x gpu_memory_utilization (<utilization:share>)"
             " = <budget_bytes:GiB>GiB"),
        line("non_torch_memory takes <non_torch_bytes:GiB>GiB; PyTorch activation peak memory takes"
             " <activation_bytes:GiB>GiB"),
        line("the rest of the memory reserved for KV Cache is <kv_pool_bytes:GiB>GiB"),
        line("total_gpu_memory <device_memory_bytes:GiB>GiB"),
        line("the current vLLM instance can use <budget_bytes:GiB>GiB"),
        line("non_torch_memory <non_torch_bytes:GiB>GiB"),
        line("PyTorch activation peak memory <activation_bytes:GiB>GiB"),
        line("available_kv_cache_memory <kv_pool_bytes:GiB>GiB"),
        line("total_gpu_memory=<device_memory_bytes:GiB>GiB"),
        line("non_torch_memory=<non_torch_bytes:GiB>GiB"),
        line("kv_cache_size=<kv_pool_bytes:GiB>GiB, gpu_memory_utilization=<utilization:share>"),
        line("torch peak memory increase: <activation_bytes:GiB>GiB"),
        line("non-torch forward increase memory: <non_torch_bytes:GiB>GiB"),
        line("Free memory on device ... (<free_memory_bytes:GiB>/<device_memory_bytes:GiB> GiB) on startup"),
        line("GPU memory utilization ... (<utilization:share>, <budget_bytes:GiB> GiB)"),
        line("Initial free memory <free_memory_bytes:GiB> GiB, reserved <kv_pool_bytes:GiB> GiB memory for KV Cache"),
        line("Available KV cache memory: <kv_pool_bytes:GiB> GiB"),
        line("Estimated CUDA graph memory: <graph_estimate_bytes:GiB> GiB"),
        line("Graph capturing finished in ... took <graph_bytes:GiB> GiB", "each"),
        line("# cuda blocks: <kv_blocks:blocks>", "ranks"),
        line("# rocm blocks: <kv_blocks:blocks>", "ranks"),
        line("# xpu blocks: <kv_blocks:blocks>", "ranks"),
        line("# hpu blocks: <kv_blocks:blocks>", "ranks"),
        line("# GPU blocks: <kv_blocks:blocks>", "ranks"),
        line("GPU KV cache size: <kv_tokens:tokens> tokens", "ranks"),
        line("Maximum concurrency for <concurrency_length:tokens> tokens per request: <max_concurrency:times>x",
             "ranks"),
        line("max seq len (<refused_length:tokens>), (<needed_bytes:GiB> GiB KV cache is needed"),
        line("max seq len (<refused_length:tokens>), <needed_bytes:GiB> GiB KV cache is needed"),
        line("the available KV cache memory (<available_bytes:GiB> GiB)"),
        line("stimated maximum model length is <estimated_max_model_len:tokens>"),
        line("max seq len (<refused_length:tokens>) is larger than the maximum number of tokens that can be stored in"
             " KV cache (<kv_tokens:tokens>)"),
        line("max_num_seqs (<refused_seqs:slots>) exceeds available Mamba cache blocks (<state_blocks:blocks>)"),
    ),
    tells=(") with config:", "engine with config:", "non-default args:", "args: Namespace(", "vllm serve",
           "vllm.entrypoints.", "vllm bench", "kv_cache_utils.py:", "gpu_worker.py:", "gpu_model_runner.py:",
           " worker.py:", "[worker.py:", "gpu_executor.py:", "executor_base.py:"),
    settings=_settings,
    starts=("vLLM API server version", "LLM engine (v", "LLM engine with config", "non-default args: {"),
    speaker=re.compile(r"\(([A-Za-z][\w ]{0,60}?(?:pid|rank)=[^)\n]{1,80})\)"),
    refusals=(
        "KV cache is needed, which is larger than the available KV cache memory",
        "is larger than the maximum number of tokens that can be stored in",
        "No available memory for the cache blocks",
        "is less than desired GPU memory utilization",
        "exceeds available Mamba cache blocks",
    ),
)  # fmt: skip
"""The lines of vLLM."""
