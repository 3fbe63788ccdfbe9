"""Scores of the kernel laws on calls that their fits have not seen, beside reference fits of simpler laws."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrate.fit import FitError
from calibrate.kernel_fit import Law, fit_law, half_errors, predicted
from calibrate.kernel_groups import Group
from capplan.describe.kernel_constants import (
    CarriedPrefillConstants,
    Constants,
    LinearCollectiveConstants,
    SparseGemmConstants,
)
from capplan.describe.kernel_formats import kernel_format
from capplan.describe.profile import RatedHardware
from capplan.describe.profile_table import KernelFit, KernelKey
from capplan.errors import UnsupportedError
from capplan.timing.kernel_estimates import cache_bytes, kernel_time, rates_for
from capplan.timing.kernel_laws import (
    KernelTime,
    carried_prefill_attention_time,
    gemm_time_from_few_points,
    linear_collective_time,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

ALLOWED = 1.1
"""Times the reference's median error that a fit's may be."""

TENTH = 0.1
"""Share of a group's calls, the slowest, that are predicted from the others to see what extrapolating costs."""

ReferenceKey = tuple[str, ...]


@dataclass(frozen=True)
class Reference:
    """The error of a reference fit.

    Args:
        median: of |predicted/measured − 1| on its held-out half.
        p90: its 90th percentile.
        version: of the engine that was measured; empty where it was not noted.
        physical: whether its efficiencies are at most 1.
    """

    median: float
    p90: float
    version: str
    physical: bool


@dataclass(frozen=True)
class Score:
    """How well a law fits one group.

    Args:
        law: its name.
        gpu: the tables' name of the GPU.
        key: which kernel.
        points: measured calls.
        configurations: distinct configurations among them.
        half_median: median error on random halves (collectives: every other message size).
        half_p90: its 90th percentile.
        unseen_median: median error on configurations left out of the fit; None for rival laws.
        unseen_p90: its 90th percentile.
        slowest_p90: 90th percentile of the error on the slowest tenth, predicted from the rest.
        reference: the reference fit of the same group, where there is one.
    """

    law: str
    gpu: str
    key: KernelKey
    points: int
    configurations: int
    half_median: float
    half_p90: float
    unseen_median: float | None
    unseen_p90: float | None
    slowest_p90: float | None
    reference: Reference | None

    @property
    def ratio(self) -> float | None:
        """Median error over the reference's; None where that is absent or unphysical."""
        if self.reference is None or not self.reference.physical:
            return None
        return self.half_median / self.reference.median


def read_references(path: Path) -> dict[ReferenceKey, Reference]:
    """The reference fits by law, GPU and kernel."""
    with path.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    names = (
        "law",
        "gpu",
        "engine",
        "kernel",
        "format",
        "kv_format",
        "head_dim",
        "heads",
        "window",
        "collective",
        "gpus",
    )
    return {
        tuple(row[name] for name in names): Reference(
            float(row["median"]), float(row["p90"]), row["version"], row["warn"] == ""
        )
        for row in rows
    }


def reference_key(law: str, gpu: str, group: Group) -> ReferenceKey:
    """How the reference fits name a group: products and latent attention by format alone, the rest by kernel too."""
    key = group.key
    by_kernel = group.kind not in ("gemm", "mla_prefill", "mla_decode")
    return (
        law,
        gpu,
        key.engine,
        key.kernel if by_kernel else "",
        key.format,
        key.kv_format,
        str(key.head_dim or ""),
        key.heads,
        key.window,
        key.collective,
        str(key.gpus or ""),
    )


def scores(
    gpu: str,
    groups: Iterable[Group],
    fits: Iterable[KernelFit],
    hardware: RatedHardware,
    references: Mapping[ReferenceKey, Reference],
) -> Iterator[Score]:
    """The score of every group by the law of profiles, and by the rival laws of its kind."""
    fitted = {(fit.kind, replace(fit.key, absorbed="")): fit for fit in fits}
    for measured in groups:
        fit = fitted.get((measured.kind, measured.key))
        if fit is None:
            continue
        group = replace(measured, key=fit.key)
        unseen = fit.residuals.unseen
        yield Score(
            group.kind, gpu, group.key, fit.points, fit.configurations, fit.residuals.half_median,
            fit.residuals.half_p90, unseen.median, unseen.p90, slowest_tenth(group, hardware, fit.constants),
            references.get(reference_key(group.kind, gpu, group)),
        )  # fmt: skip
        for name, law in rival_laws(group.kind).items():
            try:
                median, p90 = half_errors(group, hardware, law)
            except (FitError, UnsupportedError):
                continue
            reference = references.get(reference_key(name, gpu, group))
            yield Score(name, gpu, group.key, fit.points, fit.configurations, median, p90, None, None, None, reference)


def slowest_tenth(group: Group, hardware: RatedHardware, near: Constants) -> float | None:
    """90th percentile of the error on the slowest tenth of a group by a fit on the rest; None where that has none."""
    import numpy as np

    order = np.argsort(group.seconds)
    cut = int(len(order) * (1 - TENTH))
    rest, slowest = group.take(order[:cut]), group.take(order[cut:])
    try:
        constants, _ = fit_law(rest, hardware, near=near)
    except FitError:
        return None
    law = Law(type(near), _profile_law)
    found = np.abs(predicted(slowest, law, constants, hardware) / slowest.seconds - 1)
    return float(np.quantile(found, 0.9))


def _profile_law(group: Group, constants: Any, hardware: RatedHardware) -> KernelTime:
    return kernel_time(group.kind, group.key, constants, group.shape, hardware)


def rival_laws(kind: str) -> dict[str, Law]:
    """The laws that a profile does not use for this kind, by name."""
    return _RIVALS.get(kind, {})


def _few_points(group: Group, constants: Any, hardware: RatedHardware) -> KernelTime:
    stored = kernel_format(group.key.format)
    return gemm_time_from_few_points(
        group.shape["m"],
        group.shape["n"],
        group.shape["k"],
        weight_bytes=float(stored.weight_bytes),
        activation_bytes=float(stored.activation_bytes),
        constants=constants,
        rates=rates_for(hardware, group.key.format),
    )


def _carried_prefill(group: Group, constants: Any, hardware: RatedHardware) -> KernelTime:
    shape = group.shape
    return carried_prefill_attention_time(
        shape["batch"],
        shape["tokens"],
        shape["heads"],
        shape["kv_heads"],
        group.key.head_dim,
        prefix=shape["prefix"],
        window=shape["window"],
        kv_bytes=cache_bytes(group.key.kv_format),
        constants=constants,
        rates=rates_for(hardware, group.key.format),
    )


def _linear_collective(group: Group, constants: Any, hardware: RatedHardware) -> KernelTime:
    collective: Any = group.key.collective
    return linear_collective_time(
        group.shape["bytes"],
        group.key.gpus,
        collective,
        link_bandwidth=hardware.link or 0.0,
        constants=constants,
    )


_Predict = Callable[[Group, Any, RatedHardware], KernelTime]
_RIVALS: dict[str, dict[str, Law]] = {
    "gemm": {"gemm_from_few_points": Law(SparseGemmConstants, _few_points)},
    "prefill_attention": {"carried_prefill_attention": Law(CarriedPrefillConstants, _carried_prefill)},
    "collective": {"linear_collective": Law(LinearCollectiveConstants, _linear_collective)},
}
