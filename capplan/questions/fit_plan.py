"""From what a user asks of ``fit`` to a serving plan: every default chosen, every contradiction refused."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from capplan.describe.deployment import Parallel
from capplan.describe.engine import Engine, engine_rules
from capplan.describe.gpu import GpuSpec
from capplan.describe.gpu_catalog import load_gpu
from capplan.describe.model import Attention, CompressedAttention, LatentAttention, ModelSpec
from capplan.describe.model_plan import tensor_plan, weight_plan
from capplan.describe.quantisation import QuantisationPlan
from capplan.describe.resolve import resolve_model
from capplan.errors import UsageError
from capplan.memory.kv_format import KvFormat, kv_format
from capplan.memory.offload import Offload
from capplan.memory.serving_plan import (
    Device,
    Extras,
    Known,
    ServingPlan,
    WeightPlan,
    default_batched_tokens,
    default_block_size,
    default_state_mode,
    default_utilization,
    step_tier,
)
from capplan.questions.fit_request import FitRequest, check_request

FALLBACK_LENGTH = 4096
"""The longest request where neither the user nor the model's description says one."""


@dataclass(frozen=True)
class Resolved:
    """A request with everything looked up.

    Args:
        request: the request, its model and draft as descriptions.
        plan: the serving plan.
        gpu: the device's description; None where only its memory is given.
        inputs: the inputs as resolved, for the answer.
    """

    request: FitRequest
    plan: ServingPlan
    gpu: GpuSpec | None
    inputs: dict[str, Any]
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
    sources: tuple[str, ...]


def resolve_plan(
    request: FitRequest,
    *,
    models_dirs: tuple[Path, ...] = (),
    hardware_dirs: tuple[Path, ...] = (),
    ignore_keys: Collection[str] = (),
    online: bool = False,
) -> Resolved:
    """Look everything up and make every choice.

    Raises:
        CapplanError: something that does not exist, or a contradiction.
    """
    check_request(request)
    engine = engine_rules(request.engine, request.engine_version)
    sources = []
    weights: WeightPlan | None = None
    if isinstance(request.model, str):
        found = resolve_model(request.model, models_dirs=models_dirs, ignore_keys=ignore_keys, online=online)
        sources.append(found.source)
        weights = found.gguf if request.weight_dtype is None else None
        request = replace(request, model=found.spec)
    if isinstance(request.draft_model, str):
        draft = resolve_model(request.draft_model, models_dirs=models_dirs, ignore_keys=ignore_keys, online=online)
        sources.append(draft.source)
        request = replace(request, draft_model=draft.spec)
    gpu = load_gpu(request.gpu, hardware_dirs) if request.gpu is not None else None
    if gpu is not None:
        source = gpu.source_of(f"memory.{gpu.memory.engine_bytes_basis}")
        sources += [f"{gpu.name}: {source.source} ({source.date})"] if source else []
    return plan_request(request, engine, gpu, weights, tuple(sources))


def plan_request(
    request: FitRequest, engine: Engine, gpu: GpuSpec | None, weights: WeightPlan | None, sources: tuple[str, ...]
) -> Resolved:
    """The plan of a request whose model, draft and device are descriptions already.

    Args:
        request: the request.
        engine: the engine at its version.
        gpu: the device's description.
        weights: the weights of a file; None: as the checkpoint or the request says.
        sources: where the descriptions came from.
    """
    spec = request.model
    assert isinstance(spec, ModelSpec)
    assumptions: list[str] = [*spec.assumptions]
    device = _device(request, gpu)
    parallel = _parallel(request, spec, engine)
    length = _length(request, spec, assumptions)
    sequences = request.max_num_seqs or request.slots or step_tier(engine, device).max_num_seqs
    batched = request.max_num_batched_tokens or default_batched_tokens(
        engine, device, length, chunked=request.enable_chunked_prefill
    )
    stored = weights or weight_plan(spec, request.weight_dtype)
    kv = _kv(request, spec, stored, assumptions)
    mode = default_state_mode(engine, request.enable_prefix_caching, request.prefix_caching_mode)
    drafting = bool(request.num_speculative_tokens)
    utilization = (
        Fraction(str(request.gpu_memory_utilization))
        if request.gpu_memory_utilization is not None
        else default_utilization(engine, device, batched, parallel, drafting)
    )
    if any(isinstance(mixer, CompressedAttention) for block in spec.blocks.values() for mixer in block.mixer):
        assumptions.append("compressed attention: one page layout for all its caches; compressors' states are left out")
    plan = ServingPlan(
        spec=spec,
        engine=engine,
        device=device,
        parallel=parallel,
        weights=stored,
        kv=kv,
        utilization=utilization,
        max_model_len=length,
        max_num_seqs=sequences,
        max_num_batched_tokens=batched,
        block_size=request.block_size or default_block_size(spec, engine, device),
        hybrid=not request.disable_hybrid_kv_cache_manager,
        prefix_caching=request.enable_prefix_caching is not False and request.prefix_caching_mode != "none",
        state_mode=mode,
        eager=request.enforce_eager,
        draft_tokens=request.num_speculative_tokens,
        state_dtype=request.state_dtype,
        state_slots=request.state_slots,
        source_tokens=request.source_seq,
        known=_known(request),
        extras=_extras(request),
        offload=_offload(request, spec, engine),
        host_memory=request.host_memory,
        decoding=request.concurrency,
    )
    return Resolved(
        request,
        plan,
        gpu,
        _inputs(request, plan, gpu),
        tuple(assumptions),
        tuple(_warnings(request, plan, gpu)),
        sources,
    )


