"""Fits the constants of a kernel law to a group of measured calls, and scores them on calls not seen.

The residual of a call is ln(predicted/measured), so that a microsecond in ten counts as much as a millisecond in
ten thousand; soft L1 keeps the calls that another algorithm answered from bending the rest. Constants are varied by
their logarithm within the range that is physical; one that ends at the low end of an optional constant's range is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from calibrate.fit import FitError, Optimum, Problem, fit, refit
from calibrate.kernel_groups import Group
from capplan.describe.kernel_constants import Constants, PrefillAttentionConstants, constants_of
from capplan.describe.profile import RatedHardware
from capplan.describe.profile_table import KINDS, SIZE_BOUNDS, SIZES, KernelFit, Residuals, Size, Spread
from capplan.timing.kernel_estimates import kernel_time
from capplan.timing.kernel_laws import KernelTime

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

OUTLIER = 0.05
"""ln(predicted/measured) above which a call counts as an outlier: about the noise between two collections."""

STARTS = 12
"""Starting points of a fit of a law: the laws' problems have one valley, and this confirms it."""

SAMPLE = 2000
"""Calls among which the valley is looked for from several starting points; its end is then found among all."""

PRECISION = 1e-11
"""Relative change of cost at which a descent stops."""

SELECTED: dict[str, str] = {"decode_attention": "depth", "mla_decode": "depth", "grouped_gemm": "expert"}
"""Terms that not every kernel has: kept only where the median error would be higher without them."""

HOLDABLE: dict[str, tuple[tuple[str, float], ...]] = {"grouped_gemm": (("expert", 1e-11), ("activations", 0.5))}
"""Constants that one model's measurements can't tell from the others, and where they are then held, one after the
other until the rest can be told: no cost of an expert, and few passes over the activations, so that the efficiencies
take up the rest without leaving their range."""

HELD = 1 + 1e-6
"""Width of the range of a constant that is held."""

ABSORBED_BELOW = 0.3
"""Share of the peak below which a prefill of latent attention is taken to multiply with the latent itself."""

FOLDS = 5
"""Parts that the configurations are divided into, each predicted by a fit on the others."""

HALVES = 3
"""Random halves that the interpolation error is averaged over."""

LEAST_OF_A_SIZE = 30
"""Points below which a size class has no residuals of its own."""


@dataclass(frozen=True)
class Law:
    """A law as the fitter sees it.

    Args:
        constants: the class of its constants.
        predict: the time of a group's shapes by constants, with the hardware's figures.
    """

    constants: Any
    predict: Callable[[Group, Any, RatedHardware], KernelTime]


def law_of(group: Group) -> Law:
    """The law that a profile uses for a group."""
    return Law(
        KINDS[group.kind].constants,
        lambda group, constants, hardware: kernel_time(group.kind, group.key, constants, group.shape, hardware),
    )


def predicted(group: Group, law: Law, constants: Constants, hardware: RatedHardware) -> Array:
    """Seconds of every call of a group."""
    import numpy as np

    return np.asarray(law.predict(group, constants, hardware).total, dtype=float)


def errors(group: Group, law: Law, constants: Constants, hardware: RatedHardware) -> Array:
    """predicted/measured − 1 for every call of a group."""
    return predicted(group, law, constants, hardware) / group.seconds - 1


def fit_law(
    group: Group, hardware: RatedHardware, law: Law | None = None, near: Constants | None = None
) -> tuple[Constants, Optimum]:
    """The constants of a law that fit a group best.

    Args:
        group: the measured calls.
        hardware: the figures that the constants are shares of.
        law: which; that of the profile by default.
        near: constants of nearly the same data, to begin from; without them several starting points are tried.

    Raises:
        FitError: the data do not determine the constants.
    """
    law = law or law_of(group)
    found, held = _fit_identifiable(group, hardware, law, near)
    term = SELECTED.get(group.kind)
    if term is None or term in held or term not in constants_of(law.constants) or getattr(found[0], term) == 0:
        return found
    nothing = constants_of(law.constants)[term].low
    try:
        shorter = _fit_terms(group, hardware, law, found[0], {**held, term: nothing})
    except FitError:
        return found
    return min((found, shorter), key=lambda fitted: _median_error(group, hardware, law, fitted[0]))


