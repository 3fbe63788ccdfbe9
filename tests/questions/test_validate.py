"""Validating: planted tables whose errors are known, refusals, intervals, probes, files of tools, bad tables."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capplan import validate
from capplan.cli.app import run
from capplan.errors import CapplanError, InvalidFileError, NotFoundError, UsageError
from capplan.questions.validate_rows import ValidatedFigure
from capplan.questions.validate_scores import quantile, score
from capplan.serving.measured_server import MeasuredServer, server_replica, server_workload
from capplan.serving.replica import EngineSettings
from capplan.serving.spread import tpot_interval, ttft_interval
from capplan.serving.steady_state import closed_loop

ROOT = Path(__file__).parents[2]
SERVERS = ROOT / "tests" / "data" / "measured" / "servers.csv"
KEYS = {
    "n", "refused", "mape", "median_ape", "p90_ape", "bias", "within_10", "within_20", "within_30", "interval_coverage"
}  # fmt: skip
COLUMNS = (
    "id,pred_ttft_ms,pred_ttft_low_ms,pred_ttft_high_ms,pred_tpot_ms,pred_tpot_low_ms,pred_tpot_high_ms,"
    "admitted_batch,refused"
)
HEADER = (
    "id", "model", "model_path", "system", "backend", "backend_version", "precision", "isl", "osl", "mean_len_factor",
    "concurrency", "gpus", "tp", "attn_dp", "moe_tp", "moe_ep", "max_num_batched_tokens", "chunked_prefill",
    "scheduler_recv_interval", "batch_wait_steps", "ttft_ms", "tpot_ms", "ttft_regime", "quality",
)  # fmt: skip
ROW: dict[str, Any] = {
    "id": "r", "model": "Llama", "model_path": "meta-llama/Llama-3.1-8B-Instruct", "system": "h100_sxm",
    "backend": "vllm", "backend_version": "0.11.0", "precision": "bf16", "isl": 1024, "osl": 256,
    "mean_len_factor": 1.0, "concurrency": 16, "gpus": 1, "tp": 1, "attn_dp": 1, "moe_tp": 1, "moe_ep": 1,
    "max_num_batched_tokens": 8192, "chunked_prefill": 1, "scheduler_recv_interval": 1, "batch_wait_steps": 0,
    "ttft_ms": 50.0, "tpot_ms": 8.0, "ttft_regime": "steady", "quality": "ok",
}  # fmt: skip

Table = Callable[..., Path]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    def write(rows: Sequence[dict[str, Any]], name: str = "t.csv", header: Sequence[str] = HEADER) -> Path:
        path = tmp_path / name
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, header, extrasaction="ignore", restval="")
            writer.writeheader()
            writer.writerows(rows)
        return path

    return write


def row(**changes: Any) -> dict[str, Any]:
    return {**ROW, **changes}


def predicted(concurrency: float = 16, mean_length: float = 1.0) -> tuple[float, float]:
    """TTFT and TPOT of the row's server in milliseconds, asked of the serving model itself."""
    server = MeasuredServer(
        "llama3.1-8b", "bf16", "h100-sxm-80gb", "vllm", 1024, 256, concurrency, mean_length,
        settings=EngineSettings(max_num_batched_tokens=8192),
    )  # fmt: skip
    point = closed_loop(server_replica(server), server_workload(server))
    return 1e3 * point.ttft, 1e3 * point.tpot


def test_planted_errors_come_out(table: Table) -> None:
    """Measurements at known distances from the prediction: every figure of the score is then arithmetic."""
    ttft, tpot = predicted()
    factors = [1.0, 1.05, 0.8, 1.5, 2.0]  # measured over predicted
    rows = [row(id=f"r{i}", tpot_ms=tpot * factor, ttft_ms=ttft * factor) for i, factor in enumerate(factors)]
    result = validate(table(rows)).result
    errors = [1 / factor - 1 for factor in factors]
    for found in (result.tpot, result.ttft):
        assert (found.n, found.refused) == (5, 0)
        assert found.mape == pytest.approx(mean(map(abs, errors)), rel=1e-4)
        assert found.median_ape == pytest.approx(median(map(abs, errors)), rel=1e-4)
        assert found.bias == pytest.approx(mean(errors), abs=1e-4)
        assert (found.within_10, found.within_20, found.within_30) == (0.4, 0.4, 0.6)


