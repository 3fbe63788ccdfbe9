"""What clients see of a simulated server: times, gaps between tokens, determinism, and the ways in which engines differ."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.serving.lengths import UniformLength
from capplan.serving.requests import ClosedLoop, OpenLoop, Request, RequestFactory, SharedPrefixes, poisson_arrivals
from capplan.serving.service_metrics import Objectives, Timeline, TimelinePoint, distribution
from capplan.serving.simulator import Simulation
from tests.serving.clocks import ConstantClock, LinearClock, at_once, by_prompt, factory, run


def expanded(simulation: Simulation) -> list[float]:
    """All gaps between tokens, one by one."""
    log = simulation.log
    return [gap for gap, weight in zip(log.gaps, log.gap_weights, strict=True) for _ in range(weight)]


def test_one_request_alone() -> None:
    """A prompt of 100 in one step, then four steps of one token."""
    done = run(at_once((100, 5)), ConstantClock(2.0))
    log = done.log
    assert (list(log.ttft), list(log.tpot), list(log.e2e)) == ([2.0], [2.0], [10.0])
    assert expanded(done) == [2.0] * 4
    assert (done.steps, done.decode_steps, done.duration) == (5, 4, 10.0)


def test_a_long_prompt_is_computed_in_chunks_and_slows_the_others() -> None:
    """Chunks of 100 in steps of 1 s: the short request's tokens come once a step."""
    done = run(at_once((10, 8), (450, 2)), ConstantClock(), scheduler={"step_tokens": 100})
    assert by_prompt(done, "ttft") == {10: 1.0, 450: 5.0}
    whole = run(at_once((10, 8), (450, 2)), LinearClock(0, 0, 0, 0.01), scheduler={"step_tokens": 1000})
    chunked = run(at_once((10, 8), (450, 2)), LinearClock(0, 0, 0, 0.01), scheduler={"step_tokens": 100})
    assert by_prompt(chunked, "ttft")[10] < by_prompt(whole, "ttft")[10]
    assert max(expanded(chunked)) < whole.log.ttft[0]


def test_a_slow_host_delays_a_prompt_and_not_the_tokens_of_others() -> None:
    """Steps of 1 s, a host that takes 5 s over a prompt: whoever is alone waits for it, whoever joins waits alone."""
    clock = ConstantClock()
    clock.prompt_host = 5.0
    alone = run(at_once((10, 3)), clock)
    assert (list(alone.log.ttft), list(alone.log.e2e)) == ([5.0], [7.0])
    both = run(OpenLoop([Request(0.0, 10, 20), Request(5.5, 30, 8)], 2), clock)
    assert by_prompt(both, "ttft") == {10: 5.0, 30: pytest.approx(0.5 + 5.0)}
    assert by_prompt(both, "e2e") == {10: 24.0, 30: pytest.approx(0.5 + 8.0)}
    gaps = expanded(both)
    assert gaps == [1.0] * len(gaps)


def test_prefill_first_makes_decoding_wait() -> None:
    """A prompt that comes while others decode takes a step of its own, which shows in one gap of each of them."""
    requests = [Request(0.0, 10, 6), Request(0.0, 10, 6), Request(2.5, 10, 2)]
    done = run(OpenLoop(requests, 3), ConstantClock(), scheduler={"policy": "prefill_first"})
    assert sorted(expanded(done)) == [1.0] * 9 + [2.0] * 2
    mixed = run(OpenLoop(requests, 3), ConstantClock())
    assert sorted(expanded(mixed)) == [1.0] * 11


def test_planning_ahead_sees_arrivals_and_free_places_a_step_later() -> None:
    """Steps of 1 s. At 2.5 a request comes: planned at 3 for 3..4, or planned at 3 for 4..5."""
    requests = [Request(0.0, 1, 20), Request(2.5, 2, 1)]
    ready = [by_prompt(run(OpenLoop(requests, 2), ConstantClock(), steps_ahead=ahead), "ttft")[2] for ahead in (0, 1)]
    assert ready == [1.5, 2.5]
    waiting = ((1, 3), (2, 20), (3, 1))
    places = {"max_num_seqs": 2}
    queued = [
        by_prompt(run(at_once(*waiting), ConstantClock(), scheduler=places, steps_ahead=ahead), "queue")[3]
        for ahead in (0, 1)
    ]
    assert queued == [3.0, 4.0]