def _fit_identifiable(
    group: Group, hardware: RatedHardware, law: Law, near: Constants | None
) -> tuple[tuple[Constants, Optimum], dict[str, float]]:
    """The constants that fit best, with as few held as the data can't tell, and which were held at what."""
    described = constants_of(law.constants)
    held: dict[str, float] = {}
    to_hold = [(name, value) for name, value in HOLDABLE.get(group.kind, ()) if name in described]
    while True:
        try:
            return _fit_terms(group, hardware, law, near, held), held
        except FitError:
            if not to_hold:
                raise
            name, value = to_hold.pop(0)
            held[name] = value


def _fit_terms(
    group: Group, hardware: RatedHardware, law: Law, near: Constants | None, held: Mapping[str, float]
) -> tuple[Constants, Optimum]:
    """The constants that fit best, some of them held where so told."""
    if near is None:
        sample = fit(_problem(_sample(group), law, hardware, held), starts=STARTS)
        near = _constants(law, sample)
        if group.points <= SAMPLE:
            return near, sample
    problem = _problem(group, law, hardware, held)
    inside = [
        min(max(log, low), high) for log, low, high in zip(_inner_logs(near), problem.low, problem.high, strict=True)
    ]
    optimum = refit(problem, inside)
    return _constants(law, optimum), optimum


def _median_error(group: Group, hardware: RatedHardware, law: Law, constants: Constants) -> float:
    import numpy as np

    return float(np.median(np.abs(errors(group, law, constants, hardware))))


def _sample(group: Group) -> Group:
    """At most `SAMPLE` calls, in which the valley is looked for."""
    import numpy as np

    if group.points <= SAMPLE:
        return group
    return group.take(np.sort(np.random.default_rng(0).permutation(group.points)[:SAMPLE]))


def _problem(group: Group, law: Law, hardware: RatedHardware, held: Mapping[str, float]) -> Problem:
    """Minimise soft L1 of ln(predicted/measured) over the logarithms of the constants."""
    import numpy as np

    described = [
        replace(constant, start=held[name], low=held[name], high=held[name] * HELD) if name in held else constant
        for name, constant in constants_of(law.constants).items()
    ]
    measured = np.log(group.seconds)

    def residuals(logs: Array) -> Array:
        constants = law.constants(*np.exp(logs))
        return np.log(predicted(group, law, constants, hardware)) - measured

    return Problem(
        residuals,
        start=[math.log(constant.start) for constant in described],
        low=[math.log(constant.low) for constant in described],
        high=[math.log(constant.high) for constant in described],
        loss="soft_l1",
        scale=OUTLIER,
        magnitude=float(np.sqrt(np.mean(measured**2))),
        logarithms=True,
        precision=PRECISION,
    )


def _inner_logs(constants: Constants) -> list[float]:
    """Logarithms of constants, a constant of 0 standing at the low end of its range."""
    kind: Any = type(constants)
    described = constants_of(kind)
    return [math.log(max(getattr(constants, name), constant.low)) for name, constant in described.items()]


def _constants(law: Law, optimum: Optimum) -> Constants:
    values = {}
    for (name, constant), log, bound in zip(
        constants_of(law.constants).items(), optimum.values, optimum.at_bound, strict=True
    ):
        value = min(max(math.exp(log), constant.low), constant.high)
        dropped = constant.optional and bound and log - math.log(constant.low) < 1e-3
        values[name] = 0.0 if dropped else value
    constants: Constants = law.constants(**values)
    return constants


def fit_group(group: Group, hardware: RatedHardware) -> KernelFit:
    """A group's constants with their residuals and domain, as a profile holds them.

    Raises:
        FitError: the data do not determine the constants.
    """
    if group.kind == "mla_prefill":
        group = _as_it_multiplies(group, hardware)
    constants, _ = fit_law(group, hardware)
    half_median, half_p90 = half_errors(group, hardware, near=constants)
    ratios, chosen = unseen_ratios(group, hardware, near=constants)
    unseen = spread(ratios)
    return KernelFit(
        kind=group.kind,
        key=group.key,
        constants=constants,
        points=group.points,
        configurations=int(group.configurations.max()) + 1,
        residuals=Residuals(half_median, half_p90, unseen, _by_size(group.seconds[chosen] / ratios, ratios)),
        domain={
            axis: (float(group.shape[axis].min()), float(group.shape[axis].max())) for axis in KINDS[group.kind].shape
        },
    )


