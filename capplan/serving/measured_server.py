"""From one row of a measured table to the replica and the workload that it describes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache

from capplan.describe.batching import batching_rules
from capplan.describe.checkpoint_names import find_checkpoint
from capplan.describe.engine import engine_rules
from capplan.describe.engine_eras import era_of
from capplan.describe.formats import FP8_E4M3, FP32
from capplan.describe.gguf_mix import GgufMix
from capplan.describe.gpu import GpuSpec
from capplan.describe.gpu_catalog import load_gpu
from capplan.describe.model import ModelSpec
from capplan.describe.model_plan import weight_plan
from capplan.describe.precision import PRECISIONS, checkpoint_of
from capplan.describe.quantisation import QuantisationPlan
from capplan.describe.weight_schemes import ScaledEightBit, WeightScheme
from capplan.errors import UsageError
from capplan.memory.gguf_plan import mix_plan
from capplan.memory.serving_plan import Device, default_batched_tokens, step_tier
from capplan.serving.pool import held_weights, pool_tokens
from capplan.serving.replica import EngineSettings, Replica
from capplan.serving.workload import Workload
from capplan.timing.machine import Machine, machine_for
from capplan.work.formats import MATH_FORMATS, Formats
from capplan.work.sharding import Sharding, check_sharding
from capplan.work.step import is_encoder

ENGINES = {
    "vllm": "vllm",
    "sglang": "sglang",
    "trtllm": "trtllm",
    "tensorrt-llm": "trtllm",
    "tensorrt_llm": "trtllm",
    "llama.cpp": "llama.cpp",
    "transformers": "transformers",
}

EAGER = frozenset({"transformers"})
"""Engines that replay no graphs."""

OWN_SCHEMES: dict[tuple[str, str], WeightScheme] = {
    ("trtllm", "fp8"): ScaledEightBit(FP8_E4M3, "tensor", activation_scale=FP32)
}
"""How an engine's own tools quantise a model of which no checkpoint is known."""

USUAL_LENGTH = 8192
"""Tokens of the longest request where a table does not say: some engines take whole prompts at once."""

BENCHMARK_WAVES = 10
"""Requests that each client of the usual benchmark sends: ten times the concurrency in all."""


@dataclass(frozen=True)
class MeasuredServer:
    """What a table says of one measurement, beside the measured values.

    Args:
        model: its name or Hugging Face id.
        precision: of the checkpoint (fp8, fp4, int4, bf16), or a weight dtype; None: the checkpoint's own.
        gpu: the device's name.
        engine: the engine's name.
        isl: the longest input.
        osl: the longest output.
        concurrency: clients of a closed loop, or a batch; with a request rate it plays no part.
        mean_length: mean length as a share of the longest.
        gpus: devices in all.
        tp: tensor-parallel size of attention, over all its devices or within a data-parallel group.
        attention_dp: data-parallel groups of attention.
        expert_parallel: groups of experts.
        pipeline: stages.
        kv: format of the KV cache; None: not said.
        settings: the server's.
        era: versions of the engine that it is one of, as `capplan.describe.engine_eras` names them; empty: today's.
        waves: requests of each client; None: a steady load.
        request_rate: requests a second of an open loop; None: a closed loop.
    """

    model: str
    precision: str | None
    gpu: str
    engine: str
    isl: float
    osl: float
    concurrency: float
    mean_length: float = 1.0
    gpus: int = 1
    tp: int = 1
    attention_dp: int = 1
    expert_parallel: int = 1
    pipeline: int = 1
    kv: str | None = None
    era: str = ""
    settings: EngineSettings = field(default_factory=EngineSettings)
    waves: int | None = BENCHMARK_WAVES
    request_rate: float | None = None


def server_replica(server: MeasuredServer, machine: Callable[[str, str], Machine] | None = None) -> Replica:
    """The replica of a measured server, its KV pool included.

    Raises:
        CapplanError: a model, device, precision or engine that is not known, or a sharding that cannot be.
    """
    engine = ENGINES.get(server.engine.lower())
    if engine is None:
        raise UsageError(f"{server.engine[:40]!r} is not an engine that capplan describes", where="engine")
    device = (machine or _machine)(server.gpu, engine)
    spec, plan = measured_checkpoint(server.model, server.precision, engine)
    era = era_of(engine, server.era, spec)
    if era is not None:
        device = replace(device, times=era.times(device.times, spec.depth))
    sharding = sharding_of(server)
    check_sharding(spec, sharding)
    check_weights(spec, plan, sharding, device.gpu)
    kv = server.kv or kv_format_of(plan, device.gpu, engine)
    math = frozenset(name for name in MATH_FORMATS if device.gpu.dense_rate(name) is not None)
    formats = Formats(dtype="bf16", kv=kv, plan=plan, math=math)
    cached = not is_encoder(spec)
    tokens = pool_tokens(spec, plan, device.gpu, engine, sharding, kv, server.settings) if cached else None
    if tokens is not None and era is not None:
        tokens *= era.pool_share
    return Replica(spec, device, sharding, formats, server.settings, tokens)


