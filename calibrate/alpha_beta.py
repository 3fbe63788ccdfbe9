"""The plain law of a collective, t = α + bytes·f/β, fitted in closed form; needs nothing but Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from calibrate.samples import Sample
from capplan.errors import UsageError
from capplan.timing.kernel_laws import bus_share


@dataclass(frozen=True)
class AlphaBeta:
    """Latency and bandwidth of one collective among n ranks.

    Args:
        collective: which.
        ranks: n.
        alpha: seconds of the smallest message.
        beta: bytes a second that cross one rank's link.
        median_error: of |predicted/measured − 1|.
        points: messages.
    """

    collective: str
    ranks: int
    alpha: float
    beta: float
    median_error: float
    points: int


def fit_alpha_beta(samples: Sequence[Sample]) -> list[AlphaBeta]:
    """α and β of every collective and number of ranks that was measured with at least two sizes."""
    groups: dict[tuple[str, int], list[Sample]] = {}
    for sample in samples:
        if sample.kind == "collective" and sample.usable:
            groups.setdefault((str(sample.key["collective"]), int(sample.key["gpus"])), []).append(sample)
    return [_fitted(name, ranks, found) for (name, ranks), found in groups.items() if len(found) > 1]


def _fitted(name: str, ranks: int, samples: Sequence[Sample]) -> AlphaBeta:
    collective: Any = name
    share = float(bus_share(collective, ranks))
    crossing = [sample.shape["bytes"] * share for sample in samples]
    seconds = [sample.seconds for sample in samples]
    alpha, slope = relative_line(crossing, seconds)
    errors = sorted(abs((alpha + slope * x) / t - 1) for x, t in zip(crossing, seconds, strict=True))
    return AlphaBeta(name, ranks, alpha, 1 / slope, errors[len(errors) // 2], len(samples))


def relative_line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """(a, b) that minimise Σ ((a + b·x − y)/y)², the squares of relative errors; neither is negative.

    Raises:
        UsageError: all x are equal.
    """
    weight = [1 / value**2 for value in y]
    total = sum(weight)
    mean_x = sum(w * value for w, value in zip(weight, x, strict=True)) / total
    mean_y = sum(w * value for w, value in zip(weight, y, strict=True)) / total
    spread = sum(w * (value - mean_x) ** 2 for w, value in zip(weight, x, strict=True))
    if spread == 0:
        raise UsageError("a line needs messages of more than one size")
    slope = sum(w * (a - mean_x) * (b - mean_y) for w, a, b in zip(weight, x, y, strict=True)) / spread
    start = mean_y - slope * mean_x
    if slope <= 0:
        return mean_y, 1e-30
    if start < 0:
        return 0.0, sum(w * a * b for w, a, b in zip(weight, x, y, strict=True)) / sum(
            w * a * a for w, a in zip(weight, x, strict=True)
        )
    return start, slope
