"""An engine's terms from benchmark files: planted terms come back; what cannot be used is said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrate.import_answer import ImportRequest, import_answer
from calibrate.import_results import Deployment, fit_runs, observe
from capplan.describe.engine_times import EngineTimes, engine_times
from capplan.describe.profile import read_profile
from capplan.errors import InvalidFileError, NotFoundError, UsageError
from capplan.measured.measured_run import MeasuredRun
from capplan.serving.measured_server import MeasuredServer, server_replica, server_workload
from capplan.serving.steady_state import load_of, operating_point

MODEL, GPU = "llama3.1-8b", "h100"
PLANTED = replace(engine_times("vllm"), kernel_share=1.3, per_sequence=60e-6, first_token=12e-3)
LOADS = ((1, 1000, 100), (4, 1000, 100), (16, 1000, 200), (32, 500, 200), (64, 500, 200))


def run(concurrency: float, isl: float, osl: float, metrics: dict[str, float], **changes: Any) -> MeasuredRun:
    fields: dict[str, Any] = {"engine": "vllm", "model": MODEL}
    return MeasuredRun(
        "vllm bench serve", "made", metrics, isl=isl, osl=osl, concurrency=concurrency, **{**fields, **changes}
    )


def served(times: EngineTimes, noise: float = 0.0) -> list[MeasuredRun]:
    """What a server with these terms would have been measured to do."""
    random = np.random.default_rng(1)
    found = []
    for concurrency, isl, osl in LOADS:
        server = MeasuredServer(
            model=MODEL, precision=None, gpu=GPU, engine="vllm", isl=isl, osl=osl, concurrency=concurrency, waves=None
        )
        point = operating_point(load_of(server_replica(server), server_workload(server)), times)
        factor = np.exp(noise * random.standard_normal(2))
        metrics = {"mean_tpot_ms": 1e3 * point.tpot * factor[0], "mean_ttft_ms": 1e3 * point.ttft * factor[1]}
        found.append(run(concurrency, isl, osl, metrics))
    return found


def test_planted_terms_come_back() -> None:
    found = fit_runs(served(PLANTED), Deployment(GPU))
    for name in ("kernel_share", "per_sequence", "first_token"):
        assert getattr(found.times, name) == pytest.approx(getattr(PLANTED, name), rel=0.02), name
    assert found.median_error < 1e-3
    assert found.unused == ()
    noisy = fit_runs(served(PLANTED, noise=0.03), Deployment(GPU))
    value, low, high = noisy.intervals["kernel_share"]
    assert low <= value <= high
    assert value == pytest.approx(PLANTED.kernel_share, rel=0.1)
    assert noisy.median_error < 0.08


def test_one_load_tells_only_what_kernels_take() -> None:
    found = fit_runs(served(PLANTED)[:1], Deployment(GPU))
    assert found.times.per_sequence == engine_times("vllm").per_sequence
    assert set(found.intervals) == {"kernel_share", "first_token"}


def test_rates_of_phases_alone_are_used_too() -> None:
    bench: dict[str, Any] = {"engine": "llama.cpp", "model": MODEL}
    runs = [
        MeasuredRun("llama-bench", "made", {"prefill_throughput": 9000.0}, isl=512, osl=0, **bench),
        MeasuredRun("llama-bench", "made", {"decode_throughput": 95.0}, isl=0, osl=128, **bench),
    ]
    found = fit_runs(runs, Deployment(GPU, weight_dtype="bf16"))
    assert [one.metric for one in found.observations] == ["prefill", "decode"]
    assert found.observations[0].seconds == pytest.approx(512 / 9000)
    assert found.observations[1].seconds == pytest.approx(1 / 95)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"isl": None}, "lengths"),
        ({"concurrency": None}, "rate"),
        ({"metrics": {"output_throughput": 5.0}}, "neither TTFT nor TPOT"),
        ({"model": "no-such-model"}, "no model named"),
        ({"model": None}, "name the model"),
    ],
)
def test_runs_that_cannot_be_used_say_why(changes: dict[str, Any], said: str) -> None:
    whole = run(1, 100, 10, {"mean_tpot_ms": 10.0})
    assert said in str(observe(replace(whole, **changes), Deployment(GPU)))


def test_files_of_several_engines_are_not_mixed() -> None:
    both = [run(1, 100, 10, {"mean_tpot_ms": 9.0}), run(1, 100, 10, {"mean_tpot_ms": 9.0}, engine="sglang")]
    with pytest.raises(UsageError, match="several engines"):
        fit_runs(both, Deployment(GPU))
    assert fit_runs(both, Deployment(GPU, engine="vllm")).engine == "vllm"


def _bench(path: Path, runs: list[MeasuredRun]) -> Path:
    rows = [
        {
            "backend": "vllm", "model_id": one.model, "num_prompts": 10, "request_rate": "inf",
            "max_concurrency": one.concurrency, "duration": 10.0, "completed": 10,
            "total_input_tokens": 10 * (one.isl or 0), "total_output_tokens": 10 * (one.osl or 0),
            "request_throughput": 1.0, **one.metrics,
        }
        for one in runs
    ]  # fmt: skip
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    return path


def test_measurements_of_another_device_are_doubted(tmp_path: Path) -> None:
    """Times of a server that is forty times as slow as the named device could be."""
    slow = [replace(one, metrics={name: 40 * value for name, value in one.metrics.items()}) for one in served(PLANTED)]
    file = _bench(tmp_path / "vllm.json", slow)
    answer = import_answer(ImportRequest([file], GPU, out=tmp_path / "h100-sxm-80gb.yaml"))
    (warning,) = answer.warnings
    assert "kernel_share of 3" in warning
    assert "are the model, --gpu, -tp" in warning
    right = import_answer(
        ImportRequest([_bench(tmp_path / "right.json", served(PLANTED))], GPU, out=tmp_path / "r.yaml")
    )
    assert right.warnings == ()


def test_an_interval_comes_from_draws_that_hold_the_term() -> None:
    found = fit_runs(served(PLANTED)[:1], Deployment(GPU))
    value, low, high = found.intervals["kernel_share"]  # of the one time per token: what no draw without it changes
    assert (low, high) == pytest.approx((value, value), rel=1e-3)


def test_terms_are_written_into_the_devices_profile(tmp_path: Path) -> None:
    file, out = _bench(tmp_path / "vllm.json", served(PLANTED)), tmp_path / "h100-sxm-80gb.yaml"
    answer = import_answer(ImportRequest([file], GPU, out=out))
    profile = read_profile(out)
    assert profile.engine_times["vllm"].kernel_share == pytest.approx(PLANTED.kernel_share, rel=0.02)
    assert "vllm.json" in profile.engine_times["vllm"].sources["all"]
    assert answer.result.runs == len(LOADS)
    assert {one.metric for one in answer.result.comparisons} == {"tpot", "ttft"}
    from capplan.describe.gpu_catalog import load_gpu
    from capplan.timing.machine import machine_for

    machine = machine_for(load_gpu(GPU), "vllm", profile_dirs=[tmp_path])
    assert machine.times.kernel_share == profile.engine_times["vllm"].kernel_share


def test_mistakes_are_told(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        import_answer(ImportRequest([tmp_path / "no.json"], GPU))
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(InvalidFileError):
        import_answer(ImportRequest([tmp_path / "x.json"], GPU))
    file = _bench(tmp_path / "vllm.json", served(PLANTED)[:1])
    with pytest.raises(UsageError, match="no profile of its own"):
        import_answer(ImportRequest([file], "mi300x"))
