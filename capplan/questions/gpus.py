"""Which accelerators does capplan know, and what are they?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from capplan.describe.gpu import GpuSpec
from capplan.describe.gpu_catalog import GpuSummary, detect_gpu, list_gpus, load_gpu, validate_gpus
from capplan.describe.profile_choice import profile_for
from capplan.questions.answer import Answer
from capplan.questions.checks import FileChecks, check_answer


@dataclass(frozen=True)
class GpuList:
    """The catalog."""

    gpus: tuple[GpuSummary, ...]


def gpu_list(*, hardware_dirs: Sequence[Path] = (), mig: bool = False) -> Answer[GpuList]:
    """Every accelerator of the catalog, with MIG slices where asked."""
    rows = tuple(list_gpus(hardware_dirs, mig=mig))
    return Answer("gpus list", {"mig": mig}, GpuList(rows), provenance={"gpus": "exact"})


def gpu_show(name: str, *, hardware_dirs: Sequence[Path] = ()) -> Answer[GpuSpec]:
    """One accelerator in full; ``auto`` is the local device."""
    spec = detect_gpu(hardware_dirs) if name == "auto" else load_gpu(name, hardware_dirs)
    sources = tuple(f"{field}: {item.source} ({item.date})" for field, item in spec.sources.items())
    warnings = tuple(f"{field} is doubtful: {reason}" for field, reason in spec.doubtful.items())
    return Answer(
        "gpus show", {"gpu": spec.name}, spec, assumptions=(_rests_on(spec),), sources=sources, warnings=warnings
    )


def _rests_on(spec: GpuSpec) -> str:
    """What predictions of a device rest on."""
    kernels = profile_for(spec)
    if kernels is None:
        return "no measured profile stands for it: there are bounds, and no predictions"
    name = kernels.profile.name
    if kernels.carried is None:
        return f"predictions take its own measured kernels (`capplan profiles show {name}`)"
    how = kernels.carried_words or f"as of the {kernels.carried.replace('_', ' ')}"
    return f"predictions take the constants of {name}, {how}"


def gpu_validate(files: Sequence[Path]) -> Answer[FileChecks]:
    """Check YAML descriptions of accelerators."""
    return check_answer("gpus validate", files, validate_gpus(files))
