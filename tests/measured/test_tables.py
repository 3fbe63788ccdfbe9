"""Measured tables: the public ones cell by cell against Python's own CSV reader, and small ones typed for the test."""

from __future__ import annotations

import csv
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capplan.errors import InvalidFileError, NotFoundError
from capplan.measured.metric_names import is_metric, table_metric, unit_factor
from capplan.measured.table_mapping import TableMapping, read_mapping
from capplan.measured.tables import TableRow, read_table

DATA = Path(__file__).parents[2] / "benchmarks" / "data"

WIDE = "model,gpu,engine,isl,osl,concurrency,gpus,ttft_ms,tpot_ms\nllama,h100,vllm,1024,128,16,2,208.5,9.25\n"
LONG = "model,gpu,engine,isl,osl,concurrency,gpus,metric,value,unit\n"

Read = Callable[..., list[TableRow]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def reader(content: str | bytes, mapping: str | None = None) -> list[TableRow]:
        path = tmp_path / "table.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        if mapping is None:
            return list(read_table(path))
        (tmp_path / "map.yaml").write_text(mapping, encoding="utf-8")
        return list(read_table(path, read_mapping(tmp_path / "map.yaml")))

    return reader


@pytest.fixture
def refused(read: Read) -> Callable[..., InvalidFileError]:
    def reader(content: str | bytes, mapping: str | None = None) -> InvalidFileError:
        with pytest.raises(InvalidFileError) as caught:
            read(content, mapping)
        return caught.value

    return reader


def _rows(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_wide_public_table_cell_by_cell() -> None:
    truth = _rows("silicon_dev.csv")
    rows = list(read_table(DATA / "silicon_dev.csv"))
    assert len(rows) == len(truth) == 1438
    for number, (row, cells) in enumerate(zip(rows, truth, strict=True), start=2):
        assert row.line == number
        assert row.metrics == {"ttft_ms": float(cells["ttft_ms"]), "tpot_ms": float(cells["tpot_ms"])}
        texts = (row.id, row.model, row.model_path, row.gpu, row.engine, row.engine_version, row.precision)
        theirs = ("id", "model", "model_path", "system", "backend", "backend_version", "precision")
        assert texts == tuple(cells[name] for name in theirs)
        loads = (row.isl, row.osl, row.concurrency, row.mean_length)
        assert loads == tuple(float(cells[name]) for name in ("isl", "osl", "concurrency", "mean_len_factor"))
        sizes = (row.gpus, row.tp, row.attention_dp, row.moe_tp, row.expert_parallel)
        assert sizes == tuple(int(cells[name]) for name in ("gpus", "tp", "attn_dp", "moe_tp", "moe_ep"))
        server = (row.max_num_batched_tokens, row.scheduler_recv_interval, row.batch_wait_steps)
        names = ("max_num_batched_tokens", "scheduler_recv_interval", "batch_wait_steps")
        assert server == tuple(int(cells[name]) for name in names)
        assert row.chunked_prefill is (cells["chunked_prefill"] == "1")
        assert (row.regime, row.quality, row.source, row.date) == tuple(
            cells[name] for name in ("ttft_regime", "quality", "source", "date")
        )
        assert row.labels == {name: cells[name] for name in ("image", "cfg") if cells[name]}


def test_the_wide_public_table_is_read_fast() -> None:
    start = time.process_time()
    for _ in read_table(DATA / "silicon_dev.csv"):
        pass
    assert time.process_time() - start < 0.5  # about 0.03 s


def test_the_long_public_table_figure_by_figure() -> None:
    truth = _rows("e2e_dev.csv")
    rows = list(read_table(DATA / "e2e_dev.csv"))
    assert len(rows) == len(truth) == 3481
    for row, cells in zip(rows, truth, strict=True):
        [(name, value)] = row.metrics.items()
        factor = int(cells["n_gpus"]) if cells["unit"] == "tokens/s/GPU" else 1
        assert value == float(cells["value"]) * factor
        assert name.endswith("_ms") == (cells["unit"] == "ms")
        assert ("mean" in name) == ("mean" in cells["metric"])
        assert ("p99" in name) == ("p99" in cells["metric"])
        assert ("median" in name) == ("p50" in cells["metric"])
        assert is_metric(name)
        assert (row.gpus, row.kv_format, row.notes) == (int(cells["n_gpus"]), cells["kv_dtype"], cells["notes"])
        assert row.labels == {"params_b": cells["params_b"]}
    per_gpu = sum(cells["metric"] == "output_tokens_per_s_per_gpu" for cells in truth)
    shared = sum(cells["metric"] == "output_tokens_per_s" for cells in truth)
    assert sum("output_throughput" in row.metrics for row in rows) == shared + per_gpu


def test_the_mean_gap_of_genai_perf_is_a_tpot(read: Read) -> None:
    rows = read(LONG + "m,h100,NIM (TensorRT-LLM),5000,500,1,2,itl_mean,18.58,ms\nm,h100,vLLM,1,1,1,1,itl_p50,15,ms\n")
    assert [dict(row.metrics) for row in rows] == [{"mean_tpot_ms": 18.58}, {"median_itl_ms": 15.0}]


@pytest.mark.parametrize(
    ("metric", "unit", "name", "value"),
    [
        ("ttft", "s", "ttft_ms", 3000.0),
        ("ttft_p50", "us", "median_ttft_ms", 0.003),
        ("tpot_p99.9", "ms", "p99.9_tpot_ms", 3.0),
        ("e2e_avg", "ms", "mean_e2el_ms", 3.0),
        ("output_tokens_per_s", "tokens/s", "output_throughput", 3.0),
        ("output_tokens_per_s", "tok/s/gpu", "output_throughput", 6.0),
        ("output_tokens_per_s_per_gpu", "tokens/s", "output_throughput", 6.0),
        ("total_tokens_per_s", "tokens/s (in+out)", "total_token_throughput", 3.0),
        ("requests_per_s", "req/s", "request_throughput", 3.0),
        ("decode_tokens_per_s_best(short ctx)", "tokens/s", "max_decode_throughput", 3.0),
        ("decode_tokens_per_s_worst(full ctx)", "tokens/s", "min_decode_throughput", 3.0),
        ("prefill_throughput", "tokens/s (all GPUs)", "prefill_throughput", 3.0),
    ],
)
def test_metrics_and_units(read: Read, metric: str, unit: str, name: str, value: float) -> None:
    [row] = read(f"{LONG}m,h100,vllm,1,1,1,2,{metric},3,{unit}\n")
    assert row.metrics == {name: pytest.approx(value, rel=1e-12)}


@pytest.mark.parametrize(
    ("metric", "unit", "place"),
    [
        ("ttft", "tokens/s", "unit"),
        ("ttft", "minutes", "unit"),
        ("output_tokens_per_s", "ms", "unit"),
        ("output_tokens_per_s", "req/s", "unit"),
        ("output_tokens_per_s", "tokens/s (in+out)", "unit"),
        ("output_tokens_per_s", "tokens/s (per user)", "unit"),
        ("output_tokens_per_s_per_gpu", "tokens/s (all GPUs)", "unit"),
        ("requests_per_s", "tokens/s", "unit"),
        ("ttft_fast", "ms", "metric"),
        ("goodput", "req/s", "metric"),
        ("ttft_p50_ms", "ms", "metric"),
    ],
)
def test_metrics_and_units_that_are_none(refused: Any, metric: str, unit: str, place: str) -> None:
    assert refused(f"{LONG}m,h100,vllm,1,1,1,2,{metric},3,{unit}\n").where.endswith(f"table.csv:2: {place}")


@pytest.mark.parametrize("name", ["ttft_ms", "mean_ttft_ms", "p99.9_itl_ms", "std_e2el_ms", "min_decode_throughput"])
def test_the_names_of_metrics(name: str) -> None:
    assert is_metric(name)
    assert table_metric(name).name == name


@pytest.mark.parametrize("name", ["ttft", "p50_ttft_ms", "avg_ttft_ms", "ttft_ms_mean", "throughput", "", "x_ttft_ms"])
def test_names_that_are_no_metrics(name: str) -> None:
    assert not is_metric(name)


def test_a_request_rate_has_no_tokens() -> None:
    with pytest.raises(ValueError, match="no unit"):
        unit_factor(table_metric("requests_per_s"), "tok/s")


def test_metrics_may_be_missing(read: Read) -> None:
    [row] = read("model,system,backend,isl,osl,concurrency,ttft_ms\nm,h100,vllm,1024,128,16,\n")
    assert (row.metrics, row.gpu, row.gpus, row.mean_length, row.labels) == ({}, "h100", None, 1.0, {})


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_delimiters_and_line_ends(read: Read, delimiter: str, ending: str) -> None:
    text = WIDE.replace(",", delimiter).replace("\n", ending)
    [row] = read(b"\xef\xbb\xbf# a comment, with commas\n\n" + text.encode() + ending.encode())
    assert (row.line, row.model, row.metrics) == (4, "llama", {"ttft_ms": 208.5, "tpot_ms": 9.25})


def test_a_quoted_cell_over_several_lines_keeps_the_lines_count(read: Read, refused: Any) -> None:
    text = 'model,gpu,engine,isl,osl,concurrency,notes\nm,g,e,1,1,1,"one\ntwo, three"\nm,g,e,1,1,{},\n'
    rows = read(text.format(4))
    assert [(row.line, row.notes) for row in rows] == [(2, "one\ntwo, three"), (4, "")]
    assert refused(text.format("x")).where.endswith("table.csv:4: concurrency")


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        ("ttft_ms", "fast"), ("ttft_ms", "nan"), ("ttft_ms", "inf"), ("ttft_ms", "-1"), ("ttft_ms", "1e400"),
        ("ttft_ms", "1e13"), ("ttft_ms", "1_0"), ("ttft_ms", "٣"), ("tpot_ms", "0x10"), ("isl", ""), ("isl", "-5"),
        ("concurrency", "0"), ("concurrency", ""), ("gpus", "1.5"), ("gpus", "0"), ("model", ""), ("gpu", "  "),
    ],
)  # fmt: skip
def test_a_bad_cell_is_named_by_line_and_column(refused: Any, column: str, cell: str) -> None:
    header = WIDE.splitlines()[0].split(",")
    cells = WIDE.splitlines()[1].split(",")
    cells[header.index(column)] = cell
    error = refused(f"{WIDE}{','.join(cells)}\n")
    assert error.where.endswith(f"table.csv:3: {column}")


