"""One measured run of an inference server or engine, whatever tool measured it.

Metrics have the names of ``vllm bench serve``: throughputs plainly (``request_throughput``, ``output_throughput``,
``input_throughput``, ``total_token_throughput``, in requests or tokens a second, of the whole deployment), times with
their statistic in front and in milliseconds (``mean_ttft_ms``, ``median_tpot_ms``, ``p99_itl_ms``, ``std_e2el_ms``).
A source that names no statistic gives a plain ``ttft_ms``. TPOT is the time between tokens of one request after its
first, averaged over the request; ITL is each single gap. ``prefill_throughput`` and ``decode_throughput`` are rates
while nothing else ran than that phase, so they are no part of a server's throughput under load.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from capplan.errors import InvalidFileError

TIMES = ("ttft", "tpot", "itl", "e2el")
THROUGHPUTS = ("request_throughput", "input_throughput", "output_throughput", "total_token_throughput")
PHASES = ("prefill_throughput", "decode_throughput")

Scalar = str | int | float | bool


@dataclass(frozen=True)
class MeasuredRun:
    """One point of a benchmark.

    Args:
        tool: what measured it.
        where: ``file:line``, or the file and the place inside it.
        model: as the tool names it.
        engine: the engine, where the tool knows it.
        engine_version: its version.
        isl: input tokens of a request, on average.
        osl: output tokens of a request, on average.
        concurrency: requests at once that were asked for; None: requests came at a rate.
        request_rate: requests a second that were asked for; None: as fast as the concurrency lets them.
        context: tokens that were in the cache before.
        requests: completed.
        failed: failed or left unfinished.
        duration_seconds: of the measurement.
        metrics: by name.
        settings: what else the tool noted: sizes, dtypes, devices.
    """

    tool: str
    where: str
    metrics: Mapping[str, float]
    model: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    isl: float | None = None
    osl: float | None = None
    concurrency: float | None = None
    request_rate: float | None = None
    context: int = 0
    requests: int | None = None
    failed: int | None = None
    duration_seconds: float | None = None
    settings: Mapping[str, Scalar] = field(default_factory=dict)


def statistic_name(statistic: str) -> str:
    """A statistic as ``vllm bench serve`` names it: ``avg`` is mean, ``p50`` is median, ``p01`` is p1.

    Raises:
        ValueError: no statistic has that name.
    """
    known = _STATISTICS.get(statistic)
    if known is not None:
        return known
    percentile = re.fullmatch(r"p(\d{1,2})(?:\.(\d{1,3})|(?<=\d\d)(\d))?", statistic)
    if percentile is None:
        raise ValueError(f"{statistic!r} is no statistic")
    whole, part = percentile[1], percentile[2] or percentile[3]
    name = f"p{int(whole)}.{part}" if part else f"p{int(whole)}"
    return "median" if name == "p50" else name


_STATISTICS = {
    "mean": "mean", "avg": "mean", "average": "mean", "median": "median", "std": "std", "std_dev": "std",
    "min": "min", "minimum": "min", "max": "max", "maximum": "max", "p001": "p0.1",
}  # fmt: skip


def figure(value: Any, where: str) -> float | None:
    """A measured number: finite and not negative; None where the tool has none.

    Raises:
        InvalidFileError: anything else.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidFileError(f"expected a number, found {shown(value)}", where=where)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidFileError(f"expected a finite number, found {shown(value)}", where=where)
    if number < 0:
        raise InvalidFileError(f"a measured figure is not negative: {shown(value)}", where=where)
    return abs(number)


def count(value: Any, where: str) -> int | None:
    """A number of requests or tokens: whole.

    Raises:
        InvalidFileError: not whole, or no number.
    """
    number = figure(value, where)
    if number is None:
        return None
    if number != int(number):
        raise InvalidFileError(f"expected a whole number, found {shown(value)}", where=where)
    return int(number)


def shown(value: Any) -> str:
    """A value of a stranger's file, short enough for a message."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def scalars(data: Mapping[str, Any], without: frozenset[str] = frozenset()) -> dict[str, Scalar]:
    """The plain values of a table, long texts cut."""
    kept: dict[str, Scalar] = {}
    for key, value in data.items():
        if key not in without and isinstance(value, (str, int, float, bool)) and len(key) <= 80:
            kept[key] = value[:200] if isinstance(value, str) else value
    return {key: value for key, value in kept.items() if not isinstance(value, float) or math.isfinite(value)}


def at_once(concurrency: float | None, rate: float | None, requests: float | None) -> float | None:
    """The concurrency of a run: what was asked for, or all requests when none was held back."""
    if concurrency is not None or (rate is not None and math.isfinite(rate)):
        return concurrency
    return requests
