"""A calibration end to end, much shortened: right results, a profile that reads back, the same samples after a kill."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from calibrate import check, plan, run, step_terms  # noqa: E402
from calibrate.device import open_device  # noqa: E402
from calibrate.fit import FitError  # noqa: E402
from calibrate.hardware import described_device, rated  # noqa: E402
from calibrate.kernels import KERNELS, sizes  # noqa: E402
from calibrate.kernels.kernel import Case  # noqa: E402
from calibrate.phase_load import Load  # noqa: E402
from calibrate.phases import measure_phases  # noqa: E402
from calibrate.plan import HELD_OUT_EVERY, NEVER_HELD_OUT, greedy_order, make_plan, probes, with_held_out  # noqa: E402
from calibrate.run import Progress, failures, run_kernels, summary  # noqa: E402
from calibrate.samples import read_samples  # noqa: E402
from calibrate.session import RunRequest, calibrate_device, check_profile, fit_files  # noqa: E402
from capplan.describe.gpu_catalog import read_gpu  # noqa: E402
from capplan.describe.model import Attention, Block, Dense, Embedding, ModelSpec  # noqa: E402
from capplan.describe.profile import read_profile  # noqa: E402
from capplan.errors import InvalidFileError, NotFoundError, UnsupportedError, UsageError  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))
from samples_made import HARDWARE  # noqa: E402

pytestmark = pytest.mark.torch

CPU = open_device("cpu")

PLAIN = (
    "read", "copy", "gemm", "gemm_fp8", "gemm_int8", "decode_attention", "norm", "activation", "launch",
)  # fmt: skip
"""Most of what a plain decoder runs, and kernels that no law fits."""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes, caches, buffers and repeats of a device that is a hundred times smaller."""
    shrunk: dict[str, Any] = {
        "_ROWS": (1, 4, 16, 64), "_FEW_ROWS": (1, 16), "_MATRICES": ((128, 128), (256, 128), (128, 512), (256, 256)),
        "_HEADS": ((4, 2, 64), (8, 2, 64), (4, 4, 64)), "_PROMPTS": (16, 48, 96), "_CONTEXTS": (16, 64, 256),
        "_DECODE_BATCHES": (1, 2), "_EXPERTS": ((64, 32, 8, 2), (128, 64, 4, 2)), "_EXPERT_TOKENS": (1, 4, 16),
        "_LATENT_HEADS": (2, 4), "_WIDTHS": (128, 256),
    }  # fmt: skip
    for name, values in shrunk.items():
        monkeypatch.setitem(getattr(sizes, name), "cpu", values)
    monkeypatch.setattr(sizes, "_VOCABULARIES", (500, 1000))
    monkeypatch.setattr(plan, "PROBE_ROWS", 16)
    monkeypatch.setattr(run, "REPEATED_SECONDS", 0.0)
    monkeypatch.setattr("calibrate.timer.LEAST_REPEATS", 3)
    monkeypatch.setattr("calibrate.timer.WARM_UP_SECONDS", 0.0)
    monkeypatch.setattr("calibrate.measure.CACHES_COVERED", 0.01)
    monkeypatch.setattr("calibrate.hardware.LARGE_BYTES", 1 << 20)
    monkeypatch.setattr("calibrate.kernels.read.copy_sizes", lambda device: [1 << 20])
    monkeypatch.setattr("calibrate.kernels.copy.copy_sizes", lambda device: [1 << 20])
    monkeypatch.setattr("calibrate.sample_fit.BOOTSTRAPS", 2)
    monkeypatch.setattr(plan, "KERNELS", {name: KERNELS[name] for name in PLAIN})
    stack = step_terms.own_stack("own", 128, 2, 1, 256, 2, 500)
    monkeypatch.setitem(step_terms.STACKS, "cpu", ((stack, Load(1, 16, 3)),))
    monkeypatch.setitem(check.LOADS, "cpu", (Load(1, 16, 3),))
    monkeypatch.setattr(check, "REPEATED_SECONDS", 0.0)


def tiny(name: str = "tiny") -> ModelSpec:
    block = Block(mixer=Attention(heads=4, kv_heads=2, head_dim=64), ffn=Dense(intermediate_size=256))
    return ModelSpec(name=name, hidden_size=128, blocks={"a": block}, layers="2*a", embedding=Embedding(vocab_size=500))


