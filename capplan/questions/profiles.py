"""Which devices were measured, and what came of it?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from capplan.describe.catalog import list_entries
from capplan.describe.gpu_catalog import read_gpu
from capplan.describe.profile import CarriedError, Profile, RatedHardware, list_profiles, load_profile
from capplan.describe.profile_choice import MEASURED_VENDOR, profile_for
from capplan.describe.profile_table import KINDS, KernelFit
from capplan.questions.answer import Answer


@dataclass(frozen=True)
class ProfileSummary:
    """One line of ``capplan profiles list``.

    Args:
        name: of the device.
        title: what it is a profile of.
        architecture: of the device.
        fitted: when.
        kernels: fitted kernels.
        points: measured points that they stand for.
        median_error: median over the kernels of their median error on unseen configurations.
        aliases: other names.
    """

    name: str
    title: str
    architecture: str
    fitted: str
    kernels: int
    points: int
    median_error: float | None
    aliases: tuple[str, ...]


@dataclass(frozen=True)
class ProfileList:
    """Every profile."""

    profiles: tuple[ProfileSummary, ...]


@dataclass(frozen=True)
class FitFigures:
    """One fitted kernel.

    Args:
        kind: of the kernel.
        kernel: its key: engine, version, name, formats, ...
        constants: of its law, in seconds, tokens or as shares.
        points: measured points.
        configurations: distinct configurations among them.
        half_median: median error on a random half that was left out.
        half_p90: 90th percentile of the same.
        unseen_median: median error on whole configurations that were left out.
        unseen_p90: 90th percentile of the same.
        low: 10th percentile of measured/predicted.
        high: 90th percentile.
        domain: least and greatest value of each axis.
    """

    kind: str
    kernel: dict[str, str | int]
    constants: dict[str, float]
    points: int
    configurations: int
    half_median: float
    half_p90: float
    unseen_median: float
    unseen_p90: float
    low: float
    high: float
    domain: dict[str, tuple[float, float]]


@dataclass(frozen=True)
class ProfileDetail:
    """A profile in full."""

    name: str
    title: str
    aliases: tuple[str, ...]
    fitted: str
    hardware: RatedHardware
    notes: str | None
    carried_errors: tuple[CarriedError, ...]
    fits: tuple[FitFigures, ...]


def profile_list(*, profiles_dirs: Sequence[Path] = ()) -> Answer[ProfileList]:
    """Every measured device."""
    rows = tuple(_summary(profile) for profile in list_profiles(profiles_dirs))
    return Answer(
        "profiles list",
        {},
        ProfileList(rows),
        assumptions=_across_vendors(profiles_dirs),
        provenance={"profiles": "fitted"},
    )


def _across_vendors(profiles_dirs: Sequence[Path]) -> tuple[str, ...]:
    """Which devices of other vendors take a measured one's constants, by whose and how."""
    found: dict[str, list[str]] = {}
    for path in list_entries("hardware"):
        gpu = read_gpu(path)
        kernels = profile_for(gpu, profiles_dirs) if gpu.vendor != MEASURED_VENDOR and gpu.measured else None
        if kernels is not None and kernels.scaling is not None:
            found.setdefault(kernels.profile.name, []).append(gpu.name)
    return tuple(
        f"{', '.join(names)}: constants of {name} carried across vendors by what micro-benchmarks reached on both "
        f"(`capplan gpus show {names[0]}`)"
        for name, names in found.items()
    )


def profile_show(name: str, *, profiles_dirs: Sequence[Path] = ()) -> Answer[ProfileDetail]:
    """One profile: every fitted kernel with its constants, its errors and its domain.

    Args:
        name: a device's name or alias, or a YAML file.
        profiles_dirs: further folders of profiles.

    Raises:
        NotFoundError: no such profile.
        InvalidFileError: the file is not a valid profile.
    """
    profile = load_profile(name, profiles_dirs)
    return Answer(
        "profiles show",
        {"profile": profile.name},
        ProfileDetail(
            profile.name,
            profile.title,
            profile.aliases,
            profile.fitted,
            profile.hardware,
            profile.notes,
            profile.carried_errors,
            tuple(_figures(fit) for fit in profile.all_fits()),
        ),
        sources=(f"{profile.source.source} ({profile.source.date})",),
        provenance={"fits": "fitted", "carried_errors": "measured"},
    )


def _summary(profile: Profile) -> ProfileSummary:
    fits = profile.all_fits()
    errors = sorted(fit.residuals.unseen.median for fit in fits)
    return ProfileSummary(
        name=profile.name,
        title=profile.title,
        architecture=profile.hardware.architecture,
        fitted=profile.fitted,
        kernels=len(fits),
        points=sum(fit.points for fit in fits),
        median_error=errors[len(errors) // 2] if errors else None,
        aliases=profile.aliases,
    )


def _figures(fit: KernelFit) -> FitFigures:
    keys = {name: getattr(fit.key, name) for name in KINDS[fit.kind].keys}
    residuals = fit.residuals
    return FitFigures(
        kind=fit.kind,
        kernel={name: value for name, value in keys.items() if value},
        constants=asdict(fit.constants),
        points=fit.points,
        configurations=fit.configurations,
        half_median=residuals.half_median,
        half_p90=residuals.half_p90,
        unseen_median=residuals.unseen.median,
        unseen_p90=residuals.unseen.p90,
        low=residuals.unseen.low,
        high=residuals.unseen.high,
        domain=dict(fit.domain),
    )
