"""Names and units of metrics in measured tables, and what they are called and measured in here.

The names here are those of `capplan.measured.measured_run`. Tables of public measurements name the statistic last and
leave the unit to a column of its own: ``ttft_p50`` in ms is ``median_ttft_ms``, ``output_tokens_per_s`` is
``output_throughput``, ``decode_tokens_per_s_best(short ctx)`` is ``max_decode_throughput``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from capplan.measured.measured_run import PHASES, THROUGHPUTS, TIMES, statistic_name

_TIME = re.compile(r"(?:([a-z][a-z0-9_.]{0,15})_)?(ttft|tpot|itl|e2el)_ms")
_RATE = re.compile(rf"(?:([a-z][a-z0-9_.]{{0,15}})_)?({'|'.join((*THROUGHPUTS, *PHASES))})")
_TABLE_TIME = re.compile(r"(ttft|tpot|itl|e2el?)(?:_([a-z][a-z0-9.]{0,15}))?")
_TABLE_RATE = re.compile(r"([a-z]{1,10})_per_s(_per_gpu)?(?:_(best|worst)(?:\([\w ,]{1,30}\))?)?")
_TABLE_TOKEN_RATE = re.compile(r"([a-z]{1,10})_tokens_per_s(_per_gpu)?(?:_(best|worst)(?:\([\w ,]{1,30}\))?)?")
_UNIT = re.compile(r"(tokens?|tok|requests?|req)/(?:s|sec)(/gpu)?(?: ?\(([^()]{1,40})\))?", re.IGNORECASE)
_TO_MS = {"us": 1e-3, "µs": 1e-3, "μs": 1e-3, "ms": 1.0, "s": 1e3}
_TOKENS_OF = {
    "input": "input_throughput", "output": "output_throughput", "total": "total_token_throughput",
    "prefill": "prefill_throughput", "decode": "decode_throughput",
}  # fmt: skip
_WHOLE = frozenset({"all sequences", "all gpus", "all gpus of the tp group", "all chips", "total"})
_BOTH_WAYS = frozenset({"in+out", "input+output"})
_EXTREMES = {"best": "max_", "worst": "min_"}

EXAMPLES = "ttft_p50, tpot_mean, output_tokens_per_s, median_ttft_ms, output_throughput"


@dataclass(frozen=True)
class Metric:
    """A metric by its name here.

    Args:
        name: such as ``median_ttft_ms`` or ``output_throughput``.
        per_gpu: whether the table's figure is one GPU's share of the deployment's.
    """

    name: str
    per_gpu: bool = False

    @property
    def is_time(self) -> bool:
        """Whether it is a time, in milliseconds."""
        return self.name.endswith("_ms")


def is_metric(name: str) -> bool:
    """Whether `name` is a metric's name here."""
    found = _TIME.fullmatch(name) or _RATE.fullmatch(name)
    return found is not None and (found[1] is None or _is_statistic(found[1]))


def _is_statistic(name: str) -> bool:
    try:
        return statistic_name(name) == name
    except ValueError:
        return False


@lru_cache(maxsize=256)
def table_metric(text: str) -> Metric:
    """The metric that a table's ``metric`` column names.

    Raises:
        ValueError: none is named like that.
    """
    name = text.strip()
    if is_metric(name):
        return Metric(name)
    time = _TABLE_TIME.fullmatch(name)
    if time is not None:
        statistic = f"{statistic_name(time[2])}_" if time[2] else ""
        return Metric(f"{statistic}{'e2el' if time[1] == 'e2e' else time[1]}_ms")
    tokens = _TABLE_TOKEN_RATE.fullmatch(name)
    if tokens is not None and tokens[1] in _TOKENS_OF:
        return Metric(_EXTREMES.get(tokens[3], "") + _TOKENS_OF[tokens[1]], tokens[2] is not None)
    rate = _TABLE_RATE.fullmatch(name)
    if rate is not None and rate[1] == "requests":
        return Metric(_EXTREMES.get(rate[3], "") + "request_throughput", rate[2] is not None)
    raise ValueError(f"{name!r} is no metric")


@lru_cache(maxsize=256)
def unit_factor(metric: Metric, unit: str) -> tuple[float, bool]:
    """What a figure in `unit` is to be multiplied by, and whether then by the number of GPUs too.

    Raises:
        ValueError: no such unit, or none of this metric.
    """
    text = unit.strip()
    if metric.is_time:
        factor = _TO_MS.get(text)
        if factor is None:
            raise ValueError(f"{text!r} is no unit of time: {', '.join(_TO_MS)}")
        return factor, False
    rate = _UNIT.fullmatch(text)
    if rate is None or rate[1].lower().startswith("req") != ("request" in metric.name):
        known = "req/s" if "request" in metric.name else "tokens/s, tokens/s/GPU"
        raise ValueError(f"{text!r} is no unit of {metric.name}: {known}")
    scope = (rate[3] or "").lower()
    if scope and scope not in _WHOLE | _BOTH_WAYS:
        raise ValueError(f"{rate[3]!r} is not known as what a rate is taken over")
    if scope in _BOTH_WAYS and "total" not in metric.name:
        raise ValueError(f"a rate of input and output tokens is no {metric.name}")
    each = rate[2] is not None
    if scope in _WHOLE and (each or metric.per_gpu):
        raise ValueError(f"a rate of the whole is none of one GPU: {text!r}")
    return 1.0, each or metric.per_gpu


KNOWN = tuple(f"{statistic}{time}_ms" for time in TIMES for statistic in ("", "mean_", "median_", "p90_", "p99_"))
"""The commonest names of times, to suggest from."""
