"""What ``fit`` is asked, and what cannot be asked."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from capplan.describe.model import ModelSpec
from capplan.errors import UsageError

OFFLOADS = ("weights", "layers", "experts")


@dataclass(frozen=True, kw_only=True)
class FitRequest:
    """What ``fit`` is asked, under vLLM's names; None leaves a choice to the engine.

    Args:
        available_kv_bytes: bytes that the engine said are left for caches, one figure or one a pipeline stage.
        kv_cache_memory_bytes: bytes for caches that the engine is told.
        gpu_memory: the device's memory instead of the catalog's.
        concurrency: requests that `longest_model_len` shall leave room for, and of a usual step.
        cpu_offload_bytes: bytes of weights a rank in host memory.
        gpu_layers: llama.cpp's layers on devices.
        ctx_size: llama.cpp's context of all slots together.
        slots: llama.cpp's slots (``--parallel``).
        state_slots: SGLang's slots for states.
        towers: False: the model is served without its towers' inputs.
    """

    model: str | ModelSpec
    gpu: str | None = None
    gpu_memory: int | None = None
    memory_in_use: int = 0
    engine: str = "vllm"
    engine_version: str | None = None
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    enable_expert_parallel: bool = False
    decode_context_parallel_size: int = 1
    stage_layers: tuple[int, ...] = ()
    weight_dtype: str | None = None
    kv_cache_dtype: str = "auto"
    kv_cache_dtype_v: str | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    block_size: int | None = None
    enable_prefix_caching: bool | None = None
    prefix_caching_mode: str | None = None
    disable_hybrid_kv_cache_manager: bool = False
    enforce_eager: bool = False
    enable_chunked_prefill: bool | None = None
    num_speculative_tokens: int = 0
    draft_model: str | ModelSpec | None = None
    medusa_heads: int = 0
    max_loras: int = 0
    lora_rank: int = 16
    towers: bool = True
    source_seq: int | None = None
    state_dtype: str | None = None
    state_slots: int | None = None
    available_kv_bytes: int | tuple[int, ...] | None = None
    kv_cache_memory_bytes: int | None = None
    weight_bytes: int | None = None
    activation_bytes: int | None = None
    non_torch_bytes: int | None = None
    cuda_graph_bytes: int | None = None
    offload: str | None = None
    cpu_offload_bytes: int | None = None
    gpu_layers: int | None = None
    host_memory: int | None = None
    ctx_size: int | None = None
    slots: int | None = None
    concurrency: int | None = None

    @classmethod
    def of(cls, **settings: Any) -> FitRequest:
        """A request from keyword arguments.

        Raises:
            TypeError: no such setting.
        """
        known = {entry.name for entry in fields(cls)}
        unknown = sorted(set(settings) - known)
        if unknown:
            raise TypeError(f"fit() has no setting {unknown[0]!r}")
        return cls(**settings)


def check_request(request: FitRequest) -> None:
    """Refuse sizes below one, fractions outside of (0, 1], and settings that contradict each other."""
    for name in _POSITIVE:
        value = getattr(request, name)
        if value is not None and value < 1:
            raise UsageError(f"must be at least 1, not {value}", where=_flag(name))
    for name in _NOT_NEGATIVE:
        value = getattr(request, name)
        if value is not None and value < 0:
            raise UsageError(f"must not be negative, is {value}", where=_flag(name))
    fraction = request.gpu_memory_utilization
    if fraction is not None and not 0 < fraction <= 1:
        raise UsageError(f"must be above 0 and at most 1, not {fraction:g}", where="--gpu-memory-utilization")
    if request.offload is not None and request.offload not in OFFLOADS:
        raise UsageError(
            f"{request.offload[:40]!r} cannot be offloaded; valid are {', '.join(OFFLOADS)}", where="--offload"
        )
    if request.available_kv_bytes is not None and request.kv_cache_memory_bytes is not None:
        raise UsageError("give either, not both", where="--available-kv-bytes, --kv-cache-memory-bytes")
    if request.gpu is None and request.gpu_memory is None and request.available_kv_bytes is None:
        raise UsageError(
            "which device?", where="--gpu", hint="give --gpu, --gpu-memory, or --available-kv-bytes for the pool alone"
        )


_POSITIVE = (
    "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "decode_context_parallel_size",
    "max_model_len", "max_num_seqs", "max_num_batched_tokens", "block_size", "lora_rank", "ctx_size", "slots",
    "concurrency", "gpu_memory",
)  # fmt: skip
_NOT_NEGATIVE = (
    "memory_in_use", "num_speculative_tokens", "medusa_heads", "max_loras", "source_seq", "state_slots",
    "kv_cache_memory_bytes", "weight_bytes", "activation_bytes", "non_torch_bytes", "cuda_graph_bytes",
    "cpu_offload_bytes", "gpu_layers", "host_memory",
)  # fmt: skip


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