def _as_it_multiplies(group: Group, hardware: RatedHardware) -> Group:
    """The group with the way of multiplying that its speed tells; the tables don't.

    Absorbed products are 3.4 times as many FLOPs. A kernel that seems to run below 0.3 of the peak unabsorbed is
    slower than any that was tuned, and is taken to be absorbed.
    """
    unabsorbed = replace(group, key=replace(group.key, absorbed="no"))
    constants, _ = fit_law(unabsorbed, hardware)
    slow = isinstance(constants, PrefillAttentionConstants) and constants.compute_efficiency < ABSORBED_BELOW
    return replace(group, key=replace(group.key, absorbed="yes")) if slow else unabsorbed


def half_errors(
    group: Group, hardware: RatedHardware, law: Law | None = None, near: Constants | None = None
) -> tuple[float, float]:
    """Median and 90th percentile of |error| on random halves, fitted on the other halves: interpolation.

    A collective is fitted on every other message size and scored on the rest.
    """
    import numpy as np

    law = law or law_of(group)
    medians, p90s = [], []
    for train, test in _halves(group):
        constants, _ = fit_law(group.take(train), hardware, law, near)
        found = np.abs(errors(group.take(test), law, constants, hardware))
        medians.append(float(np.median(found)))
        p90s.append(float(np.quantile(found, 0.9)))
    return float(np.mean(medians)), float(np.mean(p90s))


def _halves(group: Group) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
    import numpy as np

    if group.kind == "collective":
        order = np.argsort(group.shape["bytes"])
        yield order[0::2], order[1::2]
        return
    for seed in range(HALVES):
        order = np.random.default_rng(seed).permutation(group.points)
        middle = group.points // 2
        yield order[:middle], order[middle:]


def unseen_ratios(
    group: Group, hardware: RatedHardware, law: Law | None = None, near: Constants | None = None
) -> tuple[Array, npt.NDArray[Any]]:
    """measured/predicted of calls whose whole configuration was left out of the fit, and which calls they are.

    The configurations are divided into five parts; with fewer than two, and for collectives, the halves are taken.
    """
    import numpy as np

    law = law or law_of(group)
    ratios: list[Array] = []
    chosen: list[npt.NDArray[Any]] = []
    for train, test in _folds(group):
        constants, _ = fit_law(group.take(train), hardware, law, near)
        held_out = group.take(test)
        ratios.append(held_out.seconds / predicted(held_out, law, constants, hardware))
        chosen.append(test)
    return np.concatenate(ratios), np.concatenate(chosen)


def _folds(group: Group) -> Sequence[tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
    import numpy as np

    count = int(group.configurations.max()) + 1
    if group.kind == "collective" or count < 2:
        train, test = next(iter(_halves(group)))
        return [(train, test), (test, train)]
    folds = min(FOLDS, count)
    fold_of = np.random.default_rng(0).permutation(count) % folds
    parts = fold_of[group.configurations]
    return [(np.flatnonzero(parts != fold), np.flatnonzero(parts == fold)) for fold in range(folds)]


def spread(ratios: Array) -> Spread:
    """Errors of measured/predicted ratios."""
    import numpy as np

    found = np.abs(1 / ratios - 1)
    low, high = np.quantile(ratios, [0.1, 0.9])
    return Spread(float(np.median(found)), float(np.quantile(found, 0.9)), float(low), float(high))


def _by_size(seconds: Array, ratios: Array) -> dict[Size, Spread]:
    """The spread of each size class of predictions that has points enough."""
    import numpy as np

    classes = np.searchsorted(SIZE_BOUNDS, seconds, side="right")
    parts = {size: ratios[classes == index] for index, size in enumerate(SIZES)}
    return {size: spread(part) for size, part in parts.items() if len(part) >= LEAST_OF_A_SIZE}


__all__ = [
    "FitError",
    "Law",
    "errors",
    "fit_group",
    "fit_law",
    "half_errors",
    "law_of",
    "predicted",
    "spread",
    "unseen_ratios",
]