TINY = """schema: 1
name: tiny
hidden_size: 128
blocks:
  a:
    mixer: {kind: attention, heads: 4, kv_heads: 2, head_dim: 64}
    ffn: {kind: dense, intermediate_size: 256}
layers: "2*a"
embedding: {vocab_size: 500}
"""


def test_from_one_command_to_a_profile_with_its_check(small: None, tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    (models / "tiny.yaml").write_text(TINY)
    out = tmp_path / "hardware" / "profiles" / "here.yaml"
    told: list[str] = []
    request = RunRequest(device="cpu", points=70, out=out, check_models=("tiny",), models_dirs=(models,), minutes=30.0)
    outcome = calibrate_device(request, lambda share, doing: told.append(doing))
    assert not [sample.problem for sample in outcome.recording.samples if sample.problem]
    assert set(map(str, outcome.written)) == {
        str(path) for path in (out, tmp_path / "hardware" / "here.yaml", outcome.files.markdown, outcome.files.html,
                               outcome.files.samples)
    }  # fmt: skip
    profile, gpu = read_profile(out), read_gpu(tmp_path / "hardware" / "here.yaml")
    assert profile.name == gpu.name == "here"
    assert {"gemm", "decode_attention", "rows"} <= set(profile.tables)
    assert profile.closed_loop is not None
    assert [(row.model, row.phase) for row in profile.closed_loop.rows] == [("tiny", "prefill"), ("tiny", "decode")]
    assert profile.engine_times["torch"].sources
    turns = [doing.removeprefix("running ").split()[0].rstrip(",") for doing in told if doing.startswith("running ")]
    assert turns == ["own", "tiny", "own"]  # before the models and after them
    own = [(one.key["phase"], one.key["turn"]) for one in outcome.recording.samples if one.name == "own"]
    assert own == [("prefill", 1), ("decode", 1), ("prefill", 2), ("decode", 2)]
    again = calibrate_device(replace(request, resume=True))
    assert [one.identity for one in again.recording.samples] == [one.identity for one in outcome.recording.samples]
    assert again.profile == outcome.profile
    _check_again(out, models)


def _check_again(out: Path, models: Path) -> None:
    """The closed loop of a written profile, measured anew; and only on the device that it is of."""
    before = read_profile(out)
    outcome = check_profile(out, device_name="cpu", models=("tiny",), models_dirs=(models,))
    assert outcome.profile.tables == before.tables
    assert outcome.profile.closed_loop is not None
    samples = outcome.files.samples
    text = samples.read_text().replace(f'"torch":"{torch.__version__}"', '"torch":"1.0"', 1)
    samples.write_text(text)
    with pytest.raises(UsageError, match=r"torch 1\.0"):
        check_profile(out, device_name="cpu", models=("tiny",), models_dirs=(models,))


def test_too_little_time_says_how_much_it_takes_and_can_be_made_longer(small: None, tmp_path: Path) -> None:
    request = RunRequest(device="cpu", points=5, out=tmp_path / "here.yaml", check=False, minutes=30.0)
    with pytest.raises(FitError) as error:
        calibrate_device(request)
    needed = int(re.search(r"5 cases were measured, and a profile takes about (\d+)", error.value.message)[1])  # type: ignore[index]
    assert 20 < needed < 200
    assert "--resume" in error.value.hint
    assert "here.samples.jsonl is kept" in error.value.hint
    outcome = calibrate_device(replace(request, points=needed + 6, resume=True))
    assert len(outcome.recording.samples) == needed + 6
    assert len(outcome.fitted.groups) >= 4


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"check_models": ("nosuch",)}, NotFoundError, "nosuch"),
        ({"modes": ("graphs",)}, UsageError, "CUDA graphs"),
        ({"out": Path("/proc/none/here.yaml")}, InvalidFileError, "cannot be written"),
        ({"threads": 4000}, UsageError, "more than the"),
    ],
)
def test_what_cannot_end_well_is_refused_before_anything_is_measured(
    changes: Any, error: type[Exception], said: str, tmp_path: Path
) -> None:
    samples = tmp_path / "here.samples.jsonl"
    with pytest.raises(error, match=said):
        calibrate_device(replace(RunRequest(device="cpu", out=tmp_path / "here.yaml", samples=samples), **changes))
    assert not samples.exists()


