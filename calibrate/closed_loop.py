"""The closed loop: phases that were measured beside what a profile says of them; needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from calibrate.phase_load import Load
from calibrate.predict import Prediction, machine_of, predict_decode, predict_prefill
from calibrate.samples import Sample
from calibrate.shrink import with_depth
from capplan.describe.closed_loop import ClosedLoop, ClosedLoopRow
from capplan.describe.gpu import GpuSpec
from capplan.describe.model import ModelSpec
from capplan.describe.profile import Profile
from capplan.describe.resolve import resolve_model
from capplan.errors import CapplanError

LEAST_NOISE = 1e-4
"""Noise of repeats that agree to the last digit."""

FindModel = Callable[[str], ModelSpec | None]


def closed_loop(
    samples: Iterable[Sample], profile: Profile, gpu: GpuSpec, *, date: str, find: FindModel
) -> ClosedLoop | None:
    """The table of every measured phase of the stacks whose model is known, or None where there is none.

    Args:
        samples: of phases, and whatever else.
        profile: what predicts.
        gpu: the device.
        date: of the measurements.
        find: the description of a model by its name.
    """
    rows = [row for sample in samples if (row := row_of(sample, profile, gpu, find)) is not None]
    return ClosedLoop(date=date, rows=tuple(rows)) if rows else None


def row_of(sample: Sample, profile: Profile, gpu: GpuSpec, find: FindModel) -> ClosedLoopRow | None:
    """A phase beside its prediction; None for what is no phase of a known model."""
    if sample.kind != "phase" or sample.problem or sample.key.get("runner") != "stack":
        return None
    spec = find(sample.name)
    if spec is None:
        return None
    load = Load(*(int(sample.shape[axis]) for axis in ("batch", "prompt", "new")))
    shorter = with_depth(spec, int(sample.shape["layers"]))
    predicted = predict_phase(shorter, load, str(sample.key["phase"]), profile, gpu, sample.key)
    phase: Any = sample.key["phase"]
    return ClosedLoopRow(
        model=sample.name,
        layers=int(sample.shape["layers"]),
        phase=phase,
        mode=str(sample.key["mode"]),
        batch=load.batch,
        prompt=load.prompt,
        new=load.new,
        measured=sample.seconds,
        predicted=predicted.seconds,
        low=predicted.low,
        high=predicted.high,
        noise=max(sample.noise, LEAST_NOISE),
    )


def predict_phase(spec: ModelSpec, load: Load, phase: str, profile: Profile, gpu: GpuSpec, key: Any) -> Prediction:
    """What a profile says of one phase."""
    machine, form = machine_of(profile, gpu, str(key["mode"])), str(key["format"])
    if phase == "prefill":
        return predict_prefill(spec, load.batch, load.prompt, machine, form)
    return predict_decode(spec, load.batch, load.mean_context, machine, form)


def catalog_model(models_dirs: Sequence[Path] = ()) -> FindModel:
    """Finds models by name in the catalog."""

    def find(name: str) -> ModelSpec | None:
        try:
            return resolve_model(name, models_dirs=models_dirs).spec
        except CapplanError:
            return None

    return find
