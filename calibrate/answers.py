"""The outcomes of measuring as answers that the command line prints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from calibrate.other_programs import disturbed_samples
from calibrate.profile_fit import FittedGroup
from calibrate.report import kernel_name
from calibrate.session import Outcome, RunRequest, Say, calibrate_device, check_profile, fit_files
from capplan.describe.closed_loop import ClosedLoop, closed_loop_warnings
from capplan.errors import UsageError
from capplan.questions.answer import Answer
from capplan.questions.calibrate import (
    CalibrationResult,
    CheckResult,
    KernelImportResult,
    KernelQuality,
    PhaseCheck,
)


def run_answer(request: RunRequest, say: Say) -> Answer[CalibrationResult]:
    """Measure this device, fit its profile, check it."""
    return _calibrated("calibrate run", vars(request), calibrate_device(request, say))


def fit_answer(samples: Sequence[Path], out: Path | None, models_dirs: Sequence[Path]) -> Answer[CalibrationResult]:
    """Fit samples again."""
    return _calibrated("calibrate fit", {"samples": samples, "out": out}, fit_files(samples, out, models_dirs))


def check_answer(path: Path, *, say: Say, **options: Any) -> Answer[CheckResult]:
    """Hold a profile to models measured anew."""
    outcome = check_profile(path, say=say, **options)
    inputs = {"profile": path, **{name: value for name, value in options.items() if value}}
    loop = outcome.profile.closed_loop
    if loop is None:
        raise UsageError("no model could be run", where="--model", hint="; ".join(outcome.skipped))
    return Answer(
        "calibrate check",
        inputs,
        _check(loop, outcome),
        warnings=(*closed_loop_warnings(loop, outcome.profile.name), *disturbed_samples(outcome.recording)),
        sources=_sources(outcome),
        provenance={"phases": "measured"},
    )


def import_kernels_answer(tables: Path, gpu: str, out: Path) -> Answer[KernelImportResult]:
    """A profile from public kernel tables."""
    from calibrate.profiles import import_kernels

    found, path = import_kernels(tables, gpu, out)
    result = KernelImportResult(
        device=found.profile.name,
        fits=len(found.profile.all_fits()),
        points=sum(group.points for group in found.groups),
        left_out=dict(sorted(found.left_out.items())),
        refused=found.refused,
        files=(str(path),),
    )
    inputs = {"tables": tables, "gpu": gpu}
    return Answer("calibrate import-kernels", inputs, result, sources=(found.profile.source.source,))


def _calibrated(command: str, inputs: dict[str, Any], outcome: Outcome) -> Answer[CalibrationResult]:
    loop = outcome.profile.closed_loop
    fitted = outcome.fitted
    wrong = tuple(f"{sample.identity}: {sample.problem}" for sample in fitted.wrong)
    result = CalibrationResult(
        device=outcome.profile.name,
        samples=len(outcome.recording.samples),
        kernels=tuple(_quality(group) for group in fitted.groups),
        refused=fitted.refused,
        wrong=wrong,
        check=_check(loop, outcome) if loop else None,
        files=tuple(map(str, outcome.written)),
    )
    return Answer(
        command,
        {name: value for name, value in inputs.items() if value is not None},
        result,
        assumptions=outcome.notes,
        warnings=(
            *closed_loop_warnings(loop, outcome.profile.name),
            *(f"wrong result: {text}" for text in wrong),
            *disturbed_samples(outcome.recording),
        ),
        sources=_sources(outcome),
        provenance={"kernels": "fitted", "check": "measured"},
    )


def _quality(group: FittedGroup) -> KernelQuality:
    fit = group.fit.fit
    return KernelQuality(
        kernel=kernel_name(group),
        points=fit.points,
        median_error=median(abs(1 / ratio - 1) for ratio in group.fit.ratios),
        unseen_median_error=fit.residuals.unseen.median,
        held_out_median_error=group.held_out.median if group.held_out else None,
    )


def _check(loop: ClosedLoop, outcome: Outcome) -> CheckResult:
    phases = tuple(
        PhaseCheck(
            model=row.model,
            layers=row.layers,
            phase=row.phase,
            mode=row.mode,
            batch=row.batch,
            prompt=row.prompt,
            measured=row.measured,
            predicted=row.predicted,
            predicted_low=row.low,
            predicted_high=row.high,
            error=row.error,
            noise=row.noise,
        )
        for row in loop.rows
    )
    files = tuple(map(str, outcome.written))
    return CheckResult(loop.passed, loop.median_error, loop.median_noise, phases, outcome.skipped, files)


def _sources(outcome: Outcome) -> tuple[str, ...]:
    facts = outcome.recording.provenance
    return (f"measured on {facts.get('device')} with torch {facts.get('torch')}, clock: {facts.get('clock')}",)