def test_a_run_that_is_stopped_and_resumed_has_the_same_samples(small: None, tmp_path: Path) -> None:
    whole = run_kernels(CPU, tmp_path / "whole.jsonl", points=24)
    path = tmp_path / "parts.jsonl"

    class StopError(Exception):
        pass

    for stop_at in (3, 9, 17):

        def report(progress: Progress, stop_at: int = stop_at) -> None:
            if progress.done >= stop_at:
                raise StopError

        with pytest.raises(StopError):
            run_kernels(CPU, path, points=24, resume=True, report=report)
        with path.open("a") as file:
            file.write('{"kind": "kernel", "na')  # the line that was being written when the process died
    parts = run_kernels(CPU, path, points=24, resume=True)
    assert [one.identity for one in parts.samples] == [one.identity for one in whole.samples]
    assert [one.held_out for one in parts.samples] == [one.held_out for one in whole.samples]
    assert read_samples(path).samples == parts.samples
    assert sum(summary(parts.samples).values()) == 24
    assert failures(parts.samples) == []


def test_the_time_is_kept_and_counts_what_an_interrupted_run_took(small: None, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    first = run_kernels(CPU, path, minutes=0.02)
    count = len(first.samples)
    assert count < 200
    lines = path.read_text().splitlines()
    last = json.loads(lines[-1])
    last["spent"] = 1e6
    path.write_text("\n".join([*lines[:-1], json.dumps(last)]) + "\n")
    assert len(run_kernels(CPU, path, minutes=0.02, resume=True).samples) == count


def test_a_wrong_kernel_is_told_and_used_nowhere(small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = KERNELS["norm"]

    def prepare(case: Case, setting: Any) -> Any:
        call = real.prepare(case, setting)
        return replace(call, run=lambda index: call.run(index) * 1.5)

    monkeypatch.setitem(plan.KERNELS, "norm", replace(real, prepare=prepare))
    found = run_kernels(CPU, tmp_path / "s.jsonl", points=70)
    wrong = [sample for sample in found.samples if sample.problem]
    assert wrong
    assert {sample.name for sample in wrong} == {"norm"}
    assert all("norm" in text for text in failures(found.samples))
    outcome = fit_files([tmp_path / "s.jsonl"], tmp_path / "p.yaml")
    assert not any(fit.key.kernel == "norm" for fit in outcome.profile.fits("rows"))
    assert "used nowhere" in outcome.files.markdown.read_text()


# --- the plan ------------------------------------------------------------------------------------------------------


def test_every_kernel_has_its_turn_before_the_time_is_up() -> None:
    planned = make_plan(CPU, HARDWARE, most_seconds=0.5)
    assert len({one.case.identity for one in planned}) == len(planned)
    first = {one.kernel.name for one in planned[:60]}
    assert {"gemm", "decode_attention", "prefill_attention", "experts", "latent_decode", "norm"} <= first
    products = sum(one.kernel.name == "gemm" for one in planned[:60])
    assert products >= 2 * sum(one.kernel.name == "norm" for one in planned[:60])
    assert [one.case.identity for one in make_plan(CPU, HARDWARE, most_seconds=0.5)] == [
        one.case.identity for one in planned
    ]


def test_every_way_of_running_has_one_case_before_any_other_has_two() -> None:
    planned = make_plan(CPU, HARDWARE, most_seconds=0.08)
    places: dict[str, list[int]] = {}
    for place, one in enumerate(planned):
        places.setdefault(f"{one.kernel.name} {sorted(one.case.key.items())} {one.case.cache}", []).append(place)
    beside = [found for name, found in places.items() if "windowed" in name or "paged" in name or "int4" in name]
    assert len(beside) >= 6
    assert max(found[0] for found in beside) < min(found[1] for found in beside)
    compiled = min(found[1] for name, found in places.items() if "flex" in name)
    assert all(found[7] < compiled for name, found in places.items() if "paged" in name)


def test_cases_that_take_too_long_are_left_out() -> None:
    short = make_plan(CPU, HARDWARE, most_seconds=0.005)
    works = [one.kernel.work(one.case) for one in short if one not in probes(CPU)]
    assert max(work.flops for work in works) <= 0.005 * 200e9
    assert any(one.case.cache == "warm" and one.kernel.name == "gemm" for one in short)


def test_held_out_cases_are_one_in_five_and_never_the_most_informative() -> None:
    cases = [Case("gemm", {"format": "bf16"}, {"m": m, "n": 1, "k": 1}) for m in range(40)]
    planned = with_held_out(KERNELS["gemm"], cases)
    held_out = [one.case for one in planned if one.held_out]
    assert len(held_out) == 40 // HELD_OUT_EVERY
    assert not {case.identity for case in held_out} & {case.identity for case in cases[:NEVER_HELD_OUT]}
    assert {one.case.identity for one in planned} == {case.identity for case in cases}


def test_the_greedy_order_determines_more_than_chance() -> None:
    import numpy as np

    random = np.random.default_rng(0)
    features = random.standard_normal((80, 4)) * np.array([1.0, 0.1, 2.0, 0.5])
    order = greedy_order(features)
    assert sorted(order) == list(range(80))

    def determinant(rows: Any) -> float:
        return float(np.linalg.slogdet(features[rows].T @ features[rows] + 1e-6 * np.eye(4))[1])

    chance = [determinant(random.permutation(80)[:10]) for _ in range(200)]
    assert determinant(order[:10]) > max(chance)


def test_measured_rates_describe_a_device_that_the_catalog_does_not_have(small: None, tmp_path: Path) -> None:
    found = run_kernels(CPU, tmp_path / "s.jsonl", points=8)
    gpu = described_device(found)
    assert gpu.vendor == "other"
    assert gpu.dense_rates["bf16"] > 0
    assert rated(gpu).compute_units == CPU.threads


# --- phases --------------------------------------------------------------------------------------------------------


def test_phases_are_measured_as_samples_with_the_bytes_of_real_caches() -> None:
    prefill, decode = measure_phases(tiny(), Load(2, 16, 4), CPU, budget=0.0)
    assert prefill.key["phase"] == "prefill"
    assert decode.key["phase"] == "decode"
    assert prefill.problem == ""
    assert (
        prefill.figures["cache_bytes"] == 2 * 2 * 2 * 19 * 2 * 64 * 2
    )  # K, V; layers; batch; tokens; heads; dim; bytes
    assert prefill.figures["weight_bytes"] == prefill.figures["weight_bytes"] // 2 * 2
    total = prefill.seconds + 3 * decode.seconds
    assert prefill.figures["output_throughput"] == pytest.approx(2 * 4 / total)


def test_phases_that_have_no_room_are_refused_before_they_are_built() -> None:
    from calibrate.phases_answer import PhasesRequest, phases_answer

    request = PhasesRequest("qwen3-0.6b", Load(1, 10**9, 2), device="cpu", layers=1)
    with pytest.raises(UsageError, match=r"needs [\d,.]+ GiB, and [\d,.]+ GiB are free") as error:
        phases_answer(request)
    needed = float(re.search(r"needs ([\d,.]+)", error.value.message)[1].replace(",", ""))  # type: ignore[index]
    assert needed * 2**30 > 10**9 * 2 * 8 * 128 * 2  # keys and values of 8 heads of 128 in 16 bits


def test_a_model_that_cannot_be_captured_is_refused_in_the_drivers_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def captured(body: Any) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    monkeypatch.setattr("calibrate.phases.captured", captured)
    with pytest.raises(
        UnsupportedError, match=r"tiny cannot be captured as a graph: operation not permitted .*capturing$"
    ):
        measure_phases(tiny(), Load(1, 8, 2), CPU, mode="graphs", budget=0.0)


def test_a_cache_that_is_not_what_capplan_says_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibrate.phases.expected_cache_bytes", lambda *arguments: 1)
    prefill, _ = measure_phases(tiny(), Load(1, 8, 2), CPU, budget=0.0)
    assert "capplan says 1" in prefill.problem
