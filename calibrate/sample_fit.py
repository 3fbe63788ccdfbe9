"""Fits kernel laws to a few dozen samples: the law with as many of its terms as so few points can tell apart.

Of the nested laws (all terms, then one optional term after the other left out) that the fitter accepts, the one is
taken that predicts configurations it has not seen best: by the mean of |ln(measured/predicted)|. The median would not
see that a law is wrong for fewer than half of the points.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, make_dataclass
from typing import TYPE_CHECKING, Annotated, Any

from calibrate.fit import FitError
from calibrate.kernel_fit import Law, fit_law, half_errors, law_of, predicted, spread, unseen_ratios
from calibrate.kernel_groups import Group
from capplan.describe.kernel_constants import Constants, constants_of
from capplan.describe.kernel_formats import kernel_format
from capplan.describe.profile import RatedHardware
from capplan.describe.profile_table import KINDS, KernelFit, Residuals, Spread
from capplan.timing.kernel_laws import KernelTime

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

DROPPED: Mapping[str, tuple[tuple[str, float], ...]] = {
    "gemm": (("requantise", 0.0), ("depth", 0.0)),
    "grouped_gemm": (("expert", 0.0), ("activations", 1.0)),
    "prefill_attention": (("tile_efficiency", 50.0), ("memory_efficiency", 1.0)),
    "decode_attention": (("depth", 0.0), ("block", 0.0)),
    "mla_prefill": (("tile_efficiency", 50.0), ("memory_efficiency", 1.0)),
    "mla_decode": (("depth", 0.0), ("floor_tokens", 0.0), ("memory_efficiency", 1.0)),
    "collective": (("exponent", 1.0),),
    "rows": (),
    "recurrence": (("memory_efficiency", 1.0), ("chunk", 0.0)),
}
"""For each kind the constants that are given up when points are few, in order, and what they are then held at."""

BOOTSTRAPS = 40
"""Resamples that the intervals of the constants come from."""

INTERVAL = (0.1, 0.9)


@dataclass(frozen=True)
class SampleFit:
    """What came of one group.

    Args:
        fit: constants, residuals and domain, as a profile has them.
        intervals: 80 % interval of each constant, by resampling the points.
        held: constants that were not fitted, and at what they are held.
        ratios: measured/predicted of the points in the fit.
    """

    fit: KernelFit
    intervals: Mapping[str, tuple[float, float]]
    held: Mapping[str, float] = field(default_factory=dict)
    ratios: tuple[float, ...] = ()


def fit_samples(group: Group, hardware: RatedHardware, *, bootstraps: int | None = None) -> SampleFit:
    """The constants of the best of the nested laws.

    Args:
        group: the points.
        hardware: the figures that the constants are shares of.
        bootstraps: resamples for the intervals; the usual number by default, 0 for none.

    Raises:
        FitError: none of them is determined by the points; the message is of the shortest.
    """
    refused: FitError | None = None
    found: list[tuple[float, SampleFit]] = []
    for held in nested(group):
        law = held_law(group, held)
        try:
            found.append(_described(group, hardware, law, held))
        except FitError as error:
            refused = error
    if not found:
        raise refused or FitError("no law to fit")
    best = min(found, key=lambda item: item[0])[1]
    return _with_intervals(group, hardware, best, BOOTSTRAPS if bootstraps is None else bootstraps)


def nested(group: Group) -> list[dict[str, float]]:
    """What is held in each of the laws, from nothing to everything that may be."""
    order = list(DROPPED[group.kind])
    first: dict[str, float] = {}
    if group.kind == "gemm" and kernel_format(group.key.format).activation_bytes >= 2:
        first["requantise"] = 0.0
    laws = [first]
    for name, value in order:
        if name not in laws[-1]:
            laws.append({**laws[-1], name: value})
    return laws


def held_law(group: Group, held: Mapping[str, float]) -> Law:
    """The law of a group with some of its constants held."""
    law = law_of(group)
    if not held:
        return law
    full = law.constants
    described = constants_of(full)
    free = [(name, Annotated[float, constant]) for name, constant in described.items() if name not in held]
    reduced = make_dataclass("FreeConstants", free, frozen=True)

    def predict(group: Group, constants: Any, hardware: RatedHardware) -> KernelTime:
        return law.predict(group, full_constants(full, constants, held), hardware)

    return Law(reduced, predict)


def full_constants(full: Any, free: Any, held: Mapping[str, float]) -> Constants:
    """All constants of a law from the fitted ones and the held ones."""
    values = {item.name: getattr(free, item.name) for item in fields(free)}
    constants: Constants = full(**{**values, **held})
    return constants


def _described(group: Group, hardware: RatedHardware, law: Law, held: Mapping[str, float]) -> tuple[float, SampleFit]:
    """(mean of |ln(measured/predicted)| on configurations left out, the fit)."""
    import numpy as np

    constants, _ = fit_law(group, hardware, law)
    half_median, half_p90 = half_errors(group, hardware, law, near=constants)
    ratios, _ = unseen_ratios(group, hardware, law, near=constants)
    kind = KINDS[group.kind]
    domain = {axis: (float(group.shape[axis].min()), float(group.shape[axis].max())) for axis in kind.shape}
    fit = KernelFit(
        kind=group.kind,
        key=group.key,
        constants=full_constants(kind.constants, constants, held),
        points=group.points,
        configurations=int(group.configurations.max()) + 1,
        residuals=Residuals(half_median, half_p90, spread(ratios)),
        domain=domain,
    )
    inside = group.seconds / predicted(group, law, constants, hardware)
    return float(np.mean(np.abs(np.log(ratios)))), SampleFit(fit, {}, dict(held), tuple(map(float, inside)))


def _with_intervals(group: Group, hardware: RatedHardware, found: SampleFit, bootstraps: int) -> SampleFit:
    """The fit with the interval of each free constant: its percentiles over fits to points drawn with replacement."""
    import numpy as np

    law = held_law(group, found.held)
    near = law.constants(**{name: getattr(found.fit.constants, name) for name in constants_of(law.constants)})
    random = np.random.default_rng(0)
    drawn: dict[str, list[float]] = {name: [] for name in constants_of(law.constants)}
    for _ in range(bootstraps):
        chosen = random.integers(0, group.points, group.points)
        try:
            constants, _optimum = fit_law(group.take(chosen), hardware, law, near)
        except FitError:
            continue
        for name, values in drawn.items():
            values.append(float(getattr(constants, name)))
    intervals = {
        name: tuple(float(value) for value in np.quantile(values, INTERVAL)) for name, values in drawn.items() if values
    }
    return SampleFit(found.fit, intervals, found.held, found.ratios)  # type: ignore[arg-type]


def score(group: Group, fit: KernelFit, hardware: RatedHardware) -> Spread:
    """How far samples that no fit saw lie from what the constants predict."""
    return spread(group.seconds / predicted(group, law_of(group), fit.constants, hardware))