def test_the_first_token_counts_on_steady_rows_and_nothing_on_doubtful_ones(table: Table) -> None:
    rows = [row(id="a"), row(id="b", ttft_regime="stall"), row(id="c", quality="server_capped")]
    result = validate(table(rows)).result
    assert (result.rows, result.scored, result.tpot.n, result.ttft.n) == (3, 2, 2, 1)
    assert len(result.predictions) == 3
    assert all(line.figures[0].predicted for line in result.predictions)


def test_labels_and_measurements_are_no_inputs(table: Table) -> None:
    bare = validate(table([row()], header=[name for name in HEADER if name not in ("ttft_regime", "quality")])).result
    blind = validate(
        table(
            [row()],
            header=[name for name in HEADER if not name.endswith("_ms") and name not in ("quality", "ttft_regime")],
        )
    ).result
    full = validate(table([row(ttft_ms=1.0, tpot_ms=999, ttft_regime="stall", quality="flat_tpot_suspect")])).result
    values = [
        [figure.predicted for figure in result.predictions[0].figures if figure.metric in ("ttft_ms", "tpot_ms")]
        for result in (bare, blind, full)
    ]
    assert values[0] == values[1] == values[2]
    assert blind.tpot.n == 0
    assert blind.tpot.mape is None


def test_settings_are_inputs_and_engines_defaults_else(table: Table) -> None:
    """Smaller steps and a held-back prompt wait longer; what is left out is the engine's own."""
    short = [
        name for name in HEADER if name not in ("max_num_batched_tokens", "scheduler_recv_interval", "batch_wait_steps")
    ]
    plain = first_token(validate(table([row()])).result)
    assert first_token(validate(table([row(batch_wait_steps=20)])).result) > plain
    assert first_token(validate(table([row(scheduler_recv_interval=30)])).result) > plain
    assert first_token(validate(table([row()], header=short)).result) == pytest.approx(plain, rel=0.2)


def first_token(result: Any) -> float:
    return float(result.predictions[0].figure("ttft_ms").predicted)


def test_refusals_count_as_misses_and_are_listed(table: Table) -> None:
    ttft, tpot = predicted()
    exact = {"tpot_ms": tpot, "ttft_ms": ttft}
    rows = [
        row(id="good", **exact),
        row(id="ghost", model_path="nobody/Never-7B", **exact),
        row(id="device", system="abacus", **exact),
        row(id="big", model_path="deepseek-ai/DeepSeek-R1", precision="fp8", **exact),
        row(id="odd", tp=2, gpus=2, moe_ep=3, model_path="Qwen/Qwen3-30B-A3B", **exact),
    ]
    result = validate(table(rows)).result
    assert (result.rows, result.refused) == (5, 4)
    assert (result.tpot.n, result.tpot.refused) == (5, 4)
    assert result.tpot.within_10 == result.tpot.interval_coverage == 0.2
    assert result.tpot.mape == pytest.approx(0, abs=1e-4)
    reasons = {name: item.reason for item in result.refusals for name in item.ids}
    assert set(reasons) == {"ghost", "device", "big", "odd"}
    assert "GiB of weights" in reasons["big"]
    assert "Never-7B" in reasons["ghost"]


def test_intervals_cover_what_lies_in_them(table: Table) -> None:
    """Measurements just inside and just outside both ends of the interval that the engine's constants give."""
    ttft, tpot = predicted()
    server = MeasuredServer("llama3.1-8b", "bf16", "h100-sxm-80gb", "vllm", 1024, 256, 16)
    times = server_replica(server).machine.times
    around = tpot_interval(tpot, times), ttft_interval(ttft, times)
    rows = [
        row(id=f"{place}-{side}", tpot_ms=end * (1 + sign * place), ttft_ms=other * (1 + sign * place))
        for place in (0.001, -0.001)
        for side, sign, end, other in (
            ("low", -1, around[0].low, around[1].low),
            ("high", 1, around[0].high, around[1].high),
        )
    ]
    result = validate(table(rows)).result
    assert [line.figure("tpot_ms").inside for line in result.predictions] == [False, False, True, True]
    assert result.tpot.interval_coverage == result.ttft.interval_coverage == 0.5


def test_the_running_batch_counts_all_groups_and_no_more_than_the_clients(table: Table) -> None:
    groups = row(gpus=2, tp=1, attn_dp=2, moe_ep=2, model_path="Qwen/Qwen3-30B-A3B", concurrency=16)
    tight = row(id="tight", isl=60000, osl=1000, concurrency=64)
    result = validate(table([groups, tight])).result
    assert result.predictions[0].admitted_batch == 16
    held = result.predictions[1].admitted_batch
    assert held is not None
    assert 1 <= held < 20  # 60 GiB of cache at 128 KiB a token hold about eight prompts of 60,000 tokens


