"""What would make a plan fit: changes of one flag, nearest first, each tried by working the whole budget out again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from capplan.describe.engine import engine_rules
from capplan.errors import CapplanError
from capplan.memory.budget import MemoryBudget, memory_budget, utilization_for
from capplan.memory.pool import longest_context
from capplan.questions.fit_request import FitRequest

if TYPE_CHECKING:
    from capplan.questions.fit_plan import Resolved

MOST_REMEDIES = 6
_MOST_TENSOR_PARALLEL = 8
_PIPELINES = (2, 4, 8)
_STEPS = (8192, 4096, 2048, 1024)
_SEQUENCES = (256, 128, 64, 32, 16, 8, 4, 2, 1)
_HIGHEST_UTILIZATION = 0.98


@dataclass(frozen=True)
class Remedy:
    """One change that makes a plan fit.

    Args:
        flags: the flags to set instead.
        effect: what it costs or changes, in words.
        max_concurrency: requests of the longest length that then fit.
    """

    flags: str
    effect: str
    max_concurrency: float


_Change = tuple[str, str, dict[str, Any]]


def remedies(request: FitRequest, resolved: Resolved, budget: MemoryBudget) -> tuple[Remedy, ...]:
    """Changes that make the plan fit, in the order of how little they change; none when it fits already."""
    if budget.fits:
        return ()
    found: list[Remedy] = []
    for flags, effect, changes in _changes(resolved, budget):
        tried = _try(resolved, changes)
        if tried is not None and tried.fits:
            found.append(Remedy(flags, effect, float(tried.capacity.concurrency)))
        if len(found) == MOST_REMEDIES:
            break
    return tuple(found)


def _try(resolved: Resolved, changes: dict[str, Any]) -> MemoryBudget | None:
    """The budget of the changed request; None where it cannot be asked."""
    from capplan.questions.fit_plan import plan_request

    request = replace(resolved.request, **changes)
    engine = engine_rules(request.engine, request.engine_version)
    weights = None if "weight_dtype" in changes else resolved.plan.weights
    try:
        return memory_budget(plan_request(request, engine, resolved.gpu, weights, ()).plan)
    except CapplanError:
        return None


def _changes(resolved: Resolved, budget: MemoryBudget) -> Iterator[_Change]:
    """Candidates: settings first, then what costs quality or speed, then more devices."""
    yield from _settings(resolved, budget)
    yield from _formats(resolved)
    yield from _devices(resolved)
    yield from _host(resolved)


def _settings(resolved: Resolved, budget: MemoryBudget) -> Iterator[_Change]:
    plan, request = resolved.plan, resolved.request
    slots = plan.max_num_seqs if plan.engine.rules.pool in ("cells", "dynamic") else 1
    longest = longest_context(budget.pool, slots, plan.max_model_len - 1)
    if longest:
        yield f"--max-model-len {longest}", "shorter requests", {"max_model_len": longest, "ctx_size": None}
    total = plan.device.bytes or 0
    free = total - plan.device.in_use
    if total and plan.engine.rules.budget == "total" and int(plan.utilization * total) > free:
        lower = int(free * 100 // total) / 100
        if 0 < lower < float(plan.utilization):
            yield f"--gpu-memory-utilization {lower:g}", "less for the engine", {"gpu_memory_utilization": lower}
    higher = utilization_for(plan, budget.missing_bytes)
    if higher is not None and not plan.known.pools and float(higher) <= _HIGHEST_UTILIZATION:
        flag = plan.engine.rules.utilization_flag
        yield f"{flag} {float(higher):g}", "less headroom", {"gpu_memory_utilization": float(higher)}
    for sequences in _SEQUENCES:
        if sequences < plan.max_num_seqs:
            changes = {"max_num_seqs": sequences, "slots": None}
            if _first_that_fits(resolved, changes):
                yield f"--max-num-seqs {sequences}", "fewer sequences at once", changes
                break
    for tokens in _STEPS:
        if tokens < plan.max_num_batched_tokens and not plan.known.pools:
            changes = {"max_num_batched_tokens": tokens}
            if _first_that_fits(resolved, changes):
                yield f"--max-num-batched-tokens {tokens}", "smaller prefill steps", changes
                break
    if not request.enforce_eager and plan.engine.rules.graphs is not None and not plan.known.pools:
        yield "--enforce-eager", "no CUDA graphs, slower decoding", {"enforce_eager": True}


def _first_that_fits(resolved: Resolved, changes: dict[str, Any]) -> bool:
    tried = _try(resolved, changes)
    return tried is not None and tried.fits


def _formats(resolved: Resolved) -> Iterator[_Change]:
    plan, request = resolved.plan, resolved.request
    if plan.kv.key_bits > 8:
        name = "q8_0" if plan.engine.name == "llama.cpp" else "fp8"
        if plan.engine.name != "transformers":
            yield f"--kv-cache-dtype {name}", "caches of half the size", {"kv_cache_dtype": name}
    if plan.known.pools:
        return
    if request.weight_dtype is None and resolved.inputs["weight_dtype"] in ("bf16", "fp16", "fp32"):
        if plan.engine.name == "llama.cpp":
            yield "--weight-dtype gguf:Q8_0", "8-bit weights", {"weight_dtype": "gguf:Q8_0"}
            yield "--weight-dtype gguf:Q4_K_M", "4-bit weights", {"weight_dtype": "gguf:Q4_K_M"}
        elif plan.engine.name != "transformers":
            yield "--weight-dtype fp8", "8-bit weights", {"weight_dtype": "fp8"}
            yield "--weight-dtype awq-int4-g128", "4-bit weights", {"weight_dtype": "awq-int4-g128"}


def _devices(resolved: Resolved) -> Iterator[_Change]:
    """More devices: twice the tensor parallel size until it fits, then pipeline stages."""
    plan = resolved.plan
    if plan.known.pools or plan.engine.name == "llama.cpp":
        sizes: tuple[int, ...] = ()
    else:
        sizes = tuple(size for size in (2, 4, 8) if plan.parallel.tp < size <= _MOST_TENSOR_PARALLEL)
    for size in sizes:
        changes = {"tensor_parallel_size": size}
        if _first_that_fits(resolved, changes):
            yield f"--tensor-parallel-size {size}", f"{size * plan.parallel.pp * plan.parallel.dp} devices", changes
            break
    for stages in _PIPELINES:
        if stages <= plan.parallel.pp or plan.known.pools:
            continue
        pipeline: dict[str, Any] = {"pipeline_parallel_size": stages, "stage_layers": ()}
        if _first_that_fits(resolved, pipeline):
            devices = stages * plan.parallel.tp * plan.parallel.dp
            yield f"--pipeline-parallel-size {stages}", f"{devices} devices", pipeline
            break


def _host(resolved: Resolved) -> Iterator[_Change]:
    """Weights in host memory, where nothing is there yet."""
    plan = resolved.plan
    if plan.known.pools:
        return
    if plan.engine.name == "llama.cpp":
        kept = plan.offload.device_layers if plan.offload and plan.offload.kind == "layers" else plan.spec.depth + 1
        low, high = 0, min(kept, plan.spec.depth + 1)
        while low < high:
            middle = (low + high + 1) // 2
            fits = _first_that_fits(resolved, {"gpu_layers": middle, "offload": None})
            low, high = (middle, high) if fits else (low, middle - 1)
        if low < kept:
            yield f"-ngl {low}", f"{plan.spec.depth + 1 - low} layers on the host", {"gpu_layers": low, "offload": None}
    elif plan.offload is None and any(ffn.kind == "moe" for block in plan.spec.blocks.values() for ffn in block.ffn):
        yield "--offload experts", "routed experts in host memory", {"offload": "experts"}
