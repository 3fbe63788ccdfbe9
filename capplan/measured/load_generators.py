"""Result files of load generators: genai-perf and aiperf, guidellm, inference-perf.

What each calls a time between tokens differs, and is told apart here:

- genai-perf and aiperf: ``inter_token_latency`` is (latency - TTFT) / (output tokens - 1) of each request, which is
  TPOT; ``inter_chunk_latency`` (aiperf) is each single gap.
- guidellm: ``inter_token_latency_ms`` is (last token - first token) / (output tokens - 1), which is TPOT, while its
  ``time_per_output_token_ms`` counts the first token in and is left out. Times of whole requests are in seconds.
- inference-perf: ``time_per_output_token`` is TPOT, ``inter_token_latency`` each single gap, both in seconds;
  ``normalized_time_per_output_token`` counts the first token in and is left out.

Source: genai_perf/metrics/llm_metrics.py (perf_analyzer), aiperf/metrics/types/inter_token_latency_metric.py,
guidellm/schemas/request_stats.py, inference_perf/reportgen/base.py.
"""

from __future__ import annotations

import re
from typing import Any

from capplan.errors import InvalidFileError
from capplan.measured.json_documents import Table
from capplan.measured.measured_run import MeasuredRun, at_once, figure, shown, statistic_name

_MILLISECONDS = {"ms": 1.0, "s": 1e3, "sec": 1e3, "seconds": 1e3, "us": 1e-3, "ns": 1e-6}
_AIPERF_TIMES = {
    "time_to_first_token": "ttft",
    "inter_token_latency": "tpot",
    "inter_chunk_latency": "itl",
    "request_latency": "e2el",
}
_AIPERF_RATES = {
    "request_throughput": "request_throughput",
    "output_token_throughput": "output_throughput",
    "total_token_throughput": "total_token_throughput",
}


def is_aiperf_result(table: Table) -> bool:
    """Whether an object is an export of genai-perf or aiperf."""
    return any(isinstance(table.get(key), dict) and "avg" in table.data[key] for key in _AIPERF_RATES)


def aiperf_run(table: Table) -> MeasuredRun:
    """The run of an export of genai-perf or aiperf.

    Raises:
        InvalidFileError: a figure that is none, or a unit that is not known.
    """
    metrics: dict[str, float] = {}
    for key, name in _AIPERF_RATES.items():
        value = table.table(key).figure("avg")
        if value is not None:
            metrics[name] = value
    for key, quantity in _AIPERF_TIMES.items():
        _add_times(metrics, table.table(key), quantity, _unit(table.table(key)))
    config = table.table("input_config")
    asked = _aiperf_load(config)
    requests = table.table("request_count").count("avg")
    newer = "loadgen" in config.data or "aiperf_version" in table.data or "schema_version" in table.data
    return MeasuredRun(
        tool="aiperf" if newer else "genai-perf",
        where=table.where,
        metrics=_some(metrics, table),
        model=_aiperf_model(config),
        engine=_engine(config.table("endpoint").get("backend") or config.get("backend")),
        isl=table.table("input_sequence_length").figure("avg"),
        osl=table.table("output_sequence_length").figure("avg"),
        concurrency=asked[0],
        request_rate=asked[1],
        requests=requests,
        failed=table.table("error_request_count").count("avg"),
        duration_seconds=_seconds(table.table("benchmark_duration")),
    )


def _aiperf_load(config: Table) -> tuple[float | None, float | None]:
    """(concurrency, request rate) that were asked for, as each version of the tools notes them."""
    stimulus = config.table("perf_analyzer").get("stimulus")
    places = [config.table("loadgen"), config]
    if isinstance(stimulus, dict):
        places.insert(0, config.table("perf_analyzer").table("stimulus"))
    concurrency = next((value for one in places if (value := one.figure("concurrency")) is not None), None)
    rate = next((value for one in places if (value := one.figure("request_rate")) is not None), None)
    return concurrency, rate


def _aiperf_model(config: Table) -> str | None:
    endpoint = config.table("endpoint")
    for value in (endpoint.get("model_names"), config.get("model_names"), config.get("model")):
        name = value[0] if isinstance(value, list) and value else value
        if isinstance(name, str):
            return name
    return None


def _unit(table: Table) -> float:
    """Milliseconds of the unit that the table names."""
    unit = table.get("unit")
    if unit is None:
        return 1.0
    if not isinstance(unit, str) or unit not in _MILLISECONDS:
        raise InvalidFileError(f"{shown(unit)} is no unit of time", where=table.place("unit"))
    return _MILLISECONDS[unit]


def _seconds(table: Table) -> float | None:
    value = table.figure("avg")
    return None if value is None else value * (_unit(table) if table.get("unit") is not None else 1e3) / 1e3


def _engine(name: Any) -> str | None:
    plain = str(name).lower().replace("-", "").replace("_", "")
    known = {"tensorrtllm": "trtllm", "trtllm": "trtllm", "vllm": "vllm", "sglang": "sglang"}
    return known.get(plain)


def _add_times(metrics: dict[str, float], table: Table, quantity: str, milliseconds: float) -> None:
    """Every statistic of a table of statistics, in milliseconds."""
    for key, value in table.data.items():
        if not re.fullmatch(r"avg|mean|median|std|std_dev|min|max|p\d{1,3}(?:\.\d{1,3})?", key):
            continue
        number = figure(value, table.place(key))
        if number is None:
            continue
        try:
            name = statistic_name(key)
        except ValueError as error:
            raise InvalidFileError(str(error), where=table.place(key)) from None
        metrics[f"{name}_{quantity}_ms"] = number * milliseconds


