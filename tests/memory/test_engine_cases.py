"""What engines printed in public reports, reproduced: to the printed digits, or within what the report allows."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pytest

import capplan
from tests.memory.engine_cases import CASES, GIB, NOT_PREDICTED, NOT_REPRODUCED, ROWS

TOLERANCES = {"exact": 0.0, "consistent (inferred)": 0.0}


def tolerance(row: dict[str, Any]) -> float | None:
    """0 for exact, the share for ``within X%``; None where the report predicts nothing."""
    match = re.fullmatch(r"within ([\d.]+)%", row["match"])
    return float(match[1]) / 100 if match else TOLERANCES.get(row["match"])


def common_fields(row: dict[str, Any]) -> list[str]:
    """The fields that are both measured and predicted."""
    measured, predicted = row.get("measured", {}), row.get("predicted", {})
    return [key for key in measured if predicted.get(key) is not None and (row["id"], key) not in NOT_PREDICTED]


WITH_FIGURES = [name for name, row in ROWS.items() if tolerance(row) is not None and common_fields(row)]


def printed(value: float, like: float) -> Decimal:
    """A value with as many decimals as the printed one has."""
    places = -Decimal(str(like)).as_tuple().exponent  # type: ignore[operator]
    return round(Decimal(repr(float(value))), max(0, int(places)))


@pytest.mark.parametrize("name", WITH_FIGURES)
def test_the_printed_figure_is_reproduced(name: str) -> None:
    row = ROWS[name]
    allowed = tolerance(row)
    assert allowed is not None
    computed = CASES[name]()
    for key in common_fields(row):
        measured, predicted, value = row["measured"][key], row["predicted"][key], computed[key]
        if isinstance(predicted, list):
            assert predicted[0] <= value <= predicted[1], (key, value, predicted)
        else:
            to_the_digits = printed(value, measured) == Decimal(str(measured))
            assert to_the_digits or abs(value - measured) <= allowed * measured, (key, value, measured)


def test_every_report_is_answered_or_listed() -> None:
    """No report is left out silently, and none is listed that could be asked."""
    assert set(CASES) | set(NOT_REPRODUCED) == set(ROWS)
    assert set(WITH_FIGURES) <= set(CASES)
    for name in NOT_REPRODUCED:
        assert tolerance(ROWS[name]) is None or not common_fields(ROWS[name]), f"{name} has a figure after all"
    for name, key in NOT_PREDICTED:
        measured = ROWS[name]["measured"][key]
        assert printed(ROWS[name]["predicted"][key], measured) == Decimal(str(measured))


def test_one_sequence_of_a_rank_in_tensorrt_llm() -> None:
    """C04: 9,192 tokens are 288 blocks of 32, of which one rank of four holds 0.2812 GiB."""
    found = capplan.fit(
        "llama3.1-8b", engine="trtllm", tensor_parallel_size=4, max_model_len=9192, available_kv_bytes=100 * GIB
    ).result
    assert round(found.kv_request_bytes / GIB, 4) == 0.2812
    assert "0.2812" in ROWS["C04"]["planner_must_print"]


def test_blocks_of_two_ranks() -> None:
    """D29: 507 blocks of half the heads are 8,112 tokens in 1.98 GiB on each of two GPUs."""
    settings = {"tensor_parallel_size": 2, "engine_version": "2024-06", "max_model_len": 4096}
    found = capplan.fit("deepseek-coder-6.7b-base", available_kv_bytes=int(1.9805 * GIB), **settings).result
    assert found.kv_blocks == ROWS["D29"]["measured"]["gpu_blocks"]
    assert found.kv_tokens == 8112


def test_a_latent_expanded_to_padded_heads() -> None:
    """M07: before its MLA kernels vLLM kept 983,040 bytes a token on each of eight GPUs, and 69,120 since."""
    settings = {"tensor_parallel_size": 8, "max_model_len": 16000, "available_kv_bytes": 40 * GIB}
    before = capplan.fit("deepseek-v2", engine_version="0.5.x", **settings).result
    since = capplan.fit("deepseek-v2", engine_version="0.7.1", **settings).result
    assert before.kv_request_bytes == 983040 * 16000
    assert since.kv_request_bytes == 69120 * 16000


def test_more_ranks_than_kv_heads_hold_copies() -> None:
    """X03, X04: every rank keeps at least one KV head."""
    settings = {"available_kv_bytes": 10 * GIB, "max_model_len": 4096, "engine_version": "0.11"}
    at_four = capplan.fit("qwen3-vl-30b-a3b-instruct", tensor_parallel_size=4, **settings).result
    at_eight = capplan.fit("qwen3-vl-30b-a3b-instruct", tensor_parallel_size=8, **settings).result
    assert at_four.kv_request_bytes == at_eight.kv_request_bytes == 24576 * 4096


LOGS: list[tuple[str, dict[str, Any], float, int, float]] = [
    # Further start-up lines: model, settings, GiB that were available, tokens and concurrency as printed.
    ("qwen3.6-27b", {"engine_version": "0.24", "kv_cache_dtype": "fp8", "tensor_parallel_size": 2,
     "max_model_len": 262144, "num_speculative_tokens": 3, "enable_prefix_caching": True}, 5.33, 300220, 1.15),
    ("qwen3.6-27b", {"engine_version": "0.24", "kv_cache_dtype": "fp8_e5m2", "tensor_parallel_size": 2,
     "max_model_len": 262144, "num_speculative_tokens": 3, "enable_prefix_caching": True}, 11.052, 623873, 2.38),
    ("gemma-4-26b-a4b", {"engine_version": "0.29.0", "max_model_len": 32768, "max_num_batched_tokens": 2496},
     4.25, 78433, 2.39),
    ("gemma-4-26b-a4b", {"engine_version": "0.29.0", "max_model_len": 131072, "max_num_batched_tokens": 2496},
     4.25, 152592, 1.16),
]  # fmt: skip


@pytest.mark.parametrize(("model", "settings", "available", "tokens", "concurrency"), LOGS)
def test_further_start_up_lines(
    model: str, settings: dict[str, Any], available: float, tokens: int, concurrency: float
) -> None:
    """Hybrids that draft, and windows under asynchronous scheduling.

    Source: start-up logs in github.com/noonghunna/club-3090 (pull request 594, issue 642), and a table of
    predictions beside logged figures for Gemma 4 on vLLM 0.29.0 in a public repository.
    """
    found = capplan.fit(model, available_kv_bytes=int(available * GIB), **settings).result
    assert found.kv_tokens == tokens
    assert round(found.max_concurrency, 2) == concurrency


def test_a_hybrid_whose_printed_tokens_are_no_capacity() -> None:
    """Qwen3.5-27B on vLLM 0.19.0: 290,864 tokens and 33.04x at 32,768 (github.com/vllm-project/vllm/issues/40691)."""
    page = 784 * 4096 * 16
    found = capplan.fit(
        "qwen3.5-27b", available_kv_bytes=1487 * page, engine_version="0.19.0", max_model_len=32768
    ).result
    assert (found.kv_tokens, round(found.max_concurrency, 2)) == (290864, 33.04)
    assert found.kv_capacity_tokens > 3 * found.kv_tokens
