"""`estimate` against what must hold of any server: Little's law, bounds, monotony, intervals that contain."""

from __future__ import annotations

import pytest

from capplan.errors import UnsupportedError, UsageError
from capplan.questions.decode import decode
from capplan.questions.estimate import EstimateResult, LoadRequest, estimate
from capplan.serving.lengths import UniformLength, parse_lengths, variation

MODEL, GPU = "llama3.1-8b", "h100-sxm-80gb"


def asked(gpu: str = GPU, isl: float = 1000, osl: float = 200, **load: float) -> EstimateResult:
    return estimate(MODEL, gpu, load=LoadRequest(isl, osl, **load)).result  # type: ignore[arg-type]


@pytest.mark.parametrize("clients", [1, 7, 64, 400])
def test_little_s_law_and_the_parts_of_a_request(clients: int) -> None:
    result = asked(concurrency=clients)
    assert result.request_throughput * result.mean_e2el_ms / 1e3 == pytest.approx(clients)
    assert result.mean_e2el_ms == pytest.approx(result.mean_ttft_ms + 199 * result.mean_tpot_ms)
    assert result.output_throughput == pytest.approx(200 * result.request_throughput)
    assert result.total_token_throughput == pytest.approx(1200 * result.request_throughput)


@pytest.mark.parametrize(("isl", "osl"), [(4000, 1000), (1000, 4000), (600, 400), (999, 1), (500, 999), (1000, 1000)])
@pytest.mark.parametrize("asked", [{"concurrency": 8}, {"request_rate": 0.25}])
def test_tokens_a_second_are_requests_a_second_times_their_lengths(isl: int, osl: int, asked: dict[str, float]) -> None:
    """Whatever the lengths: each rate lies in its interval, and rates of tokens follow from that of requests."""
    found = estimate("llama3.1-8b", "h100-sxm-80gb", load=LoadRequest(isl=isl, osl=osl, **asked)).result
    assert found.output_throughput == pytest.approx(osl * found.request_throughput)
    assert found.total_token_throughput == pytest.approx((isl + osl) * found.request_throughput)
    for name in ("request_throughput", "output_throughput", "total_token_throughput"):
        low, high = getattr(found, f"{name}_low"), getattr(found, f"{name}_high")
        assert low <= getattr(found, name) * (1 + 1e-9)
        assert getattr(found, name) <= high * (1 + 1e-9)


def test_one_client_waits_for_its_own_steps_alone() -> None:
    single = asked(concurrency=1).mean_tpot_ms
    step = decode(MODEL, GPU, context=1100, batch=1).result
    assert step.tpot_bound_ms < single < 1.5 * step.tpot_bound_ms + 2


@pytest.mark.parametrize("field", ["mean_ttft_ms", "mean_tpot_ms", "mean_e2el_ms", "output_throughput"])
def test_the_interval_is_around_the_figure(field: str) -> None:
    for result in (asked(concurrency=32), asked("rtx-4090", concurrency=4)):
        assert getattr(result, f"{field}_low") < getattr(result, field) < getattr(result, f"{field}_high")


def test_constants_carried_from_another_gpu_widen_the_interval() -> None:
    def width(result: EstimateResult) -> float:
        return result.mean_tpot_ms_high / result.mean_tpot_ms_low

    assert width(asked("rtx-4090", concurrency=4)) > 1.3 * width(asked(concurrency=4))


def test_more_clients_slow_each_and_serve_more() -> None:
    results = [asked(concurrency=clients) for clients in (1, 4, 16, 64, 256)]
    tpot = [result.mean_tpot_ms for result in results]
    rate = [result.request_throughput for result in results]
    assert tpot == sorted(tpot)
    assert rate == sorted(rate)


def test_a_full_pool_queues_and_serves_no_faster_than_it_can() -> None:
    result = asked(isl=100_000, osl=2000, concurrency=64)
    assert result.queued
    assert result.admitted_batch <= (result.kv_capacity_tokens or 0) / 100_000
    assert result.request_throughput == pytest.approx(result.saturation_rate, rel=0.05)
    assert result.mean_ttft_ms > 10 * asked(isl=100_000, osl=2000, concurrency=2).mean_ttft_ms


