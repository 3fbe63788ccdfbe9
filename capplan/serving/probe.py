"""Correct predictions by a few of the user's own measurements, and say how much surer they make the rest.

What is left between measured and predicted is a level of each server (an engine's build, the kernel that it picked)
and something that drifts with the load. Along a sweep, with x = log2 of the concurrency, the logarithm of
measured/predicted is taken to be an Ornstein-Uhlenbeck process of correlation ``ρ(d) = n·exp(-d/λ)`` at d octaves.
Between measurements at distances a and b it is expected at, with all distances in units of λ::

    r(x)  = n·(r_a·sinh b + r_b·sinh a) / sinh(a + b)
    s²(x) = 1 - n²·(1 - (1 - e^-2a)(1 - e^-2b) / (1 - e^-2(a+b)))

and beyond the last one at ``r = ρ(d)·r_a``, ``s² = 1 - ρ(d)²``; s narrows the interval's logarithms. Measurements at
other lengths of the same server count for less. What lies beyond a factor of three is a stall or a queue of that point
and not a level of the server: no more than that is carried to others.

Source of λ, n: correlations of errors within and between the sweeps of public serving measurements
(benchmarks/data/silicon_dev.csv), each model left out of the fit: 0.76, 0.56, 0.41 and 0.28 at one to four octaves for
TPOT, 0.85, 0.73, 0.67 and 0.67 for TTFT (0.81, 0.69, 0.56 and 0.40 without one collection of another protocol). Source
of the process: Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), appendix B.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, log, log2, sinh, sqrt

from capplan.serving.forecast import Forecast
from capplan.serving.spread import Interval

SAME_POINT = 0.95
"""n: correlation of two measurements of one configuration."""

OTHER_LENGTHS = 0.65
"""Correlation of errors at one load but other lengths, as a share."""

TPOT_OCTAVES = 5.0
"""λ of the time per output token."""

TTFT_OCTAVES = 9.0
"""λ of the time to the first token."""

FARTHEST = 3.0
"""Factor between measured and predicted that is carried to other loads at most."""


@dataclass(frozen=True)
class Probe:
    """One measured point of a server.

    Args:
        isl: input tokens.
        osl: output tokens.
        concurrency: clients.
        tpot: measured over predicted time per output token; None: not measured.
        ttft: measured over predicted time to the first token; None: not measured.
    """

    isl: float
    osl: float
    concurrency: float
    tpot: float | None = None
    ttft: float | None = None


@dataclass(frozen=True)
class Level:
    """How much a prediction is to be changed.

    Args:
        factor: on the prediction.
        doubt: s, on the logarithms of its interval: 1 nothing is known, 0 everything.
    """

    factor: float = 1.0
    doubt: float = 1.0


def level_at(ratios: Sequence[tuple[float, float]], concurrency: float, octaves: float, share: float = 1.0) -> Level:
    """The level at a concurrency, from (concurrency, measured/predicted) of some points.

    Args:
        ratios: the points; those of one concurrency are averaged.
        concurrency: where.
        octaves: λ.
        share: of the correlation, where the points are of other lengths.
    """
    known: dict[float, list[float]] = {}
    for place, ratio in ratios:
        known.setdefault(log2(place), []).append(log(ratio))
    if not known:
        return Level()
    x, near = log2(concurrency), SAME_POINT * share
    most = log(FARTHEST)
    means = {place: sum(values) / len(values) for place, values in known.items()}
    means = {place: mean if place == x else max(-most, min(most, mean)) for place, mean in means.items()}
    below = max((place for place in means if place <= x), default=None)
    above = min((place for place in means if place > x), default=None)
    if below is not None and above is not None and below < x:
        a, b = (x - below) / octaves, (above - x) / octaves
        residual = (means[below] * sinh(b) + means[above] * sinh(a)) / sinh(a + b)
        unknown = (1 - exp(-2 * a)) * (1 - exp(-2 * b)) / (1 - exp(-2 * (a + b)))
    else:
        nearest = min(means, key=lambda place: abs(place - x))
        fading = exp(-abs(x - nearest) / octaves)
        residual, unknown = fading * means[nearest], 1 - fading**2
    return Level(exp(near * residual), sqrt(1 - near**2 * (1 - unknown)))


def levels(probes: Sequence[Probe], isl: float, osl: float, concurrency: float) -> tuple[Level, Level]:
    """The levels of TPOT and TTFT under a load, from probes of one server: those of the same lengths, else all."""
    found = []
    for name, octaves in (("tpot", TPOT_OCTAVES), ("ttft", TTFT_OCTAVES)):
        taken = [probe for probe in probes if getattr(probe, name) is not None]
        same = [probe for probe in taken if (probe.isl, probe.osl) == (isl, osl)]
        ratios = [(probe.concurrency, getattr(probe, name)) for probe in same or taken]
        found.append(level_at(ratios, concurrency, octaves, 1.0 if same else OTHER_LENGTHS))
    return found[0], found[1]


def corrected(prediction: Forecast, probes: Sequence[Probe], isl: float, osl: float, concurrency: float) -> Forecast:
    """A forecast with its level changed and its intervals narrowed; the terms behind it stay as predicted.

    Args:
        prediction: the forecast.
        probes: of the same server.
        isl: its input tokens, as in the probes.
        osl: its output tokens, as in the probes.
        concurrency: its clients, as in the probes.
    """
    tpot, ttft = levels(probes, isl, osl, concurrency)
    point = prediction.point
    new_tpot, new_ttft = point.tpot * tpot.factor, point.ttft * ttft.factor
    e2e = new_ttft + (point.e2e - point.ttft) * tpot.factor
    faster = point.e2e / e2e
    changed = replace(
        point,
        ttft=new_ttft,
        tpot=new_tpot,
        e2e=e2e,
        request_rate=point.request_rate * faster,
        output_rate=point.output_rate * faster,
        input_rate=point.input_rate * faster,
    )
    return replace(
        prediction,
        point=changed,
        tpot=_narrowed(prediction.tpot, point.tpot, new_tpot, tpot.doubt),
        ttft=_narrowed(prediction.ttft, point.ttft, new_ttft, ttft.doubt),
    )


def _narrowed(interval: Interval, old: float, new: float, doubt: float) -> Interval:
    """The interval around the new value with its logarithms times s."""
    return Interval(new * (interval.low / old) ** doubt, new * (interval.high / old) ** doubt)