def test_replicas_share_the_clients(table: Table) -> None:
    one, two = validate(table([row(concurrency=16), row(id="s", concurrency=32, gpus=2)])).result.predictions
    assert one.figure("tpot_ms").predicted == pytest.approx(two.figure("tpot_ms").predicted)  # type: ignore[union-attr]
    assert two.admitted_batch == 32


def test_groups_hold_every_row(table: Table) -> None:
    rows = [row(id="a"), row(id="b", system="h200_sxm"), row(id="c", system="h200_sxm", backend="sglang")]
    result = validate(table(rows), by=["gpu", "engine"]).result
    assert [(group.group["gpu"], group.group["engine"], group.rows) for group in result.groups] == [
        ("h100_sxm", "vllm", 1), ("h200_sxm", "sglang", 1), ("h200_sxm", "vllm", 1)
    ]  # fmt: skip
    with pytest.raises(UsageError, match="no row has a column") as caught:
        validate(table(rows), by=["gpuu"])
    assert "gpu" in caught.value.hint


def test_the_document_has_the_keys_that_scripts_read(
    table: Table, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "predictions.csv"
    assert run(["validate", str(table([row(), row(id="x", system="abacus")])), "--json", "--out", str(out)]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    for name in ("tpot", "ttft"):
        assert set(result[name]) == KEYS
        assert all(set(group[name]) == KEYS for group in result["groups"])
    lines = out.read_text(encoding="utf-8").splitlines()
    assert lines[0] == COLUMNS
    cells = dict(zip(lines[0].split(","), lines[1].split(","), strict=True))
    ttft, tpot = predicted()
    assert float(cells["pred_tpot_ms"]) == pytest.approx(tpot, rel=1e-4)
    assert float(cells["pred_ttft_ms"]) == pytest.approx(ttft, rel=1e-4)
    assert float(cells["pred_tpot_low_ms"]) < tpot < float(cells["pred_tpot_high_ms"])
    assert (cells["id"], cells["admitted_batch"], cells["refused"]) == ("r", "16", "")
    refused = next(csv.reader([lines[2]]))
    assert refused[:8] == ["x", "", "", "", "", "", "", ""]
    assert "abacus" in refused[8]


def test_a_probe_corrects_its_own_sweep(table: Table) -> None:
    """A server 1.4 times as slow as predicted, and another that is right: one probe mends the first alone."""
    rows, probe = [], []
    for concurrency in (4, 16, 64):
        ttft, tpot = predicted(concurrency)
        slow = row(id=f"s{concurrency}", concurrency=concurrency, tpot_ms=1.4 * tpot, ttft_ms=1.4 * ttft)
        rows += [slow, row(id=f"o{concurrency}", concurrency=concurrency, backend="sglang")]
        probe += [slow] if concurrency == 16 else []
    measured, points = table(rows), table(probe, "probe.csv")
    plain, mended = validate(measured).result, validate(measured, probe=points).result
    assert (plain.tpot.n, mended.tpot.n) == (6, 5)  # the probe itself does not count
    assert next(line for line in mended.predictions if line.id == "s16").probe
    for before, after in zip(plain.predictions, mended.predictions, strict=True):
        old, new = before.figure("tpot_ms"), after.figure("tpot_ms")
        assert old is not None
        assert new is not None
        if before.id.startswith("o"):
            assert old == new
        elif not after.probe:
            assert abs(new.error or 0) < 0.5 * abs(old.error or 0)
            assert (new.predicted_high or 0) / (new.predicted_low or 1) < (old.predicted_high or 0) / (
                old.predicted_low or 1
            )


def test_a_probe_of_another_server_is_refused(table: Table) -> None:
    with pytest.raises(UsageError, match="no server in"):
        validate(table([row()]), probe=table([row(system="h200_sxm")], "probe.csv"))


LONG = (
    "source",
    "model",
    "precision",
    "gpu",
    "n_gpus",
    "engine",
    "isl",
    "osl",
    "batch_or_concurrency",
    "metric",
    "value",
    "unit",
    "notes",
)


def test_tables_with_one_metric_a_row(table: Table, tmp_path: Path) -> None:
    ttft, tpot = predicted()
    base = {"source": "s", "model": "Llama-3.1-8B-Instruct", "precision": "BF16", "gpu": "H100 SXM 80GB", "n_gpus": 1,
            "engine": "vLLM", "isl": 1024, "osl": 256, "batch_or_concurrency": 16}  # fmt: skip
    rows = [
        base | {"metric": "tpot_p50", "value": tpot, "unit": "ms"},
        base | {"metric": "ttft_mean", "value": ttft / 1e3, "unit": "s"},
        base | {"metric": "output_tokens_per_s", "value": 16 * 256 / (ttft + 255 * tpot) * 1e3, "unit": "tokens/s"},
        base | {"metric": "tpot_p99", "value": 2 * tpot, "unit": "ms"},
        base | {"metric": "output_tokens_per_s", "value": 9, "unit": "tokens/s", "notes": "PD-disaggregated: 1P1D"},
        base | {"metric": "output_tokens_per_s", "value": 9, "unit": "tokens/s", "engine": "Abacus"},
    ]
    out = tmp_path / "o.csv"
    result = validate(table(rows, header=LONG), by=["metric"], out=out).result
    assert result.tpot.mape == pytest.approx(0, abs=0.02)
    assert result.ttft.mape == pytest.approx(0, abs=0.02)
    speed = result.metrics["output_throughput"]
    assert (speed.n, speed.refused) == (2, 1)
    assert speed.mape == pytest.approx(0, abs=0.02)
    assert set(result.aside) == {"disaggregated"}
    assert any("p99_tpot_ms" in item.reason for item in result.refusals)
    assert len(result.groups) == len({line.labels["metric"] for line in result.predictions})
    lines = list(csv.DictReader(out.open(encoding="utf-8")))
    assert lines[2]["metric"] == "output_throughput"
    assert float(lines[2]["predicted"]) == pytest.approx(float(lines[2]["measured"]), rel=0.02)


def test_batches_without_a_server(table: Table) -> None:
    """A phase at a time: rates that follow from one step, with a prompt or without."""
    base = {"source": "s", "model": "Llama-3-8B", "precision": "F16", "gpu": "H100 SXM 80GB", "n_gpus": 1,
            "engine": "llama.cpp (llama-bench)", "batch_or_concurrency": 1, "value": 100, "unit": "tokens/s"}  # fmt: skip
    rows = [
        base | {"metric": "prefill_tokens_per_s", "isl": 512, "osl": 0},
        base | {"metric": "decode_tokens_per_s", "isl": 0, "osl": 128},
    ]
    first, second = validate(table(rows, header=LONG)).result.predictions
    prefill, decode = first.figure("prefill_throughput"), second.figure("decode_throughput")
    assert prefill is not None and prefill.predicted is not None and decode is not None and decode.predicted is not None  # noqa: PT018
    assert 1000 < prefill.predicted < 989e12 / 16e9  # under the rate of 16-bit products for 8 G parameters
    assert 50 < decode.predicted < 3.35e12 / 16e9  # under the bandwidth for 16 GB of weights


BENCH = {
    "date": "20261129-120000", "endpoint_type": "openai", "model_id": "meta-llama/Llama-3.1-8B-Instruct",
    "num_prompts": 160, "request_rate": "inf", "max_concurrency": 16, "duration": 100.0, "completed": 160,
    "total_input_tokens": 163840, "total_output_tokens": 40960, "request_throughput": 1.6, "output_throughput": 409.6,
    "total_token_throughput": 2048.0, "mean_ttft_ms": 60.0, "median_ttft_ms": 50.0, "p99_ttft_ms": 200.0,
    "mean_tpot_ms": 8.0, "median_tpot_ms": 8.0, "p99_tpot_ms": 9.0,
}  # fmt: skip


def test_the_result_file_of_a_tool(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(BENCH), encoding="utf-8")
    with pytest.raises(UsageError, match="which") as caught:
        validate(path, model="llama3.1-8b")
    assert caught.value.where in ("--gpu", "--engine")
    result = validate(path, gpu="h100", engine="vllm").result
    ttft, tpot = predicted()
    line = result.predictions[0]
    assert line.figure("mean_tpot_ms").predicted == pytest.approx(tpot, rel=0.01)  # type: ignore[union-attr]
    assert line.figure("mean_ttft_ms").predicted == pytest.approx(ttft, rel=0.01)  # type: ignore[union-attr]
    assert set(result.metrics) > {"request_throughput", "output_throughput", "mean_tpot_ms", "median_ttft_ms"}
    assert result.tpot.n == 2


def test_a_mapping_reads_other_headings(table: Table, tmp_path: Path) -> None:
    renamed = {"Checkpoint": "llama3.1-8b", "Card": "h100", "in": 1024, "out": 256, "Clients": 16, "Speed": 0.008}
    mapping = tmp_path / "mapping.yaml"
    mapping.write_text(
        "schema: 1\ncolumns: {model: Checkpoint, gpu: Card, isl: in, osl: out, concurrency: Clients, tpot_ms: Speed}\n"
        "constants: {engine: vllm}\nfactors: {tpot_ms: 1000}\n",
        encoding="utf-8",
    )
    result = validate(table([renamed], header=list(renamed)), mapping=mapping).result
    assert result.predictions[0].figure("tpot_ms").measured == pytest.approx(8)  # type: ignore[union-attr]
    with pytest.raises(InvalidFileError):
        validate(table([renamed], header=list(renamed)))


def test_what_a_user_says_fills_missing_columns(table: Table) -> None:
    header = [name for name in HEADER if name not in ("system", "backend", "model")]
    found = validate(table([row()], header=header), gpu="h100", engine="vllm").result
    assert found.predictions[0].figure("tpot_ms").predicted == pytest.approx(predicted()[1], rel=1e-4)  # type: ignore[union-attr]


def test_no_file() -> None:
    with pytest.raises(NotFoundError, match="there is no file"):
        validate("nowhere.csv")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"concurrency": 0}, "above 0"),
        ({"concurrency": "many"}, "expected a number"),
        ({"isl": "nan"}, "expected a number"),
        ({"tp": 1.5}, "whole number"),
        ({"tpot_ms": -3}, "from 0"),
        ({"mean_len_factor": 2}, "share"),
        ({"chunked_prefill": "maybe"}, "0 or 1"),
        ({"osl": ""}, "empty"),
    ],
)
def test_a_bad_cell_is_named_with_line_and_column(table: Table, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidFileError, match=message) as caught:
        validate(table([row(), row(id="second", **changes)]))
    assert ":3: " in caught.value.where
    assert caught.value.where.endswith(next(iter(changes)))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(HEADER), st.text(max_size=8) | st.floats().map(str) | st.integers(-9, 10**9).map(str), max_size=4),
       st.sets(st.sampled_from(HEADER), max_size=6))  # fmt: skip