def test_a_rate_is_served_until_the_server_is_full() -> None:
    result = asked(request_rate=5)
    assert result.request_throughput == pytest.approx(5, rel=0.01)
    assert (result.request_throughput_low, result.request_throughput_high) == (5, 5)
    assert (result.p50_ttft_ms or 0) <= (result.p90_ttft_ms or 0) <= (result.p99_ttft_ms or 0)
    with pytest.raises(UsageError, match="at most"):
        asked(request_rate=result.saturation_rate * 1.01)


def test_goodput_and_the_rate_where_a_limit_breaks() -> None:
    result = asked(request_rate=5, ttft=0.5, tpot=0.030)
    assert 0 < (result.goodput or 0) <= result.request_throughput
    edge = result.breaking_rate or 0
    assert 5 < edge < result.saturation_rate
    below, above = asked(request_rate=0.97 * edge), asked(request_rate=min(1.03 * edge, 0.995 * result.saturation_rate))
    assert below.mean_ttft_ms <= 500
    assert below.mean_tpot_ms <= 30
    assert above.mean_ttft_ms > 500 or above.mean_tpot_ms > 30 or edge > 0.96 * result.saturation_rate
    assert asked(request_rate=5, tpot=0.001).goodput == 0


def test_cached_prefixes_shorten_the_first_token() -> None:
    cold, warm = (asked(isl=8000, concurrency=16, prefix_hit_rate=share) for share in (0.0, 0.6))
    assert warm.mean_ttft_ms < 0.7 * cold.mean_ttft_ms
    assert warm.mean_tpot_ms < cold.mean_tpot_ms


def test_outputs_of_different_lengths_weigh_by_how_long_they_stay() -> None:
    """Sequences seen at random moments have run for half of a length that is weighted by itself."""
    import random

    source = random.Random(3)
    outputs = [source.randint(10, 390) for _ in range(40_000)]
    moments = source.choices(outputs, weights=outputs, k=40_000)
    seen = sum(source.random() * output for output in moments) / len(moments)
    workload = LoadRequest(1000, 200, 8, osl_variation=variation(UniformLength(10, 390))).workload()
    assert workload.residing_osl / 2 == pytest.approx(seen, rel=0.02)


def test_prompts_of_different_lengths_delay_the_first_token() -> None:
    """The queue grows by their variance over their mean squared (Pollaczek-Khinchine), and tokens take as long."""
    spread = variation(parse_lengths("100:0.9,9100:0.1"))
    assert spread == pytest.approx((0.9 * 900**2 + 0.1 * 8100**2) / 1000**2)
    alike, half, whole = (asked(concurrency=64, isl_variation=part * spread) for part in (0.0, 0.5, 1.0))
    more = whole.mean_ttft_ms - alike.mean_ttft_ms
    assert more > 0.2 * alike.mean_ttft_ms
    assert half.mean_ttft_ms - alike.mean_ttft_ms == pytest.approx(more / 2)
    assert whole.mean_tpot_ms == alike.mean_tpot_ms


def test_what_cannot_be_served_says_so() -> None:
    with pytest.raises(UsageError, match="does not fit"):
        estimate("llama3-70b", "l4", load=LoadRequest(100, 10, concurrency=1))
    with pytest.raises(UsageError, match="either a concurrency or a request rate"):
        asked()
    with pytest.raises(UnsupportedError, match="no measured profile"):
        estimate(MODEL, "mi250x", load=LoadRequest(100, 10, concurrency=1))


@pytest.mark.parametrize(
    ("engine", "quoted", "figure"), [("transformers", 52, 53), ("vllm", 120, 101), ("trtllm", 180, 105)]
)
def test_the_engine_table_of_the_guide(engine: str, quoted: float, figure: float) -> None:
    """docs/textbook-figures.md puts the quoted figure beside this one; the bound tells which are possible at all."""
    result = decode("llama2-7b", "a100-sxm-80gb", context=200, engine=engine).result
    assert result.output_throughput == pytest.approx(figure, abs=1)
    assert (quoted > result.output_throughput_bound) == (engine == "trtllm")
