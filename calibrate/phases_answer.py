"""One model's TTFT, TPOT and throughput on this machine, by the stack here or by transformers' own ``generate``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrate.closed_loop import predict_phase
from calibrate.files import Files
from calibrate.other_programs import is_mostly_disturbed
from calibrate.phase_load import Load
from calibrate.session import gpu_of
from calibrate.shrink import least_depth, shrunk, weight_bytes, with_depth
from calibrate.torch_needed import require_torch
from capplan.describe.huggingface import read_config
from capplan.describe.model import ModelSpec
from capplan.describe.profile import load_profile
from capplan.describe.resolve import ResolvedModel, resolve_model
from capplan.errors import UsageError
from capplan.questions.answer import Answer
from capplan.questions.calibrate import PhasesResult

if TYPE_CHECKING:
    from calibrate.device import Device
    from calibrate.phases import Phases
    from capplan.memory.activations import Peak

MEMORY_SHARE = 0.6
"""Share of the device's memory that the weights may take."""


@dataclass(frozen=True)
class PhasesRequest:
    """What is to be measured.

    Args:
        model: whatever ``--model`` takes.
        load: prompts and new tokens.
        device: ``auto``, ``cpu``, ``cuda:1``.
        runner: ``stack`` or ``transformers``.
        mode: eager, graphs or compile.
        format: of weights, activations and cache.
        layers: how many to run; None: as many as fit.
        profile: whose predictions are to stand beside.
        threads: of a CPU.
        clock: what a second is.
        models_dirs: further folders of model descriptions.
    """

    model: str
    load: Load
    device: str = "auto"
    runner: str = "stack"
    mode: str = "eager"
    format: str = "bf16"
    layers: int | None = None
    profile: Path | None = None
    threads: int | None = None
    clock: str = "auto"
    models_dirs: Sequence[Path] = ()


def phases_answer(request: PhasesRequest) -> Answer[PhasesResult]:
    """Measure the two phases of a model.

    Raises:
        NotFoundError: torch, transformers, the device or the model is not there.
        UnsupportedError: the model cannot be run here.
        UsageError: it does not fit, or a number of layers that it does not have.
    """
    require_torch("capplan calibrate phases")
    from calibrate.device import check_modes, open_device, provenance
    from calibrate.phases import expected_peak

    device = open_device(request.device, threads=request.threads, clock=request.clock)
    check_modes(device, [request.mode])
    found = resolve_model(request.model, models_dirs=request.models_dirs)
    spec = fitted(found.spec, request, device)
    check_room(spec, request, device)
    phases = _run(found, spec, request, device)
    predicted = _predictions(phases, request)
    whole = found.spec.depth
    reason = "as asked" if request.layers else "the whole model does not fit"
    warnings = [f"{spec.depth} of {whole} layers were run: {reason}"] if spec.depth < whole else []
    peak = expected_peak(phases, request.format)
    if phases.peak_bytes and not peak.low <= phases.peak_bytes <= peak.high:
        warnings.append(f"the peak allocation of {phases.peak_bytes} bytes is not between {peak.low} and {peak.high}")
    if phases.cache_bytes != phases.expected_bytes:
        warnings.append(f"the caches hold {phases.cache_bytes} bytes, capplan kv says {phases.expected_bytes}")
    if device.clock == "wall" and any(map(is_mostly_disturbed, (phases.ttft, phases.tpot))):
        warnings.append("other programs disturbed most repeats: try a quieter machine, or --clock cpu --threads 1")
    inputs = {name: value for name, value in vars(request).items() if value not in (None, ())}
    return Answer(
        "calibrate phases",
        inputs | {"model": spec.name},
        _result(phases, predicted, peak),
        assumptions=(device.note,) if device.note else (),
        warnings=tuple(warnings),
        sources=(found.source, *(f"{name}: {value}" for name, value in provenance(device).items())),
        provenance={"median_ttft_ms": "measured", "median_tpot_ms": "measured", "expected_cache_bytes": "exact"},
    )


