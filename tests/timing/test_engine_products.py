"""Products of llama.cpp: rates that its own benchmarks show, never above what the device can do."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.describe.gpu_catalog import load_gpu
from capplan.serving.batch_run import batch_run
from capplan.serving.forecast import known_replica
from capplan.serving.measured_server import MeasuredServer
from capplan.serving.replica import Replica
from capplan.timing.engine_products import half_rate
from capplan.timing.machine import machine_for
from capplan.timing.operator_time import operator_time
from capplan.timing.step_time import step_time
from capplan.work.step import Decode, Prefill, Step, ledger


@cache
def replica(gpu: str, precision: str = "gguf:Q4_K_M", engine: str = "llama.cpp") -> Replica:
    return known_replica(MeasuredServer("llama3-8b", precision, gpu, engine, 1, 1, 1))


@pytest.mark.parametrize(
    ("gpu", "rate"),
    [("rtx-4090", 330.3e12), ("a100-sxm-80gb", 312e12), ("rtx-a6000", 154.85e12), ("h100-pcie-80gb", 0.62 * 756.5e12)],
)
def test_half_precision_sums_run_at_half_the_integer_rate(gpu: str, rate: float) -> None:
    """Consumer cards have twice the rate that their sheets print for 32-bit sums."""
    assert half_rate(load_gpu(gpu)) == pytest.approx(rate, rel=1e-3)


@pytest.mark.parametrize(
    ("gpu", "precision", "prompt", "token"),
    [
        ("rtx-4090", "gguf:Q4_K_M", 7139.0, 127.7),
        ("rtx-4090", "fp16", 9382.0, 54.3),
        ("rtx-a6000", "gguf:Q4_K_M", 3780.6, 102.2),
        ("a100-pcie-80gb", "gguf:Q4_K_M", 5981.0, 138.3),
        ("a100-pcie-80gb", "fp16", 7741.3, 54.6),
        ("h100-pcie-80gb", "fp16", 10815.5, 67.8),
    ],
)
def test_llama_bench_of_llama_3_8b(gpu: str, precision: str, prompt: float, token: float) -> None:
    """pp512 and tg1024 as XiongjieDai/GPU-Benchmarks-on-LLM-Inference printed them."""
    served = replica(gpu, precision)
    assert 512 / batch_run(served, 1, 512, 0).prefill == pytest.approx(prompt, rel=0.35)
    assert 1 / batch_run(served, 1, 0, 1024).decode_step == pytest.approx(token, rel=0.35)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(["rtx-4090", "a100-sxm-80gb", "h100-sxm-80gb", "t4"]), st.integers(1, 4096), st.integers(1, 64))
def test_no_step_is_under_its_bound(gpu: str, prompt: int, batch: int) -> None:
    served = replica(gpu)
    for step in (Step(prefill=(Prefill(prompt),)), Step(decode=(Decode(batch, prompt + 1),))):
        time = step_time(ledger(served.spec, step, served.sharding, served.formats), served.machine)
        assert time.seconds >= time.bound


def test_engines_that_were_measured_keep_their_kernels() -> None:
    assert machine_for(load_gpu("h100-sxm-80gb"), "vllm").products is None
    served = replica("h100-sxm-80gb", "fp16", "vllm")
    work = ledger(served.spec, Step(decode=(Decode(1, 1000),)), served.sharding, served.formats)
    gemm = next(operator for operator in work.operators if operator.kind == "gemm")
    assert operator_time(gemm, served.machine).basis == "fitted"
    assert operator_time(gemm, replica("h100-sxm-80gb", "fp16").machine).basis == "assumed"