def test_a_decimal_comma_is_told_as_such(refused: Any) -> None:
    error = refused("model;gpu;engine;isl;osl;concurrency;ttft_ms\nm;g;e;1;1;1;208,446\n")
    assert "a decimal point, not a comma" in error.hint


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no header"),
        ("\n\n", "no header"),
        (WIDE.splitlines()[0] + "\n", "no rows"),
        (WIDE + "a,b\n", "has 2 cells, the header 9"),
        (WIDE.replace("gpus", "gpu"), "stands twice"),
        (WIDE.replace("gpus", "system"), "mean the same"),
        (WIDE.replace("engine", "server"), "no column 'engine' or 'backend'"),
        (WIDE.replace("ttft_ms", "ttfts_ms"), "unknown column"),
        (WIDE.replace("tpot_ms", "TPOT (ms)"), "unknown column"),
        (WIDE.replace("ttft_ms", "metric"), "has a column 'value'|not both"),
        (WIDE.replace("1024,128", "0,0"), "tokens in or out"),
        (WIDE + '"llama,h100\n', "no row of CSV"),
        (WIDE.encode("utf-16"), "not UTF-8"),
        (WIDE.encode() + b"\xff\n", "not UTF-8"),
        ("a" * 200_000, "more than 131072 characters"),
        (",".join(f"c{n}" for n in range(1001)) + "\n", "more than 1000 columns"),
        ("id," + WIDE.replace("llama", "x,llama") + WIDE.splitlines()[1].replace("llama", "x,llama"), "on line 2"),
    ],
)
def test_a_table_that_cannot_be_read(refused: Any, content: str | bytes, message: str) -> None:
    import re

    assert re.search(message, refused(content).message)