def fitted(spec: ModelSpec, request: PhasesRequest, device: Device) -> ModelSpec:
    """The model with the layers that were asked for, or that fit."""
    if request.layers is None:
        return shrunk(spec, int(MEMORY_SHARE * device.memory_bytes), request.format)
    if not least_depth(spec) <= request.layers <= spec.depth:
        raise UsageError(
            f"{spec.name} can be run with {least_depth(spec)} to {spec.depth} layers, not {request.layers}",
            where="--layers",
        )
    return with_depth(spec, request.layers) if request.layers < spec.depth else spec


def check_room(spec: ModelSpec, request: PhasesRequest, device: Device) -> None:
    """Return if weights, caches and the working set of a prefill have room in the memory that is free.

    Raises:
        UsageError: they have not.
    """
    from calibrate.phases import expected_cache_bytes, working_set

    load, format = request.load, request.format
    caches = expected_cache_bytes(spec, load, format)
    needed = weight_bytes(spec, format) + caches + working_set(spec, load, format).bytes
    if needed > (free := device.free_bytes()):
        raise UsageError(
            f"{spec.name} with {load.batch} x {load.length} positions needs {needed / 2**30:,.1f} GiB, and "
            f"{free / 2**30:,.1f} GiB are free",
            where="--isl",
            hint="shorter prompts, a smaller --batch, or fewer --layers",
        )


def _run(found: ResolvedModel, spec: ModelSpec, request: PhasesRequest, device: Device) -> Phases:
    if request.runner == "transformers":
        return _by_transformers(found, spec, request, device)
    from calibrate.phases import run_phases

    mode: Any = request.mode
    return run_phases(spec, request.load, device, format=request.format, mode=mode)


def _by_transformers(found: ResolvedModel, spec: ModelSpec, request: PhasesRequest, device: Device) -> Phases:
    """A ``config.json`` as it is, but for its layers; for another description the configuration of its family."""
    from calibrate.transformers_runner import require_transformers, run_generate

    require_transformers()
    if request.mode != "eager":
        raise UsageError("transformers is run eagerly", where="--mode", hint="leave --mode out, or --runner stack")
    from calibrate.transformers_config import configuration, shortened

    if found.path.suffix == ".json":
        from transformers import AutoConfig

        config = shortened(AutoConfig.from_pretrained(found.path.parent), spec.depth)
        text = json.loads(json.dumps(config.to_dict(), default=str))
        spec = read_config(text, where=str(found.path), name=spec.name)
    else:
        config = configuration(spec)
    return run_generate(config, spec, request.load, device, format=request.format)


def _predictions(phases: Phases, request: PhasesRequest) -> dict[str, float]:
    """Milliseconds of both phases by a profile, where one was given."""
    if request.profile is None:
        return {}
    profile = load_profile(str(request.profile))
    gpu = gpu_of(profile, Files(request.profile, request.profile))
    key = {"mode": request.mode, "format": request.format}
    return {
        phase: 1e3 * predict_phase(phases.spec, phases.load, phase, profile, gpu, key).seconds
        for phase in ("prefill", "decode")
    }


def _result(phases: Phases, predicted: dict[str, float], peak: Peak) -> PhasesResult:
    ttft, tpot = phases.ttft, phases.tpot
    return PhasesResult(
        model=phases.spec.name,
        layers=phases.spec.depth,
        runner=phases.runner,
        mode=phases.mode,
        input_tokens=phases.load.prompt,
        output_tokens=phases.load.new,
        batch=phases.load.batch,
        median_ttft_ms=1e3 * ttft.seconds,
        median_ttft_ms_low=1e3 * ttft.low,
        median_ttft_ms_high=1e3 * ttft.high,
        median_tpot_ms=1e3 * tpot.seconds,
        median_tpot_ms_low=1e3 * tpot.low,
        median_tpot_ms_high=1e3 * tpot.high,
        output_throughput=phases.output_throughput,
        cache_bytes=phases.cache_bytes,
        expected_cache_bytes=phases.expected_bytes,
        weight_bytes=phases.weight_bytes,
        peak_bytes=phases.peak_bytes or None,
        expected_peak_bytes=peak.bytes,
        expected_peak_bytes_low=peak.low,
        expected_peak_bytes_high=peak.high,
        predicted_ttft_ms=predicted.get("prefill"),
        predicted_tpot_ms=predicted.get("decode"),
    )
