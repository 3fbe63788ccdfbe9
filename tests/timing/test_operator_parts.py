"""What sums over many steps take of an operator is what the operator's own time says, interval aside."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.describe.gpu_catalog import load_gpu
from capplan.describe.model import ModelSpec
from capplan.describe.resolve import resolve_model
from capplan.timing.machine import machine_for
from capplan.timing.operator_time import operator_parts, operator_time
from capplan.timing.roofline import required_bound
from capplan.work.sharding import Sharding
from capplan.work.step import Decode, Prefill, Step, ledger

MACHINES = {engine: machine_for(load_gpu("h100-sxm-80gb"), engine) for engine in ("vllm", "sglang", "trtllm")}
MODELS = ("llama2-70b", "deepseek-v3", "gpt-oss-120b", "qwen3-next-80b-a3b")


@cache
def model(name: str) -> ModelSpec:
    return resolve_model(name).spec


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(MODELS),
    st.sampled_from(sorted(MACHINES)),
    st.lists(st.integers(1, 4000), min_size=1, max_size=4),
    st.integers(1, 100_000),
)
def test_parts_are_the_whole_without_its_interval(name: str, engine: str, batches: list[int], context: int) -> None:
    """Of numbers, asked twice since they are remembered, and of arrays."""
    machine = MACHINES[engine]
    steps = [Step(decode=(Decode(batch, context),), prefill=(Prefill(700, 300),)) for batch in batches]
    steps.append(Step(decode=(Decode(np.array(batches, float), context),)))
    for step in steps:
        for operator in ledger(model(name), step, Sharding(tp=2)).operators * 2:
            parts, time = operator_parts(operator, machine), operator_time(operator, machine)
            least = required_bound(operator, machine.gpu).times(operator.count).seconds
            for part, whole in ((parts.launch, time.launch), (parts.body, time.body), (parts.required.seconds, least)):
                assert np.asarray(part, float) == pytest.approx(np.asarray(whole, float), rel=1e-12), operator.name
