"""Which constants stand for a GPU and a kernel: its own profile or a relative's, and the fit nearest to the wish."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from capplan.describe.catalog import list_entries
from capplan.describe.engine_products import engine_products
from capplan.describe.gpu import GpuSpec
from capplan.describe.gpu_catalog import load_gpu
from capplan.describe.profile import Profile, RatedHardware, Relation, rated_hardware, read_profile
from capplan.describe.profile_scaling import SINGLE_VENDOR, Scaling, multiplied_in, scaling_between
from capplan.describe.profile_table import KernelFit, Kind, Spread
from capplan.errors import NotFoundError, UnsupportedError

GROUP_LIMIT = 16
"""Query heads a KV head up to which decode kernels were fitted as grouped-query attention."""

PRODUCTS = ("gemm", "grouped_gemm")
"""Kinds of kernels that come in formats of weights."""

UNQUANTISED = ("bf16", "fp32", "tf32")
"""Formats that every engine multiplies somehow."""

MEASURED_VENDOR = "NVIDIA"
"""Whose GPUs the profiles are of; to another vendor's, constants are carried by what micro-benchmarks reached."""

OTHER_VENDOR = Spread(median=0.26, p90=1.01, low=0.48, high=1.89)
"""Whole servers of another vendor's device beside what carried constants predict: the mean time per output token.

49 public figures on eight MI300X: Llama-3.1-405B under vLLM 0.6.3, DeepSeek-R1 under vLLM 0.7.4 and SGLang 0.4
(dstack benchmarks, ``benchmarks/data/e2e_dev.csv``). In-sample for one constant of the two vLLM's era.
"""


@dataclass(frozen=True)
class KernelProfile:
    """The constants that stand for one GPU: its own, or another's with this GPU's datasheet figures.

    Args:
        profile: where the constants come from.
        hardware: the figures of the GPU that they stand for.
        carried: how far they were carried; None for the GPU's own profile.
        scaling: by what the constants are multiplied on the way to another vendor's device; None: by nothing.
    """

    profile: Profile
    hardware: RatedHardware
    carried: Relation | None = None
    scaling: Scaling | None = None

    def candidates(self, kind: Kind, wanted: Wanted) -> tuple[Choice, ...]:
        """The fits that can stand for what is wanted, the nearest first; see `Wanted`.

        Raises:
            UnsupportedError: carried to another vendor's device, an engine that does not run there, or a format that
                nothing measured there or here stands for.
        """
        if kind == "collective" and self.hardware.link_kind != self.profile.hardware.link_kind:
            return ()
        fits = [fit for fit in self.profile.fits(kind) if wanted.allows(fit)]
        if self.scaling is not None:
            if kind == "collective" and not self.scaling.has_links:
                return ()
            self._refuse(self.scaling, kind, wanted, fits)
            fits = [self.scaling.fit(fit, wanted.gpus) for fit in fits]
        ranked = sorted(fits, key=wanted.distance)
        return tuple(Choice(fit, wanted.substitutions(fit)) for fit in ranked)

    def _refuse(self, scaling: Scaling, kind: Kind, wanted: Wanted, fits: Sequence[KernelFit]) -> None:
        """Refuse what would be a guess on another vendor's device."""
        vendor = SINGLE_VENDOR.get(wanted.engine or "")
        if vendor and vendor != scaling.gpu.vendor:
            message = f"{wanted.engine} runs on {vendor}'s devices alone, and {scaling.gpu.name} is not one"
            raise UnsupportedError(message, where="--engine", hint="--engine vllm or --engine sglang")
        scaling.compute(multiplied_in(wanted.format or ""))
        own = wanted.engine is not None and engine_products(wanted.engine) is not None
        if kind in PRODUCTS and wanted.format not in (None, *UNQUANTISED) and not fits and not own:
            message = f"no kernel of {self.profile.name} in {wanted.format} stands for one of {scaling.gpu.name}"
            raise UnsupportedError(message, where="--gpu", hint="`capplan roofline` gives the bounds")

    @property
    def carried_words(self) -> str:
        """How constants were carried to another vendor's device, and how far off that was; empty: they were not."""
        if self.scaling is None:
            return ""
        low, high = OTHER_VENDOR.low, OTHER_VENDOR.high
        return (
            f"carried across vendors by what micro-benchmarks reached on both ({self.scaling.words}), no kernel of "
            f"{self.scaling.gpu.vendor}'s being public: servers on MI300X took {low:g} to {high:g} times the time per "
            "output token so predicted (four of five of 49 public figures)"
        )

    @property
    def memory_ratio(self) -> float:
        """By what a share of the memory bandwidth is multiplied on the way from the measured device; 1: by nothing."""
        return self.scaling.memory if self.scaling else 1.0

    def compute_ratio(self, math: str) -> float:
        """The same of a share of the dense rate of a format.

        Raises:
            UnsupportedError: nothing measured on the device stands for the format.
        """
        return self.scaling.compute(math) if self.scaling else 1.0

    def carried_error(self, kind: Kind) -> Spread | None:
        """What carrying this kind of kernel this far cost where it was tried, or None."""
        known = {error.relation: error.spread for error in self.profile.carried_errors if error.kind == kind}
        if self.carried == "other_vendor":
            return wider(OTHER_VENDOR, known.get("other_architecture", OTHER_VENDOR))
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

    Another vendor's GPU takes those of the nearest that has micro-benchmarks too, scaled by them. None for one without,
    or without the figures that laws need: then the datasheet's roofline is a bound, and there is no prediction.
    """
    hardware = rated_hardware(gpu)
    if hardware is None:
        return None
    files = list_entries("profiles", profile_dirs)
    for path in files:
        if path.stem == gpu.name:
            own = read_profile(path)
            return KernelProfile(own, own.hardware)
    if not files:
        return None
    ranked = sorted(map(read_profile, files), key=lambda profile: relatedness(profile.hardware, hardware))
    if gpu.vendor == MEASURED_VENDOR:
        return KernelProfile(ranked[0], hardware, relation_of(ranked[0].hardware, hardware))
    for profile in ranked if gpu.measured else ():
        relative = _described(profile.name)
        scaling = scaling_between(gpu, relative, profile) if relative else None
        if scaling is not None:
            return KernelProfile(profile, hardware, "other_vendor", scaling)
    return None


@lru_cache(maxsize=64)
def _described(name: str) -> GpuSpec | None:
    """The catalog's description of a measured device; None where it has none."""
    try:
        return load_gpu(name)
    except NotFoundError:
        return None


def wider(one: Spread, other: Spread) -> Spread:
    """The wider of two spreads in every figure."""
    return Spread(
        max(one.median, other.median), max(one.p90, other.p90), min(one.low, other.low), max(one.high, other.high)
    )


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
