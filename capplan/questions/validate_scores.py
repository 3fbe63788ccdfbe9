"""How far predictions lie from measurements, over many rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from capplan.questions.validate_rows import ValidatedFigure

TAIL = 0.9


@dataclass(frozen=True)
class Score:
    """Errors of one figure; fractions, None where there is nothing to say.

    Args:
        n: measurements that count, those without a prediction among them.
        refused: of them those without a prediction.
        mape: mean of |predicted/measured − 1| of the predicted.
        median_ape: its median.
        p90_ape: its 90th percentile.
        bias: mean of predicted/measured − 1.
        within_10: share of all n that are off by 10 % at most; what is refused is a miss.
        within_20: by 20 %.
        within_30: by 30 %.
        interval_coverage: share of all n inside the 80 % interval.
    """

    n: int
    refused: int
    mape: float | None
    median_ape: float | None
    p90_ape: float | None
    bias: float | None
    within_10: float | None
    within_20: float | None
    within_30: float | None
    interval_coverage: float | None


def score(figures: Iterable[ValidatedFigure]) -> Score:
    """The score of figures of one kind; those that don't count are passed over."""
    counted = [figure for figure in figures if figure.scored]
    errors = [figure.error for figure in counted if figure.error is not None]
    sizes = sorted(map(abs, errors))
    n = len(counted)
    shares = [sum(size <= limit for size in sizes) / n if n else None for limit in (0.1, 0.2, 0.3)]
    return Score(
        n=n,
        refused=n - len(errors),
        mape=fmean(sizes) if sizes else None,
        median_ape=median(sizes) if sizes else None,
        p90_ape=quantile(sizes, TAIL) if sizes else None,
        bias=fmean(errors) if errors else None,
        within_10=shares[0],
        within_20=shares[1],
        within_30=shares[2],
        interval_coverage=sum(bool(figure.inside) for figure in counted) / n if n else None,
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which a share of sorted values lies, linear between two of them: ``x[(n - 1)·q]``."""
    place = (len(ordered) - 1) * share
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
