"""``sweep``: its rows are what the single questions say, and files end the same however they came about."""

from __future__ import annotations

import csv
import json
import tracemalloc
from collections.abc import Iterable, Iterator
from dataclasses import replace
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import capplan
from capplan.cli.app import run
from capplan.errors import CapplanError, InvalidFileError, NotFoundError, UsageError
from capplan.planner import sweep as blocks
from capplan.planner.sweep import FIGURES, LoadGrid, on_front
from capplan.questions import sweep_dask
from capplan.questions.cost_request import Pricing
from capplan.questions.estimate import LoadRequest
from capplan.questions.sweep import (
    DEPLOYMENT,
    Compute,
    SweepChunk,
    Task,
    deployments,
    one_after_the_other,
    sweep,
    sweep_chunks,
)
from capplan.questions.sweep_dask import dask_scheduler
from capplan.questions.sweep_request import SweepRequest
from capplan.report.sweep_files import write_sweep

SMALL = SweepRequest(
    model="llama3.1-8b", isl=(512, 3000, 16384), osl=(1, 64, 700), concurrency=(1, 7, 64, 2000), gpus=("h100", "l40s"),
    tensor_parallel=(1, 2), pipeline_parallel=(1,), data_parallel=(1,), weight_formats=("checkpoint", "fp8"),
    kv_formats=("auto",), pricing=Pricing(price_per_gpu_hour=Decimal("2.5")),
)  # fmt: skip


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few rows, so that a small sweep has many."""
    monkeypatch.setattr(blocks, "BLOCK", 7)


def all_rows(request: SweepRequest) -> list[dict[str, Any]]:
    return [chunk.row(place) for chunk in sweep_chunks(request) for place in range(chunk.rows)]


@pytest.mark.parametrize(("model", "prefix"), [("llama3.1-8b", 0.0), ("qwen3-8b", 0.4)])
def test_every_row_is_the_estimate_of_that_load(model: str, prefix: float) -> None:
    """The estimate is of one load at a time, in plain numbers; the cost is the price over the tokens.

    The first model's fp8 weights are a checkpoint of their own, the second's are made when it is loaded.
    """
    found = all_rows(replace(SMALL, model=model, prefix_hit_rate=prefix))
    assert {row["weight_dtype"] for row in found} == ({None, "fp8"} if prefix else {None})
    assert len(found) == 36 * len({row["deployment"] for row in found})
    for row in found[:: 7 if prefix else 5]:
        load = LoadRequest(row["isl"], row["osl"], concurrency=row["concurrency"], prefix_hit_rate=prefix)
        result = capplan.estimate(
            row["model"],
            row["gpu"],
            load=load,
            engine=row["engine"],
            tensor_parallel_size=row["tp"],
            weight_dtype=row["weight_dtype"],
            max_num_batched_tokens=row["max_num_batched_tokens"],
        ).result
        for name, value in (
            ("ttft_ms", result.mean_ttft_ms),
            ("tpot_ms", result.mean_tpot_ms),
            ("request_throughput", result.request_throughput),
            ("total_token_throughput", result.total_token_throughput),
            ("admitted_batch", result.admitted_batch),
            ("kv_tokens", result.kv_capacity_tokens),
            ("queued", result.queued),
        ):
            assert row[name] == pytest.approx(value, rel=1e-9), (name, row)
        dollars = 2.5 * row["gpus"] / 3600 / result.total_token_throughput * 1e6
        assert row["cost_per_1m_tokens"] == pytest.approx(dollars, rel=1e-9)
        assert row["tokens_per_second_per_gpu"] * row["gpus"] == pytest.approx(result.total_token_throughput, rel=1e-9)
        assert row["e2e_ms"] == pytest.approx(row["ttft_ms"] + (row["osl"] - 1) * row["tpot_ms"], rel=1e-9)
        assert row["tpot_ms_high"] > row["tpot_ms"]
        assert row["ttft_ms_high"] > row["ttft_ms"]


def test_every_combination_is_there_once() -> None:
    found = all_rows(SMALL)
    keys = [(row["deployment"], row["isl"], row["osl"], row["concurrency"]) for row in found]
    assert len(set(keys)) == len(keys)
    assert keys == sorted(keys)
    built = {(row["gpu"], row["tp"], row["weights"]) for row in found}
    assert built == {(gpu, tp, form) for gpu in ("h100-sxm-80gb", "l40s") for tp in (1, 2) for form in ("bf16", "fp8")}


def test_what_does_not_fit_is_left_out_and_named() -> None:
    tight = replace(SMALL, gpus=("t4", "l40s", "mi250x"), model="llama3.1-70b", weight_formats=("checkpoint",))
    result = sweep(tight).result
    reasons = {row.reason: row.options for row in result.rejected}
    assert reasons["does not fit"]
    assert reasons["no measured profile"]
    assert result.rows == result.deployments * 36
    nothing = sweep(replace(tight, gpus=("l40s",), tensor_parallel=(1,)))
    assert nothing.result.rows == 0
    assert nothing.warnings


def test_wishes_that_no_device_grants_are_named() -> None:
    """32 query heads over 8 KV heads are not divided by 3; a dense model has no experts; one device is no two stages."""
    nothing = sweep(replace(SMALL, tensor_parallel=(3,)))
    assert nothing.result.rows == 0
    assert {row.reason: row.options for row in nothing.result.rejected} == {"no -tp 3": 4}
    assert nothing.result.rejected[0].nearest[0].detail == "-tp can be 1, 2, 4, 8"
    assert "no -tp 3 (4)" in nothing.warnings[0]
    some = sweep(replace(SMALL, tensor_parallel=(1, 3)))
    assert {row.reason for row in some.result.rejected} == {"no -tp 3"}
    assert some.result.rows == 4 * 36
    assert not some.warnings
    assert {row.reason for row in sweep(SMALL).result.rejected} == set(), "what nobody asked for is no miss"
    dense = sweep(replace(SMALL, expert_parallel=True)).result
    assert "no experts to divide" in {row.reason for row in dense.rejected}
    apart = sweep(replace(SMALL, tensor_parallel=(1,), pipeline_parallel=(2,), max_nodes=2)).result
    assert {row.reason for row in apart.rejected} == {"parallel sizes that do not go together"}
    made = sweep(replace(SMALL, engines=("trtllm",), weight_formats=("int8",))).result
    assert any("trtllm does not make int8" in row.reason for row in made.rejected)


def test_devices_that_take_a_relatives_constants_are_named_as_estimate_names_them() -> None:
    carried = sweep(replace(SMALL, gpus=("h100", "l4", "rtx-4090"), tensor_parallel=(1,)))
    said = [text for text in carried.assumptions if "measured" in text]
    load = LoadRequest(512, 64, 1)
    alone = capplan.estimate("llama3.1-8b", "l4", load=load).assumptions
    assert any("l4, rtx-4090 were not measured: the constants of l40s" in text for text in said)
    assert [text.split(": ")[1] for text in alone if "measured" in text] == [
        text.split(": ")[1].replace("for them", "for it") for text in said
    ]
    assert set(carried.provenance.values()) == {"extrapolated"}
    own = sweep(SMALL)
    assert not [text for text in own.assumptions if "measured" in text]
    assert set(own.provenance.values()) == {"fitted"}


def test_the_front_is_what_nothing_beats() -> None:
    """Against the definition, pair by pair, ties and all."""
    random = np.random.default_rng(3)
    columns = {name: random.integers(0, 12, 300) for name in ("a", "b")}
    points = list(zip(columns["a"].tolist(), columns["b"].tolist(), strict=True))
    kept = on_front(columns, ("a", "b")).tolist()
    best = {point for point in points if not any(p != point and p[0] <= point[0] and p[1] <= point[1] for p in points)}
    assert {points[place] for place in kept} == best
    assert len(kept) == len(best)


@pytest.mark.usefixtures("small_blocks")
def test_the_fronts_of_an_answer_are_those_of_its_rows() -> None:
    found = all_rows(SMALL)
    for front in sweep(SMALL).result.fronts:
        rows = [row for row in found if (row["isl"], row["osl"]) == (front.isl, front.osl)]
        points = {(row["tpot_ms"], row["cost_per_1m_tokens"]) for row in rows}
        best = {
            point for point in points if not any(p != point and p[0] <= point[0] and p[1] <= point[1] for p in points)
        }
        assert {(row["tpot_ms"], row["cost_per_1m_tokens"]) for row in front.rows} == best
        assert set(front.by_gpu) == {"h100-sxm-80gb", "l40s"}


def test_a_grid_is_walked_in_order() -> None:
    grid = LoadGrid((1, 2), (3, 4, 5), (6, 7))
    loads = grid.loads(0, grid.size)
    walked = list(zip(loads.isl.tolist(), loads.osl.tolist(), loads.concurrency.tolist(), strict=True))
    assert walked == [(isl, osl, clients) for isl in (1, 2) for osl in (3, 4, 5) for clients in (6, 7)]
    assert grid.longest == 7


class PluggedOutError(Exception):
    """Somebody pulled the plug."""


def cut_off(after: int) -> Any:
    """A scheduler that fails after so many chunks."""

    def schedule(compute: Compute, request: SweepRequest, work: Iterable[Task]) -> Iterator[SweepChunk]:
        yield from islice(one_after_the_other(compute, request, work), after)
        raise PluggedOutError

    return schedule


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_sweep_that_was_cut_off_ends_as_one_that_was_not(kind: str, tmp_path: Path) -> None:
    whole, broken = tmp_path / f"whole.{kind}", tmp_path / f"broken.{kind}"
    expected = write_sweep(SMALL, whole)
    for after in (0, 2, 9):
        with pytest.raises(PluggedOutError):
            write_sweep(SMALL, broken, scheduler=cut_off(after))
        if kind != "parquet" and after:
            with broken.open("ab") as file:
                file.write(b"half a li")
    assert write_sweep(SMALL, broken) == expected
    assert broken.read_bytes() == whole.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"broken.{kind}", f"whole.{kind}"]


@pytest.mark.usefixtures("small_blocks")
def test_files_hold_the_rows(tmp_path: Path) -> None:
    """Every format, read by a reader that is not ours."""
    import pyarrow.parquet as parquet

    expected = all_rows(SMALL)
    for kind in ("csv", "jsonl", "parquet"):
        write_sweep(SMALL, tmp_path / f"rows.{kind}")
    table = parquet.read_table(tmp_path / "rows.parquet")
    assert table.column_names == [*DEPLOYMENT, *FIGURES]
    assert table.to_pylist() == expected
    lines = (tmp_path / "rows.jsonl").read_text().splitlines()
    for line, row in zip(lines, expected, strict=True):
        found = json.loads(line)
        assert list(found) == list(row)
        for name, value in row.items():
            assert found[name] == (pytest.approx(value, rel=1e-8) if isinstance(value, float) else value)
    with (tmp_path / "rows.csv").open(newline="") as file:
        for cells, row in zip(csv.DictReader(file), expected, strict=True):
            assert cells["gpu"] == row["gpu"]
            assert cells["queued"] == str(row["queued"]).lower()
            assert float(cells["tpot_ms"]) == pytest.approx(row["tpot_ms"], rel=1e-8)


def test_no_rows_are_a_file_too(tmp_path: Path) -> None:
    import pyarrow.parquet as parquet

    none = replace(SMALL, model="llama3.1-70b", gpus=("l40s",), tensor_parallel=(1,), weight_formats=("checkpoint",))
    write_sweep(none, tmp_path / "rows.parquet")
    write_sweep(none, tmp_path / "rows.csv")
    assert parquet.read_table(tmp_path / "rows.parquet").num_rows == 0
    assert (tmp_path / "rows.csv").read_text().splitlines() == [",".join((*DEPLOYMENT, *FIGURES))]


@pytest.mark.usefixtures("small_blocks")
def test_progress_of_something_else_is_not_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    note = tmp_path / "rows.csv.progress"
    with pytest.raises(PluggedOutError):
        write_sweep(SMALL, path, scheduler=cut_off(3))
    with pytest.raises(UsageError, match="another sweep"):
        write_sweep(replace(SMALL, isl=(512,)), path)
    kept = note.read_text()
    path.write_text("short")
    with pytest.raises(UsageError, match="less is here"):
        write_sweep(SMALL, path)
    for text in ("", "[]", "{}", '{"chunks": "x"}', kept.replace('"mixes"', '"mixed"')):
        note.write_text(text)
        with pytest.raises(InvalidFileError, match="no progress"):
            write_sweep(SMALL, path)
    write_sweep(SMALL, path, restart=True)
    fresh = tmp_path / "fresh.csv"
    write_sweep(SMALL, fresh)
    assert path.read_bytes() == fresh.read_bytes()


def test_dask_on_two_workers_writes_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    request = replace(SMALL, concurrency=tuple(range(1, 4000, 2)), gpus=("h100",), weight_formats=("checkpoint",))
    alone, shared = tmp_path / "alone.parquet", tmp_path / "shared.parquet"
    expected = write_sweep(request, alone)
    assert write_sweep(request, shared, scheduler=dask_scheduler("local:2")) == expected
    assert shared.read_bytes() == alone.read_bytes()


@pytest.mark.parametrize("where", ["local:0", "local:x", "local:2000", "local:²", "somewhere"])
def test_what_is_no_scheduler(where: str) -> None:
    pytest.importorskip("distributed")
    with pytest.raises(UsageError):
        dask_scheduler(where)


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(sweep_dask, "PATIENCE", "0.3s")
    with pytest.raises(NotFoundError, match="no scheduler answers"):
        sweep(SMALL, scheduler=dask_scheduler("tcp://127.0.0.1:9"))


def peak_of(request: SweepRequest, out: Path) -> int:
    """Bytes that were allocated at once while a sweep was written."""
    tracemalloc.start()
    write_sweep(request, out)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_memory_does_not_grow_with_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times the rows on the same deployment: the peak grows by far less than what was written.

    What else runs in the process, a thread of another test's, can only add to a peak: the least of three counts.
    """
    monkeypatch.setattr(blocks, "BLOCK", 256)
    few = replace(SMALL, gpus=("h100",), tensor_parallel=(1,), weight_formats=("checkpoint",), osl=(128,))
    few = replace(few, concurrency=tuple(range(1, 250)))
    several, many = (replace(few, isl=tuple(range(512, 512 + count))) for count in (10, 100))
    peaks, sizes = [], []
    for request in (several, many):
        deployments(request)
        peaks.append(min(peak_of(request, tmp_path / "rows.csv") for _ in range(3)))
        sizes.append((tmp_path / "rows.csv").stat().st_size)
    assert sizes[1] > 9.5 * sizes[0]
    assert peaks[1] - peaks[0] < 0.3 * (sizes[1] - sizes[0])


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("--isl 1k --osl 1", "--concurrency"),
        ("--isl 0 --osl 1 --concurrency 1", "--isl"),
        ("--isl 9:3 --osl 1 --concurrency 1", "ends before"),
        ("--isl 1:9:0 --osl 1 --concurrency 1", "--isl"),
        ("--isl 1:2:3:4 --osl 1 --concurrency 1", "no range"),
        ("--isl x --osl 1 --concurrency 1", "--isl"),
        ("--isl 1 --osl 1 --concurrency 1 --engine llama.cpp", "not swept"),
        ("--isl 1 --osl 1 --concurrency 1 --prefix-hit-rate 1.5", "--prefix-hit-rate"),
        ("--isl 1 --osl 1 --concurrency 1 -ep --no-enable-expert-parallel", "either"),
        ("--isl 1 --osl 1 --concurrency 1 --out rows.xls", "--out"),
        ("--isl 1 --osl 1 --concurrency 1 --out /nowhere/rows.csv", "cannot write"),
        ("--isl 1:100000:100000 --osl 1:100000:100000 --concurrency 1", "at most"),
    ],
)
def test_what_cannot_be_swept(words: str, error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sweep", "--model", "llama3.1-8b", "--gpu", "h100", "-tp", "1", *words.split()]) == 2
    assert error in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1,8,64", [1, 8, 64]),
        ("1:512", [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]),
        ("3:20", [3, 6, 12, 20]),
        ("1:1000:4", [1, 10, 100, 1000]),
        ("1:3:9", [1, 2, 3]),
        ("5:5", [5]),
    ],
)
def test_axes(text: str, values: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    words = f"sweep --model llama3.1-8b --gpu h100 -tp 1 --isl 512 --osl 9 --concurrency {text} --json"
    assert run(words.split()) == 0
    assert json.loads(capsys.readouterr().out)["inputs"]["concurrency"] == values


def test_a_model_that_is_not_there() -> None:
    with pytest.raises(CapplanError):
        sweep(replace(SMALL, model="no-such-model"))
