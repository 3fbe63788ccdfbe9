"""The simulator's loop against queues whose waiting times are known in closed form, and against Little's law.

Sources: Erlang (1909, 1917); Pollaczek and Khinchine; Little, A proof for L = λW (Operations Research 9(3), 1961).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

import pytest

from capplan.serving.lengths import UniformLength
from capplan.serving.open_loop import share_within, ttft_percentile
from capplan.serving.queueing import erlang_c
from capplan.serving.random_source import RandomSource
from capplan.serving.requests import ClosedLoop, burst_arrivals, poisson_arrivals, uniform_arrivals
from capplan.serving.steady_state import OperatingPoint, ServingTerms
from tests.serving.clocks import ConstantClock, ExponentialClock, GeometricLength, LinearClock, factory, run

ONE = {"max_num_seqs": 1}


def agrees(values: Sequence[float], expected: float, *, resolution: float) -> bool:
    """Whether a mean is within three standard errors, themselves small beside it; errors by 25 batch means."""
    size = len(values) // 25
    means = [sum(values[start : start + size]) / size for start in range(0, 25 * size, size)]
    mean = sum(means) / 25
    error = math.sqrt(sum((one - mean) ** 2 for one in means) / (25 * 24))
    assert error < resolution * expected, "too few requests to tell"
    return abs(mean - expected) < 3 * error


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_one_server_with_exponential_service(load: float) -> None:
    """M/M/1: W = 1/(μ - λ), Wq = ρ/(μ - λ), and P(W > t) = exp(-(μ - λ)t)."""
    rate = 1.0
    arrivals = poisson_arrivals(load * rate, 25_000, factory(), seed=7)
    log = run(arrivals, ExponentialClock(1 / rate, seed=3), scheduler=ONE).log
    rest = rate - load * rate
    assert agrees(log.e2e, 1 / rest, resolution=0.1)
    assert agrees(log.queue, load / rest, resolution=0.12)
    late = [float(time > math.log(5) / rest) for time in log.e2e]
    assert agrees(late, 0.2, resolution=0.1)


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_one_server_with_constant_service(load: float) -> None:
    """M/D/1: Wq = ρ·s/(2(1 - ρ))."""
    arrivals = poisson_arrivals(load, 25_000, factory(), seed=11)
    log = run(arrivals, ConstantClock(1.0), scheduler=ONE).log
    assert agrees(log.queue, load / (2 * (1 - load)), resolution=0.05)


def test_even_arrivals_never_wait() -> None:
    """D/D/1 under full load: nobody waits."""
    log = run(uniform_arrivals(0.99, 1000, factory()), ConstantClock(1.0), scheduler=ONE).log
    assert max(log.queue) == pytest.approx(0, abs=1e-9)


def test_bursts_wait_longer() -> None:
    """Kingman: the wait grows with the arrivals' coefficient of variation."""
    waits = []
    for burstiness in (4.0, 1.0, 0.25):
        arrivals = burst_arrivals(0.7, burstiness, 8_000, factory(), seed=5)
        log = run(arrivals, ConstantClock(1.0), scheduler=ONE).log
        waits.append(sum(log.queue) / len(log.queue))
    assert waits[0] < waits[1] / 2
    assert waits[2] > waits[1] * 2


@pytest.mark.parametrize(("servers", "load"), [(2, 0.6), (8, 0.8)])
def test_several_servers(servers: int, load: float) -> None:
    """M/M/c: Wq = C(c, a)/(cμ - λ), with places of a batch as servers and outputs of geometric length as service."""
    mean = 30
    rate = load * servers / mean
    arrivals = poisson_arrivals(rate, 10_000, factory(1, GeometricLength(mean)), seed=2)
    log = run(arrivals, ConstantClock(1.0), scheduler={"max_num_seqs": servers, "step_tokens": 64}).log
    expected = erlang_c(servers, load * servers) / (servers / mean - rate)
    assert agrees([time - 0.5 for time in log.queue], expected, resolution=0.2)  # half a step until a step begins


def test_littles_law_holds_to_rounding() -> None:
    """The integral of the requests that run is the sum of the times for which each runs."""
    for policy in ("decode_first", "prefill_first"):
        requests = factory(UniformLength(10, 300), UniformLength(1, 80))
        arrivals = poisson_arrivals(30, 3000, requests, seed=3)
        done = run(arrivals, LinearClock(), blocks=400, scheduler={"policy": policy, "max_num_seqs": 16})
        log = done.log
        times = sum(e2e - queue for e2e, queue in zip(log.e2e, log.queue, strict=True))
        if not done.preemptions:
            assert done.mean_running * done.busy == pytest.approx(times, rel=1e-9)
        else:  # a request that has to wait again does not run meanwhile
            assert done.mean_running * done.busy < times


@pytest.mark.parametrize("clients", [1, 8, 64])
def test_a_closed_loop_with_constant_steps(clients: int) -> None:
    """C clients, O steps a request: throughput C/(O·s), latency O·s, TPOT s, and all clients in step."""
    step, osl = 0.02, 50
    done = run(ClosedLoop(factory(16, osl), clients, clients * 20), ConstantClock(step))
    assert done.finished / done.duration == pytest.approx(clients / (osl * step))
    assert {round(time, 9) for time in done.log.e2e} == {round(osl * step, 9)}
    assert done.log.tpot[0] == pytest.approx(step)
    assert done.peak_running == clients


@pytest.mark.parametrize("servers", [1, 3, 8])
@pytest.mark.parametrize("busy", [0.5, 0.8])
def test_percentiles_of_prefill_servers_of_one_queue(servers: int, busy: float) -> None:
    """Against Poisson arrivals at c servers of 1 s, played out: means, and the times that nine of ten stay under."""
    source = RandomSource(11, f"{servers} {busy}")
    now, free, waits = 0.0, [0.0] * servers, []
    for _ in range(120_000):
        now += source.exponential(1 / (servers * busy))
        start = max(now, heapq.heappop(free))
        heapq.heappush(free, start + 1.0)
        waits.append(start - now)
    mean = sum(waits) / len(waits)
    terms = ServingTerms(1.0, 0.01, 0.0, 1.0, 0.0, 0.0, 0.0, busy, servers)
    point = OperatingPoint(1.0 + mean, 0.01, 2.0, 1.0, 1.0, 1.0, 1.0, False, terms)
    played = 1.0 + sorted(waits)[int(0.9 * len(waits))]
    assert ttft_percentile(point, 0.9) == pytest.approx(played, rel=0.06)
    assert share_within(point, ttft_percentile(point, 0.9)) == pytest.approx(0.9, abs=1e-9 if played > 1 else 0.1)
