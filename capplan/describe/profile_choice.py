"""Which constants stand for a GPU and a kernel: its own profile or a relative's, and the fit nearest to the wish."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from capplan.describe.catalog import list_entries
from capplan.describe.gpu import GpuSpec
from capplan.describe.profile import Profile, RatedHardware, Relation, rated_hardware, read_profile
from capplan.describe.profile_table import KernelFit, Kind, Spread

GROUP_LIMIT = 16
"""Query heads a KV head up to which decode kernels were fitted as grouped-query attention."""

MEASURED_VENDOR = "NVIDIA"
"""Whose GPUs the profiles are of; constants are not carried to another vendor's."""


@dataclass(frozen=True)
class KernelProfile:
    """The constants that stand for one GPU: its own, or another's with this GPU's datasheet figures.

    Args:
        profile: where the constants come from.
        hardware: the figures of the GPU that they stand for.
        carried: how far they were carried; None for the GPU's own profile.
    """

    profile: Profile
    hardware: RatedHardware
    carried: Relation | None = None

    def candidates(self, kind: Kind, wanted: Wanted) -> tuple[Choice, ...]:
        """The fits that can stand for what is wanted, the nearest first; see `Wanted`."""
        if kind == "collective" and self.hardware.link_kind != self.profile.hardware.link_kind:
            return ()
        fits = [fit for fit in self.profile.fits(kind) if wanted.allows(fit)]
        ranked = sorted(fits, key=wanted.distance)
        return tuple(Choice(fit, wanted.substitutions(fit)) for fit in ranked)

    def carried_error(self, kind: Kind) -> Spread | None:
        """What carrying this kind of kernel this far cost where it was tried, or None."""
        known = {error.relation: error.spread for error in self.profile.carried_errors if error.kind == kind}
        if self.carried == "same_architecture" and "same_architecture" in known:
            return known["same_architecture"]
        return known.get("other_architecture") if self.carried else None


@dataclass(frozen=True)
class Choice:
    """A fit, and in what it is not the kernel that was wanted.

    Args:
        fit: the fit.
        substitutions: ``asked for … , measured …``, one for each difference.
    """

    fit: KernelFit
    substitutions: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The kernel that is wanted; a part that doesn't matter is None.

    The format of weights, the collective and the kernel's name must be right. The engine, the cache's format, the
    window, the width of a head, the grouping of heads and the number of GPUs may be the nearest measured, in that
    order; a substitution is told.
    """

    engine: str | None = None
    kernel: str | None = None
    format: str | None = None
    kv_format: str | None = None
    head_dim: int | None = None
    heads: str | None = None
    window: str | None = None
    absorbed: str | None = None
    collective: str | None = None
    gpus: int | None = None

    _MUST = ("kernel", "format", "collective")
    _MAY = ("engine", "kv_format", "absorbed", "window", "heads")

    def allows(self, fit: KernelFit) -> bool:
        """Whether the fit is of the right format, collective and kernel."""
        return all(getattr(self, name) in (None, getattr(fit.key, name)) for name in self._MUST)

    def distance(self, fit: KernelFit) -> tuple[float, ...]:
        """How far the fit is from what is wanted, the graver difference first; then the better measured and quicker."""
        differs = [getattr(self, name) not in (None, getattr(fit.key, name)) for name in self._MAY]
        ratios = [_log_ratio(self.head_dim, fit.key.head_dim), _log_ratio(self.gpus, fit.key.gpus)]
        start: float = getattr(fit.constants, "latency" if fit.kind == "collective" else "launch", 0.0)
        return (*ratios[1:], *map(float, differs), ratios[0], -fit.points, start)

    def substitutions(self, fit: KernelFit) -> tuple[str, ...]:
        """What of the fit is not as wanted, in words."""
        names = (*self._MAY, "head_dim", "gpus")
        pairs = ((name, getattr(self, name), getattr(fit.key, name)) for name in names)
        return tuple(
            f"{name.replace('_', ' ')} {measured} measured, {wanted} wanted"
            for name, wanted, measured in pairs
            if wanted is not None and measured and wanted != measured
        )


def head_group(heads: int, kv_heads: int) -> str:
    """``mha``, ``gqa`` or ``mqa``: the grouping under which a decode kernel was fitted."""
    group = heads / kv_heads
    return "mha" if group <= 1 else "gqa" if group <= GROUP_LIMIT else "mqa"


def profile_for(gpu: GpuSpec, profile_dirs: Sequence[Path] = ()) -> KernelProfile | None:
    """The constants that stand for a GPU: its own profile, else the nearest of its architecture, else of its vendor.

    None for a GPU of another vendor than any that was measured, or without the figures that laws need: then the
    datasheet's roofline is a bound, and there is no prediction.
    """
    hardware = rated_hardware(gpu)
    if hardware is None:
        return None
    files = list_entries("profiles", profile_dirs)
    for path in files:
        if path.stem == gpu.name:
            own = read_profile(path)
            return KernelProfile(own, own.hardware)
    if gpu.vendor != MEASURED_VENDOR or not files:
        return None
    nearest = min(map(read_profile, files), key=lambda profile: relatedness(profile.hardware, hardware))
    return KernelProfile(nearest, hardware, relation_of(nearest.hardware, hardware))


def relation_of(one: RatedHardware, other: RatedHardware) -> Relation:
    """Whether two GPUs are of one architecture.

    An *ultra* is its plain namesake; parts of one name with another major compute capability (Blackwell's for data
    centres, 10, and for workstations, 12) are two.
    """
    names = {gpu.architecture.removesuffix("_ultra") for gpu in (one, other)}
    majors = {(gpu.compute_capability or "").partition(".")[0] for gpu in (one, other)}
    return "same_architecture" if len(names) == len(majors) == 1 else "other_architecture"


def relatedness(measured: RatedHardware, wanted: RatedHardware) -> tuple[bool, bool, float]:
    """How far one GPU is from another: architecture, compute capability, then figures.

    distance = Σ |ln(measured/wanted)| over the 16-bit rate, the bandwidth and the multiprocessors
    """
    figures = (
        (_rate(measured), _rate(wanted)),
        (measured.bandwidth, wanted.bandwidth),
        (measured.compute_units, wanted.compute_units),
    )
    apart = sum(abs(math.log(a / b)) for a, b in figures)
    other_capability = measured.compute_capability != wanted.compute_capability
    return (relation_of(measured, wanted) != "same_architecture", other_capability, apart)


def _rate(hardware: RatedHardware) -> float:
    rates = hardware.dense_rates
    return rates.get("bf16") or rates.get("fp16") or max(rates.values())


def _log_ratio(wanted: int | None, measured: int) -> float:
    return abs(math.log(wanted / measured)) if wanted and measured else 0.0