def _some(metrics: dict[str, float], table: Table) -> dict[str, float]:
    if not metrics:
        raise InvalidFileError("the result holds no figure", where=table.where)
    return metrics


def is_guidellm_result(table: Table) -> bool:
    """Whether an object is a report of guidellm."""
    return isinstance(table.get("benchmarks"), list)


_GUIDELLM_TIMES = {
    "time_to_first_token_ms": ("ttft", 1.0),
    "inter_token_latency_ms": ("tpot", 1.0),
    "request_latency": ("e2el", 1e3),
}
_GUIDELLM_RATES = {
    "requests_per_second": "request_throughput",
    "prompt_tokens_per_second": "input_throughput",
    "output_tokens_per_second": "output_throughput",
    "tokens_per_second": "total_token_throughput",
}


def guidellm_runs(report: Table) -> list[MeasuredRun]:
    """The runs of a report of guidellm, one a load level; of requests that succeeded.

    Raises:
        InvalidFileError: no benchmarks, or a figure that is none.
    """
    benchmarks = report.tables("benchmarks")
    if not benchmarks:
        raise InvalidFileError("the report holds no benchmark", where=report.place("benchmarks"))
    return [_guidellm_run(report, one) for one in benchmarks]


def _guidellm_run(report: Table, benchmark: Table) -> MeasuredRun:
    measured = benchmark.table("metrics")
    metrics: dict[str, float] = {}
    for key, name in _GUIDELLM_RATES.items():
        value = _successful(measured, key).figure("mean")
        if value is not None:
            metrics[name] = value
    for key, (quantity, milliseconds) in _GUIDELLM_TIMES.items():
        table = _successful(measured, key)
        _add_times(metrics, table, quantity, milliseconds)
        _add_times(metrics, table.table("percentiles"), quantity, milliseconds)
    totals = measured.table("request_totals")
    concurrency, rate = _strategy(benchmark)
    failed = [totals.count("errored"), totals.count("incomplete")]
    return MeasuredRun(
        tool="guidellm",
        where=benchmark.where,
        metrics=_some(metrics, benchmark),
        model=_guidellm_model(report, benchmark),
        isl=_successful(measured, "prompt_token_count").figure("mean"),
        osl=_successful(measured, "output_token_count").figure("mean"),
        concurrency=at_once(concurrency, rate, _successful(measured, "request_concurrency").figure("mean")),
        request_rate=rate,
        requests=totals.count("successful"),
        failed=sum(number for number in failed if number) if any(one is not None for one in failed) else None,
        duration_seconds=benchmark.figure("duration"),
    )


def _successful(measured: Table, key: str) -> Table:
    return measured.table(key).table("successful")


def _strategy(benchmark: Table) -> tuple[float | None, float | None]:
    """(concurrency, request rate) of a benchmark's strategy, which versions keep in different places."""
    for outer in ("config", "args", "scheduler"):
        strategy = benchmark.table(outer).get("strategy")
        if isinstance(strategy, dict):
            table = benchmark.table(outer).table("strategy")
            if table.get("type_") == "synchronous":
                return 1.0, None
            streams = table.figure("streams")
            rate = table.figure("rate")
            return (streams if streams is not None or rate is not None else table.figure("max_concurrency")), rate
    return None, None


def _guidellm_model(report: Table, benchmark: Table) -> str | None:
    arguments = report.table("args")
    places = (
        benchmark.table("config").get("backend"),
        arguments.get("backend_kwargs"),
        report.table("config").table("spec").get("backend"),
        benchmark.get("worker"),
    )
    for place in places:
        for key in ("model", "backend_model"):
            name = place.get(key) if isinstance(place, dict) else None
            if isinstance(name, str) and name:
                return name
    name = arguments.get("model")
    return name if isinstance(name, str) else None


def is_inference_perf_result(table: Table) -> bool:
    """Whether an object is a life-cycle report of inference-perf."""
    return "load_summary" in table.data and "successes" in table.data


def inference_perf_run(table: Table) -> MeasuredRun:
    """The run of one stage of inference-perf, or of all stages together.

    Raises:
        InvalidFileError: a figure that is none, or no completed requests.
    """
    load, done = table.table("load_summary"), table.table("successes")
    latency, throughput = done.table("latency"), done.table("throughput")
    names = {
        "requests_per_sec": "request_throughput",
        "input_tokens_per_sec": "input_throughput",
        "output_tokens_per_sec": "output_throughput",
        "total_tokens_per_sec": "total_token_throughput",
    }
    metrics = {name: value for key, name in names.items() if (value := throughput.figure(key)) is not None}
    for key, quantity in (
        ("time_to_first_token", "ttft"),
        ("time_per_output_token", "tpot"),
        ("inter_token_latency", "itl"),
        ("request_latency", "e2el"),
    ):
        _add_times(metrics, latency.table(key), quantity, 1e3)
    rate = load.figure("requested_rate")
    return MeasuredRun(
        tool="inference-perf",
        where=table.where,
        metrics=_some(metrics, table),
        isl=done.table("prompt_len").figure("mean"),
        osl=done.table("output_len").figure("mean"),
        concurrency=load.figure("concurrency"),
        request_rate=rate,
        requests=done.count("count"),
        failed=table.table("failures").count("count"),
        duration_seconds=load.figure("send_duration"),
    )
