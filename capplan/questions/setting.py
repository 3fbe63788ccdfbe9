"""What every question about time is asked of: a model, on devices, under an engine, in number formats.

One place turns what a user writes (names, files, sizes, flags) into what the formulas take, with the sources of each
figure and whatever had to be assumed; the questions themselves add only what they ask.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, get_args

from capplan.describe.closed_loop import closed_loop_warnings
from capplan.describe.deployment import Deployment, Engine, Parallel
from capplan.describe.gpu import GpuSpec
from capplan.describe.gpu_catalog import ad_hoc_gpu, load_gpu
from capplan.describe.model import ModelSpec
from capplan.describe.profile_choice import KernelProfile
from capplan.describe.quantities import parse_bandwidth
from capplan.describe.resolve import ResolvedModel, resolve_model
from capplan.errors import UsageError, did_you_mean
from capplan.memory.gguf_plan import file_plan
from capplan.timing.machine import Machine, machine_for
from capplan.timing.network import network_of
from capplan.timing.roofline import knows_links
from capplan.work.deployed import deployment_formats
from capplan.work.formats import MATH_FORMATS, Formats
from capplan.work.sharding import Sharding, check_sharding

UNCORRECTED = "datasheet roofline, uncorrected"
"""What an answer says that no measured profile stands behind."""


class SettingOptions(TypedDict, total=False):
    """The keyword arguments that `resolve_setting` takes beside the model and the device."""

    gpu_memory: str | None
    memory_bandwidth: str | None
    tflops: str | None
    engine: str
    tensor_parallel_size: int
    pipeline_parallel_size: int
    data_parallel_size: int
    decode_context_parallel_size: int
    enable_expert_parallel: bool
    weight_dtype: str | None
    kv_cache_dtype: str
    max_num_batched_tokens: int
    enforce_eager: bool
    network_bandwidth: str | None
    gpus_per_node: int | None
    models_dirs: Sequence[Path]
    hardware_dirs: Sequence[Path]
    profiles_dirs: Sequence[Path]
    ignore_keys: Collection[str]
    online: bool


@dataclass(frozen=True)
class Setting:
    """A model on its ranks.

    Args:
        spec: the model.
        gpu: the device of every rank.
        deployment: the engine and its settings.
        sharding: the parallel sizes.
        formats: number formats of weights, activations and cache.
        machine: the device with its measured constants, and the engine with its terms.
        inputs: all of it as resolved, for an answer.
        assumptions: what was taken for granted.
        warnings: what may mislead.
        sources: where the figures came from.
    """

    spec: ModelSpec
    gpu: GpuSpec
    deployment: Deployment
    sharding: Sharding
    formats: Formats
    machine: Machine
    inputs: dict[str, Any]
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
    sources: tuple[str, ...]

    @property
    def corrected(self) -> bool:
        """Whether measured constants stand for the device; without them there are only bounds."""
        return self.machine.kernels is not None

    @property
    def gpus(self) -> int:
        """Devices of the replica."""
        return self.deployment.parallel.gpus


def resolve_setting(
    model: str | ModelSpec,
    gpu: str | GpuSpec | None = None,
    *,
    gpu_memory: str | None = None,
    memory_bandwidth: str | None = None,
    tflops: str | None = None,
    engine: str = "vllm",
    tensor_parallel_size: int = 1,
    pipeline_parallel_size: int = 1,
    data_parallel_size: int = 1,
    decode_context_parallel_size: int = 1,
    enable_expert_parallel: bool = False,
    weight_dtype: str | None = None,
    kv_cache_dtype: str = "auto",
    max_num_batched_tokens: int = 8192,
    enforce_eager: bool = False,
    network_bandwidth: str | None = None,
    gpus_per_node: int | None = None,
    models_dirs: Sequence[Path] = (),
    hardware_dirs: Sequence[Path] = (),
    profiles_dirs: Sequence[Path] = (),
    ignore_keys: Collection[str] = (),
    online: bool = False,
) -> Setting:
    """Look everything up and refuse what cannot be.

    Args:
        model: a reference as for ``--model``, or a description.
        gpu: a name, a YAML file, ``auto`` or a description; None: the device of the next three.
        gpu_memory: memory of a device without a name, or instead of the named one's: ``24GiB``.
        memory_bandwidth: its bandwidth: ``1008GB/s``.
        tflops: its dense rates: ``165``, or ``bf16=165,fp8=330``.
        engine: vllm, sglang, trtllm, llama.cpp or transformers.
        tensor_parallel_size: ranks that share every layer.
        pipeline_parallel_size: stages.
        data_parallel_size: groups that share the sequences of attention.
        decode_context_parallel_size: ranks that share one cache by position.
        enable_expert_parallel: divide experts by number over all ranks of a stage.
        weight_dtype: a dtype, scheme or mix; None: as the checkpoint stores its weights.
        kv_cache_dtype: the KV cache's format.
        max_num_batched_tokens: the most tokens of one step.
        enforce_eager: no CUDA graphs.
        network_bandwidth: of one device's port to other nodes, in one direction: ``400Gbit/s``; None: assumed.
        gpus_per_node: devices of one node; None: as the device's description says.
        models_dirs: further folders of models.
        hardware_dirs: further folders of devices.
        profiles_dirs: further folders of profiles.
        ignore_keys: keys of a ``config.json`` that are known to change no size.
        online: whether a Hugging Face id may be looked up on the hub.

    Raises:
        CapplanError: something that does not exist, or that no engine can run.
    """
    found = _model(model, models_dirs, ignore_keys, online)
    device = _device(gpu, gpu_memory, memory_bandwidth, tflops, hardware_dirs)
    parallel = _parallel(
        tensor_parallel_size,
        pipeline_parallel_size,
        data_parallel_size,
        decode_context_parallel_size,
        enable_expert_parallel,
    )
    deployment = Deployment(
        engine=_engine(engine),
        parallel=parallel,
        weight_dtype=weight_dtype,
        kv_cache_dtype=kv_cache_dtype,
        max_num_batched_tokens=_at_least_one(max_num_batched_tokens, "--max-num-batched-tokens"),
        enforce_eager=enforce_eager,
    )
    sharding = Sharding.of(parallel)
    check_sharding(found.spec, sharding)
    formats = _formats(found, deployment, device)
    graphs = not enforce_eager and engine != "transformers"
    port = parse_bandwidth(network_bandwidth, "--network-bandwidth") if network_bandwidth else None
    node = None if gpus_per_node is None else _at_least_one(gpus_per_node, "--gpus-per-node")
    network = network_of(device, parallel.tp * parallel.dp, parallel.pp, port, node)
    machine = machine_for(device, deployment.engine, cuda_graphs=graphs, network=network, profile_dirs=profiles_dirs)
    return Setting(
        spec=found.spec,
        gpu=device,
        deployment=deployment,
        sharding=sharding,
        formats=formats,
        machine=machine,
        inputs=_inputs(found.spec, device, deployment, formats, machine),
        assumptions=(*found.spec.assumptions, *carried_notes([machine]), *_beyond(machine, network_bandwidth)),
        warnings=tuple(_warnings(device, parallel, machine)),
        sources=tuple(_sources(found, device, machine)),
    )


def _model(
    model: str | ModelSpec, models_dirs: Sequence[Path], ignore_keys: Collection[str], online: bool
) -> ResolvedModel:
    if isinstance(model, ModelSpec):
        return ResolvedModel(model, Path(), "a description")
    return resolve_model(model, models_dirs=models_dirs, ignore_keys=ignore_keys, online=online)


def _device(
    gpu: str | GpuSpec | None,
    memory: str | None,
    bandwidth: str | None,
    tflops: str | None,
    hardware_dirs: Sequence[Path],
) -> GpuSpec:
    """The device; one whose figures are replaced is no longer the one that was measured, and gets a name of its own."""
    base = load_gpu(gpu, hardware_dirs) if isinstance(gpu, str) else gpu
    if base is not None and memory is None and bandwidth is None and tflops is None:
        return base
    device = ad_hoc_gpu(memory, bandwidth, tflops, base=base)
    same_speed = base is not None and bandwidth is None and tflops is None
    return device if base is None or same_speed else replace(device, name=f"{base.name}-changed")


def _parallel(tp: int, pp: int, dp: int, cp: int, expert_parallel: bool) -> Parallel:
    for flag, value in (
        ("--tensor-parallel-size", tp),
        ("--pipeline-parallel-size", pp),
        ("--data-parallel-size", dp),
        ("--decode-context-parallel-size", cp),
    ):
        _at_least_one(value, flag)
    if tp % cp:
        raise UsageError(
            f"{cp} ranks cannot share a cache among {tp} tensor-parallel ones",
            where="--decode-context-parallel-size",
            hint="give a divisor of --tensor-parallel-size",
        )
    return Parallel(tp=tp, pp=pp, dp=dp, ep=tp * dp if expert_parallel else 1, cp=cp)


def _at_least_one(value: int, flag: str) -> int:
    if value < 1:
        raise UsageError(f"must be at least 1, not {value}", where=flag)
    return value


def _engine(name: str) -> Engine:
    known: tuple[Engine, ...] = get_args(Engine)
    for engine in known:
        if name == engine:
            return engine
    hint = did_you_mean(name, known) or f"one of {', '.join(known)}"
    raise UsageError(f"{name[:40]!r} is not an engine that capplan knows", where="--engine", hint=hint)


def _formats(found: ResolvedModel, deployment: Deployment, gpu: GpuSpec) -> Formats:
    math = frozenset(name for name in MATH_FORMATS if gpu.dense_rate(name) is not None)
    formats = deployment_formats(found.spec, deployment, math)
    if found.gguf is not None and deployment.weight_dtype is None:
        formats = replace(formats, plan=file_plan(found.spec, found.gguf))
    formats.kv_bytes  # noqa: B018 - refuses a name that no format has, before anything is computed
    return formats


def _inputs(
    spec: ModelSpec, gpu: GpuSpec, deployment: Deployment, formats: Formats, machine: Machine
) -> dict[str, Any]:
    parallel = deployment.parallel
    return {
        "model": spec.name,
        "gpu": gpu.name,
        "engine": deployment.engine,
        "tensor_parallel_size": parallel.tp,
        "pipeline_parallel_size": parallel.pp,
        "data_parallel_size": parallel.dp,
        "expert_parallel_size": parallel.ep,
        "decode_context_parallel_size": parallel.cp,
        "gpus": parallel.gpus,
        "weight_dtype": deployment.weight_dtype or (formats.plan.method if formats.plan else formats.dtype),
        "kv_cache_dtype": formats.kv_name,
        "max_num_batched_tokens": deployment.max_num_batched_tokens,
        "cuda_graphs": machine.cuda_graphs,
        "link_domain": machine.network.domain if machine.network else None,
        "network_bandwidth": machine.network.bandwidth if machine.network else None,
        "profile": machine.kernels.profile.name if machine.kernels else None,
    }


def carried_notes(machines: Iterable[Machine]) -> list[str]:
    """Which devices take another's constants, by whose, with the error that carrying them showed where it was tried."""
    found: dict[tuple[str, str], tuple[KernelProfile, dict[str, None]]] = {}
    for machine in machines:
        kernels = machine.kernels
        if kernels is not None and kernels.carried is not None:
            _, devices = found.setdefault((kernels.profile.name, kernels.carried), (kernels, {}))
            devices[machine.gpu.name] = None
    return [_carried_note(list(devices), kernels) for kernels, devices in found.values()]


