"""Figures of benchmarks from forecasts: Little's law, intervals that keep their order, batches by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.serving.batch_run import batch_run, decode_seconds, prefill_seconds
from capplan.serving.forecast import forecast, known_replica
from capplan.serving.forecast_figures import batch_figure, served_figure, ttft_at
from capplan.serving.measured_server import MeasuredServer, server_workload
from capplan.serving.spread import Interval

SERVER = MeasuredServer("llama3.1-8b", "bf16", "h100-sxm-80gb", "vllm", 1024, 256, 32)


@settings(max_examples=20, deadline=None)
@given(st.integers(64, 8192), st.integers(2, 1024), st.integers(1, 256))
def test_served_figures_agree_with_each_other(isl: int, osl: int, clients: int) -> None:
    server = replace(SERVER, isl=isl, osl=osl, concurrency=clients)
    found, load = forecast(server), server_workload(server)
    names = ("request_throughput", "output_throughput", "input_throughput", "total_token_throughput", "mean_e2el_ms")
    requests, output, input_, total, e2e = (served_figure(name, found, load) for name in names)
    assert requests is not None and output is not None and input_ is not None and total is not None and e2e is not None  # noqa: PT018
    assert requests.value * e2e.value / 1e3 == pytest.approx(clients)
    assert output.value == pytest.approx(requests.value * osl)
    assert total.value == pytest.approx(input_.value + output.value)
    for figure in (requests, output, e2e):
        assert figure.low < figure.value < figure.high


def test_percentiles_of_the_first_token_rise() -> None:
    found, load = forecast(SERVER), server_workload(SERVER)
    values = [ttft_at(found, load, share) for share in (0.5, 0.9, 0.95, 0.99, 0.999)]
    assert values == sorted(values)
    assert ttft_at(found, load, 0.5) < found.point.ttft < values[-1]
    steady = replace(SERVER, waves=None)
    assert ttft_at(forecast(steady), server_workload(steady), 0.99) == pytest.approx(forecast(steady).point.ttft)


@pytest.mark.parametrize("name", ["p99_tpot_ms", "std_ttft_ms", "joules", "tpot"])
def test_what_no_closed_form_gives(name: str) -> None:
    assert served_figure(name, forecast(SERVER), server_workload(SERVER)) is None


def test_a_batch_is_a_prefill_and_its_steps() -> None:
    replica = known_replica(SERVER)
    run = batch_run(replica, 16, 1000, 101)
    assert run.rounds == 1
    assert run.prefill == pytest.approx(prefill_seconds(replica, 16, 1000))
    assert run.decode_step == pytest.approx(decode_seconds(replica, 16, 1050))
    assert run.seconds == pytest.approx(run.prefill + 100 * run.decode_step)
    spread = Interval(0.8, 1.25)
    rates = {
        name: batch_figure(name, run, 1, spread)
        for name in ("output_throughput", "prefill_throughput", "decode_throughput")
    }
    assert rates["output_throughput"].value == pytest.approx(16 * 101 / run.seconds)  # type: ignore[union-attr]
    assert rates["prefill_throughput"].value == pytest.approx(16000 / run.prefill)  # type: ignore[union-attr]
    assert rates["decode_throughput"].value == pytest.approx(16 / run.decode_step)  # type: ignore[union-attr]
    speed = rates["decode_throughput"]
    assert speed is not None
    assert (speed.low, speed.high) == (pytest.approx(speed.value / 1.25), pytest.approx(speed.value / 0.8))
    assert batch_figure("output_throughput", run, 2, spread).value == pytest.approx(2 * 16 * 101 / run.seconds)  # type: ignore[union-attr]


def test_phases_that_did_not_run_have_no_figures() -> None:
    replica = known_replica(SERVER)
    alone = batch_run(replica, 1, 512, 0)
    assert alone.decode_step == 0
    assert batch_figure("decode_throughput", alone, 1, Interval(1, 1)) is None
    assert batch_figure("tpot_ms", alone, 1, Interval(1, 1)) is None
    assert batch_figure("ttft_ms", alone, 1, Interval(1, 1)).value == pytest.approx(1e3 * alone.prefill)  # type: ignore[union-attr]


def test_a_batch_that_memory_does_not_hold_runs_in_rounds() -> None:
    replica = known_replica(SERVER)
    assert replica.kv_tokens is not None
    length = int(replica.kv_tokens // 4)
    run = batch_run(replica, 10, length - 100, 100)
    assert run.batch <= 4
    assert run.rounds * run.batch >= 10


def test_depth_is_read_and_not_computed() -> None:
    replica = known_replica(SERVER)
    fresh, deep = prefill_seconds(replica, 1, 512), prefill_seconds(replica, 1, 512, depth=32768)
    assert fresh < deep < prefill_seconds(replica, 1, 33280)
    assert decode_seconds(replica, 1, 512) < decode_seconds(replica, 1, 32768)


def test_stages_take_turns_on_one_chunk_and_overlap_on_many() -> None:
    whole = known_replica(SERVER)
    halves = known_replica(replace(SERVER, pipeline=2, gpus=2))
    assert prefill_seconds(halves, 1, 4096) == pytest.approx(prefill_seconds(whole, 1, 4096), rel=0.05)
    assert prefill_seconds(halves, 1, 16 * 8192) == pytest.approx(
        5 / 8 * prefill_seconds(whole, 1, 16 * 8192), rel=0.05
    )
