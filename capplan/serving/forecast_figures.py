"""The figures that benchmarks print, from a forecast: names as in ``vllm bench serve``, each with its interval.

Means follow from the operating point. A median of TTFT leaves the first wave out, which comes at once and is slower; a
high percentile of a short run lies within it. Throughputs follow from the time of a request by Little's law, so that
their intervals are those of that time, turned round.

Leaves out: percentiles of times between tokens, which no closed form of the mean has (`capplan simulate` has them).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from capplan.serving.batch_run import BatchRun
from capplan.serving.forecast import Forecast
from capplan.serving.spread import Interval
from capplan.serving.workload import Workload

_TIME = re.compile(r"(?:(mean|median|p\d+(?:\.\d+)?)_)?(ttft|tpot|itl|e2el)_ms")


@dataclass(frozen=True)
class Figure:
    """A predicted figure, in the unit of its name.

    Args:
        value: the prediction.
        low: lower end of its 80 % interval.
        high: upper end.
    """

    value: float
    low: float
    high: float

    @classmethod
    def around(cls, value: float, interval: Interval, of: float) -> Figure:
        """A value with the interval of another, as shares of it."""
        return cls(value, value * interval.low / of, value * interval.high / of)

    def times(self, factor: float) -> Figure:
        """In another unit."""
        return Figure(self.value * factor, self.low * factor, self.high * factor)


def served_figure(name: str, prediction: Forecast, workload: Workload) -> Figure | None:
    """One figure of a server under a load; None for a name that has no prediction.

    Args:
        name: such as ``mean_tpot_ms`` or ``output_throughput``.
        prediction: of the server.
        workload: its load, in mean lengths.
    """
    time = _TIME.fullmatch(name)
    if time is not None:
        statistic, figure = time[1] or "mean", time[2]
        share = 0.0 if statistic == "mean" else 0.5 if statistic == "median" else float(statistic[1:]) / 100
        found = _times(prediction, workload, figure, share)
        return found.times(1e3) if found is not None else None
    rate = _RATES.get(name)
    if rate is None:
        return None
    point, e2e = prediction.point, request_interval(prediction, workload)
    value = prediction.request_rate * rate(workload)
    return Figure(value, value * point.e2e / e2e.high, value * point.e2e / e2e.low)


def request_interval(prediction: Forecast, workload: Workload) -> Interval:
    """The interval of a whole request: ``TTFT + (O - 1)·TPOT`` at both ends."""
    rest = max(workload.osl - 1, 0)
    ttft, tpot = prediction.ttft, prediction.tpot
    return Interval(ttft.low + rest * tpot.low, ttft.high + rest * tpot.high)


def _times(prediction: Forecast, workload: Workload, figure: str, share: float) -> Figure | None:
    """Seconds of a mean (share 0) or of a percentile."""
    point = prediction.point
    if figure == "ttft":
        return Figure.around(ttft_at(prediction, workload, share), prediction.ttft, point.ttft)
    if share not in (0.0, 0.5):
        return None
    if figure == "e2el":
        return Figure.around(point.e2e, request_interval(prediction, workload), point.e2e)
    return Figure.around(point.tpot, prediction.tpot, point.tpot)


def ttft_at(prediction: Forecast, workload: Workload, share: float) -> float:
    """Seconds to the first token that a share of the requests stay under; 0: the mean.

    The first of w waves takes ``1/w`` of the requests; its prompts end one after the other, from the first to twice the
    wave's mean, so that the share u of it that is done grows evenly. All others wait about the same.
    """
    point, terms = prediction.point, prediction.point.terms
    weight = 1 / workload.waves if workload.waves else 0.0
    if share == 0.0:
        return point.ttft
    later = point.ttft - weight * (terms.first_wave - terms.later)
    if share <= 1 - weight:
        return later
    done = (share - (1 - weight)) / weight
    return max(later, later - terms.later + 2 * done * terms.first_wave)


def batch_figure(name: str, run: BatchRun, replicas: int, spread: Interval) -> Figure | None:
    """One figure of a batch that starts and ends together; None for a name that has no prediction.

    Args:
        name: as for `served_figure`; also ``prefill_throughput`` and ``decode_throughput``.
        run: the batch on one replica.
        replicas: replicas that run side by side.
        spread: shares of a time between which four of five measurements lie.
    """
    time = _TIME.fullmatch(name)
    if time is not None:
        seconds = {"ttft": run.prefill, "tpot": run.decode_step, "itl": run.decode_step, "e2el": run.seconds}[time[2]]
        return Figure(seconds, seconds * spread.low, seconds * spread.high).times(1e3) if seconds else None
    base = name.removeprefix("max_").removeprefix("min_")
    tokens, seconds = run.batch * replicas, run.seconds
    rates = {
        "request_throughput": (tokens, seconds),
        "input_throughput": (tokens * run.isl, seconds),
        "output_throughput": (tokens * run.osl, seconds),
        "total_token_throughput": (tokens * (run.isl + run.osl), seconds),
        "prefill_throughput": (tokens * run.isl, run.prefill),
        "decode_throughput": (tokens, run.decode_step),
    }
    done, taken = rates.get(base, (0, 0.0))
    if not done or not taken:
        return None
    rate = done / taken
    return Figure(rate, rate / spread.high, rate / spread.low)


_RATES: dict[str, Callable[[Workload], float]] = {
    "request_throughput": lambda load: 1.0,
    "input_throughput": lambda load: load.isl,
    "output_throughput": lambda load: load.osl,
    "total_token_throughput": lambda load: load.isl + load.osl,
}
"""What one request has of each."""
