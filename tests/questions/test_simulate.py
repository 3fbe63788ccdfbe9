"""`simulate` as a question: what it answers, what it refuses, and what it writes."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

import capplan
from capplan.errors import CapplanError, InvalidFileError, UnsupportedError, UsageError
from capplan.questions.simulate_request import SimulatedLoad
from capplan.questions.simulate_result import SimulateResult
from capplan.serving.server import ServerOptions

MODEL, GPU = "llama3.1-8b", "h100_sxm"


def simulated(
    gpu: str = GPU, model: str = MODEL, *, server: ServerOptions | None = None, **load: Any
) -> SimulateResult:
    deployment = {
        name: load.pop(name) for name in ("engine", "kv_blocks", "max_model_len", "data_parallel_size") if name in load
    }
    asked = {"isl": 500, "osl": 50, "requests": 60, **load}
    return capplan.simulate(model, gpu, load=SimulatedLoad(**asked), server=server, **deployment).result


def test_one_client_sees_what_prefill_and_decode_take() -> None:
    """With one client there is no queue: TPOT is a decode step, TTFT a prompt's prefill and the way to the client.

    The closed form's decode steps around a first token hold for a busy server; an idle one starts at once, without the
    step and a half until the next plan.
    """
    result = simulated(concurrency=1, requests=5)
    step = capplan.decode(MODEL, GPU, context=525, batch=1).result
    assert result.mean_tpot_ms == pytest.approx(step.tpot_ms, rel=0.02)
    assert result.mean_itl_ms == pytest.approx(result.mean_tpot_ms, rel=1e-6)
    prompt = capplan.prefill(MODEL, GPU, isl=500).result
    assert result.median_ttft_ms == pytest.approx(prompt.ttft_ms - 1.5 * result.mean_tpot_ms, rel=0.01)
    assert result.request_throughput == pytest.approx(1e3 / result.mean_e2el_ms, rel=1e-6)


def test_figures_belong_together() -> None:
    result = simulated(isl="100-900", osl="10-90", request_rate=30.0, requests=400, ttft=0.2, tpot=0.02)
    assert result.completed == 400
    assert result.output_throughput == pytest.approx(result.total_output_tokens / result.duration)
    assert result.total_token_throughput == pytest.approx(
        (result.total_input_tokens + result.total_output_tokens) / result.duration
    )
    for name in ("ttft", "tpot", "itl", "e2el"):
        median, p90, p95, p99 = (getattr(result, f"{part}_{name}_ms") for part in ("median", "p90", "p95", "p99"))
        assert median <= p90 <= p95 <= p99
        low, mean, high = (getattr(result, f"mean_{name}_ms{end}") for end in ("_low", "", "_high"))
        assert low < mean < high
    assert result.request_goodput is not None
    assert 0 < result.request_goodput <= result.request_throughput
    assert 0 < result.mean_kv_usage < result.peak_kv_usage < 1
    assert result.timeline[-1].output_tokens == result.total_output_tokens
    assert result.timeline[-1].kv_usage == 0


def test_the_same_seed_gives_the_same_figures() -> None:
    first, second, other = (simulated(isl="100-900", request_rate=20.0, seed=seed) for seed in (1, 1, 2))
    assert first == second
    assert first.mean_ttft_ms != other.mean_ttft_ms


def test_more_load_is_slower_and_a_full_pool_preempts() -> None:
    results = [simulated(concurrency=clients, requests=40 * 4, osl="20-80") for clients in (1, 8, 40)]
    assert results[0].mean_tpot_ms < results[1].mean_tpot_ms < results[2].mean_tpot_ms
    assert results[0].output_throughput < results[1].output_throughput < results[2].output_throughput
    small = simulated(concurrency=40, requests=160, osl="200-300", kv_blocks=300)
    assert small.preemptions > 0
    assert small.peak_kv_usage > 0.95
    swapped = simulated(
        concurrency=40, requests=160, osl="200-300", kv_blocks=300, server=ServerOptions(preemption="swap")
    )
    assert swapped.preemptions > 0
    assert swapped.recomputed_tokens == 0


def test_a_cached_prefix_spares_its_prefill() -> None:
    load = {"isl": 2100, "osl": 20, "request_rate": 5.0, "prefix_tokens": 2000}
    warm, cold = (simulated(**load, server=ServerOptions(prefix_caching=caching)) for caching in (True, False))
    assert warm.prefix_hit_rate == pytest.approx(59 / 60 * 2000 / 2100, rel=1e-6)
    assert cold.prefix_hit_rate == 0
    assert warm.mean_ttft_ms < cold.mean_ttft_ms


def test_the_closed_form_of_prefix_hits_stands_beside_the_simulated_one() -> None:
    """60 prefixes of 1,600 tokens in a pool of 3,000 blocks: the working shows both."""
    load = SimulatedLoad(
        isl="1700-2000", osl=20, request_rate=8.0, requests=3000, prefixes=60, prefix_tokens=1600, prefix_skew=0.8
    )
    answer = capplan.simulate(MODEL, GPU, load=load, kv_blocks=3000)
    lines = {line.name: line.value for line in answer.explanation}
    assert lines["prefix tokens found"] == answer.result.prefix_hit_rate
    assert lines["prefix tokens found, expected"] == pytest.approx(answer.result.prefix_hit_rate, abs=0.05)
    assert answer.result.evicted_blocks > 0


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "transformers", "llama.cpp"])
def test_every_engine_serves(engine: str) -> None:
    result = simulated(concurrency=8, engine=engine, isl="200-600", osl="20-60")
    assert result.completed == 60
    assert result.rejected == 0


def test_static_batching_is_slower_than_continuous() -> None:
    static, continuous = (simulated(concurrency=1, engine=engine, osl="10-200") for engine in ("transformers", "vllm"))
    assert static.output_throughput < continuous.output_throughput


def test_data_parallel_groups_share_the_load() -> None:
    one, two = (simulated(concurrency=16, data_parallel_size=groups, requests=160) for groups in (1, 2))
    assert two.completed == one.completed
    assert two.output_throughput > one.output_throughput


def test_encoders_answer_with_one_token() -> None:
    result = simulated(model="bert-base-uncased", gpu="l40s", isl=128, osl=None, concurrency=4)
    assert result.completed == 60
    assert result.mean_tpot_ms == 0


def test_a_trace_is_served_and_its_requests_are_written(tmp_path: Path) -> None:
    trace, out = tmp_path / "trace.csv", tmp_path / "out.csv"
    trace.write_text("arrival,isl,osl\n0,300,20\n0.5,700,10\n0.1,200,30\n", encoding="utf-8")
    answer = capplan.simulate(MODEL, GPU, load=SimulatedLoad(trace=trace), out=out)
    assert answer.result.completed == 3
    assert answer.result.total_input_tokens == 1200
    with out.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["isl"] for row in rows} == {"300", "700", "200"}
    assert all(float(row["queue"]) < float(row["ttft"]) < float(row["e2e"]) for row in rows)


def test_a_server_that_falls_behind_is_told() -> None:
    told = []
    for rate in (2.0, 200.0):
        load = SimulatedLoad(isl="200-2000", osl="50-300", request_rate=rate, requests=300)
        warnings = capplan.simulate(MODEL, GPU, load=load, max_num_seqs=16).warnings
        told.append(any("cannot keep up" in warning for warning in warnings))
    assert told == [False, True]


def test_requests_that_are_too_long_are_rejected() -> None:
    result = simulated(isl="100-900", osl=50, concurrency=4, max_model_len=500)
    assert result.rejected > 0
    assert result.completed + result.rejected == 60
    with pytest.raises(UsageError, match="none of 60"):
        simulated(isl=900, concurrency=4, max_model_len=500)


@pytest.mark.parametrize(
    ("load", "where"),
    [
        ({}, "--request-rate"),
        ({"isl": None}, "--isl"),
        ({"concurrency": 4, "request_rate": 1.0}, "--concurrency, --request-rate"),
        ({"arrivals": "closed"}, "--concurrency"),
        ({"arrivals": "gama", "request_rate": 1.0}, "--arrivals"),
        ({"request_rate": 1.0, "burstiness": 2.0}, "--burstiness"),
        ({"request_rate": 0.0}, "--request-rate"),
        ({"concurrency": 4, "requests": 0}, "--requests"),
        ({"concurrency": 4, "warmup": 60}, "--warmup"),
        ({"concurrency": 4, "prefix_share": 1.5}, "--prefix-share"),
        ({"concurrency": 4, "kv_blocks": 0}, "--kv-blocks"),
        ({"concurrency": 4, "isl": "9-3"}, "--isl"),
    ],
)
def test_contradictions_are_refused(load: dict[str, Any], where: str) -> None:
    with pytest.raises(UsageError) as caught:
        simulated(**load)
    assert caught.value.where == where


def test_other_refusals(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="no measured profile"):
        simulated(gpu="mi250x", concurrency=1)
    with pytest.raises(UsageError, match="does not fit"):
        simulated(gpu="l40s", model="llama3.1-70b", concurrency=1)
    with pytest.raises(UsageError, match="generates nothing"):
        simulated(model="bert-base-uncased", gpu="l40s", concurrency=1)
    with pytest.raises(UnsupportedError, match="encodes before it decodes"):
        simulated(model="flan-t5-large", gpu="l40s", concurrency=1)
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival,isl\n", encoding="utf-8")
    with pytest.raises(InvalidFileError):
        capplan.simulate(MODEL, GPU, load=SimulatedLoad(trace=trace))
    with pytest.raises(UsageError, match="a trace says this itself"):
        capplan.simulate(MODEL, GPU, load=SimulatedLoad(trace=trace, isl=5))
    with pytest.raises(CapplanError, match="cannot write"):
        capplan.simulate(
            MODEL, GPU, load=SimulatedLoad(isl=10, osl=2, concurrency=1, requests=2), out=tmp_path / "no" / "out.csv"
        )
