"""The clock of a replica against the step times that it interpolates, over models of every kind."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import replace

import pytest

from capplan.describe.gpu_catalog import load_gpu
from capplan.describe.resolve import resolve_model
from capplan.serving.grid import RATIO, Grid, geometric_nodes, neighbours
from capplan.serving.random_source import RandomSource
from capplan.serving.replica import Replica
from capplan.serving.replica_clock import ReplicaClock
from capplan.timing.machine import machine_for
from capplan.timing.step_time import step_time
from capplan.work.sharding import Sharding
from capplan.work.step import Decode, Prefill, Step, ledger

MODELS = [
    ("llama3.1-8b", 1),
    ("deepseek-v3", 8),
    ("qwen3-next-80b-a3b-instruct", 4),
    ("gemma-3-27b-it", 2),
    ("gpt-oss-20b", 1),
]


def replica(model: str, tp: int, gpu: str = "h200", **sharding: int) -> Replica:
    machine = machine_for(load_gpu(gpu), "vllm")
    return Replica(resolve_model(model).spec, machine, Sharding(tp=tp, **sharding))


def exact(subject: Replica, step: Step, sequences: int) -> float:
    """The step's own time, operator by operator; one with prompts is floored by the host."""
    work = ledger(subject.spec, step, subject.sharding, subject.formats)
    time = step_time(work, subject.machine, sequences=sequences)
    return max(float(replace(time, host=0.0).seconds), float(time.host))


def waited(clock: ReplicaClock, decode: int, context: int, chunks: list[tuple[int, int]]) -> float:
    """The clock's step, with what the host takes over its prompts."""
    return max(clock.seconds(decode, context, chunks), clock.prompt_host if chunks else 0.0)


@pytest.mark.parametrize(("model", "tp"), MODELS)
def test_interpolated_steps_are_within_a_hundredth(model: str, tp: int) -> None:
    """40 random steps: decoding alone, with a chunk of a prompt, with several equal ones."""
    subject = replica(model, tp)
    clock, source = ReplicaClock(subject), RandomSource(4, model)
    errors: dict[str, list[float]] = {"decode": [], "chunk": [], "several": []}
    for _ in range(13):
        batch, context = int(2 ** (8 * source.uniform())), int(2 ** (6 + 9 * source.uniform()))
        tokens, prefix = int(2 ** (4 + 9 * source.uniform())), source.whole(0, 1) * int(2 ** (13 * source.uniform()))
        decode = (Decode(batch, context),)
        for name, chunks in (("decode", 0), ("chunk", 1), ("several", 5)):
            prefill = (Prefill(tokens, prefix, chunks),) if chunks else ()
            wanted = exact(subject, Step(decode=decode, prefill=prefill), batch + chunks)
            found = waited(clock, batch, batch * context, [(tokens, prefix)] * chunks)
            errors[name].append(abs(found / wanted - 1))
    assert max(errors["decode"]) < 1e-3
    assert max(errors["chunk"]) < 0.015
    assert max(errors["several"]) < 0.02
    assert statistics.mean(errors["chunk"] + errors["several"]) < 0.004


def test_prompts_alone() -> None:
    subject = replica("llama3.1-8b", 1)
    clock = ReplicaClock(subject)
    for tokens, prefix in ((1, 0), (500, 0), (8192, 0), (2048, 6144)):
        wanted = exact(subject, Step(prefill=(Prefill(tokens, prefix),)), 1)
        assert waited(clock, 0, 0, [(tokens, prefix)]) == pytest.approx(wanted, rel=0.005)


def test_prompts_of_different_lengths_keep_their_pairs() -> None:
    """Two prompts of 1,000 and 3,000 tokens against the ledger of both, whose attention has the same FLOPs."""
    subject = replica("llama3.1-8b", 1)
    clock = ReplicaClock(subject)
    step = Step(prefill=(Prefill(1000), Prefill(3000)))
    assert waited(clock, 0, 0, [(1000, 0), (3000, 0)]) == pytest.approx(exact(subject, step, 2), rel=0.03)