def test_an_idle_server_plans_at_once() -> None:
    requests = [Request(0.0, 1, 1), Request(7.25, 1, 2), Request(20.0, 1, 1)]
    for ahead in (0, 1):
        done = run(OpenLoop(requests, 3), ConstantClock(), steps_ahead=ahead)
        assert list(done.log.ttft) == [1.0, 1.0, 1.0]


def test_a_server_that_looks_every_fourth_step() -> None:
    """Arrivals at 1.5, 2.5 ... wait for the next look: after 4 decode steps, then 4 after the prompt's own step."""
    requests = [Request(0.0, 1, 40), Request(1.5, 2, 40), Request(6.5, 3, 40)]
    done = run(OpenLoop(requests, 3), ConstantClock(), scheduler={"policy": "prefill_first"}, receive_interval=4)
    begun = {
        isl: arrival + queue for isl, arrival, queue in zip(done.log.isl, done.log.arrival, done.log.queue, strict=True)
    }
    assert begun == {1: 0.0, 2: 5.0, 3: 10.0}
    rate = 0.5
    waits = []
    for interval in (1, 20):
        arrivals = poisson_arrivals(rate, 4000, factory(1, 5), seed=4)
        done = run(arrivals, ConstantClock(0.1), scheduler={"policy": "prefill_first"}, receive_interval=interval)
        waits.append(statistics.mean(done.log.queue))
    assert waits[1] > waits[0]


def test_requests_pass_the_front_end_one_after_another() -> None:
    """They are ready 1.5, 2.0 and 3.7 s after they have come at once; steps of 1 s begin at 1.5, 2.5 and 3.7 s."""
    done = run(at_once((100, 1), (50, 1), (170, 1)), ConstantClock(), front_end=0.5, front_end_token=0.01)
    assert by_prompt(done, "queue") == pytest.approx({100: 1.5, 50: 2.5, 170: 3.7})


@pytest.mark.parametrize("interval", [3, 7, 100])
def test_messages_of_several_tokens(interval: int) -> None:
    """The first token at once, then one message for every n, then the rest: gaps of n steps."""
    done = run(at_once((1, 20)), ConstantClock(), stream_interval=interval)
    whole, rest = divmod(19, interval)
    assert expanded(done) == [float(interval)] * whole + ([float(rest)] if rest else [])
    assert (done.log.ttft[0], done.log.tpot[0]) == (1.0, 1.0)


def test_gaps_add_up_to_what_each_request_took() -> None:
    """Σ gaps = Σ (last - first token) of all requests, with one message a token or many, and where requests give way."""
    for policy in ("decode_first", "prefill_first"):
        for interval in (1, 4):
            requests = factory(UniformLength(5, 200), UniformLength(1, 60), seed=interval)
            done = run(
                poisson_arrivals(40, 400, requests, seed=1),
                LinearClock(),
                blocks=60,
                scheduler={"policy": policy, "max_num_seqs": 12},
                stream_interval=interval,
            )
            assert done.preemptions > 0
            log = done.log
            spans = sum(e2e - ttft for e2e, ttft in zip(log.e2e, log.ttft, strict=True))
            gaps = expanded(done)
            assert math.fsum(gaps) == pytest.approx(spans, rel=1e-9)
            if interval == 1:
                assert len(gaps) == done.output_tokens - done.finished


def test_static_batches_count_only_tokens_that_somebody_wants() -> None:
    done = run(at_once((4, 10), (4, 2)), ConstantClock(), scheduler={"policy": "static"})
    assert expanded(done) == [1.0] * 10
    assert sorted(done.log.e2e) == [2.0, 10.0]
    assert done.timeline[-1].tokens == 12


CONFIGS: list[dict[str, Any]] = [
    {"scheduler": {"policy": "decode_first", "max_num_seqs": 8, "step_tokens": 300}, "blocks": 90},
    {"scheduler": {"policy": "prefill_first", "max_num_seqs": 8, "step_tokens": 300}, "blocks": 90, "steps_ahead": 1},
    {"scheduler": {"policy": "static", "max_num_seqs": 8}, "blocks": 200},
    {"scheduler": {"prefix_caching": True, "max_num_seqs": 16}, "blocks": 90, "steps_ahead": 1, "stream_interval": 5},
    {"scheduler": {"admission": "whole", "preemption": "none"}, "blocks": 90, "receive_interval": 5},
]


