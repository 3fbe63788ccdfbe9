"""Results of TensorRT-LLM's benchmarks: trtllm-bench's report, the text that it prints, gptManagerBenchmark's lines.

Output tokens count the first one. TPOT is each request's time between tokens after its first; latencies are of whole
requests. The concurrency is the one that was observed: the report doesn't hold what was asked for.

Source: tensorrt_llm/bench/dataclasses/reporting.py; benchmarks/cpp/gptManagerBenchmark.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from capplan.errors import InvalidFileError
from capplan.measured.json_documents import Table
from capplan.measured.log_lines import LogLine
from capplan.measured.measured_run import MeasuredRun, Scalar, figure, shown, statistic_name

_REPORT_RATES = {
    "request_throughput_req_s": "request_throughput",
    "system_output_throughput_tok_s": "output_throughput",
    "system_total_throughput_tok_s": "total_token_throughput",
}


def is_trtllm_report(table: Table) -> bool:
    """Whether an object is a report of trtllm-bench."""
    return isinstance(table.get("performance"), dict) and "request_throughput_req_s" in table.data["performance"]


def trtllm_report_run(table: Table) -> MeasuredRun:
    """The run of a report.

    Raises:
        InvalidFileError: a figure that is none.
    """
    performance, streaming = table.table("performance"), table.table("streaming_metrics")
    requests, world, engine = table.table("request_info"), table.table("world_info"), table.table("engine")
    metrics = {name: value for key, name in _REPORT_RATES.items() if (value := performance.figure(key)) is not None}
    for quantity, outer, key in (
        ("ttft", streaming, "ttft_percentiles"),
        ("tpot", streaming, "tpot_percentiles"),
        ("e2el", performance, "request_latency_percentiles_ms"),
    ):
        _add(metrics, quantity, outer.table(key))
    for quantity, outer, key in (
        ("ttft", streaming, "avg_ttft_ms"),
        ("tpot", streaming, "avg_tpot_ms"),
        ("e2el", performance, "avg_request_latency_ms"),
    ):
        value = outer.figure(key)
        if value is not None:
            metrics[f"mean_{quantity}_ms"] = value
    total = performance.figure("total_latency_ms")
    return MeasuredRun(
        tool="trtllm-bench",
        where=table.where,
        metrics=metrics,
        model=engine.text("model"),
        engine="trtllm",
        engine_version=engine.text("version"),
        isl=requests.figure("avg_input_length"),
        osl=requests.figure("avg_output_length"),
        concurrency=requests.figure("avg_num_concurrent_requests"),
        requests=requests.count("num_requests"),
        duration_seconds=None if total is None else total / 1e3,
        settings=_settings(world, engine),
    )


def _add(metrics: dict[str, float], quantity: str, table: Table) -> None:
    for key in table.data:
        value = table.figure(key) if key in _STATISTICS else None
        if value is not None:
            metrics[f"{statistic_name(key)}_{quantity}_ms"] = value


_STATISTICS = ("minimum", "maximum", "average", "p50", "p90", "p95", "p99")


def _settings(world: Table, engine: Table) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {}
    for table, names in (
        (world, {"tp_size": "tensor_parallel_size", "pp_size": "pipeline_parallel_size",
                 "ep_size": "expert_parallel_size", "max_batch_size": "max_num_seqs",
                 "max_num_tokens": "max_num_batched_tokens"}),
        (engine, {"dtype": "dtype", "kv_cache_dtype": "kv_cache_dtype", "quantization": "quantization"}),
    ):  # fmt: skip
        for key, name in names.items():
            value = table.get(key)
            if isinstance(value, (str, int, float)):
                found[name] = value[:80] if isinstance(value, str) else value
    return found


_PRINTED = {
    "Request Throughput (req/sec)": "request_throughput",
    "Total Output Throughput (tokens/sec)": "output_throughput",
    "Total Token Throughput (tokens/sec)": "total_token_throughput",
    "Average request latency (ms)": "mean_e2el_ms",
    "Average time-to-first-token [TTFT] (ms)": "mean_ttft_ms",
    "Average time-per-output-token [TPOT] (ms)": "mean_tpot_ms",
}
_NOTED = {
    "Model": "model",
    "TensorRT-LLM Version": "version",
    "TensorRT LLM Version": "version",
    "Dtype": "dtype",
    "KV Cache Dtype": "kv_cache_dtype",
    "Quantization": "quantization",
    "TP Size": "tensor_parallel_size",
    "PP Size": "pipeline_parallel_size",
    "EP Size": "expert_parallel_size",
    "Max Runtime Batch Size": "max_num_seqs",
    "Max Runtime Tokens": "max_num_batched_tokens",
    "Number of requests": "requests",
    "Number of concurrent requests": "concurrency",
    "Average Input Length (tokens)": "isl",
    "Average Output Length (tokens)": "osl",
}
_PAIR = re.compile(r"[ \t]{0,8}([A-Z][\w +/()\[\]-]{2,60}):[ \t]{1,60}(\S[^\t]{0,200})")
_STATISTIC = re.compile(
    r"[ \t]{0,8}\[(TPOT|TTFT|Latency)\] (MINIMUM|MAXIMUM|AVERAGE|P50|P90|P95|P99)[ ]{0,12}: (\S{1,30})"
)
_QUANTITIES = {"TPOT": "tpot", "TTFT": "ttft", "Latency": "e2el"}
_MANAGER = re.compile(
    r"\[BENCHMARK\] (?:(\w{1,40})\((?:ms|seq/sec|token/sec)\) (\S{1,30})|(num_samples|num_error_samples) (\d{1,12}))"
)
_MANAGER_NAMES = {
    "seq_throughput": "request_throughput",
    "token_throughput": "output_throughput",
    "avg_sequence_latency": "mean_e2el_ms",
    "p50_sequence_latency": "median_e2el_ms",
    "p90_sequence_latency": "p90_e2el_ms",
    "p99_sequence_latency": "p99_e2el_ms",
    "max_sequence_latency": "max_e2el_ms",
    "min_sequence_latency": "min_e2el_ms",
}
MARKS = ("PERFORMANCE OVERVIEW", "[BENCHMARK] ", "Request Throughput (req/sec):")


class _Printed:
    """What was read of one printed run so far."""

    def __init__(self, tool: str) -> None:
        self.tool = tool
        self.metrics: dict[str, float] = {}
        self.notes: dict[str, str] = {}
        self.line = 0

    def add(self, name: str, text: str, path: str, number: int) -> None:
        try:
            value = figure(float(text), f"{path}:{number}")
        except ValueError:
            raise InvalidFileError(f"expected a number, found {shown(text)}", where=f"{path}:{number}") from None
        if value is not None:
            self.line = self.line or number
            self.metrics[name] = value

    def run(self, path: str) -> MeasuredRun:
        def number(name: str) -> float | None:
            text = self.notes.get(name)
            return float(text) if text is not None and re.fullmatch(r"\d{1,15}(?:\.\d{1,9})?", text) else None

        requests = number("requests")
        apart = ("model", "version", "requests", "concurrency", "isl", "osl")
        return MeasuredRun(
            tool=self.tool,
            where=f"{path}:{self.line}",
            metrics=self.metrics,
            model=self.notes.get("model"),
            engine="trtllm",
            engine_version=self.notes.get("version"),
            isl=number("isl"),
            osl=number("osl"),
            concurrency=number("concurrency"),
            requests=None if requests is None else int(requests),
            settings={name: text for name, text in self.notes.items() if name not in apart and text != "None"},
        )


def trtllm_printed_runs(lines: Iterable[LogLine], path: str) -> Iterator[MeasuredRun]:
    """Every run that a text shows: of trtllm-bench, from its engine's details on, or of gptManagerBenchmark.

    Raises:
        InvalidFileError: a figure that is none.
    """
    current: _Printed | None = None
    for line in lines:
        read = _manager if "[BENCHMARK]" in line.text else _bench
        tool = "gptManagerBenchmark" if read is _manager else "trtllm-bench"
        found = read(line.text)
        if found is None:
            continue
        name, text, measured = found
        if current is not None and current.metrics and _begins_anew(current, tool, name):
            yield current.run(path)
            current = None
        current = current or _Printed(tool)
        if measured:
            current.add(name, text, path, line.number)
        else:
            current.notes[name] = text
    if current is not None and current.metrics:
        yield current.run(path)


Found = tuple[str, str, bool]
"""A name, its text, and whether it was measured (or else noted)."""

_Read = Callable[[str], Found | None]


def _begins_anew(current: _Printed, tool: str, name: str) -> bool:
    return tool != current.tool or name in ("model", "requests", "request_throughput") or name in current.metrics


def _bench(text: str) -> Found | None:
    statistic = _STATISTIC.fullmatch(text.rstrip())
    if statistic is not None:
        return f"{statistic_name(statistic[2].lower())}_{_QUANTITIES[statistic[1]]}_ms", statistic[3], True
    pair = _PAIR.fullmatch(text.rstrip())
    if pair is None:
        return None
    label, value = pair[1].strip(), pair[2].strip()
    if label in _PRINTED:
        return _PRINTED[label], value, True
    return (_NOTED[label], value, False) if label in _NOTED else None


def _manager(text: str) -> Found | None:
    line = _MANAGER.search(text)
    if line is None:
        return None
    if line[3]:
        return ("requests", line[4], False) if line[3] == "num_samples" else None
    return (_MANAGER_NAMES[line[1]], line[2], True) if line[1] in _MANAGER_NAMES else None
