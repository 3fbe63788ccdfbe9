"""Nonlinear least squares that would rather refuse than return a wrong optimum.

A problem is descended from several starting points by a trust-region method (scipy), the best end is polished by
Gauss-Newton steps, and then verified by criteria that no descent uses to stop:

- the *relative offset* of Bates and Watts: what of the residuals a change of the constants could still explain;
- the rank of the Jacobian: constants that the data cannot tell apart have no optimum;
- the sign of the gradient at a bound: it must press outwards;
- a second method, from a point beside the optimum, finds nothing lower;
- more than one starting point reaches it, and none a lower one.

Needs numpy and scipy (the ``fit`` extra).

Sources: D. M. Bates and D. G. Watts, "A relative offset orthogonality convergence criterion for nonlinear least
squares", Technometrics 23 (1981) 179-183, doi:10.1080/00401706.1981.10486260; robust loss: P. J. Huber and
E. M. Ronchetti, Robust Statistics, 2nd ed., chapter 7 (iteratively reweighted least squares).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, cast

from calibrate.convergence import ROUNDING, column_lengths, condition, relative_offset
from capplan.errors import CapplanError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

Loss = Literal["linear", "soft_l1"]

OFFSET_LIMIT = 1e-3
"""Relative offset above which an end is no optimum; Bates and Watts propose it."""

CONDITION_LIMIT = 1e7
"""Condition of the Jacobian, columns scaled to length 1, above which constants can't be told apart."""

COST_TOLERANCE = 1e-7
"""Relative difference of cost within which two ends are the same optimum."""

BESIDE, SPREAD = 1.2, 10.0
"""Starting points beside the given one lie within the first factor of it, far ones within the second."""

LEAST_STARTS = 5
"""Starting points that are tried in any case: the given one, one beside it and three far from it."""

ENOUGH_AGREE = 3
"""Starting points that must reach the lowest cost before the rest are spared."""

EVALUATIONS, FAR_EVALUATIONS = 2000, 200
"""Most steps of one descent, from near and from far: far ones look for lower valleys and need not reach their end."""

POLISHING_STEPS = 60


class FitError(CapplanError):
    """The data do not determine the constants, or no descent was shown to have converged (exit 2)."""

    kind = "fit"
    exit_code = 2


@dataclass(frozen=True)
class Problem:
    """Constants to be found: minimise ½ Σ ρ(r_i²) over them, within bounds.

    Args:
        residuals: r of the constants.
        start: where to begin.
        low: least values allowed.
        high: greatest values allowed.
        loss: ρ: ``linear`` is least squares, ``soft_l1`` counts outliers by their size and not its square.
        scale: residual above which a point counts as an outlier (``soft_l1``).
        magnitude: root mean square of the data that the residuals are differences to; tells rounding from misfit.
        logarithms: whether the values are logarithms of what is sought, so that 1 more is a factor.
        precision: relative change of cost at which a descent may stop; the criteria are the same for all.
    """

    residuals: Callable[[Array], Array]
    start: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    loss: Loss = "linear"
    scale: float = 1.0
    magnitude: float = 0.0
    logarithms: bool = False
    precision: float = 1e-15

    def changed(self, values: Array, logs: Array) -> Array:
        """The values with what is sought multiplied by exp(logs), kept within the bounds."""
        import numpy as np

        moved = values + logs if self.logarithms else values * np.exp(logs)
        return cast("Array", np.clip(moved, self.low, self.high))

    def steps(self, values: Array) -> Array:
        """Steps of a central difference: ∛ε of each value, or of 1 for a logarithm."""
        import numpy as np

        size = np.maximum(np.abs(values), 1.0 if self.logarithms else 1e-30)
        return cast("Array", np.cbrt(np.finfo(float).eps) * size)


@dataclass(frozen=True)
class Optimum:
    """A verified optimum.

    Args:
        values: the constants.
        cost: ½ Σ ρ(r²).
        relative_offset: of Bates and Watts; 0 is an exact optimum.
        at_bound: for each constant, whether the data press it against a bound.
        agreeing: starting points that reached this optimum.
    """

    values: tuple[float, ...]
    cost: float
    relative_offset: float
    at_bound: tuple[bool, ...]
    agreeing: int