def check_weights(spec: ModelSpec, plan: QuantisationPlan, sharding: Sharding, gpu: GpuSpec) -> None:
    """Refuse a server whose weights alone do not fit: it cannot have run.

    Raises:
        UsageError: they do not.
    """
    held = held_weights(spec, plan, sharding)
    if held > gpu.engine_memory:
        raise UsageError(
            f"{spec.name} has {held / 2**30:.1f} GiB of weights a rank ({plan.method}), and {gpu.name} has "
            f"{gpu.engine_memory / 2**30:.1f} GiB",
            where="tp",
            hint="a larger tp, or another precision",
        )


def server_workload(server: MeasuredServer) -> Workload:
    """The load of a measured server, in mean lengths."""
    return Workload(
        isl=max(1.0, server.isl * server.mean_length),
        osl=max(1.0, server.osl * server.mean_length),
        concurrency=server.concurrency if server.request_rate is None else None,
        request_rate=server.request_rate,
        waves=server.waves,
    )


def default_settings(engine: str, version: str | None, gpu: GpuSpec) -> EngineSettings:
    """An engine's own settings at a version on a device; the latest version's where that one is not known."""
    try:
        rules, batching = engine_rules(engine, version or None), batching_rules(engine, version or None)
    except UsageError:
        rules, batching = engine_rules(engine), batching_rules(engine)
    device = Device(gpu.engine_memory)
    return EngineSettings(
        max_num_batched_tokens=default_batched_tokens(rules, device, USUAL_LENGTH),
        max_num_seqs=step_tier(rules, device).max_num_seqs,
        chunked_prefill=batching.rules.chunked_prefill,
        receive_interval=batching.rules.receive_interval,
        batch_wait=batching.rules.batch_wait_steps,
    )


def kv_format_of(plan: QuantisationPlan, gpu: GpuSpec, engine: str) -> str:
    """The KV cache's format where a table does not say: fp8 on TensorRT-LLM and on Blackwell for quantised checkpoints.

    Source: which format fits public serving measurements best, of all engines and devices.
    """
    quantised = plan.scheme is not None or any(rule.scheme is not None for rule in plan.rules)
    blackwell = gpu.architecture.startswith("blackwell")
    return "fp8" if quantised and (engine == "trtllm" or blackwell) else "bf16"


def sharding_of(server: MeasuredServer) -> Sharding:
    """Its parallel sizes; a `tp` of all devices is divided by the data-parallel groups of attention."""
    dp = server.attention_dp
    tp = server.tp // dp if dp > 1 and server.tp == server.gpus else server.tp
    return Sharding(tp=max(1, tp), pp=server.pipeline, dp=dp, ep=server.expert_parallel)


def replicas_of(server: MeasuredServer) -> int:
    """Equal replicas that share a deployment's devices, and its clients: ``gpus / (tp · dp · pp)``, at least one."""
    sharding = sharding_of(server)
    return max(1, server.gpus // (int(sharding.tp) * sharding.dp * sharding.pp))


@lru_cache(maxsize=256)
def measured_checkpoint(model: str, precision: str | None, engine: str = "vllm") -> tuple[ModelSpec, QuantisationPlan]:
    """A table's model and how its checkpoint stores the weights: a precision that its name tells counts as given.

    Raises:
        CapplanError: no such model, or no such precision.
    """
    found = find_checkpoint(model)
    precision = precision or found.precision or None
    if precision is None or precision in PRECISIONS:
        return checkpoint_of(found.spec, precision, default=OWN_SCHEMES.get((engine, precision or "")))
    plan = weight_plan(found.spec, precision)
    return found.spec, mix_plan(found.spec, plan) if isinstance(plan, GgufMix) else plan


@lru_cache(maxsize=64)
def _machine(gpu: str, engine: str) -> Machine:
    return machine_for(load_gpu(gpu), engine, cuda_graphs=engine not in EAGER)
