"""From what a start-up log says to what ``fit`` is asked: the same settings under vLLM's names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from capplan.errors import UsageError
from capplan.measured.engine_log import EngineLog, LogFigure

_DTYPES = {"float16": "fp16", "half": "fp16", "bfloat16": "bf16", "float32": "fp32", "float": "fp32"}

_COMMON = (
    "model",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "decode_context_parallel_size",
    "gpu_memory_utilization",
    "kv_cache_dtype",
    "kv_cache_memory_bytes",
    "block_size",
    "enable_prefix_caching",
    "prefix_caching_mode",
    "enforce_eager",
    "enable_chunked_prefill",
    "enable_expert_parallel",
    "disable_hybrid_kv_cache_manager",
    "max_loras",
    "num_speculative_tokens",
    "state_dtype",
)
"""Settings that are called the same in the log's reading and in `fit`."""

_ELSEWHERE: dict[str, dict[str, str]] = {
    "vllm": {"max_lora_rank": "lora_rank"},
    "sglang": {"max_state_slots": "state_slots"},
    "trtllm": {},
    "llama.cpp": {
        "max_model_len": "ctx_size",
        "max_num_seqs": "slots",
        "n_gpu_layers": "gpu_layers",
        "n_ubatch": "max_num_batched_tokens",
        "cache_type_k": "kv_cache_dtype",
        "cache_type_v": "kv_cache_dtype_v",
    },
}
"""Settings that one engine means differently."""


def log_settings(log: EngineLog) -> dict[str, Any]:
    """The settings of `fit` that the log tells."""
    names = {name: name for name in _COMMON} | _ELSEWHERE[log.engine]
    if log.engine == "llama.cpp":
        names.pop("max_num_batched_tokens")
    told: dict[str, Any] = {"engine": log.engine}
    for name, field in names.items():
        value = log.setting(name)
        if value is not None:
            told[field] = _CLEAN.get(field, _as_it_is)(value)
    told |= _from_figures(log, told)
    version = log.version or log.setting("generation")
    if version is not None:
        told["engine_version"] = version
    return _for_engine(log, told)


def _from_figures(log: EngineLog, told: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that only a figure tells: the share of memory, the length of the longest request, SGLang's slots."""
    found: dict[str, Any] = {}
    for name, field in (
        ("utilization", "gpu_memory_utilization"),
        ("concurrency_length", "max_model_len"),
        ("refused_length", "max_model_len"),
        ("state_slots", "state_slots"),
    ):
        figure = log.binding(name)
        if figure is not None and (field not in told or name == "concurrency_length"):
            value = figure.printed.value
            found[field] = float(value) if name == "utilization" else int(value)
    return found


def _for_engine(log: EngineLog, told: dict[str, Any]) -> dict[str, Any]:
    if log.setting("enable_lora") is not True:
        told.pop("max_loras", None)
    expert_ranks = log.setting("expert_parallel_size")
    if isinstance(expert_ranks, int) and expert_ranks > 1:
        told["enable_expert_parallel"] = True
    if log.engine == "llama.cpp" and str(log.setting("kv_unified")).lower() in ("true", "1"):
        told.pop("slots", None)
    if log.engine == "sglang" and log.setting("disable_radix_cache") is True:
        told["enable_prefix_caching"] = False
    if log.engine == "sglang" and told.get("max_num_batched_tokens", 1) < 1:
        told.pop("max_num_batched_tokens")
    return told


def check_ranks(log: EngineLog, settings: Mapping[str, Any]) -> None:
    """Refuse a log of several ranks that doesn't say how they divide the model.

    Raises:
        UsageError: the sizes must be given.
    """
    world = log.setting("world_size")
    sizes = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
    if isinstance(world, int) and world > 1 and not any(name in settings for name in sizes):
        raise UsageError(
            f"the log is of {world} ranks and doesn't say how they divide the model",
            where="--tensor-parallel-size, --pipeline-parallel-size",
            hint=f"-tp {world} when they divide every layer",
        )


def model_reference(name: str) -> str:
    """A model as a log names it; a folder of the Hugging Face cache is the id that it stands for.

    ``/root/.cache/huggingface/hub/models--Qwen--Qwen3-8B/snapshots/9c92...`` is ``Qwen/Qwen3-8B``.
    """
    cached = re.search(r"(?:^|/)models--([\w.-]{1,100}?)--([\w.-]{1,100})(?:/|$)", name)
    return f"{cached[1]}/{cached[2]}" if cached else name


def stage_pools(log: EngineLog, stages: int) -> tuple[tuple[Fraction, ...], tuple[Fraction, ...]] | None:
    """(least, most) bytes for caches on one rank of each pipeline stage, as exactly as they were printed.

    None where the log prints no pool; one figure for all stages where it doesn't say whose it is.
    """
    figures = log.all_of("kv_pool_bytes")
    if not figures:
        return None
    by_stage: dict[int, LogFigure] = {}
    for figure in figures:
        place = re.search(r"PP(\d{1,3})", figure.rank)
        if stages > 1 and place is not None:
            known = by_stage.get(int(place[1]))
            if known is None or figure.printed.value < known.printed.value:
                by_stage[int(place[1])] = figure
    if sorted(by_stage) == list(range(stages)):
        chosen = [by_stage[stage].printed for stage in range(stages)]
    else:
        binding = log.binding("kv_pool_bytes")
        assert binding is not None
        chosen = [binding.printed]
    return tuple(printed.low for printed in chosen), tuple(printed.high for printed in chosen)


def _as_it_is(value: Any) -> Any:
    return value


def _dtype(value: Any) -> Any:
    return _DTYPES.get(str(value), str(value))


_CLEAN: dict[str, Callable[[Any], Any]] = {
    "kv_cache_dtype": _dtype,
    "kv_cache_dtype_v": _dtype,
    "state_dtype": _dtype,
    "model": lambda value: model_reference(str(value)),
}
