"""What a profile says of a model's prefill and decode, before they are measured; needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

from capplan.describe.engine_times import EngineTimes
from capplan.describe.gpu import GpuSpec
from capplan.describe.model import ModelSpec
from capplan.describe.profile import Profile
from capplan.describe.profile_choice import KernelProfile
from capplan.timing.machine import Machine
from capplan.timing.step_time import StepTime, step_time
from capplan.work.formats import Formats
from capplan.work.step import Decode, Prefill, Step, ledger

ENGINES = {"eager": "torch", "graphs": "torch-graphs", "compile": "torch-compile"}
"""Names of the engine's terms in a profile, by the way in which a model's kernels are launched."""


@dataclass(frozen=True)
class Prediction:
    """Seconds of one phase, with the 80 % interval and the steps' operators."""

    seconds: float
    low: float
    high: float
    step: StepTime


def machine_of(profile: Profile, gpu: GpuSpec, mode: str = "eager") -> Machine:
    """The device under torch, by a profile's constants and terms."""
    engine = ENGINES[mode]
    times = profile.engine_times.get(engine) or EngineTimes()
    host_bound = mode == "eager" and "cuda" in profile.provenance
    return Machine(gpu, KernelProfile(profile, profile.hardware), "torch", times, cuda_graphs=not host_bound)


def predict_prefill(spec: ModelSpec, batch: int, prompt: int, machine: Machine, format: str = "bf16") -> Prediction:
    """Time to first token of `batch` prompts."""
    step = Step(prefill=(Prefill(prompt, sequences=batch),))
    return _predicted(spec, step, batch, machine, format)


def predict_decode(spec: ModelSpec, batch: int, context: int, machine: Machine, format: str = "bf16") -> Prediction:
    """Time of one further token of each of `batch` sequences of `context` positions, its own included."""
    step = Step(decode=(Decode(batch, context),))
    return _predicted(spec, step, batch, machine, format)


def _predicted(spec: ModelSpec, step: Step, batch: int, machine: Machine, format: str) -> Prediction:
    found = step_time(ledger(spec, step, formats=Formats(format)), machine, sequences=batch)
    low, high = found.interval
    return Prediction(float(found.seconds), float(low), float(high), found)
