"""Bounds against the exact model: never above it, on servers of every kind, at every batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from capplan.describe.gpu_catalog import load_gpu
from capplan.describe.model_plan import checkpoint_plan
from capplan.describe.resolve import resolve_model
from capplan.planner.bounds import BATCHES, best_rate, bound_of, known_steps, most_in_time, work_of
from capplan.planner.capacity import Lengths, Limits, exact_capacity, find_capacity, rungs_at, serving_at, slowdown
from capplan.planner.step_memory import StepMemory
from capplan.serving.replica import EngineSettings, Replica
from capplan.serving.speculation import Speculation, SpeculativeReplica
from capplan.timing.machine import machine_for
from capplan.work.formats import MATH_FORMATS, Formats
from capplan.work.sharding import Sharding

SERVERS = [
    ("llama3.1-8b", "h100-sxm-80gb", "vllm", {}),
    ("llama3.1-70b-fp8", "h200-sxm-141gb", "sglang", {"tp": 4}),
    ("llama3.1-70b", "a100-sxm-80gb", "trtllm", {"tp": 8}),
    ("qwen3-30b-a3b", "l40s", "vllm", {"tp": 2, "ep": 2}),
    ("deepseek-r1", "h200-sxm-141gb", "vllm", {"tp": 8}),
    ("deepseek-r1", "b200-sxm-180gb", "trtllm", {"dp": 8, "ep": 8}),
    ("deepseek-r1", "h100-sxm-80gb", "sglang", {"tp": 4, "dp": 2, "pp": 2, "ep": 8}),
    ("gemma-3-27b", "rtx-pro-6000-server", "vllm", {"tp": 2}),
    ("qwen3.5-35b-a3b", "h100-sxm-80gb", "vllm", {"tp": 2}),
    ("gpt-oss-120b", "b200-sxm-180gb", "vllm", {"tp": 2}),
]
LOADS = [Lengths(4000, 1000), Lengths(500, 2000), Lengths(30_000, 200, 0.5), Lengths(128, 16)]


def server(model: str, gpu: str, engine: str, sizes: dict[str, Any], kv_tokens: float | None = None) -> Replica:
    spec, device = resolve_model(model).spec, load_gpu(gpu)
    math = frozenset(name for name in MATH_FORMATS if device.dense_rate(name) is not None)
    formats = Formats(dtype="bf16", kv="bf16", plan=checkpoint_plan(spec), math=math)
    settings = EngineSettings(max_num_seqs=1024)
    return Replica(spec, machine_for(device, engine), Sharding(**sizes), formats, settings, kv_tokens)


@pytest.mark.parametrize(("model", "gpu", "engine", "sizes"), SERVERS)
@pytest.mark.parametrize("lengths", LOADS, ids=lambda load: f"{load.isl:g}-{load.osl:g}")
@pytest.mark.parametrize("confidence", [0.0, 0.8])
def test_nothing_beats_its_bound(
    model: str, gpu: str, engine: str, sizes: dict[str, Any], lengths: Lengths, confidence: float
) -> None:
    check_bound(server(model, gpu, engine, sizes), lengths, confidence)


@pytest.mark.parametrize(("model", "gpu", "engine", "sizes"), SERVERS[:6])
@pytest.mark.parametrize(("tokens", "acceptance"), [(1, 0.0), (3, 0.7), (8, 1.0)])
def test_nor_does_a_server_that_drafts(
    model: str, gpu: str, engine: str, sizes: dict[str, Any], tokens: int, acceptance: float
) -> None:
    replica = server(model, gpu, engine, sizes)
    heads = 0 if replica.spec.mtp else tokens
    drafting = SpeculativeReplica.of(replica, Speculation(tokens, acceptance, medusa_heads=heads))
    check_bound(drafting, LOADS[0], 0.8, drafting.speculation.per_round)


def check_bound(replica: Replica, lengths: Lengths, confidence: float, per_round: float = 1.0) -> None:
    limits = Limits(confidence=confidence)
    assert replica.formats is not None
    work = work_of(replica.spec, replica.sharding, replica.formats, lengths.isl, lengths.osl, lengths.hit)
    budget = replica.settings.max_num_batched_tokens
    machine, known = replica.machine, known_steps(replica, lengths)
    bounds = [
        bound_of(work, machine, budget, lengths.isl, lengths.osl, limits.widening, per_round, steps)
        for steps in (None, known)
    ]
    clients = BATCHES[BATCHES <= 1024]
    exact = rungs_at(replica, lengths, limits, clients)
    slow_first, slow_token = slowdown(replica.machine, limits.widening)
    count = len(clients)
    for bound in bounds:
        assert (bound.ttft[:count] <= exact.ttft * slow_first * (1 + 1e-9)).all()
        assert (bound.tpot[:count] <= exact.tpot * slow_token * (1 + 1e-9)).all()
        assert (bound.rate[:count] * replica.sharding.dp >= exact.sure_rate * (1 - 1e-9)).all()
    roofline, steps = bounds
    assert (steps.tpot >= roofline.tpot * (1 - 1e-9)).all()


@pytest.mark.parametrize(("model", "gpu", "engine", "sizes"), SERVERS[::3])
def test_limits_on_bounds_let_through_whatever_keeps_them(
    model: str, gpu: str, engine: str, sizes: dict[str, Any]
) -> None:
    lengths, limits = LOADS[0], Limits(ttft=3.0, tpot=0.06)
    replica = server(model, gpu, engine, sizes, 400_000.0)
    assert replica.formats is not None
    work = work_of(replica.spec, replica.sharding, replica.formats, lengths.isl, lengths.osl, lengths.hit)
    bound = bound_of(work, replica.machine, 8192, lengths.isl, lengths.osl, limits.widening)
    capacity = exact_capacity(replica, lengths, limits)
    rate = best_rate(bound, ttft=limits.ttft, tpot=limits.tpot, most=1024) * replica.sharding.dp
    assert rate >= capacity.sure_rate
    assert most_in_time(bound, ttft=limits.ttft, tpot=limits.tpot, most=1024) >= capacity.clients


@pytest.mark.parametrize(("model", "gpu", "engine", "sizes"), SERVERS[:6])
def test_capacity_is_the_last_load_that_holds(model: str, gpu: str, engine: str, sizes: dict[str, Any]) -> None:
    """By trying every number of clients one after the other."""
    lengths, limits = Lengths(2000, 300), Limits(ttft=2.5, tpot=0.05)
    replica = server(model, gpu, engine, sizes, 250_000.0)
    every = rungs_at(replica, lengths, limits, np.arange(1, 300))
    holding = every.clients[every.holds]
    capacity = exact_capacity(replica, lengths, limits)
    if not len(holding):
        assert capacity.best is None
        return
    assert capacity.clients == holding[-1]
    assert capacity.exact
    first = find_capacity(replica, lengths, limits)
    assert first.clients <= capacity.clients < first.above
    assert first.sure_rate <= capacity.sure_rate <= first.most_rate * (1 + 1e-9)
    wanted = capacity.sure_rate / 3
    point = serving_at(replica, lengths, limits, wanted, capacity)
    enough = every.clients[every.rate >= wanted]
    assert point.clients[0] == enough[0]
    assert point.holds[0]


@pytest.mark.parametrize(("model", "gpu", "engine", "sizes"), SERVERS[::2])
def test_remembered_steps_are_the_same_steps(model: str, gpu: str, engine: str, sizes: dict[str, Any]) -> None:
    replica, memory = server(model, gpu, engine, sizes), StepMemory()
    lengths, clients = LOADS[0], np.array([1, 7, 40])
    plain = rungs_at(replica, lengths, Limits(), clients)
    for _ in range(2):
        again = rungs_at(replace(replica, summed_by=memory.sums), lengths, Limits(), clients)
        np.testing.assert_allclose(again.tpot, plain.tpot, rtol=1e-12)
        np.testing.assert_allclose(again.ttft, plain.ttft, rtol=1e-12)
    other = replace(server(model, "b300-sxm-288gb", engine, sizes), summed_by=memory.sums)
    fresh = rungs_at(server(model, "b300-sxm-288gb", engine, sizes), lengths, Limits(), clients)
    np.testing.assert_allclose(rungs_at(other, lengths, Limits(), clients).tpot, fresh.tpot, rtol=1e-12)


def test_confidence_widens_the_interval() -> None:
    assert Limits(confidence=0.8).widening == pytest.approx(1)
    assert Limits(confidence=0.0).widening == pytest.approx(0)
    assert Limits(confidence=0.95).widening == pytest.approx(1.959964 / 1.281552, rel=1e-5)
