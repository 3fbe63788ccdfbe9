"""What must hold of the time of any step, whatever the model, the machine and the load."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from capplan.describe.model import Attention, ModelSpec
from capplan.timing.step_time import StepTime, step_time
from capplan.work.sharding import Sharding
from capplan.work.step import Decode, Prefill, Step, ledger
from tests.timing.machines import machine, model
from tests.work.models import BLOCKS, small

MODELS = (
    "llama2-70b", "deepseek-v3", "deepseek-v3.2", "gpt-oss-120b", "gemma-3-27b", "qwen3-30b-a3b", "qwen3-next-80b-a3b",
    "mixtral-8x7b-v0.1", "ai21-jamba-1.5-mini", "t5-base",
)  # fmt: skip

names = st.sampled_from([*MODELS, *BLOCKS])
sizes = st.sampled_from([1, 2, 4, 8])
batches = st.integers(1, 2000)
contexts = st.integers(1, 200_000)
factors = st.floats(1.0, 8.0)
RELAXED = settings(max_examples=80, deadline=None)


def spec_of(name: str) -> ModelSpec:
    return small(name) if name in BLOCKS else model(name)


def grows(name: str) -> bool:
    """Whether longer contexts never do less: a chunk's first position sees itself alone."""
    return not any(
        isinstance(mixer, Attention) and mixer.chunk for block in spec_of(name).blocks.values() for mixer in block.mixer
    )


def timed(name: str, step: Step, tp: int = 1, **options: float) -> StepTime:
    spec = spec_of(name)
    parts = replace(
        step,
        decode=tuple(replace(part, source=64) for part in step.decode),
        prefill=tuple(replace(part, source=64) for part in step.prefill),
    )
    sequences = sum(part.sequences for part in step.decode) + len(step.prefill)
    return step_time(ledger(spec, parts, Sharding(tp=tp)), machine(**options), sequences=sequences)  # type: ignore[arg-type]


@RELAXED
@given(names, sizes, batches, contexts, st.booleans())
def test_no_step_is_under_its_bound(name: str, tp: int, batch: int, context: int, prefills: bool) -> None:
    parts = (Prefill(min(context, 8192), 100),) if prefills else ()
    time = timed(name, Step(decode=(Decode(batch, context),), prefill=parts), tp)
    low, high = time.interval
    assert time.bound <= low <= time.seconds <= high
    assert all(part.bound <= part.seconds * (1 + 1e-12) for part in time.operators)
    assert time.bound <= sum(part.bound for part in time.operators) * (1 + 1e-12)


@RELAXED
@given(names, sizes, batches, contexts, factors, factors)
def test_a_faster_device_is_never_slower(
    name: str, tp: int, batch: int, context: int, bandwidth: float, flops: float
) -> None:
    step = Step(decode=(Decode(batch, context),), prefill=(Prefill(777),))
    slow, fast = timed(name, step, tp), timed(name, step, tp, bandwidth=bandwidth, flops=flops)
    assert fast.seconds <= slow.seconds * (1 + 1e-12)
    assert fast.bound <= slow.bound * (1 + 1e-12)


@RELAXED
@given(names, sizes, batches, contexts, st.integers(1, 5000), st.integers(1, 5000))
def test_more_work_is_never_faster(name: str, tp: int, batch: int, context: int, more: int, longer: int) -> None:
    assume(grows(name))
    few = timed(name, Step(decode=(Decode(batch, context),)), tp)
    for step in (
        Decode(batch + more, context),
        Decode(batch, context + longer),
        Decode(batch + more, context + longer),
    ):
        many = timed(name, Step(decode=(step,)), tp)
        assert many.seconds >= few.seconds * (1 - 1e-12)
        assert many.bound >= few.bound * (1 - 1e-12)


@RELAXED
@given(names, st.integers(1, 9000), st.integers(0, 9000), st.integers(1, 3000))
def test_a_longer_prompt_is_never_faster(name: str, tokens: int, prefix: int, more: int) -> None:
    assume(grows(name))
    short = timed(name, Step(prefill=(Prefill(tokens, prefix),)))
    assert timed(name, Step(prefill=(Prefill(tokens + more, prefix),))).seconds >= short.seconds * (1 - 1e-12)
    if prefix:  # a first chunk also reads the encoder's input, which later ones need not
        assert timed(name, Step(prefill=(Prefill(tokens, prefix + more),))).seconds >= short.seconds * (1 - 1e-12)


@RELAXED
@given(names, batches, contexts)
def test_one_rank_sends_nothing(name: str, batch: int, context: int) -> None:
    time = timed(name, Step(decode=(Decode(batch, context),), prefill=(Prefill(100),)))
    assert not [part for part in time.operators if part.operator.kind == "collective"]
    assert time.least.whole.link == 0


@pytest.mark.parametrize("name", MODELS)
def test_the_parts_add_up(name: str) -> None:
    """Kernels and the terms beside them are the step; each stage of a pipeline is part of the whole."""
    time = timed(name, Step(decode=(Decode(16, 3000),)))
    assert time.kernels + sum(term.seconds for term in time.terms) == pytest.approx(time.seconds, rel=1e-12)
    kernels = sum(part.launch + time.kernel_share * part.body for part in time.operators)
    assert kernels == pytest.approx(time.kernels, rel=1e-12)


def test_without_graphs_the_host_launches_everything() -> None:
    graphs, eager = (timed("llama2-70b", Step(decode=(Decode(1, 100),)), 8, graphs=graphs) for graphs in (True, False))
    launches = sum(part.operator.count for part in eager.operators)
    assert eager.host == pytest.approx(machine().times.host_launch * launches)
    assert eager.seconds >= graphs.seconds
    assert graphs.host == 0


def test_the_interval_adds_up_within_a_law_and_in_squares_between_laws() -> None:
    time = timed("llama2-70b", Step(decode=(Decode(8, 2000),)), 4)
    by_law: dict[str, float] = {}
    for part in time.operators:
        by_law[part.law] = by_law.get(part.law, 0.0) + part.high - part.seconds
    expected = sum(value**2 for value in by_law.values()) ** 0.5
    assert time.interval[1] - time.seconds == pytest.approx(expected)
    assert len(by_law) > 3


@pytest.mark.parametrize("layer", [0.0, 10e-3])
def test_prompts_wait_for_a_host_that_is_too_slow(layer: float) -> None:
    """80 layers at 10 ms of the host each; steps that only decode are replayed and wait for nothing."""
    slow = replace(machine(), times=replace(machine().times, host_layer=layer, host_launches=0.0))
    work = ledger(model("llama2-70b"), Step(prefill=(Prefill(100),)))
    time = step_time(work, slow)
    names = [term.name for term in time.terms]
    assert ("waiting for the host's launches" in names) == bool(layer)
    assert time.seconds >= 80 * layer
    decoding = step_time(ledger(model("llama2-70b"), Step(decode=(Decode(4, 100),))), slow)
    assert decoding.host == 0


def test_kernels_take_their_own_time_in_steps_with_prompts() -> None:
    """Bodies at kernel_share in steps that decode, and at kernel_share · prompt_ratio in steps with prompt tokens."""
    times = replace(machine().times, kernel_share=0.8, prompt_ratio=1.25, host_layer=0.0, host_launches=0.0)
    served = replace(machine(), times=times)
    for step, share in ((Step(decode=(Decode(4, 100),)), 0.8), (Step(prefill=(Prefill(100),)), 1.0)):
        time = step_time(ledger(model("llama2-70b"), step), served)
        launches = sum(part.launch for part in time.operators)
        assert time.kernels == pytest.approx(launches + share * sum(part.body for part in time.operators))
