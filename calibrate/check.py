"""Runs whole models that no fit has seen, and holds a profile to what it says of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from calibrate.closed_loop import predict_phase
from calibrate.device import Device
from calibrate.phase_load import Load
from calibrate.phases import Mode, measure_phases
from calibrate.samples import Recorder, Sample
from calibrate.shrink import least_depth, shrunk, with_depth
from calibrate.stack.model import why_not
from calibrate.step_terms import STACKS
from capplan.describe.gpu import GpuSpec
from capplan.describe.model import ModelSpec
from capplan.describe.profile import Profile
from capplan.errors import CapplanError

MODELS: dict[str, tuple[str, ...]] = {
    "cpu": ("llama3.2-1b", "moonlight-16b-a3b", "olmoe-1b-7b-0924", "gemma-3-1b-it", "qwen3.5-9b"),
    "cuda": ("llama3.1-8b", "moonlight-16b-a3b", "qwen3-30b-a3b", "gemma-3-27b-it", "qwen3.5-27b"),
}
"""A dense model with grouped queries, one with latent attention, one of experts, one with sliding windows, one with
gated delta nets; by kind of device."""

LOADS: dict[str, tuple[Load, ...]] = {
    "cpu": (Load(1, 128, 9), Load(4, 64, 9)),
    "cuda": (Load(1, 2048, 33), Load(16, 512, 33)),
}

MEMORY_SHARE = 0.25
"""Share of the free memory that a model's weights may take."""

MOST_SECONDS: dict[str, float] = {"cpu": 2.0, "cuda": 2.0}
"""Seconds that one prefill with its decode steps may take, by the profile's own word."""

REPEATED_SECONDS, OWN_SECONDS = 6.0, 3.0
"""Seconds of repeats of a model, and of one of the fitter's own stacks in one of its two turns."""


@dataclass(frozen=True)
class Skipped:
    """A model that was not run, and why."""

    model: str
    reason: str


Report = Callable[[str], None]


def run_check(
    recorder: Recorder,
    specs: Sequence[ModelSpec],
    profile: Profile,
    gpu: GpuSpec,
    device: Device,
    *,
    loads: Sequence[Load] = (),
    modes: Sequence[Mode] = ("eager",),
    format: str = "bf16",
    report: Report = lambda doing: None,
) -> tuple[Skipped, ...]:
    """Measure models into a file of samples; what is there already is not measured again.

    Args:
        recorder: the file.
        specs: the models, whole; each is run with as many layers as fit memory and time.
        profile: says how long a model will take, so that none takes too long.
        gpu: the device as described.
        device: the device itself.
        loads: what each is given; the device's usual loads by default.
        modes: ways of launching.
        format: of weights, activations and caches.
        report: told before each.

    Returns:
        the models that could not be run.
    """
    skipped: list[Skipped] = []
    for spec in specs:
        if reason := why_not(spec):
            skipped.append(Skipped(spec.name, f"it has {reason}, which cannot be run here"))
            continue
        try:
            for load, mode in _runs(loads or LOADS[device.kind], modes):
                shorter = fitting(spec, load, profile, gpu, device, format)
                report(f"{spec.name} ({shorter.depth} of {spec.depth} layers), {load.batch} x {load.prompt}, {mode}")
                for sample in _measured(recorder, shorter, load, device, format, mode):
                    recorder.add(sample)
        except CapplanError as error:
            skipped.append(Skipped(spec.name, error.message))
    return tuple(skipped)


def run_own_stacks(
    recorder: Recorder,
    device: Device,
    *,
    turn: int,
    modes: Sequence[Mode] = ("eager",),
    format: str = "bf16",
    report: Report = lambda doing: None,
) -> None:
    """Measure the fitter's own stacks, which the terms of whole steps are fitted to.

    They have two turns, before the models and after them: what other programs take of memory and caches for some
    seconds, which no clock sees, would else bend every prediction.
    """
    for mode in modes:
        for spec, load in STACKS[device.kind]:
            report(f"{spec.name}, {load.batch} x {load.prompt}, {mode}")
            for sample in _measured(recorder, spec, load, device, format, mode, OWN_SECONDS, {"turn": turn}):
                recorder.add(replace(sample, held_out=False))


def _runs(loads: Sequence[Load], modes: Sequence[Mode]) -> Iterator[tuple[Load, Mode]]:
    for mode in modes:
        for load in loads:
            yield load, mode


def _measured(
    recorder: Recorder,
    spec: ModelSpec,
    load: Load,
    device: Device,
    format: str,
    mode: Mode,
    budget: float = REPEATED_SECONDS,
    more: Mapping[str, int] = MappingProxyType({}),
) -> list[Sample]:
    """The samples of one run, with more in their keys; none where the file has them."""
    shape: dict[str, Any] = {"batch": load.batch, "prompt": load.prompt, "new": load.new, "layers": spec.depth}
    key = {"phase": "decode", "mode": mode, "runner": "stack", "format": format, **more}
    if recorder.has(Sample("phase", spec.name, key, shape, "cold", 1.0, 1.0, 1.0, (1.0,)).identity):
        return []
    samples = measure_phases(spec, load, device, format=format, mode=mode, budget=budget)
    return [replace(sample, key={**sample.key, **more}) for sample in samples]


def fitting(spec: ModelSpec, load: Load, profile: Profile, gpu: GpuSpec, device: Device, format: str) -> ModelSpec:
    """The model with as many layers as memory holds and as the profile says that time allows.

    Raises:
        UsageError: not even one layer of each kind has room.
        UnsupportedError: the profile says nothing of it.
    """
    found = shrunk(spec, int(MEMORY_SHARE * device.memory_bytes), format)
    least = least_depth(spec)
    while found.depth > least and _seconds(found, load, profile, gpu, format) > MOST_SECONDS[device.kind]:
        found = with_depth(found, max(least, found.depth * 3 // 4))
    return found


def _seconds(spec: ModelSpec, load: Load, profile: Profile, gpu: GpuSpec, format: str) -> float:
    key = {"mode": "eager", "format": format}
    prefill, decode = (predict_phase(spec, load, phase, profile, gpu, key).seconds for phase in ("prefill", "decode"))
    return prefill + (load.new - 1) * decode
