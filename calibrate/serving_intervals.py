"""How wide the 80 % intervals of served figures must be, from rows that the fit did not see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from calibrate.serving_fit import MeasuredLoad, Times
from capplan.serving.steady_state import OperatingPoint

TAIL = 0.1
"""Share of rows on each side of the interval."""


def with_intervals(times: Times, rows: Sequence[MeasuredLoad], unseen: Sequence[OperatingPoint]) -> Times:
    """The constants with the 10th and 90th percentile of measured over predicted, each engine's own.

    Args:
        times: the fitted constants.
        rows: the measured rows.
        unseen: their predictions by constants that were fitted without their model.

    Rows of an unusual protocol count: nothing tells a user beforehand that a server is not one of them.
    """
    result = {}
    for engine, own in times.items():
        pairs = [(row, point) for row, point in zip(rows, unseen, strict=True) if row.engine == engine]
        tpot = [row.tpot / point.tpot for row, point in pairs]
        ttft = [row.ttft / point.ttft for row, point in pairs if row.steady]
        (tpot_low, tpot_high), (ttft_low, ttft_high) = _ends(tpot), _ends(ttft)
        result[engine] = replace(own, tpot_low=tpot_low, tpot_high=tpot_high, ttft_low=ttft_low, ttft_high=ttft_high)
    return result


def coverage(
    times: Times, rows: Sequence[MeasuredLoad], points: Sequence[OperatingPoint]
) -> dict[str, tuple[float, float]]:
    """Share of rows inside the intervals, (TPOT, TTFT of steady rows), overall and by engine."""
    inside: dict[str, list[tuple[bool, bool | None]]] = {"all": []}
    for row, point in zip(rows, points, strict=True):
        own = times[row.engine]
        tpot = own.tpot_low <= row.tpot / point.tpot <= own.tpot_high
        ttft = own.ttft_low <= row.ttft / point.ttft <= own.ttft_high if row.steady else None
        for name in ("all", row.engine):
            inside.setdefault(name, []).append((tpot, ttft))
    return {
        name: (
            sum(tpot for tpot, _ in marks) / len(marks),
            sum(bool(ttft) for _, ttft in marks) / max(1, sum(ttft is not None for _, ttft in marks)),
        )
        for name, marks in inside.items()
    }


def _ends(ratios: Sequence[float]) -> tuple[float, float]:
    """The 10th and 90th percentile; 1 lies between them, so that a prediction is inside its own interval."""
    ordered = sorted(ratios)
    if not ordered:
        return 1.0, 1.0
    low = ordered[int(TAIL * (len(ordered) - 1))]
    high = ordered[int((1 - TAIL) * (len(ordered) - 1))]
    return min(low, 1.0), max(high, 1.0)
