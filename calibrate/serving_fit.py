"""Fit an engine's own constants to measured servers, and say how far they carry to models and GPUs left out.

Two constants are common to all engines, `kernel_share` and `per_sequence`; they are fitted to TPOT. Steps with prompt
tokens take what their kernels take alone: `prompt_ratio` is 1/`kernel_share`, and no constant. Five constants belong
to an engine and are fitted to TTFT: what the front end takes, the steps that pass around a first token, and the host's
floor of a prefill step.

All residuals are ``ln(predicted/measured)`` under a Cauchy loss: servers stall when they start, and a row that is off
by ten times the noise says nothing of the constants. A group of rows (model, GPU, engine) weighs as the square root of
its size, so that a long sweep does not count for all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from capplan.describe.engine_times import EngineTimes, engine_times
from capplan.serving.steady_state import Load, OperatingPoint, operating_point

SHARED = {"kernel_share": (0.5, 1.3), "per_sequence": (0.0, 100e-6)}
"""Constants of all engines, with their physical range."""

OWN = {
    "first_token": (0.0, 50e-3),
    "per_input_token": (0.0, 50e-6),
    "first_token_steps": (0.0, 10.0),
    "host_layer": (0.0, 5e-3),
    "host_launches": (0.0, 60.0),
}
"""Constants of one engine, with their physical range."""

TYPICAL: dict[str, Any] = {
    "first_token": 5e-3,
    "per_input_token": 5e-6,
    "first_token_steps": 2.0,
    "host_layer": 0.5e-3,
    "host_launches": 0.0,
}
"""Where the constants of any engine are expected, by what they stand for: milliseconds of HTTP, a tokeniser's 200,000
tokens a second, one step ahead and one behind, some ten launches of 50 µs a layer. No fit has a part in them."""

STARTING_SHARE, STARTING_SEQUENCE = 0.9, 15e-6
"""Where the constants of all engines start."""

PRIOR_ROWS = 20
"""Rows that the constants' typical values count as: what data cannot tell apart stays where it was."""

PRIOR_WIDTH = 0.15
"""Share of a constant's range within which it is expected around its typical value."""

TPOT_SCALE = 0.1
"""Where residuals of TPOT begin to count less than squared: beyond what the laws of unseen kernels err by."""

TTFT_SCALE = 0.035
"""The same of TTFT: the same server measured twice differs by 2 to 3.4 % in the median."""

NOTHING = 1e-6
"""Share of a constant's range under which it is its least value."""

PRIOR_SCALE = 0.1
"""What a prior row counts as: a residual of 10 %."""


@dataclass(frozen=True)
class MeasuredLoad:
    """One measured row, and what kernel laws say of it.

    Args:
        load: the row's load.
        engine: its engine.
        model: its model.
        gpu: its device.
        ttft: measured seconds to the first token.
        tpot: measured seconds a token.
        steady: whether the server was neither queueing for memory nor stalled: only such rows are fitted to TTFT.
        typical: whether the collection followed the usual protocol; others are scored and not fitted to TTFT.
    """

    load: Load
    engine: str
    model: str
    gpu: str
    ttft: float
    tpot: float
    steady: bool
    typical: bool = True

    @property
    def group(self) -> tuple[str, str, str]:
        """Model, device and engine: rows that share most of their error."""
        return (self.model, self.gpu, self.engine)


Times = dict[str, EngineTimes]


def typical(engine: str) -> EngineTimes:
    """An engine's ways as they are described, with constants where they are expected."""
    return replace(with_shared(engine_times(engine), (STARTING_SHARE, STARTING_SEQUENCE)), **TYPICAL)


def fit(rows: Sequence[MeasuredLoad]) -> Times:
    """The constants of every engine that occurs in `rows`."""
    times = {engine: typical(engine) for engine in sorted({row.engine for row in rows})}
    times = _fit_shared(rows, times)
    return {engine: _fit_own([row for row in rows if row.engine == engine], own) for engine, own in times.items()}


def predict(rows: Sequence[MeasuredLoad], times: Times) -> list[OperatingPoint]:
    """The operating point of every row."""
    return [operating_point(row.load, times[row.engine]) for row in rows]