def _carried_note(names: list[str], kernels: KernelProfile) -> str:
    known = {"gemm": "products", "decode_attention": "decode attention", "prefill_attention": "prefill attention"}
    errors = [
        f"{100 * spread.median:.0f} % for {words}"
        for kind, words in known.items()
        if (spread := kernels.carried_error(kind)) is not None  # type: ignore[arg-type]
    ]
    off = f"; so carried, the median error was {', '.join(errors)}" if errors else ""
    off = f", {kernels.carried_words}" if kernels.carried_words else off
    profile = f"{kernels.profile.name} ({str(kernels.carried).replace('_', ' ')})"
    were, them = ("was", "it") if len(names) == 1 else ("were", "them")
    return f"{', '.join(names)} {were} not measured: the constants of {profile} stand for {them}{off}"


def _beyond(machine: Machine, given: str | None) -> list[str]:
    """How messages reach other link domains, and that the bound counts them at the speed of the links within one."""
    network = machine.network
    if network is None:
        return []
    whose = "by the sheet" if network.kind != "network" else "as given" if given else "assumed"
    rate = f"{network.bandwidth / 1e9:,.0f} GB/s a device, {whose}"
    way = f"between them messages take the {network.kind} ({rate}), which the bound leaves out"
    return [f"one link domain joins {network.domain} devices; {way}"]


