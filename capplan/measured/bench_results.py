"""Result files of benchmark tools, whichever it was, as one list of measured runs.

Read are ``vllm bench serve`` and ``sglang.bench_serving`` (JSON and text), genai-perf and aiperf (JSON), guidellm
(JSON), inference-perf (JSON), llama-bench (JSON, CSV, Markdown), trtllm-bench (JSON, text), gptManagerBenchmark (text).
What a file is, its content says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from capplan.errors import InvalidFileError
from capplan.measured.json_documents import JsonDocument, Table, as_table, read_documents
from capplan.measured.llama_bench import csv_runs, is_llama_bench_result, llama_bench_run, markdown_runs
from capplan.measured.load_generators import (
    aiperf_run,
    guidellm_runs,
    inference_perf_run,
    is_aiperf_result,
    is_guidellm_result,
    is_inference_perf_result,
)
from capplan.measured.log_lines import read_lines
from capplan.measured.measured_run import MeasuredRun
from capplan.measured.serving_results import BANNER, is_serving_result, printed_runs, serving_run
from capplan.measured.trtllm_bench import MARKS, is_trtllm_report, trtllm_printed_runs, trtllm_report_run

TOOLS = (
    "vllm bench serve, sglang.bench_serving, genai-perf, aiperf, guidellm, inference-perf, llama-bench, trtllm-bench,"
    " gptManagerBenchmark"
)

_One = tuple[Callable[[Table], bool], Callable[[Table], list[MeasuredRun]]]

_JSON: tuple[_One, ...] = (
    (is_guidellm_result, guidellm_runs),
    (is_trtllm_report, lambda table: [trtllm_report_run(table)]),
    (is_inference_perf_result, lambda table: [inference_perf_run(table)]),
    (is_aiperf_result, lambda table: [aiperf_run(table)]),
    (is_llama_bench_result, lambda table: [llama_bench_run(table)]),
    (is_serving_result, lambda table: [serving_run(table)]),
)


def read_bench_results(path: Path) -> list[MeasuredRun]:
    """The runs of a result file.

    Raises:
        NotFoundError: no such file.
        InvalidFileError: a file of no known tool, or a figure in it that is none; its place is named.
    """
    runs = list(_json_runs(path) if _is_json(path) else _text_runs(path))
    if not runs:
        raise InvalidFileError("the file holds no result of a known tool", where=str(path), hint=f"known are {TOOLS}")
    return runs


def _is_json(path: Path) -> bool:
    """Whether the first line that isn't blank opens a JSON object, or a list of them; logs begin with brackets too."""
    first = next((line.text.lstrip() for line in read_lines(path) if line.text.strip()), "")
    return re.match(r"\{|\[[ \t]*(?:[\[{\]]|$)", first) is not None


def _json_runs(path: Path) -> Iterator[MeasuredRun]:
    for document in read_documents(path):
        for table in _tables(document):
            yield from _table_runs(table)


def _tables(document: JsonDocument) -> list[Table]:
    if isinstance(document.data, list):
        return Table({"": document.data}, document.where).tables("")
    return [as_table(document)]


def _table_runs(table: Table) -> list[MeasuredRun]:
    for fits, read in _JSON:
        if fits(table):
            return read(table)
    raise InvalidFileError("this is no result of a known tool", where=table.where, hint=f"known are {TOOLS}")


def _text_runs(path: Path) -> Iterator[MeasuredRun]:
    lines, where = list(read_lines(path)), str(path)
    if any(BANNER in line.text for line in lines):
        yield from printed_runs(lines, where)
    elif any(mark in line.text for line in lines for mark in MARKS):
        yield from trtllm_printed_runs(lines, where)
    elif any("avg_ts" in line.text and "n_prompt" in line.text for line in lines):
        yield from csv_runs(lines, where)
    else:
        yield from markdown_runs(lines, where)