def left_out(rows: Sequence[MeasuredLoad], key: Callable[[MeasuredLoad], str]) -> list[OperatingPoint]:
    """Predictions of every row by constants that were fitted without any row of the same key.

    An engine that occurs only with that key keeps its typical constants.
    """
    predictions: list[OperatingPoint | None] = [None] * len(rows)
    for value in sorted({key(row) for row in rows}):
        times = fit([row for row in rows if key(row) != value])
        for index, row in enumerate(rows):
            if key(row) == value:
                predictions[index] = operating_point(row.load, times.get(row.engine, typical(row.engine)))
    return [point for point in predictions if point is not None]


def _fit_shared(rows: Sequence[MeasuredLoad], times: Times) -> Times:
    """`kernel_share` and `per_sequence` on TPOT, which no constant of the first token touches."""
    import numpy as np

    weights = _weights(rows)
    measured = np.log([row.tpot for row in rows])

    def residuals(values: Any) -> Any:
        trial = {engine: with_shared(own, values) for engine, own in times.items()}
        predicted = [_tpot(row.load, trial[row.engine]) for row in rows]
        return weights * (np.log(predicted) - measured)

    values = _solve(residuals, [getattr(next(iter(times.values())), name) for name in SHARED], SHARED, TPOT_SCALE)
    return {engine: with_shared(own, values) for engine, own in times.items()}


def _fit_own(rows: Sequence[MeasuredLoad], times: EngineTimes) -> EngineTimes:
    """An engine's constants on the TTFT of its steady rows."""
    import numpy as np

    steady = [row for row in rows if row.steady and row.typical]
    if len(steady) < 2 * len(OWN):
        return times
    weights = _weights(steady)
    measured = np.log([row.ttft for row in steady])

    start = np.array([getattr(times, name) for name in OWN])
    span = np.array([high - low for low, high in OWN.values()])
    pull = PRIOR_ROWS**0.5 * PRIOR_SCALE * float(weights.mean())

    def residuals(values: Any) -> Any:
        trial = with_own(times, values)
        predicted = [operating_point(row.load, trial).ttft for row in steady]
        return np.concatenate(
            [weights * (np.log(predicted) - measured), pull * (values - start) / (PRIOR_WIDTH * span)]
        )

    values = _solve(residuals, list(start), OWN, TTFT_SCALE)
    return with_own(times, values)


def with_shared(times: EngineTimes, values: Sequence[float]) -> EngineTimes:
    """An engine's constants with other values of those of all engines, in the order of `SHARED`."""
    shared: dict[str, Any] = dict(zip(SHARED, values, strict=True))
    return replace(times, prompt_ratio=1 / shared["kernel_share"], **shared)


def with_own(times: EngineTimes, values: Sequence[float]) -> EngineTimes:
    """An engine's constants with other values of those that are its own, in the order of `OWN`."""
    own: dict[str, Any] = dict(zip(OWN, values, strict=True))
    return replace(times, **own)


def _solve(residuals: Any, start: list[float], ranges: dict[str, tuple[float, float]], scale: float) -> list[float]:
    """Bounded least squares under a Cauchy loss, in units of each constant's range."""
    import numpy as np
    from scipy.optimize import least_squares

    low = np.array([bounds[0] for bounds in ranges.values()])
    span = np.array([bounds[1] - bounds[0] for bounds in ranges.values()])
    inside = np.clip((np.array(start) - low) / span, 1e-6, 1 - 1e-6)
    found = least_squares(
        lambda unit: residuals(low + span * unit),
        inside,
        bounds=(0, 1),
        loss="cauchy",
        f_scale=scale,
        x_scale=0.1,
        diff_step=1e-3,
        max_nfev=60,
    )
    units = np.where(found.x < NOTHING, 0.0, found.x)
    return [float(value) for value in low + span * units]


def _weights(rows: Sequence[MeasuredLoad]) -> Any:
    """Square roots of weights: each group of rows weighs as much as the square root of its size."""
    import numpy as np

    sizes: dict[tuple[str, str, str], int] = {}
    for row in rows:
        sizes[row.group] = sizes.get(row.group, 0) + 1
    return np.array([sizes[row.group] ** -0.25 for row in rows])


def _tpot(load: Load, times: EngineTimes) -> float:
    step, share = load.decode.seconds(times), load.joining.seconds(times)
    return step + max(load.running - 1, 0) / load.workload.osl * share