def _warnings(gpu: GpuSpec, parallel: Parallel, machine: Machine) -> list[str]:
    warnings: list[str] = []
    if machine.kernels is not None:
        profile = machine.kernels.profile
        warnings += closed_loop_warnings(profile.closed_loop, profile.name)
    else:
        warnings.append(f"{UNCORRECTED}: no measured profile stands for {gpu.name}, so that there are bounds alone")
    if parallel.gpus > 1 and not knows_links(gpu):
        warnings.append(f"the links of {gpu.name} are not known: messages between ranks are left out of the bound")
    doubtful = {field: reason for field, reason in gpu.doubtful.items() if _used(field)}
    return warnings + [f"{field} of {gpu.name} is doubtful: {reason}" for field, reason in doubtful.items()]


def _used(field: str) -> bool:
    """Whether a figure of a device goes into times."""
    return field.startswith(("memory.bandwidth", "dense_rates", "link", "pcie", "measured"))


def _sources(found: ResolvedModel, gpu: GpuSpec, machine: Machine) -> list[str]:
    sources = [found.source]
    carried = machine.kernels is not None and machine.kernels.scaling is not None
    reached = [field for field in gpu.sources if field.startswith("measured")] if carried else []
    for field in ("memory.bandwidth", "dense_rates", "link", *reached):
        source = gpu.source_of(field)
        if source:
            sources.append(f"{gpu.name}: {source.source} ({source.date})")
    if machine.kernels:
        profile = machine.kernels.profile
        measured = f"{profile.source.source} ({profile.source.date})"
        sources.append(f"profile {profile.name}, fitted {profile.fitted}: {measured}")
        sources += [f"{machine.engine}, {name}: {text}" for name, text in machine.times.sources.items()]
    return list(dict.fromkeys(sources))
