"""From samples to a profile: rates, fits of every kernel, held-out errors, the interval of every constant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from calibrate.fit import FitError
from calibrate.hardware import described_device, last_day, rated
from calibrate.kept import tables_of
from calibrate.sample_fit import SampleFit, fit_samples, score
from calibrate.sample_groups import LEAST_POINTS, SampleGroup, groups_of
from calibrate.samples import Recording, Sample
from calibrate.step_terms import fitted_times
from capplan.describe.engine_times import EngineTimes
from capplan.describe.gpu import GpuSpec, Source
from capplan.describe.profile import Profile, RatedHardware
from capplan.describe.profile_table import KernelFit, Spread
from capplan.errors import UnsupportedError

OVERLAPS = (None, 1.0, 1.5, 2.0)
"""How far arithmetic and memory may hide each other in a product; None is what GPUs do."""

BETTER = 0.9
"""Share of the error of GPUs' overlap below which another one is taken."""


@dataclass(frozen=True)
class FittedGroup:
    """One kernel's fit, with the samples behind it.

    Args:
        fit: constants and residuals.
        samples: what was fitted, and what was held out.
        held_out: errors on the samples that were held out; None where there are none.
    """

    fit: SampleFit
    samples: SampleGroup
    held_out: Spread | None


@dataclass(frozen=True)
class FittedProfile:
    """A profile with everything that it was made of.

    Args:
        profile: as it is written.
        gpu: the device that it is of.
        groups: the fits.
        refused: groups that could not be fitted, with the reason.
        wrong: samples whose result was wrong.
    """

    profile: Profile
    gpu: GpuSpec
    groups: tuple[FittedGroup, ...]
    refused: tuple[str, ...]
    wrong: tuple[Sample, ...]


def fit_profile(recording: Recording, *, bootstraps: int | None = None) -> FittedProfile:
    """The profile of a recording's device.

    Args:
        recording: its samples.
        bootstraps: resamples for the constants' intervals; the usual number by default, 0 for none.

    Raises:
        InvalidFileError: too little was measured.
        FitError: no kernel could be fitted.
    """
    gpu = described_device(recording)
    version = recording.provenance["torch"]
    everything = groups_of(recording.samples, version)
    fitted = groups_of([sample for sample in recording.samples if not sample.held_out], version)
    hardware = best_overlap(gpu, fitted)
    groups, refused = _fit_all(fitted, everything, hardware, bootstraps)
    refused += _too_few(recording.samples, version)
    if not groups:
        raise FitError("no kernel has samples enough for a fit", hint="go on measuring: run with --resume")
    count = sum(sample.kind != "phase" for sample in recording.samples)
    kernels = Profile(
        name=gpu.name,
        title=gpu.title,
        fitted=last_day(recording),
        source=Source(source=f"capplan calibrate, {count} samples of kernels", date=last_day(recording)),
        hardware=hardware,
        tables=tables_of([group.fit.fit for group in groups]),
        provenance=_provenance(recording.provenance),
    )
    wrong = tuple(sample for sample in recording.samples if sample.problem)
    return with_times(FittedProfile(kernels, gpu, groups, refused, wrong), recording)


def with_times(fitted: FittedProfile, recording: Recording) -> FittedProfile:
    """The profile with the terms of whole steps, as far as the fitter's own stacks were run."""
    plain = replace(fitted.profile, engine_times={"torch": torch_times()})
    times = fitted_times(recording.samples, plain, fitted.gpu)
    return replace(fitted, profile=replace(plain, engine_times={**plain.engine_times, **times}))


def best_overlap(gpu: GpuSpec, groups: Sequence[SampleGroup]) -> RatedHardware:
    """The device's figures with the overlap that fits its products best; GPUs' own unless another is clearly better."""
    products = [group.group for group in groups if group.group.kind == "gemm" and group.group.key.format == "bf16"]
    if not products:
        return rated(gpu)
    largest = max(products, key=lambda group: group.points)
    errors: dict[float | None, float] = {}
    for overlap in OVERLAPS:
        try:
            found = fit_samples(largest, rated(gpu, overlap), bootstraps=0)
        except (FitError, UnsupportedError):
            continue
        errors[overlap] = found.fit.residuals.unseen.median
    best = min(errors, key=lambda overlap: errors[overlap], default=None)
    usual = errors.get(None)
    return rated(gpu) if usual is not None and errors[best] > BETTER * usual else rated(gpu, best)


def _fit_all(
    fitted: Sequence[SampleGroup], everything: Sequence[SampleGroup], hardware: RatedHardware, bootstraps: int | None
) -> tuple[tuple[FittedGroup, ...], tuple[str, ...]]:
    groups: list[FittedGroup] = []
    refused: list[str] = []
    for members in fitted:
        try:
            fit = fit_samples(members.group, hardware, bootstraps=bootstraps)
        except (FitError, UnsupportedError) as error:
            refused.append(f"{_name(members)}: {error.message}")
            continue
        whole = next(group for group in everything if _same(group, members))
        groups.append(FittedGroup(fit, whole, _held_out(whole, fit.fit, hardware)))
    return tuple(groups), tuple(refused)


def _too_few(samples: Sequence[Sample], version: str) -> tuple[str, ...]:
    """The kernels that were measured, but not often enough for a fit, in one sentence."""
    kept = [sample for sample in samples if not sample.held_out]
    few = [group for group in groups_of(kept, version, least=1) if group.group.points < LEAST_POINTS]
    names = ", ".join(f"{_name(group)} ({group.group.points})" for group in few)
    return (f"a fit takes {LEAST_POINTS} samples: {names}",) if few else ()


def _same(one: SampleGroup, other: SampleGroup) -> bool:
    return (one.group.kind, one.group.key) == (other.group.kind, other.group.key)


def _name(members: SampleGroup) -> str:
    key = members.group.key
    return " ".join(str(part) for part in (key.kernel, key.format, key.head_dim or "", key.heads) if part)


def _held_out(whole: SampleGroup, fit: KernelFit, hardware: RatedHardware) -> Spread | None:
    """The errors on what no fit saw."""
    import numpy as np

    chosen = np.array([number for number, sample in enumerate(whole.samples) if sample.held_out], dtype=int)
    return score(whole.group.take(chosen), fit, hardware) if len(chosen) else None


def torch_times() -> EngineTimes:
    """What torch adds to its kernels: nothing beside them, since each was timed with its launch."""
    return EngineTimes(sources={"all": "kernels are timed with what launching them takes"})


def _provenance(facts: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in facts.items()}