def fit(problem: Problem, *, starts: int = 12, seed: int = 0) -> Optimum:
    """The optimum of a problem, verified.

    Of several ends with the lowest cost (terms of a sum may be exchanged) it is that of the earliest start.

    Args:
        problem: what to minimise.
        starts: starting points at most: the given one, one in four beside it, the rest within a factor of 10.
        seed: of the random starting points.

    Raises:
        FitError: no end satisfies every criterion; the message says which failed.
    """
    ends: list[Array] = []
    same: list[Array] = []
    for tried, point in enumerate(_starting_points(problem, starts, seed)):
        end = _descend(problem, point, "trf", EVALUATIONS if _is_near(tried) else FAR_EVALUATIONS)
        if end is not None:
            ends.append(_polish(problem, end))
            lowest = min(ends, key=lambda end: cost(problem, end))
            same = [end for end in ends if _same_cost(problem, end, lowest)]
        if tried + 1 >= LEAST_STARTS and len(same) >= ENOUGH_AGREE:
            break
    if not ends:
        raise FitError("no descent reached finite residuals", hint="give a starting point nearer to the data")
    optimum = verify(problem, same[0])
    if starts > 1 and len(same) < 2:
        raise FitError("only one of the starting points reached the lowest cost", hint="begin nearer to the data")
    return replace(optimum, agreeing=len(same))


def refit(problem: Problem, near: Sequence[float]) -> Optimum:
    """The optimum of a problem that differs little from one already solved, from the other's optimum alone.

    Raises:
        FitError: as for `fit`.
    """
    import numpy as np

    end = _descend(problem, np.asarray(near, dtype=float), "trf")
    if end is None:
        raise FitError("the descent did not reach finite residuals")
    return verify(problem, _polish(problem, end))


def verify(problem: Problem, end: Array) -> Optimum:
    """The end of a descent as an optimum, if it is one by every criterion but the agreement of starts.

    Raises:
        FitError: naming the criterion that failed.
    """
    import numpy as np

    residuals, jacobian = _weighted(problem, end)
    if not (np.all(np.isfinite(residuals)) and np.all(np.isfinite(jacobian))):
        raise FitError("the residuals are not finite at the end of the descent")
    gradient = jacobian.T @ residuals
    bound = _active(problem, end, gradient)
    free = ~bound
    apart = condition(jacobian[:, free])
    if not apart <= CONDITION_LIMIT:
        raise FitError(f"the data do not determine the constants: the Jacobian's condition is {apart:.1e}")
    offset = relative_offset(residuals, jacobian[:, free], problem.magnitude)
    if not offset <= OFFSET_LIMIT:
        raise FitError(f"not converged: the relative offset is {offset:.1e}, above {OFFSET_LIMIT:g}")
    _check_return(problem, end, bound)
    return Optimum(tuple(map(float, end)), cost(problem, end), offset, tuple(map(bool, bound)), 1)


def cost(problem: Problem, values: Array) -> float:
    """½ Σ ρ(r²); infinite where the residuals are not finite."""
    import numpy as np

    with np.errstate(all="ignore"):
        residuals = problem.residuals(values)
        if not np.all(np.isfinite(residuals)):
            return math.inf
        if problem.loss == "linear":
            return float(0.5 * residuals @ residuals)
        ratio = (residuals / problem.scale) ** 2
        return float(problem.scale**2 * np.sum(ratio / (np.sqrt(1 + ratio) + 1)))


def jacobian_of(problem: Problem, values: Array) -> Array:
    """∂r/∂constants by central differences: one-sided at a bound."""
    import numpy as np

    low, high = np.asarray(problem.low, dtype=float), np.asarray(problem.high, dtype=float)
    columns = []
    for index, step in enumerate(problem.steps(values)):
        up, down = values.copy(), values.copy()
        up[index] = min(values[index] + step, high[index])
        down[index] = max(values[index] - step, low[index])
        columns.append((problem.residuals(up) - problem.residuals(down)) / (up[index] - down[index]))
    return np.stack(columns, axis=1)


def _weighted(problem: Problem, values: Array) -> tuple[Array, Array]:
    """Residuals and Jacobian, each row weighted so that JᵀR is the gradient of the loss."""
    import numpy as np

    with np.errstate(all="ignore"):
        residuals, jacobian = problem.residuals(values), jacobian_of(problem, values)
        if problem.loss == "soft_l1":
            weight = (1 + (residuals / problem.scale) ** 2) ** -0.25
            return residuals * weight, jacobian * weight[:, None]
    return residuals, jacobian


def _starting_points(problem: Problem, starts: int, seed: int) -> list[Array]:
    """The given point, one in four beside it, the others within a factor `SPREAD` of it and of its own sign."""
    import numpy as np

    random = np.random.default_rng(seed)
    given = np.clip(np.asarray(problem.start, dtype=float), problem.low, problem.high)
    points = [given]
    for index in range(1, starts):
        reach = math.log(BESIDE if _is_near(index) else SPREAD)
        points.append(problem.changed(given, random.uniform(-reach, reach, given.size)))
    return points


def _is_near(index: int) -> bool:
    """Whether the starting point of this number is the given one or beside it."""
    return index == 0 or index % 4 == 1


