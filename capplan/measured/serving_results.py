"""Results of ``vllm bench serve`` and of the benchmarks that came from it: ``sglang.bench_serving`` and others.

As JSON (one result, one a line, or several behind each other) and as the table that they print. Input and output
tokens are those of completed requests. With an infinite rate and no cap, all requests are sent at once.

Source: vllm/benchmarks/serve.py; python/sglang/bench_serving.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator

from capplan.errors import InvalidFileError
from capplan.measured.json_documents import Table
from capplan.measured.log_lines import LogLine
from capplan.measured.measured_run import (
    THROUGHPUTS,
    MeasuredRun,
    at_once,
    count,
    figure,
    scalars,
    shown,
    statistic_name,
)

_TIME = re.compile(r"(mean|median|std|min|max|p\d{1,2}(?:\.\d{1,3})?)_(ttft|tpot|itl|e2el|e2e_latency)_ms")
_ENGINES = {
    "vllm": "vllm",
    "sglang": "sglang",
    "sglang-native": "sglang",
    "trt": "trtllm",
    "tensorrt-llm": "trtllm",
    "llama.cpp": "llama.cpp",
}
_KNOWN = frozenset(
    {"duration", "completed", "failed", "total_input_tokens", "total_output_tokens", "model_id", "backend",
     "max_concurrency", "request_rate", "num_prompts", *THROUGHPUTS}
)  # fmt: skip


def is_serving_result(table: Table) -> bool:
    """Whether an object is such a result."""
    return "request_throughput" in table.data and ("total_input_tokens" in table.data or "completed" in table.data)


def serving_run(table: Table) -> MeasuredRun:
    """One result.

    Raises:
        InvalidFileError: a figure that is none, or no completed requests.
    """
    completed = table.count("completed")
    if completed == 0:
        raise InvalidFileError("the run completed no request", where=table.place("completed"))
    metrics = {name: value for name in THROUGHPUTS if (value := table.figure(name)) is not None}
    for key in table.data:
        time = _TIME.fullmatch(key)
        value = table.figure(key) if time is not None else None
        if time is not None and value is not None:
            metrics[f"{statistic_name(time[1])}_{_quantity(time[2])}_ms"] = value
    rate, cap = _rate(table), table.figure("max_concurrency")
    sglang = "mean_e2e_latency_ms" in table.data
    backend = table.text("backend")
    return MeasuredRun(
        tool="sglang.bench_serving" if sglang else "vllm bench serve",
        where=table.where,
        metrics=metrics,
        model=table.text("model_id"),
        engine=_ENGINES.get(backend or ""),
        isl=_mean(table, "total_input_tokens", completed),
        osl=_mean(table, "total_output_tokens", completed),
        concurrency=at_once(cap, rate, table.figure("num_prompts") or completed),
        request_rate=rate if rate is not None and math.isfinite(rate) else None,
        requests=completed,
        failed=table.count("failed"),
        duration_seconds=table.figure("duration"),
        settings=scalars(table.data, without=_KNOWN | {key for key in table.data if _TIME.fullmatch(key)}),
    )


def _quantity(name: str) -> str:
    return "e2el" if name == "e2e_latency" else name


def _mean(table: Table, key: str, completed: int | None) -> float | None:
    total = table.figure(key)
    return total / completed if total is not None and completed else None


def _rate(table: Table) -> float | None:
    """Requests a second; ``inf`` is written as a word or as JSON's extension."""
    value = table.get("request_rate")
    if value is None or value == "inf" or value == math.inf:
        return None if value is None else math.inf
    return figure(value, table.place("request_rate"))


_LABELS = {
    "successful requests": "completed",
    "failed requests": "failed",
    "maximum request concurrency": "max_concurrency",
    "max request concurrency": "max_concurrency",
    "request rate configured (rps)": "request_rate",
    "traffic request rate": "request_rate",
    "benchmark duration (s)": "duration",
    "total input tokens": "total_input_tokens",
    "total generated tokens": "total_output_tokens",
    "request throughput (req/s)": "request_throughput",
    "input token throughput (tok/s)": "input_throughput",
    "output token throughput (tok/s)": "output_throughput",
    "total token throughput (tok/s)": "total_token_throughput",
    "total throughput (tok/s)": "total_token_throughput",
}
_TIME_LABEL = re.compile(r"(mean|median|std|min|max|p\d{1,2}(?:\.\d{1,3})?) (ttft|tpot|itl|e2el|e2e latency) \(ms\)")
_ROW = re.compile(r"[#>| \t]{0,8}([A-Za-z][\w .,/()-]{2,60}):[ \t]{1,60}(\S{1,40})[ \t|]{0,60}")
BANNER = "Serving Benchmark Result"


def printed_runs(lines: Iterable[LogLine], path: str) -> Iterator[MeasuredRun]:
    """The results of every table in a text.

    Raises:
        InvalidFileError: a figure that is none, or a table that is cut off.
    """
    before: dict[str, tuple[str, int]] = {}
    rows: dict[str, tuple[str, int]] | None = None
    began = 0
    for line in lines:
        if BANNER in line.text:
            if rows is not None:
                yield _printed_run(rows, path, began)
            rows, before, began = before, {}, line.number
            continue
        row = _ROW.fullmatch(line.text.rstrip())
        key = _key(row[1]) if row else None
        if row is not None and key is not None:
            (before if rows is None else rows)[key] = (row[2], line.number)
        elif rows is not None and re.fullmatch(r"[#>| \t]{0,8}={20,}[ \t|]{0,8}", line.text):
            yield _printed_run(rows, path, began)
            rows = None
    if rows is not None:
        yield _printed_run(rows, path, began)


def _key(label: str) -> str | None:
    plain = label.strip().lower()
    time = _TIME_LABEL.fullmatch(plain)
    if time is not None:
        return f"{time[1]}_{time[2].replace(' ', '_')}_ms"
    return _LABELS.get(plain)


def _printed_run(rows: dict[str, tuple[str, int]], path: str, began: int) -> MeasuredRun:
    where = f"{path}:{began}"
    if "request_throughput" not in rows:
        raise InvalidFileError("the table has no request throughput", where=where)
    data: dict[str, float | str] = {}
    for key, (text, number) in rows.items():
        if key == "request_rate" and text == "inf":
            data[key] = text
            continue
        try:
            data[key] = float(text)
        except ValueError:
            raise InvalidFileError(f"expected a number, found {shown(text)}", where=f"{path}:{number}") from None
        check = count if key in ("completed", "failed", "total_input_tokens", "total_output_tokens") else figure
        check(data[key], f"{path}:{number}")
    return serving_run(Table(data, where))
