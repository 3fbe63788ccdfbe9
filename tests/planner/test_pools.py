"""Pairs of pools: the fewest replicas by trying every pair with the estimate's own queue, and bounds that hold."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from capplan.describe.gpu_catalog import load_gpu
from capplan.describe.model_plan import checkpoint_plan
from capplan.describe.resolve import resolve_model
from capplan.errors import UsageError
from capplan.planner.bounds import bound_of, work_of
from capplan.planner.capacity import Lengths, Limits, slowdown
from capplan.planner.pools import (
    Pair,
    PoolLoad,
    PoolReplica,
    fewest_pair,
    fixed_pair,
    least_pools,
)
from capplan.serving.disaggregation import Pools
from capplan.serving.open_loop import open_loop
from capplan.serving.replica import EngineSettings, Replica
from capplan.serving.steady_state import OperatingPoint
from capplan.serving.workload import Workload
from capplan.timing.machine import machine_for
from capplan.work.formats import MATH_FORMATS, Formats
from capplan.work.sharding import Sharding

LENGTHS = Lengths(6000, 300)
SERVERS = [
    ("llama3.1-8b", "h100-sxm-80gb", "vllm", {}),
    ("llama3.1-8b", "l40s", "sglang", {}),
    ("llama3.1-70b-fp8", "h200-sxm-141gb", "trtllm", {"tp": 2}),
    ("qwen3-30b-a3b", "h100-sxm-80gb", "vllm", {"dp": 2, "ep": 2}),
]
MOVING = 0.02


def kind(
    model: str, gpu: str, engine: str, sizes: dict[str, int], limits: Limits, rate: float | None = 1.0,
    clients: float | None = None,
) -> PoolReplica:  # fmt: skip
    spec, device = resolve_model(model).spec, load_gpu(gpu)
    math = frozenset(name for name in MATH_FORMATS if device.dense_rate(name) is not None)
    formats = Formats(dtype="bf16", kv="bf16", plan=checkpoint_plan(spec), math=math)
    replica = Replica(
        spec, machine_for(device, engine), Sharding(**sizes), formats, EngineSettings(max_num_seqs=256), 400_000.0
    )
    return PoolReplica(replica, PoolLoad(LENGTHS, limits, slowdown(replica.machine, limits.widening), rate, clients))


def estimated(own: PoolReplica, prefill: int, decode: int, rate: float) -> OperatingPoint | None:
    """As ``estimate`` has it: clients of a closed loop until the rate is met; None: it cannot be."""
    pools = Pools(own.replica, prefill, decode, MOVING)
    try:
        point = open_loop(pools, Workload(LENGTHS.isl, LENGTHS.osl, request_rate=rate))
    except UsageError:
        return None
    return None if point.queued else point


@pytest.mark.parametrize(("model", "gpu", "engine", "sizes"), SERVERS)
@pytest.mark.parametrize(("rate", "tpot"), [(2.0, 0.05), (9.0, 0.02)])
def test_no_smaller_pair_carries_the_load(
    model: str, gpu: str, engine: str, sizes: dict[str, int], rate: float, tpot: float
) -> None:
    """Every pair by the estimate, at the prediction itself; with room for what interpolation and halving leave."""
    own = kind(model, gpu, engine, sizes, Limits(ttft=2.5, tpot=tpot, confidence=0.0), rate)
    found = fewest_pair(own, lambda _: MOVING)

    def enough(replicas: int, slack: float) -> bool:
        points = [estimated(own, replicas - number, number, rate) for number in range(1, replicas)]
        return any(p is not None and p.ttft <= 2.5 * slack and p.tpot <= tpot * slack for p in points)

    least = next((replicas for replicas in range(2, 24) if enough(replicas, 1.01)), None)
    if found is None:
        assert least is None or not enough(least, 0.99)
        return
    assert least is not None
    assert found.replicas >= least
    assert (
        found.replicas == next(replicas for replicas in count(2) if enough(replicas, 0.99)) or found.replicas == least
    )


@pytest.mark.parametrize(("model", "gpu", "engine", "sizes"), SERVERS)
def test_a_pair_under_its_load_is_what_the_estimate_says(
    model: str, gpu: str, engine: str, sizes: dict[str, int]
) -> None:
    own = kind(model, gpu, engine, sizes, Limits(ttft=3.0, tpot=0.05), 4.0)
    pair = fewest_pair(own, lambda _: MOVING)
    assert pair is not None
    point, other = own.as_predicted.under(pair), estimated(own, pair.prefill, pair.decode, 4.0)
    assert other is not None
    assert point.ttft == pytest.approx(other.ttft, rel=0.02)
    assert point.tpot == pytest.approx(other.tpot, rel=0.005)
    load = replace(own.load, rate=None, clients=point.request_rate * point.e2e)
    assert replace(own, load=load).under(pair).request_rate == pytest.approx(4.0, rel=0.01)


@pytest.mark.parametrize(("model", "gpu", "engine", "sizes"), SERVERS)
@pytest.mark.parametrize("confidence", [0.0, 0.8])
@pytest.mark.parametrize(("rate", "clients"), [(1.0, None), (25.0, None), (None, 100.0)])
def test_bounds_are_never_above_what_carries_the_load(
    model: str,
    gpu: str,
    engine: str,
    sizes: dict[str, int],
    confidence: float,
    rate: float | None,
    clients: float | None,
) -> None:
    limits = Limits(ttft=4.0, tpot=0.06, confidence=confidence)
    own = kind(model, gpu, engine, sizes, limits, rate, clients)
    replica, groups = own.replica, own.replica.sharding.dp
    assert replica.formats is not None
    work = work_of(replica.spec, replica.sharding, replica.formats, LENGTHS.isl, LENGTHS.osl, 0.0)
    bound = bound_of(work, replica.machine, 8192, LENGTHS.isl, LENGTHS.osl, limits.widening)
    pair = fewest_pair(own, lambda _: MOVING)
    assert pair is not None
    least = least_pools(bound, own.load, replica.machine.times, groups, 256)
    assert least.replicas is not None
    assert least.replicas[0] <= own.least[0] <= pair.prefill
    assert least.replicas[1] <= own.least[1] <= pair.decode
    slow_first, slow_token = own.load.slow
    assert least.first_token <= own.as_predicted.alone(0.0).ttft * slow_first
    assert least.token <= own.as_predicted.step(1.0) * slow_token


def test_more_of_either_pool_carries_no_less() -> None:
    own = kind(*SERVERS[0], Limits(ttft=2.0, tpot=0.02))
    sizes = [(1, 1), (2, 1), (1, 2), (2, 2), (4, 4)]
    rates = {size: own.capacity(*size, MOVING).request_rate for size in sizes}
    assert rates[2, 1] >= rates[1, 1] * (1 - 1e-6)
    assert rates[1, 2] >= rates[1, 1] * (1 - 1e-6)
    assert rates[2, 2] >= 2 * rates[1, 1] * (1 - 1e-6)
    assert rates[4, 4] >= 2 * rates[2, 2] * (1 - 1e-6)


def test_pools_of_given_sizes_come_in_whole_pairs() -> None:
    own = kind(*SERVERS[0], Limits(ttft=2.0, tpot=0.02), 30.0)
    pair = fixed_pair(own, (1, 2), MOVING)
    assert isinstance(pair, Pair)
    assert pair.sure_rate >= 30 > pair.capacity.request_rate * (pair.units - 1)
    assert pair.replicas == 3 * pair.units


def test_what_no_pair_can_hold() -> None:
    slow = kind(*SERVERS[0], Limits(tpot=0.0001))
    late = kind(*SERVERS[0], Limits(ttft=0.01))
    for own in (slow, late):
        assert fewest_pair(own, lambda _: MOVING) is None
        assert fixed_pair(own, (1, 1), MOVING) is None


def test_steps_between_batches_are_linear() -> None:
    own = kind(*SERVERS[2], Limits(confidence=0.0))
    batches = np.array([1, 3, 17, 100, 333])
    for batch in batches:
        context = round(LENGTHS.isl + LENGTHS.osl / 2)
        exact = own.replica.decode(int(batch), context).seconds(own.replica.machine.times)
        assert own.step(float(batch)) == pytest.approx(exact, rel=0.005)
    assert own.step(0.3) == own.step(1.0)