@pytest.mark.parametrize(("model", "tp"), MODELS)
@pytest.mark.parametrize("engine", ["vllm", "trtllm", "sglang"])
def test_the_host_takes_as_long_over_prompts_as_a_step_waits_for_it(model: str, tp: int, engine: str) -> None:
    subject = replace(replica(model, tp), machine=machine_for(load_gpu("h200"), engine))
    work = ledger(subject.spec, Step(prefill=(Prefill(1000),)), subject.sharding, subject.formats)
    assert ReplicaClock(subject).prompt_host == pytest.approx(float(step_time(work, subject.machine).host), rel=0.05)


def test_encoders_have_a_clock_of_prompts_alone() -> None:
    subject = replica("bert-base-uncased", 1, "l40s")
    clock = ReplicaClock(subject)
    wanted = exact(subject, Step(prefill=(Prefill(300, 0, 8),)), 8)
    assert waited(clock, 0, 0, [(300, 0)] * 8) == pytest.approx(wanted, rel=0.01)


def test_batches_run_as_the_next_larger_graph() -> None:
    subject = replica("llama3.1-8b", 1)
    clock = ReplicaClock(subject, graph_sizes=(1, 2, 4, 8, 16))
    plain = ReplicaClock(subject)
    for batch in (5, 6, 7, 8):
        own = subject.machine.times.per_sequence
        assert clock.seconds(batch, 8000, []) - own * batch == pytest.approx(plain.seconds(8, 8000, []) - own * 8)
    eager = clock.seconds(17, 17 * 500, [])
    assert eager >= clock._launches * subject.machine.times.host_launch
    assert eager >= plain.seconds(17, 17 * 500, [])
    exact_only = ReplicaClock(subject, graph_sizes=(1, 2, 4, 8, 16), graph_padding=False)
    assert exact_only.seconds(5, 2500, []) == ReplicaClock(subject, eager=True).seconds(5, 2500, [])
    assert exact_only.seconds(4, 2000, []) == clock.seconds(4, 2000, [])


def test_pipeline_stages_take_turns() -> None:
    """With p stages, p micro-batches of B/p sequences pass all stages: a round is one pass of the smaller batch."""
    staged = replica("llama3.1-70b", 2, pp=2)
    clock = ReplicaClock(staged)
    half = float(staged.decode(32, 1000).seconds(staged.machine.times))
    own = staged.machine.times.per_sequence
    assert clock.seconds(64, 64 * 1000, []) == pytest.approx(half + 32 * own, rel=1e-6)
    assert clock.seconds(64, 64 * 1000, [(2048, 0)]) > clock.seconds(64, 64 * 1000, [])


def test_a_grid_is_exact_at_its_nodes_and_between_them_for_what_is_linear() -> None:
    calls = []

    def compute(x: int, y: int) -> tuple[float, ...]:
        calls.append((x, y))
        return 3.0 * x + 2.0 * y, float(x * y)

    grid = Grid(compute)
    assert grid.at(7, 9) == (39.0, 63.0)
    assert grid.at(1234.5, 0.5 + 999) == pytest.approx((3 * 1234.5 + 2 * 999.5, 1234.5 * 999.5))
    assert len(calls) == 5
    grid.at(1234.5, 999.5)
    assert len(calls) == 5
    line = Grid(lambda x: (float(x) ** 2,))
    worst = max(abs(line.at(x)[0] / x**2 - 1) for x in range(10, 5000, 7))
    assert 0 < worst < 0.004


def test_nodes_are_close_together() -> None:
    nodes = geometric_nodes()
    assert nodes[:9] == (1, 2, 3, 4, 5, 6, 7, 8, 9)
    assert all(after / before <= RATIO + 1e-9 for before, after in itertools.pairwise(nodes[8:]))
    assert neighbours(1) == (1, 1, 0.0)
    low, high, share = neighbours(1000.25)
    assert low < 1000.25 < high
    assert low + share * (high - low) == pytest.approx(1000.25)
