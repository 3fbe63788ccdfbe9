"""Benchmark files of a user's servers as an engine's terms in a device's profile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from calibrate.files import FOLDER, write_whole
from calibrate.import_results import Deployment, Fitted, at_their_limits, fit_runs
from calibrate.kept import with_what_was_there
from calibrate.profiles import profile_yaml
from calibrate.torch_needed import require_scipy
from capplan.describe.engine_times import engine_times
from capplan.describe.gpu import GpuSpec
from capplan.describe.gpu_catalog import load_gpu
from capplan.describe.profile import Profile
from capplan.describe.profile_choice import profile_for
from capplan.errors import UsageError
from capplan.measured.bench_results import read_bench_results
from capplan.questions.answer import Answer
from capplan.questions.calibrate import FittedTerm, ImportedRun, ImportResult
from capplan.timing.machine import Machine

DOUBTFUL_ERROR = 0.3
"""Median error of fitted terms above which the deployment is probably not the one that was measured."""


@dataclass(frozen=True)
class ImportRequest:
    """What is imported.

    Args:
        files: results of benchmark tools.
        gpu: the device that the servers ran on.
        model: their model; None: as the files name it.
        engine: their engine; None: as the files name it.
        tp: tensor-parallel size.
        weight_dtype: format of the weights.
        kv_cache_dtype: format of the cache.
        out: the profile's file; None: under the device's name in ``calibration/``.
        hardware_dirs: further folders of device descriptions.
        profiles_dirs: further folders of profiles.
    """

    files: Sequence[Path]
    gpu: str
    model: str | None = None
    engine: str | None = None
    tp: int = 1
    weight_dtype: str | None = None
    kv_cache_dtype: str | None = None
    out: Path | None = None
    hardware_dirs: Sequence[Path] = ()
    profiles_dirs: Sequence[Path] = ()


def import_answer(request: ImportRequest) -> Answer[ImportResult]:
    """Fit the engine's terms and write them into a profile of the device.

    Raises:
        NotFoundError: a file, the device or scipy is not there.
        InvalidFileError: a file of no known tool.
        UsageError: no run can be used, or the device has no profile that could hold the terms.
    """
    require_scipy("capplan calibrate import")
    runs = [run for path in request.files for run in read_bench_results(path)]
    gpu = load_gpu(request.gpu, request.hardware_dirs)
    profile = _profile(gpu, request)
    fitted = fit_runs(runs, _deployment(request, gpu))
    out = request.out or FOLDER / "hardware" / "profiles" / f"{gpu.name}.yaml"
    terms = {**profile.engine_times, fitted.engine: _sourced(fitted, request)}
    profile, lost = with_what_was_there(replace(profile, engine_times=terms), out)
    write_whole(out, profile_yaml(profile))
    return Answer(
        "calibrate import",
        {name: value for name, value in vars(request).items() if value not in (None, (), [])},
        _result(fitted, out),
        warnings=(
            *(f"not used: {text}" for text in fitted.unused),
            *([f"not kept: {lost}"] if lost else []),
            *_doubts(fitted),
        ),
        sources=(f"kernels: {profile.source.source}",),
        provenance={"terms": "fitted", "comparisons": "measured"},
    )


def _profile(gpu: GpuSpec, request: ImportRequest) -> Profile:
    """The device's own profile, which the terms are written into."""
    found = profile_for(gpu, request.profiles_dirs)
    if found is None or found.carried:
        raise UsageError(
            f"{gpu.name} has no profile of its own, to which an engine's terms could be added",
            where="--gpu",
            hint="measure one first: capplan calibrate run",
        )
    return found.profile


def _deployment(request: ImportRequest, gpu: GpuSpec) -> Deployment:
    def machine(name: str, engine: str) -> Machine:
        return Machine(gpu, profile_for(gpu, request.profiles_dirs), engine, engine_times(engine))

    return Deployment(
        gpu=gpu.name,
        model=request.model,
        engine=request.engine,
        tp=request.tp,
        weight_dtype=request.weight_dtype,
        kv=request.kv_cache_dtype,
        machine=machine,
    )


def _doubts(fitted: Fitted) -> list[str]:
    """A warning where terms that are possible do not explain what was measured."""
    pressed = at_their_limits(fitted)
    if not pressed and fitted.median_error <= DOUBTFUL_ERROR:
        return []
    reasons = [f"{' and '.join(pressed)} lies at the end of what is possible"] if pressed else []
    reasons.append(f"the median error is {100 * fitted.median_error:.0f} %")
    return [f"{'; '.join(reasons)}: are the model, --gpu, -tp and the formats those that were measured?"]


def _sourced(fitted: Fitted, request: ImportRequest) -> Any:
    files = ", ".join(path.name for path in request.files)
    return replace(fitted.times, sources={**fitted.times.sources, "all": f"fitted to {files}"})


def _result(fitted: Fitted, out: Path) -> ImportResult:
    terms = tuple(FittedTerm(name, *values) for name, values in fitted.intervals.items())
    comparisons = tuple(
        ImportedRun(one.run.where, one.run.tool, one.metric, one.seconds, one.predict(fitted.times))
        for one in fitted.observations
    )
    used = len({id(one.run) for one in fitted.observations})
    return ImportResult(
        engine=fitted.engine,
        runs=used,
        terms=terms,
        median_error=fitted.median_error,
        comparisons=comparisons,
        unused=fitted.unused,
        files=(str(out),),
    )
