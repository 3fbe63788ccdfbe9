"""Estimates corrected by the user's own measurements: at the point itself, along the sweep, and what cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from capplan.errors import CapplanError
from capplan.questions.estimate import EstimateResult, LoadRequest, estimate

HEAD = "isl,osl,concurrency,ttft_ms,tpot_ms\n"


def asked(concurrency: float, probe: Path | None = None) -> EstimateResult:
    return estimate("llama3.1-8b", "h100-sxm-80gb", load=LoadRequest(1000, 200, concurrency), probe=probe).result


def width(result: EstimateResult) -> float:
    return result.mean_tpot_ms_high / result.mean_tpot_ms_low


def test_a_measured_point_moves_the_level_there_most(tmp_path: Path) -> None:
    plain = {clients: asked(clients) for clients in (16, 64, 1024)}
    probe = tmp_path / "probe.csv"
    probe.write_text(f"{HEAD}1000,200,16,{1.3 * plain[16].mean_ttft_ms},{1.2 * plain[16].mean_tpot_ms}\n")
    moved = {clients: asked(clients, probe) for clients in plain}
    factors = [moved[clients].mean_tpot_ms / plain[clients].mean_tpot_ms for clients in plain]
    assert factors[0] == pytest.approx(1.2, rel=0.02)
    assert factors == sorted(factors, reverse=True)
    assert factors[-1] > 1
    assert moved[16].mean_ttft_ms == pytest.approx(1.3 * plain[16].mean_ttft_ms, rel=0.03)
    assert width(moved[16]) < width(moved[64]) < width(moved[1024]) < width(plain[1024])


def test_little_s_law_holds_after_the_correction(tmp_path: Path) -> None:
    probe = tmp_path / "probe.csv"
    probe.write_text(f"{HEAD}1000,200,16,,12\n1000,200,64,200,\n")
    result = asked(32, probe)
    assert result.request_throughput * result.mean_e2el_ms / 1e3 == pytest.approx(32)
    assert result.mean_e2el_ms == pytest.approx(result.mean_ttft_ms + 199 * result.mean_tpot_ms, rel=1e-6)


def test_a_table_of_measured_servers_and_a_benchmark_s_result_are_read(tmp_path: Path) -> None:
    wide = tmp_path / "wide.csv"
    wide.write_text(f"model,gpu,engine,{HEAD}mine,h100,vllm,1000,200,16,100,10\n")
    tool = tmp_path / "run.json"
    tool.write_text(
        '{"date": "20261101-120000", "backend": "vllm", "model_id": "m", "num_prompts": 160, "completed": 160, '
        '"duration": 400.0, "total_input_tokens": 160000, "total_output_tokens": 32000, "max_concurrency": 16, '
        '"request_throughput": 0.4, "output_throughput": 80.0, "mean_ttft_ms": 100.0, "median_ttft_ms": 99.0, '
        '"mean_tpot_ms": 10.0, "median_tpot_ms": 10.0}'
    )
    assert asked(16, wide).mean_tpot_ms == pytest.approx(asked(16, tool).mean_tpot_ms)
    assert asked(16, wide).mean_tpot_ms == pytest.approx(10, rel=0.02)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD, "no rows"),
        (f"{HEAD}1000,200,16,,\n", "no TTFT and no TPOT"),
        (f"{HEAD}1000,x,16,1,1\n", "expected a number"),
        ("isl,osl\n1,2\n", "concurrency"),
    ],
)
def test_what_is_no_probe_says_so(tmp_path: Path, text: str, said: str) -> None:
    probe = tmp_path / "probe.csv"
    probe.write_text(text)
    with pytest.raises(CapplanError, match=said):
        asked(16, probe)


def test_a_probe_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CapplanError, match="absent"):
        asked(16, tmp_path / "absent.csv")