def _device(request: FitRequest, gpu: GpuSpec | None) -> Device:
    if request.gpu_memory is not None:
        architecture = gpu.architecture if gpu else "other"
        return Device(request.gpu_memory, "--gpu-memory", architecture, request.memory_in_use)
    if gpu is None:
        return Device(None, in_use=request.memory_in_use)
    return Device(gpu.engine_memory, gpu.memory.engine_bytes_basis, gpu.architecture, request.memory_in_use)


def _parallel(request: FitRequest, spec: ModelSpec, engine: Engine) -> Parallel:
    """The parallel sizes, where the model's heads allow them.

    Raises:
        UsageError: heads that don't divide, or sizes that contradict each other.
    """
    tp, dp = request.tensor_parallel_size, request.data_parallel_size
    heads = [
        mixer.heads
        for block in spec.blocks.values()
        for mixer in block.mixer
        if isinstance(mixer, (Attention, LatentAttention))
    ]
    for count in heads:
        if count % tp and engine.name in ("vllm", "sglang", "trtllm"):
            fitting = [size for size in range(1, count + 1) if count % size == 0 and size <= max(tp, 8)]
            raise UsageError(
                f"{count} attention heads cannot be divided over {tp} ranks",
                where="--tensor-parallel-size",
                hint=f"{', '.join(map(str, fitting))} divide them",
            )
    try:
        return Parallel(
            tp=tp,
            pp=request.pipeline_parallel_size,
            dp=dp,
            ep=tp * dp if request.enable_expert_parallel else 1,
            cp=request.decode_context_parallel_size,
            stage_layers=request.stage_layers,
        )
    except ValueError as error:
        raise UsageError(str(error), where="--tensor-parallel-size, --pipeline-parallel-size") from None