def test_no_such_table(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        list(read_table(tmp_path / "none.csv"))
    with pytest.raises(InvalidFileError):
        list(read_table(tmp_path))


MAPPED = "Checkpoint,Device,Clients,In,Out,N,Mean TTFT (s),tok/s/GPU,Remark\nLlama 3.1 8B,H100,16,1k,128,2,0.5,900,x\n"
MAPPING = """schema: 1
columns: {model: Checkpoint, gpu: Device, concurrency: Clients, isl: In, osl: Out, gpus: N,
          mean_ttft_ms: Mean TTFT (s), output_throughput: tok/s/GPU}
constants: {engine: vllm, mean_length: 0.9}
factors: {mean_ttft_ms: 1000, isl: 1024}
per_gpu: [output_throughput]
values: {gpu: {H100: h100-sxm-80gb}, model: {Llama 3.1 8B: llama-3.1-8b}}
"""


def test_a_mapping_file(read: Read) -> None:
    [row] = read(MAPPED.replace("1k", "1"), MAPPING)
    assert (row.model, row.gpu, row.engine, row.gpus) == ("llama-3.1-8b", "h100-sxm-80gb", "vllm", 2)
    assert (row.isl, row.osl, row.concurrency, row.mean_length) == (1024.0, 128.0, 16.0, 0.9)
    assert row.metrics == {"mean_ttft_ms": 500.0, "output_throughput": 1800.0}
    assert row.labels == {"Remark": "x"}


def test_a_mapped_cell_is_named_by_the_tables_own_heading(refused: Any) -> None:
    assert refused(MAPPED, MAPPING).where.endswith("table.csv:2: In")


def test_a_mapping_of_a_long_table(read: Read) -> None:
    table = LONG.replace("metric", "what") + "m,g,e,1,1,1,4,TTFT (avg),2,s\nm,g,e,1,1,1,4,rate,5,tok/s\n"
    mapping = """schema: 1
columns: {metric: what}
metrics: {TTFT (avg): mean_ttft_ms, rate: output_throughput}
per_gpu: [output_throughput]
"""
    assert [dict(row.metrics) for row in read(table, mapping)] == [
        {"mean_ttft_ms": 2000.0}, {"output_throughput": 20.0},
    ]  # fmt: skip


def test_a_heading_may_be_ignored(read: Read) -> None:
    text = WIDE.replace("tpot_ms", "TPOT (ms)")
    [row] = read(text, "schema: 1\nignore: [TPOT (ms)]\n")
    assert row.metrics == {"ttft_ms": 208.5}


@pytest.mark.parametrize(
    ("mapping", "place"),
    [
        ("schema: 2\n", "map.yaml:1:9"),
        ("columns: {model: m}\n", "map.yaml:1:1"),
        ("schema: 1\ncolums: {}\n", "map.yaml:2:9"),
        ("schema: 1\ncolumns: {modle: m}\n", "map.yaml:2:18"),
        ("schema: 1\ncolumns: {model: 3}\n", "map.yaml:2:18"),
        ("schema: 1\ncolumns: {model: llm}\n", "map.yaml:2:18"),
        ("schema: 1\ncolumns: {id: model, model: model}\n", "map.yaml:2:29"),
        ("schema: 1\nconstants: {tp: x}\n", "map.yaml:2:17"),
        ("schema: 1\nconstants: {tp: 4, tp: 5}\n", "map.yaml:2:20"),
        ("schema: 1\nconstants: {model: llama}\n", "table.csv:1"),
        ("schema: 1\nfactors: {isl: 0}\n", "map.yaml:2:16"),
        ("schema: 1\nfactors: {isl: true}\n", "map.yaml:2:16"),
        ("schema: 1\nfactors: {gpus: 2}\n", "map.yaml:2:17"),
        ("schema: 1\nfactors: {mean_ttft_ms: 2}\n", "table.csv:1"),
        ("schema: 1\nper_gpu: [ttft]\n", "map.yaml:2:11"),
        ("schema: 1\nper_gpu: output_throughput\n", "map.yaml:2:10"),
        ("schema: 1\nvalues: {isl: {a: b}}\n", "map.yaml:2:15"),
        ("schema: 1\nvalues: {gpu: {a: 3}}\n", "map.yaml:2:19"),
        ("schema: 1\nmetrics: {TTFT: ttft}\n", "map.yaml:2:17"),
        ("schema: 1\nmetrics: {TTFT: ttft_ms}\n", "table.csv:1"),
    ],
)
def test_a_mapping_file_that_is_wrong(refused: Any, mapping: str, place: str) -> None:
    assert refused(WIDE, mapping).where.endswith(place)


def test_a_figure_of_one_gpu_needs_their_number(refused: Any) -> None:
    text = "model,gpu,engine,isl,osl,concurrency,metric,value,unit\nm,g,e,1,1,1,output_tokens_per_s,3,tokens/s/GPU\n"
    assert refused(text).where.endswith("table.csv:2: value")


def test_a_mapping_made_in_python() -> None:
    rows = read_table(DATA / "silicon_dev.csv", TableMapping(values={"gpu": {"h100_sxm": "h100-sxm-80gb"}}))
    assert {row.gpu for row in rows} == {"h100-sxm-80gb", "h200_sxm", "b200_sxm"}


def test_readers_of_measurements_import_neither_torch_nor_numpy_nor_pydantic() -> None:
    code = (
        "import sys, capplan.measured.tables, capplan.measured.bench_results, capplan.measured.engine_logs;"
        "print([m for m in ('torch', 'numpy', 'pydantic', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
