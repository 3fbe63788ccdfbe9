"""Predictions for another vendor's devices: how far off public servers were, and that every answer says what it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import capplan
from capplan.describe.profile_choice import OTHER_VENDOR
from capplan.errors import UnsupportedError
from capplan.questions.estimate import LoadRequest, estimate
from capplan.questions.gpus import gpu_show
from capplan.questions.profiles import profile_list
from capplan.questions.validate_cases import Case, read_cases
from capplan.questions.validate_rows import validated_rows
from tests.planner.test_bounds import LOADS, check_bound, server

TABLE = Path(__file__).parents[2] / "benchmarks" / "data" / "e2e_dev.csv"


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return [case for case in read_cases(TABLE) if case.labels["gpu"] == "MI300X" and case.server is not None]


def test_the_interval_is_that_of_public_servers(cases: list[Case]) -> None:
    """The 10th and 90th percentile of measured over predicted mean time per output token, and its errors."""
    figures = [figure for row in validated_rows(cases) for figure in row.figures if figure.metric == "mean_tpot_ms"]
    ratios = np.array([figure.measured / figure.predicted for figure in figures if figure.measured])  # type: ignore[operator]
    errors = np.abs(1 / ratios - 1)
    assert len(ratios) == 49
    assert OTHER_VENDOR.low <= np.quantile(ratios, 0.1) <= OTHER_VENDOR.low + 0.03
    assert OTHER_VENDOR.high - 0.03 <= np.quantile(ratios, 0.9) <= OTHER_VENDOR.high
    assert np.median(errors) == pytest.approx(OTHER_VENDOR.median, abs=0.01)
    assert np.quantile(errors, 0.9) == pytest.approx(OTHER_VENDOR.p90, abs=0.02)


@pytest.mark.parametrize(("engine", "most"), [("vLLM", 0.10), ("SGLang", 0.25)])
def test_servers_that_no_constant_was_fitted_to_are_met(cases: list[Case], engine: str, most: float) -> None:
    """DeepSeek-R1: the eras of early 2025 were fitted on the H200, and ROCm's to another model."""
    rows = validated_rows([case for case in cases if case.labels["engine"] == engine and "R1" in case.labels["model"]])
    errors = [abs(figure.error) for row in rows for figure in row.figures if figure.metric == "mean_tpot_ms"]  # type: ignore[arg-type]
    assert len(errors) in (9, 12)
    assert np.median(errors) <= most


def test_answers_say_that_constants_were_carried_across_vendors() -> None:
    answer = estimate("llama3.1-70b", "mi300x", tensor_parallel_size=2, load=LoadRequest(1024, 1024, concurrency=32))
    assert any("carried across vendors" in text for text in answer.assumptions)
    assert set(answer.provenance.values()) == {"extrapolated"}
    assert any("MAMF" in text for text in answer.sources)
    result = answer.result
    assert result.mean_tpot_ms_low <= OTHER_VENDOR.low * result.mean_tpot_ms
    assert result.mean_tpot_ms_high >= OTHER_VENDOR.high * result.mean_tpot_ms
    doubtful = capplan.decode("llama3.1-8b", "mi325x", context=1000)
    assert any("measured.bandwidth of mi325x is doubtful" in text for text in doubtful.warnings)


def test_the_catalog_says_what_predictions_rest_on() -> None:
    said = {gpu: gpu_show(gpu).assumptions[0] for gpu in ("h100", "h100-pcie-80gb", "mi300x", "mi250x")}
    assert "its own measured kernels" in said["h100"]
    assert "constants of h100-sxm-80gb, as of the same architecture" in said["h100-pcie-80gb"]
    assert "constants of h200-sxm-141gb, carried across vendors" in said["mi300x"]
    assert "no predictions" in said["mi250x"]
    (across,) = profile_list().assumptions
    assert across.startswith("mi300x, mi325x, mi355x: constants of h200-sxm-141gb")


def test_two_ranks_of_a_mesh_have_one_link_by_the_bound_too() -> None:
    """An all-reduce of V among n sends 2(n - 1)/n · V: V over one link of 64 GB/s, 1.75 · V over 448 GB/s."""
    for tp, rate, sent in ((2, 64e9, 1.0), (8, 448e9, 1.75)):
        step = capplan.step("llama3.1-8b", "mi300x", decode=[(64, 1000)], tensor_parallel_size=tp).result
        found = next(row for row in step.step.operators if row.name == "all-reduce after o_proj")
        assert found.bound_seconds == pytest.approx(32 * sent * 64 * 4096 * 2 / rate, rel=1e-6)


def test_engines_of_one_vendor_are_refused_on_others() -> None:
    with pytest.raises(UnsupportedError, match="trtllm runs on NVIDIA's devices alone"):
        estimate("llama3.1-8b", "mi300x", engine="trtllm", load=LoadRequest(100, 10, concurrency=1))


@pytest.mark.parametrize(
    ("model", "gpu", "engine", "sizes"),
    [
        ("llama3.1-70b", "mi300x", "vllm", {"tp": 2}),
        ("deepseek-r1", "mi300x", "sglang", {"tp": 8}),
        ("qwen3-30b-a3b", "mi325x", "vllm", {"tp": 4, "ep": 4}),
        ("llama3.1-8b", "mi355x", "vllm", {}),
    ],
)
def test_plans_bounds_hold_for_carried_constants(model: str, gpu: str, engine: str, sizes: dict[str, int]) -> None:
    for lengths in LOADS[:2]:
        check_bound(server(model, gpu, engine, sizes), lengths, 0.8)