@pytest.mark.parametrize("config", CONFIGS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), rate=st.sampled_from([2.0, 20.0, 200.0]))
def test_every_request_finishes_once_and_the_same_seed_does_the_same(
    config: dict[str, Any], seed: int, rate: float
) -> None:
    def once(chosen: int) -> Simulation:
        prefixes = SharedPrefixes(3, 40, share=0.6)
        requests = RequestFactory(UniformLength(1, 150), UniformLength(1, 50), chosen, prefixes)
        return run(poisson_arrivals(rate, 60, requests, chosen), LinearClock(), **config)

    first, again, other = once(seed), once(seed), once(seed + 1)
    assert first.log.rows() == again.log.rows()
    assert first.timeline == again.timeline
    assert first.log.rows() != other.log.rows()
    assert first.finished + first.rejected == 60
    assert first.rejected == 0
    assert first.timeline[-1].tokens == first.output_tokens == sum(first.log.osl)
    for arrival, queue, ttft, tpot, e2e, osl in zip(
        *(getattr(first.log, name) for name in ("arrival", "queue", "ttft", "tpot", "e2e", "osl")), strict=True
    ):
        assert 0 <= queue < ttft <= e2e
        assert arrival >= 0
        assert ttft + tpot * (osl - 1) == pytest.approx(e2e)


def test_lengths_stay_the_same_when_the_rate_changes() -> None:
    drawn = []
    for rate in (1.0, 3.0):
        requests = factory(UniformLength(1, 500), UniformLength(1, 500), seed=8)
        arrivals = poisson_arrivals(rate, 50, requests, seed=8)
        drawn.append([(request.isl, request.osl) for request in (arrivals.take() for _ in range(50))])
    assert drawn[0] == drawn[1]


def test_what_can_never_be_served_is_rejected_and_the_rest_goes_on() -> None:
    done = run(ClosedLoop(factory(UniformLength(1, 200), 20), 4, 100), ConstantClock(), blocks=10)
    assert done.rejected > 0
    assert done.finished + done.rejected == 100
    assert max(done.log.isl) <= 10 * 16 - 19


def test_goodput_counts_requests_that_keep_every_objective() -> None:
    arrivals: Callable[[], OpenLoop] = lambda: at_once((1, 3), (2, 30), (3, 3), (4, 3))  # noqa: E731
    places = {"max_num_seqs": 2}
    done = run(arrivals(), ConstantClock(), scheduler=places, objectives=Objectives(ttft=5.0, e2e=20.0))
    assert dict(zip(done.log.isl, done.log.ttft, strict=True)) == {1: 1.0, 2: 1.0, 3: 4.0, 4: 7.0}
    assert done.log.good == 2


def test_requests_of_the_warm_up_do_not_count() -> None:
    done = run(ClosedLoop(factory(10, 5), 2, 20), ConstantClock(), warmup=4)
    assert (done.finished, len(done.log.ttft)) == (20, 16)


def test_progress_is_told() -> None:
    from capplan.serving.simulator import simulate
    from tests.serving.clocks import server

    told: list[tuple[int, int]] = []
    simulate(
        ClosedLoop(factory(1, 1), 10, 2500), ConstantClock(), server(), lambda done, total: told.append((done, total))
    )
    assert told == [(1000, 2500), (2000, 2500), (2500, 2500)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 100), st.integers(1, 5)), min_size=1, max_size=40))
def test_distributions_against_numpy(pairs: list[tuple[float, int]]) -> None:
    import numpy

    sample = [value for value, weight in pairs for _ in range(weight)]
    weighted = distribution([value for value, _ in pairs], [weight for _, weight in pairs])
    plain = distribution(sample)
    for found in (weighted, plain):
        assert found.count == len(sample)
        assert found.mean == pytest.approx(numpy.mean(sample))
        assert found.std == pytest.approx(numpy.std(sample), abs=1e-5)
        assert (found.low, found.high) == (min(sample), max(sample))
        assert found.percentiles == pytest.approx(numpy.percentile(sample, [50, 90, 95, 99]))


def test_a_timeline_stays_short_and_even() -> None:
    timeline = Timeline(points=50)
    for step in range(100_000):
        if step >= timeline.due:
            timeline.add(TimelinePoint(float(step), step, 0, 0, 0))
    times = [point.time for point in timeline.points]
    assert 50 <= len(times) <= 100
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert max(gaps) <= 2 * min(gaps)
    assert times[0] == 0
    assert times[-1] > 97_000