def _length(request: FitRequest, spec: ModelSpec, assumptions: list[str]) -> int:
    """The longest request: what is asked for, a slot's share of the context, or the model's own limit."""
    if request.max_model_len is not None:
        return request.max_model_len
    if request.ctx_size is not None:
        return max(1, request.ctx_size // (request.slots or 1))
    if spec.max_positions is not None:
        return spec.max_positions
    assumptions.append(f"--max-model-len {FALLBACK_LENGTH}: the model's description names no context length")
    return FALLBACK_LENGTH


def _kv(request: FitRequest, spec: ModelSpec, stored: WeightPlan, assumptions: list[str]) -> KvFormat:
    """The KV format; ``auto`` takes the one that a checkpoint's own configuration asks for."""
    name = request.kv_cache_dtype
    if name == "auto" and isinstance(stored, QuantisationPlan) and stored.kv_cache:
        assumptions.append(f"--kv-cache-dtype {stored.kv_cache}: the checkpoint asks for it")
        name = stored.kv_cache
    if name == "auto" and request.engine == "llama.cpp":
        name = "fp16"
    dtype = "bf16" if spec.dtype == "fp8" else spec.dtype
    return kv_format(name, dtype, value_name=request.kv_cache_dtype_v)


def _known(request: FitRequest) -> Known:
    pools: tuple[int, ...] = ()
    if request.kv_cache_memory_bytes is not None:
        pools = (request.kv_cache_memory_bytes,)
    elif request.available_kv_bytes is not None:
        given = request.available_kv_bytes
        pools = given if isinstance(given, tuple) else (given,)
    if len(pools) > 1 and len(pools) != request.pipeline_parallel_size:
        raise UsageError(
            f"{len(pools)} figures for {request.pipeline_parallel_size} pipeline stages",
            where="--available-kv-bytes",
            hint="give one figure, or one a stage",
        )
    if any(pool < 0 for pool in pools):
        raise UsageError("must not be negative", where="--available-kv-bytes")
    return Known(
        pools,
        request.kv_cache_memory_bytes is not None,
        request.weight_bytes,
        request.activation_bytes,
        request.non_torch_bytes,
        request.cuda_graph_bytes,
    )


def _extras(request: FitRequest) -> Extras:
    draft = request.draft_model
    assert draft is None or isinstance(draft, ModelSpec)
    return Extras(
        adapters=request.max_loras,
        adapter_rank=request.lora_rank,
        draft=draft,
        draft_plan=tensor_plan(draft, None) if draft is not None else None,
        medusa_heads=request.medusa_heads,
        towers=request.towers,
    )


def _offload(request: FitRequest, spec: ModelSpec, engine: Engine) -> Offload | None:
    """What goes to the host: as asked, or llama.cpp's token table, which is the host's in any case."""
    host_computes = engine.name == "llama.cpp"
    kind = request.offload
    if request.gpu_layers is not None or (kind == "layers" and request.gpu_layers is None):
        if request.gpu_layers is None:
            raise UsageError("how many layers stay on the device?", where="--offload", hint="give -ngl")
        return Offload("layers", device_layers=request.gpu_layers, host_computes=host_computes)
    if kind == "weights" or (kind is None and request.cpu_offload_bytes):
        if not request.cpu_offload_bytes:
            raise UsageError("how many bytes a rank?", where="--offload", hint="give --cpu-offload-bytes")
        return Offload("weights", bytes=request.cpu_offload_bytes)
    if kind == "experts":
        return Offload("experts", host_computes=host_computes)
    return Offload("layers", device_layers=spec.depth + 1, host_computes=True) if host_computes else None


def _inputs(request: FitRequest, plan: ServingPlan, gpu: GpuSpec | None) -> dict[str, Any]:
    """The inputs as resolved."""
    return {
        "model": plan.spec.name,
        "gpu": gpu.name if gpu else None,
        "device_bytes": plan.device.bytes,
        "memory_in_use": plan.device.in_use,
        "engine": plan.engine.name,
        "engine_version": plan.engine.version,
        "tensor_parallel_size": plan.parallel.tp,
        "pipeline_parallel_size": plan.parallel.pp,
        "data_parallel_size": plan.parallel.dp,
        "expert_parallel_size": plan.parallel.ep,
        "weight_dtype": request.weight_dtype or _stored_as(plan),
        "kv_cache_dtype": plan.kv.name,
        "max_model_len": plan.max_model_len,
        "max_num_seqs": plan.max_num_seqs,
        "max_num_batched_tokens": plan.max_num_batched_tokens,
        "gpu_memory_utilization": float(plan.utilization),
        "block_size": plan.block_size,
        "prefix_caching_mode": plan.state_mode,
        "hybrid_kv_cache_manager": plan.hybrid,
        "num_speculative_tokens": plan.draft_tokens,
        "offload": plan.offload.kind if plan.offload else None,
    }


def _stored_as(plan: ServingPlan) -> str:
    if isinstance(plan.weights, QuantisationPlan):
        return plan.weights.unquantised.name if plan.weights.method == "none" else plan.weights.method
    return "gguf"


def _warnings(request: FitRequest, plan: ServingPlan, gpu: GpuSpec | None) -> list[str]:
    """What may mislead about the device or the length."""
    notes = []
    positions = plan.spec.max_positions
    if positions and plan.max_model_len > positions:
        notes.append(f"the model was made for {positions} positions")
    if gpu is not None and request.gpu_memory is None and gpu.memory.engine_bytes_basis != "cuda_visible_mib":
        notes.append(
            f"what CUDA reports of {gpu.name} is not known: {gpu.memory.engine_bytes_basis} may be up to 2 % above it"
        )
    if gpu is not None and gpu.gpus_per_node and plan.parallel.gpus > gpu.gpus_per_node:
        notes.append(f"{plan.parallel.gpus} devices are more than one node has ({gpu.gpus_per_node})")
    return notes
