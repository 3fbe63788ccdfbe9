"""The fitter against NIST's certified values, planted constants, and problems that have no answer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrate.convergence import condition, relative_offset
from calibrate.fit import FitError, Problem, fit, jacobian_of, refit, verify

sys.path.insert(0, str(Path(__file__).parent))
from nist_strd import MODELS, read

UNBOUNDED = np.inf


def nist_problem(name: str, start: int) -> Problem:
    reference, model = read(name), MODELS[name]
    size = len(reference.certified)
    return Problem(
        lambda b: model(b, reference.x) - reference.y,
        reference.starts[start],
        [-UNBOUNDED] * size,
        [UNBOUNDED] * size,
        magnitude=float(np.sqrt(np.mean(reference.y**2))),
    )


def agreed_digits(values: Any, certified: np.ndarray) -> float:
    return float(-np.log10(np.max(np.abs(np.asarray(values) / certified - 1)) + 1e-16))


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_models_have_the_certified_residuals_at_the_certified_values(name: str) -> None:
    reference = read(name)
    residuals = MODELS[name](reference.certified, reference.x) - reference.y
    if name != "Lanczos1":  # whose residuals are the rounding of its data
        assert residuals @ residuals == pytest.approx(reference.residual_sum, rel=1e-5)


EASY = [name for name in sorted(MODELS) if read(name).level in ("Lower", "Average")]
HARD = [name for name in sorted(MODELS) if read(name).level == "Higher"]


def test_all_27_data_sets_are_there() -> None:
    assert (len(EASY), len(HARD)) == (19, 8)


@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("name", EASY)
def test_lower_and_average_difficulty_agree_to_six_digits_from_both_starts(name: str, start: int) -> None:
    assert agreed_digits(fit(nist_problem(name, start)).values, read(name).certified) >= 6


@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("name", HARD)
def test_higher_difficulty_is_right_or_refused(name: str, start: int) -> None:
    try:
        optimum = fit(nist_problem(name, start))
    except FitError:
        return
    assert agreed_digits(optimum.values, read(name).certified) >= 6


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", ["BoxBOD", "MGH09", "MGH10", "Eckerle4", "Misra1a", "Chwirut2"])
def test_from_bad_starts_it_is_right_or_refused(name: str, seed: int) -> None:
    problem = nist_problem(name, 0)
    factors = np.exp(np.random.default_rng(seed).uniform(-2, 2, len(problem.start)))
    far = Problem(
        problem.residuals, np.asarray(problem.start) * factors, problem.low, problem.high, magnitude=problem.magnitude
    )
    try:
        optimum = fit(far, seed=seed)
    except FitError:
        return
    assert 2 * optimum.cost == pytest.approx(read(name).residual_sum, rel=1e-6)


def line(noise: float, outliers: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(7)
    x = np.linspace(0, 1, 200)
    y = 2 + 3 * x + noise * random.standard_normal(200)
    y[:outliers] += 50
    return x, y


def test_least_squares_of_a_line_is_the_closed_form() -> None:
    x, y = line(0.3)
    slope = np.cov(x, y, bias=True)[0, 1] / np.var(x)
    problem = Problem(lambda b: b[0] + b[1] * x - y, [1.0, 1.0], [-UNBOUNDED] * 2, [UNBOUNDED] * 2)
    assert fit(problem).values == pytest.approx((y.mean() - slope * x.mean(), slope), rel=1e-9)


def test_soft_l1_is_not_bent_by_outliers() -> None:
    x, y = line(0.01, outliers=20)
    options = {"loss": "soft_l1", "scale": 0.02}
    robust = Problem(lambda b: b[0] + b[1] * x - y, [1.0, 1.0], [-UNBOUNDED] * 2, [UNBOUNDED] * 2, **options)  # type: ignore[arg-type]
    assert fit(robust).values == pytest.approx((2, 3), abs=0.02)


def test_a_constant_pressed_against_its_bound_is_told() -> None:
    x, y = line(0.1)
    optimum = fit(Problem(lambda b: b[0] + b[1] * x - y, [1.0, 1.0], [0, 0], [10, 2.5]))
    assert optimum.at_bound == (False, True)
    assert optimum.values[1] == pytest.approx(2.5)
    assert optimum.values[0] == pytest.approx(np.mean(y - 2.5 * x), rel=1e-6)


def test_constants_that_the_data_cannot_tell_apart_are_refused() -> None:
    x, y = line(0.1)
    problem = Problem(lambda b: b[0] * b[1] * x + 2 - y, [1.0, 1.0], [-UNBOUNDED] * 2, [UNBOUNDED] * 2)
    with pytest.raises(FitError, match="do not determine the constants"):
        fit(problem)


def test_a_constant_without_effect_is_refused() -> None:
    x, y = line(0.1)
    problem = Problem(lambda b: b[0] + 3 * x - y + 0 * b[1], [1.0, 1.0], [-UNBOUNDED] * 2, [UNBOUNDED] * 2)
    with pytest.raises(FitError):
        fit(problem)


def test_a_saddle_is_no_optimum() -> None:
    """At b = 0 the gradient of (b² − 1)² vanishes, and the Jacobian with it."""
    problem = Problem(lambda b: np.array([b[0] ** 2 - 1, b[0] ** 2 - 1, 0.0]), [0.5], [-2.0], [2.0])
    with pytest.raises(FitError):
        verify(problem, np.array([0.0]))
    assert fit(problem).values[0] == pytest.approx(1, abs=1e-6)


def test_residuals_that_are_never_finite_are_refused() -> None:
    with pytest.raises(FitError, match="finite"):
        fit(Problem(lambda b: np.full(3, np.nan) * b[0], [1.0], [-1.0], [2.0]))


def test_the_relative_offset_is_zero_at_the_optimum_and_large_beside_it() -> None:
    problem = nist_problem("Misra1a", 0)
    certified = read("Misra1a").certified
    beside = certified * np.array([1.1, 1.0])
    assert relative_offset(problem.residuals(certified), jacobian_of(problem, certified)) < 1e-6
    assert relative_offset(problem.residuals(beside), jacobian_of(problem, beside)) > 10


def test_the_condition_is_that_of_scaled_columns() -> None:
    """Two unit vectors at angle θ have the condition cot(θ/2), whatever their lengths."""
    angle = 0.1
    columns = np.array([[1.0, 1e6 * np.cos(angle)], [0.0, 1e6 * np.sin(angle)]])
    assert condition(columns) == pytest.approx(1 / np.tan(angle / 2))
    assert condition(np.zeros((3, 0))) == 1.0


def test_the_jacobian_is_that_of_the_exponential() -> None:
    reference, problem = read("Misra1a"), nist_problem("Misra1a", 0)
    b1, b2 = reference.certified
    exact = np.stack([1 - np.exp(-b2 * reference.x), b1 * reference.x * np.exp(-b2 * reference.x)], axis=1)
    assert jacobian_of(problem, reference.certified) == pytest.approx(exact, rel=1e-7)


def test_refitting_from_the_optimum_stays_there() -> None:
    problem = nist_problem("Chwirut1", 1)
    first = fit(problem)
    assert refit(problem, first.values).values == pytest.approx(first.values, rel=1e-8)
