"""A whole calibration: measure kernels, fit a profile, run models that it has not seen, write everything down."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrate.closed_loop import FindModel, catalog_model, closed_loop
from calibrate.device_text import device_yaml
from calibrate.files import Files, check_writable, files_for, write_whole
from calibrate.fit import FitError
from calibrate.hardware import catalog_entry, last_day
from calibrate.kept import with_what_was_there
from calibrate.other_programs import disturbed_samples
from calibrate.profile_fit import FittedProfile, fit_profile, with_times
from calibrate.profiles import profile_yaml
from calibrate.report import html, markdown, report_sections
from calibrate.samples import Recording, Sample, read_samples, recording
from calibrate.step_terms import own_spec
from calibrate.torch_needed import require_scipy, require_torch
from capplan.describe.gpu import GpuSpec
from capplan.describe.gpu_catalog import load_gpu, read_gpu
from capplan.describe.model import ModelSpec
from capplan.describe.profile import Profile, load_profile
from capplan.describe.resolve import resolve_model
from capplan.errors import InvalidFileError, NotFoundError, UsageError

if TYPE_CHECKING:
    from calibrate.device import Device

Say = Callable[[float, str], None]
"""Told the share that is done, from 0 to 1, and what is being done."""


@dataclass(frozen=True)
class RunRequest:
    """What a user wants of a calibration.

    Args:
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``.
        minutes: for measuring kernels.
        points: cases to measure at most, instead of a time.
        out: the profile's file; None: under the device's name in ``calibration/``.
        samples: the samples' file; None: beside the profile.
        resume: go on with a file of samples that is there.
        threads: of a CPU; None: as many as torch takes.
        clock: ``wall``; ``cpu`` on a machine that others use too; ``auto`` finds out which.
        seed: of random inputs.
        check: run models that no fit has seen.
        check_models: which; the usual ones where empty.
        models_dirs: further folders of model descriptions.
        modes: ways of launching that are checked.
    """

    device: str = "auto"
    minutes: float = 5.0
    points: int | None = None
    out: Path | None = None
    samples: Path | None = None
    resume: bool = False
    threads: int | None = None
    clock: str = "auto"
    seed: int = 0
    check: bool = True
    check_models: tuple[str, ...] = ()
    models_dirs: tuple[Path, ...] = ()
    modes: tuple[str, ...] = ("eager",)


@dataclass(frozen=True)
class Outcome:
    """What a calibration came to.

    Args:
        fitted: the profile with all that is behind it.
        recording: the samples.
        files: where everything is.
        skipped: models that could not be run, with the reason.
        written: the files that were written.
        notes: what was chosen for the user, and why.
    """

    fitted: FittedProfile
    recording: Recording
    files: Files
    skipped: tuple[str, ...] = ()
    written: tuple[Path, ...] = field(default=())
    notes: tuple[str, ...] = ()

    @property
    def profile(self) -> Profile:
        """The profile."""
        return self.fitted.profile


def calibrate_device(request: RunRequest, say: Say = lambda share, doing: None) -> Outcome:
    """Measure, fit, check, and write profile, device, report and samples.

    Raises:
        NotFoundError: torch, the device or a model is not there.
        UsageError: flags that do not go together.
        InvalidFileError: a file cannot be written.
    """
    require_torch()
    require_scipy()
    from calibrate.device import check_modes, open_device, provenance
    from calibrate.run import Progress, run_kernels

    device = open_device(request.device, threads=request.threads, clock=request.clock)
    known = catalog_entry(provenance(device))
    files = files_for(request.out, request.samples, known.name if known else device.slug)
    if request.resume and request.clock == "auto":
        device = as_before(device, files.samples, request.threads)
    check_modes(device, request.modes)
    check_writable(files.profile)
    specs = check_specs(device, request.check_models, request.models_dirs, "--check-model") if request.check else []
    if device.note:
        say(0.0, device.note)

    def tell(progress: Progress) -> None:
        say(progress.share, progress.doing)

    found = run_kernels(
        device,
        files.samples,
        minutes=request.minutes,
        points=request.points,
        resume=request.resume,
        seed=request.seed,
        report=tell,
    )
    say(1.0, "fitting")
    fitted = _first_fit(found, device, files)
    if request.check:
        found = _with_own_stacks(files, device, found, request.modes, say, turn=1)
        fitted = with_times(fitted, _of_first_turn(found))
    found, skipped = _checked(files, device, fitted.profile, fitted.gpu, specs, found, request.modes, say)
    if request.check:
        found = _with_own_stacks(files, device, found, request.modes, say, turn=2)
        fitted = with_times(fitted, found)
    fitted = with_loop(fitted, found, finder(specs, request.models_dirs))
    outcome = write_outcome(fitted, found, files, skipped)
    return replace(outcome, notes=(device.note,) if device.note else ())


def _first_fit(found: Recording, device: Device, files: Files) -> FittedProfile:
    """The profile of what was measured.

    Raises:
        FitError: it is too little; the message says how much is needed, and the hint how to go on.
    """
    from calibrate.run import cases_for_a_profile

    try:
        return fit_profile(found)
    except (FitError, InvalidFileError) as error:
        raise _too_little(found, cases_for_a_profile(device), files.samples, error.message) from None


def _too_little(found: Recording, needed: int, path: Path, reason: str) -> FitError:
    """What to tell where too few cases were measured for a profile: how many it takes, how long, and why so."""
    kernels = [sample for sample in found.samples if sample.kind == "kernel"]
    count, spent = len(kernels), sum(sample.spent for sample in kernels)
    measured = "1 case was" if count == 1 else f"{count} cases were"
    minutes = math.ceil(spent * needed / max(count, 1) / 60)
    disturbed = "".join(f"; {text}" for text in disturbed_samples(found))
    return FitError(
        f"{measured} measured, and a profile takes about {needed}: {reason}{disturbed}",
        where="--minutes",
        hint=f"--resume with a longer --minutes goes on ({max(minutes, 1)} at this pace): {path} is kept",
    )


def as_before(device: Device, samples: Path, threads: int | None) -> Device:
    """The device with the threads and the clock of a run that is resumed, where the user leaves them open."""
    from calibrate.device import open_device

    if device.kind != "cpu" or not samples.is_file():
        return device
    try:
        facts = read_samples(samples).provenance
    except InvalidFileError:
        return device
    before = int(facts["threads"]) if facts.get("threads", "").isdigit() else None
    return open_device("cpu", threads=threads or before, clock=facts.get("clock", "wall"))


def check_specs(
    device: Device, names: Sequence[str], models_dirs: Sequence[Path], flag: str = "--model"
) -> list[ModelSpec]:
    """The models that a profile is checked with: those that a flag names, or the usual ones of the device."""
    from calibrate.check import MODELS

    wanted = names or MODELS[device.kind]
    try:
        return [resolve_model(name, models_dirs=models_dirs).spec for name in wanted]
    except NotFoundError as error:
        raise NotFoundError(error.message, where=flag, hint=error.hint) from None


def finder(specs: Sequence[ModelSpec], models_dirs: Sequence[Path]) -> FindModel:
    """Finds the models that were run by name, and others in the catalog."""
    known = {spec.name: spec for spec in specs}
    catalog = catalog_model(models_dirs)
    return lambda name: known.get(name) or catalog(name)


def _with_own_stacks(
    files: Files, device: Device, found: Recording, modes: Sequence[str], say: Say, *, turn: int
) -> Recording:
    """The samples with those of the stacks that the terms of whole steps are fitted to."""
    from calibrate.check import run_own_stacks

    wanted: Any = modes
    with recording(files.samples, found.provenance, found.settings, resume=True) as recorder:
        run_own_stacks(recorder, device, turn=turn, modes=wanted, report=lambda doing: say(1.0, f"running {doing}"))
        return replace(found, samples=tuple(recorder.samples))


def _of_first_turn(found: Recording) -> Recording:
    """The samples that are there before the models: a resumed run chooses their depths by the same."""
    return replace(found, samples=tuple(sample for sample in found.samples if sample.key.get("turn") != 2))


def _checked(
    files: Files,
    device: Device,
    profile: Profile,
    gpu: GpuSpec,
    specs: Sequence[ModelSpec],
    found: Recording,
    modes: Sequence[str],
    say: Say,
) -> tuple[Recording, tuple[str, ...]]:
    """The samples with those of the models, and which models could not be run."""
    from calibrate.check import run_check

    wanted: Any = modes
    with recording(files.samples, found.provenance, found.settings, resume=True) as recorder:
        skipped = run_check(
            recorder, specs, profile, gpu, device, modes=wanted, report=lambda doing: say(1.0, f"running {doing}")
        )
        samples = tuple(recorder.samples)
    return replace(found, samples=samples), tuple(f"{one.model}: {one.reason}" for one in skipped)


def with_loop(fitted: FittedProfile, found: Recording, find: FindModel) -> FittedProfile:
    """The profile with the table of every phase that was measured."""
    loop = closed_loop(found.samples, fitted.profile, fitted.gpu, date=last_day(found), find=find)
    return replace(fitted, profile=replace(fitted.profile, closed_loop=loop))


def fit_files(paths: Sequence[Path], out: Path | None, models_dirs: Sequence[Path] = ()) -> Outcome:
    """Fit files of samples of one device again, without measuring anything; needs no torch.

    The first file names the profile; further ones add what was measured apart, such as collectives.

    Raises:
        NotFoundError: no such file, or scipy is not there.
        InvalidFileError: not a file of samples, or the profile cannot be written.
    """
    require_scipy()
    found = merged([read_samples(path) for path in paths], paths)
    fitted = fit_profile(found)
    files = files_for(out or _beside(paths[0]), paths[0], fitted.gpu.name)
    return write_outcome(with_loop(fitted, found, catalog_model(models_dirs)), found, files, ())


def merged(recordings: Sequence[Recording], paths: Sequence[Path]) -> Recording:
    """The samples of several files together, each once.

    Raises:
        UsageError: the files are of different devices or versions of torch.
    """
    first = recordings[0]
    samples: dict[str, Sample] = {}
    for found, path in zip(recordings, paths, strict=True):
        for name in ("device", "torch"):
            if found.provenance.get(name) != first.provenance.get(name):
                raise UsageError(
                    f"{path} is of {name} {found.provenance.get(name)}, {paths[0]} of {first.provenance.get(name)}",
                    where="calibrate fit",
                    hint="fit the files of one device together",
                )
        samples.update((sample.identity, sample) for sample in found.samples)
    return replace(first, samples=tuple(samples.values()))


def _beside(samples: Path) -> Path | None:
    """The profile beside its samples: ``NAME.yaml`` of ``NAME.samples.jsonl``."""
    stem = samples.name.removesuffix(".samples.jsonl")
    return samples.with_name(f"{stem}.yaml") if stem != samples.name else None


def write_outcome(fitted: FittedProfile, found: Recording, files: Files, skipped: tuple[str, ...]) -> Outcome:
    """Write the profile, the device where the catalog does not have it under that name, and the report."""
    gpu = fitted.gpu if fitted.gpu.name == files.name else replace(fitted.gpu, name=files.name, aliases=())
    profile, lost = with_what_was_there(replace(fitted.profile, name=files.name), files.profile)
    refused = (*fitted.refused, *([lost] if lost else []))
    fitted = replace(fitted, profile=profile, gpu=gpu, refused=refused)
    written = [files.profile]
    write_whole(files.profile, profile_yaml(profile))
    if not in_catalog(gpu.name):
        write_whole(files.device, device_yaml(gpu))
        written.append(files.device)
    title = f"Calibration of {gpu.title}"
    sections = report_sections(fitted, found, profile.closed_loop)
    write_whole(files.markdown, markdown(title, sections))
    write_whole(files.html, html(title, sections))
    written += [files.markdown, files.html, files.samples]
    return Outcome(fitted, found, files, skipped, tuple(written))


def in_catalog(name: str) -> bool:
    """Whether the catalog has a device of this name."""
    try:
        return load_gpu(name).name == name
    except NotFoundError:
        return False


def check_profile(
    path: Path,
    *,
    device_name: str = "auto",
    threads: int | None = None,
    clock: str = "auto",
    models: Sequence[str] = (),
    models_dirs: Sequence[Path] = (),
    modes: Sequence[str] = ("eager",),
    say: Say = lambda share, doing: None,
) -> Outcome:
    """Measure models anew, hold a written profile to them, and write its table into it.

    Raises:
        NotFoundError: torch, the profile, its samples, its device or a model is not there.
        UsageError: this is another device than the profile's.
    """
    require_torch("capplan calibrate check")
    from calibrate.device import check_modes, open_device

    profile = load_profile(str(path))
    files = files_for(path, None, profile.name)
    before = read_samples(files.samples)
    device = open_device(device_name, threads=threads, clock=clock)
    check_modes(device, modes)
    if clock == "auto":
        device = as_before(device, files.samples, threads)
    gpu = gpu_of(profile, files)
    specs = check_specs(device, models, models_dirs)
    kept = tuple(sample for sample in before.samples if sample.kind != "phase" or own_spec(sample.name))
    fresh = Files(path, files.samples.with_name(f"{files.name}.check.jsonl"))
    fresh.samples.unlink(missing_ok=True)
    found, skipped = _checked(fresh, device, profile, gpu, specs, _empty(before, device), modes, say)
    phases: tuple[Sample, ...] = found.samples
    fitted = fit_profile(replace(before, samples=kept))
    loop = closed_loop(phases, profile, gpu, date=last_day(found), find=finder(specs, models_dirs))
    fitted = replace(fitted, profile=replace(profile, closed_loop=loop), gpu=gpu)
    outcome = write_outcome(fitted, replace(before, samples=(*kept, *phases)), files, skipped)
    return replace(outcome, written=(*outcome.written, fresh.samples))


def _empty(before: Recording, device: Device) -> Recording:
    """A recording of this device without samples, which must be the profile's."""
    from calibrate.device import provenance

    facts = provenance(device)
    for name in ("slug", "clock", "torch"):
        if facts[name] != before.provenance.get(name):
            raise UsageError(
                f"the profile was measured with {name} {before.provenance.get(name)}, and this is {facts[name]}",
                where="calibrate check",
                hint="check it on the same device with the same --threads and --clock",
            )
    return Recording(facts, (), before.settings)


def gpu_of(profile: Profile, files: Files) -> GpuSpec:
    """The device of a profile: described beside it, or in the catalog."""
    return read_gpu(files.device) if files.device.is_file() else load_gpu(profile.name)
