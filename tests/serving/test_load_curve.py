"""A sweep's arrays against one operating point after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from capplan.describe.gpu_catalog import load_gpu
from capplan.describe.model_plan import checkpoint_plan
from capplan.describe.resolve import resolve_model
from capplan.serving.load_curve import chunk_rows, operating_points
from capplan.serving.replica import EngineSettings, Replica
from capplan.serving.speculation import Speculation, SpeculativeReplica
from capplan.serving.steady_state import closed_loop
from capplan.serving.workload import Workload, Workloads
from capplan.timing.machine import machine_for
from capplan.timing.step_sums import FEW, step_sums
from capplan.timing.step_time import step_time
from capplan.work.formats import Formats
from capplan.work.sharding import Sharding
from capplan.work.step import Decode, Prefill, Step, ledger

FIGURES = ("ttft", "tpot", "e2e", "request_rate", "output_rate", "input_rate", "admitted_batch")
SERVERS = [
    ("llama3.1-8b", "h100-sxm-80gb", "vllm", {}, 8192),
    ("deepseek-r1", "h200-sxm-141gb", "sglang", {"tp": 8}, 4096),
    ("qwen3-30b-a3b", "h100-sxm-80gb", "trtllm", {"tp": 2, "ep": 2}, 2048),
    ("gemma-3-27b", "h200-sxm-141gb", "vllm", {"tp": 2, "pp": 2}, 8192),
    ("deepseek-v3", "b200-sxm-180gb", "vllm", {"dp": 8, "ep": 8}, 8192),
]


DRAFTING = [
    ("llama3.1-70b", "h100-sxm-80gb", "vllm", {"tp": 4}, {"draft": "llama3.1-8b"}),
    ("deepseek-v3", "h200-sxm-141gb", "sglang", {"tp": 8, "ep": 8}, {}),
    ("llama3.1-8b", "h200-sxm-141gb", "trtllm", {"dp": 2}, {"medusa_heads": 4}),
]


def server(model: str, gpu: str, engine: str, sizes: dict[str, Any], budget: int) -> Replica:
    spec = resolve_model(model).spec
    formats = Formats(dtype="bf16", kv="bf16", plan=checkpoint_plan(spec), math=frozenset({"bf16", "fp8"}))
    settings = EngineSettings(max_num_batched_tokens=budget, max_num_seqs=256, receive_interval=2)
    return Replica(spec, machine_for(load_gpu(gpu), engine), Sharding(**sizes), formats, settings, 300_000.0)


@pytest.mark.parametrize(("model", "gpu", "engine", "sizes", "budget"), SERVERS)
def test_many_loads_at_once_are_the_same_loads(
    model: str, gpu: str, engine: str, sizes: dict[str, Any], budget: int
) -> None:
    """Short and long prompts (several chunks), loads that queue for memory, fractions of a client."""
    check(server(model, gpu, engine, sizes, budget))


@pytest.mark.parametrize(("model", "gpu", "engine", "sizes", "drafts"), DRAFTING)
def test_so_are_those_of_servers_that_draft(
    model: str, gpu: str, engine: str, sizes: dict[str, Any], drafts: dict[str, Any]
) -> None:
    drafting = dict(drafts)
    if "draft" in drafting:
        drafting["draft"] = server(drafting["draft"], gpu, engine, {"tp": sizes["tp"]}, 8192)
    check(SpeculativeReplica.of(server(model, gpu, engine, sizes, 8192), Speculation(4, 0.7, **drafting)))


def check(replica: Replica) -> None:
    random = np.random.default_rng(7)
    count = 2 * FEW
    isl = random.integers(16, 20_000, count).astype(float)
    osl = random.integers(1, 3000, count).astype(float)
    clients = np.exp(random.uniform(0, 7, count))
    points: Any = operating_points(replica, Workloads(isl, osl, clients, prefix_hit_rate=0.25))
    for row in range(0, count, 16):
        load = Workload(isl[row], osl[row], clients[row], prefix_hit_rate=0.25)
        alone = closed_loop(replica, load)
        for name in FIGURES:
            assert getattr(points, name)[row] == pytest.approx(getattr(alone, name), rel=1e-12), (name, row)
        assert points.queued[row] == alone.queued
        assert points.terms.utilisation[row] == pytest.approx(alone.terms.utilisation, rel=1e-12)


@pytest.mark.parametrize(("model", "gpu", "engine", "sizes", "budget"), SERVERS)
def test_steps_summed_by_distinct_sizes(model: str, gpu: str, engine: str, sizes: dict[str, Any], budget: int) -> None:
    replica = server(model, gpu, engine, sizes, budget)
    random = np.random.default_rng(3)
    batch, context, chunk = (random.integers(1, most, 3 * FEW) for most in (300, 30_000, 4000))
    step = Step(decode=(Decode(batch, context),), prefill=(Prefill(chunk, context // 2),))
    work = ledger(replica.spec, step, replica.sharding, replica.formats)
    sums = step_sums(work.operators, replica.machine)
    whole = step_time(work, replica.machine)
    np.testing.assert_allclose(sums.bodies, sum(time.body for time in whole.operators), rtol=1e-12)
    np.testing.assert_allclose(
        np.broadcast_to(sums.launches, len(batch)),
        np.broadcast_to(sum(time.launch for time in whole.operators), len(batch)),
        rtol=1e-12,
    )
    np.testing.assert_allclose(sums.bound, whole.bound, rtol=1e-12)


def test_chunks_are_the_replicas_own() -> None:
    replica = server("llama3.1-8b", "h100-sxm-80gb", "vllm", {}, 1000)
    tokens, together, taken = (
        np.array(column) for column in ([1, 999, 1000, 5001, 70], [1, 1, 2, 3, 4], [0, 50, 0, 0, 999])
    )
    rows = chunk_rows(replica, tokens, together, taken)
    for row in range(len(tokens)):
        own = rows.rows == row
        expected = replica.chunks(int(tokens[row]), int(together[row]), int(taken[row]))
        assert list(zip(rows.tokens[own].tolist(), rows.prefix[own].tolist(), strict=True)) == expected