def _descend(problem: Problem, start: Array, method: str, evaluations: int = EVALUATIONS) -> Array | None:
    """Where a descent from one point ends, or None where it breaks down."""
    import numpy as np
    from scipy.optimize import least_squares

    if not math.isfinite(cost(problem, start)):
        return None
    with np.errstate(all="ignore"):
        try:
            found = least_squares(
                problem.residuals,
                _inside(problem, start),
                jac=lambda values: jacobian_of(problem, values),
                bounds=(problem.low, problem.high),
                method=method,
                x_scale="jac",
                loss=problem.loss,
                f_scale=problem.scale,
                ftol=problem.precision,
                xtol=1e-15,
                gtol=1e-15,
                max_nfev=evaluations,
            )
        except (ValueError, np.linalg.LinAlgError, FloatingPointError):
            return None
    return cast("Array", found.x) if math.isfinite(cost(problem, found.x)) else None


def _inside(problem: Problem, values: Array) -> Array:
    """A point strictly between the bounds, as the methods want it."""
    import numpy as np

    low, high = np.asarray(problem.low, dtype=float), np.asarray(problem.high, dtype=float)
    with np.errstate(invalid="ignore"):
        margin = np.where(np.isfinite(high - low), 1e-9 * (high - low), 1e-9 * np.maximum(np.abs(values), 1e-8))
    return cast("Array", np.clip(values, low + margin, high - margin))


def _polish(problem: Problem, values: Array) -> Array:
    """Gauss-Newton steps on the free constants as long as they lower the cost."""
    import numpy as np

    best, best_cost = values, cost(problem, values)
    for _ in range(POLISHING_STEPS):
        residuals, jacobian = _weighted(problem, best)
        if not np.all(np.isfinite(jacobian)):
            break
        step = _gauss_newton_step(problem, best, residuals, jacobian)
        for halving in range(12):
            trial = np.clip(best + step * 0.5**halving, problem.low, problem.high)
            trial_cost = cost(problem, trial)
            if trial_cost < best_cost:
                break
        else:
            break
        gained = 1 - trial_cost / best_cost
        best, best_cost = trial, trial_cost
        if gained < problem.precision:
            break
    return best


def _gauss_newton_step(problem: Problem, values: Array, residuals: Array, jacobian: Array) -> Array:
    """The step to the least squares of the linearised residuals; a constant that would leave stops at its bound."""
    import numpy as np

    low, high = np.asarray(problem.low, dtype=float), np.asarray(problem.high, dtype=float)
    step = np.zeros_like(values)
    free = ~_active(problem, values, jacobian.T @ residuals)
    while free.any():
        lengths = column_lengths(jacobian[:, free])
        target = -(residuals + jacobian[:, ~free] @ step[~free])
        step[free] = np.linalg.lstsq(jacobian[:, free] / lengths, target, rcond=None)[0] / lengths
        leaves = free & ((values + step < low) | (values + step > high))
        if not leaves.any():
            break
        step[leaves] = np.clip(values + step, low, high)[leaves] - values[leaves]
        free &= ~leaves
    return step


def _active(problem: Problem, values: Array, gradient: Array) -> npt.NDArray[np.bool_]:
    """The constants that lie at a bound and are pressed against it."""
    import numpy as np

    low, high = np.asarray(problem.low, dtype=float), np.asarray(problem.high, dtype=float)
    near = 1e-5 if problem.logarithms else 1e-6 * np.maximum(np.abs(values), 1.0)
    at_low = (values - low <= near) & (gradient >= 0)
    at_high = (high - values <= near) & (gradient <= 0)
    return cast("npt.NDArray[np.bool_]", at_low | at_high)


def _check_return(problem: Problem, end: Array, bound: npt.NDArray[np.bool_]) -> None:
    """A second method, begun beside the optimum, must find nothing lower."""
    import numpy as np

    signs = np.where(np.arange(end.size) % 2 == 0, 1.0, -1.0)
    beside = problem.changed(end, 1e-2 * signs * ~bound)
    again = _descend(problem, beside, "dogbox")
    if again is None:
        raise FitError("the second method broke down beside the optimum")
    here, there = cost(problem, end), cost(problem, again)
    floor = 0.5 * (ROUNDING * problem.magnitude) ** 2
    if there < here * (1 - COST_TOLERANCE) - floor:
        raise FitError("a second method found a lower cost beside the end of the first")


def _same_cost(problem: Problem, end: Array, best: Array) -> bool:
    """Whether a descent ended at the best cost, but for rounding."""
    floor = len(problem.residuals(best)) * (ROUNDING * problem.magnitude) ** 2
    lowest = cost(problem, best)
    return cost(problem, end) <= lowest * (1 + COST_TOLERANCE) + floor