def test_any_table_is_answered_or_refused_cleanly(tmp_path: Path, changes: dict[str, str], dropped: set[str]) -> None:
    path = tmp_path / "f.csv"
    with path.open("w", newline="", encoding="utf-8", errors="ignore") as file:
        writer = csv.DictWriter(file, [name for name in HEADER if name not in dropped], extrasaction="ignore")
        writer.writeheader()
        writer.writerow({**{name: str(value) for name, value in ROW.items()}, **changes})
    try:
        result = validate(path, by=()).result
    except CapplanError:
        return
    line = result.predictions[0]
    assert line.refused or all(figure.predicted for figure in line.figures)


def test_scores_of_nothing_and_of_one() -> None:
    empty = score([])
    assert (empty.n, empty.mape, empty.within_10) == (0, None, None)
    one = score([ValidatedFigure("tpot_ms", 2.0, 1.0, 0.9, 3.0, -0.5, True, True)])
    assert (one.n, one.mape, one.bias, one.within_30, one.interval_coverage) == (1, 0.5, -0.5, 0.0, 1.0)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.floats(0, 1))
def test_quantiles_are_numpys(values: list[float], share: float) -> None:
    np = pytest.importorskip("numpy")
    assert quantile(sorted(values), share) == pytest.approx(float(np.quantile(values, share)), rel=1e-9, abs=1e-9)


def test_the_shipped_example(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    drawing = tmp_path / "scatter.svg"
    assert run(["validate", str(SERVERS), "--by", "engine", "--plot", str(drawing)]) == 0
    text = capsys.readouterr().out
    assert "5 rows, 4 of them scored, 1 refused" in text
    assert "Refused: counted as misses" in text
    assert "predicted = measured" in drawing.read_text(encoding="utf-8")
    assert run(["validate", str(SERVERS), "--csv"]) == 0
    lines = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert {line["id"] for line in lines} == {"a4", "a16", "a64", "b8", "c1"}
