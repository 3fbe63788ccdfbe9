"""Sweeps are the scalar path, point by point."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest

from capplan.errors import UsageError
from capplan.timing.step_time import step_time
from capplan.timing.sweep import decode_grid, decode_times, prefill_times, request_times
from capplan.work.sharding import Sharding
from capplan.work.step import Decode, Prefill, Step, ledger
from tests.timing.machines import machine, model

H100 = machine()


@pytest.mark.parametrize("name", ["llama3.1-70b", "deepseek-v3", "gpt-oss-120b", "ai21-jamba-1.5-mini"])
def test_a_grid_is_the_scalar_path(name: str) -> None:
    spec = model(name)
    batches, contexts, tps = [1, 7, 64, 1000], [1, 500, 5000, 130_000], (1, 4, 8)
    grid = decode_grid(spec, H100, batches=batches, contexts=contexts, tps=tps)
    assert grid.seconds.shape == (3, 4, 4)
    for i, tp in enumerate(tps):
        for j, batch in enumerate(batches):
            for k, context in enumerate(contexts):
                work = ledger(spec, Step(decode=(Decode(batch, context),)), Sharding(tp=tp))
                one = step_time(work, H100, sequences=batch)
                expected = (one.seconds, one.bound, *one.interval)
                found = (grid.seconds[i, j, k], grid.bound[i, j, k], grid.low[i, j, k], grid.high[i, j, k])
                assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("block", [7, 1000])
def test_scattered_points_are_the_scalar_path(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capplan.timing.sweep.BLOCK", block)
    spec = model("qwen3-30b-a3b")
    random = np.random.default_rng(5)
    batch, context = random.integers(1, 500, 30), random.integers(1, 40_000, 30)
    swept = decode_times(spec, H100, batch=batch, context=context, sharding=Sharding(tp=2))
    for index in range(30):
        work = ledger(spec, Step(decode=(Decode(int(batch[index]), int(context[index])),)), Sharding(tp=2))
        assert swept.seconds[index] == pytest.approx(
            step_time(work, H100, sequences=int(batch[index])).seconds, rel=1e-12
        )


def test_prompts_go_through_in_chunks() -> None:
    spec = model("llama3.1-8b")
    lengths = [1, 512, 2048, 2049, 7000]
    swept = prefill_times(spec, H100, isl=lengths, max_num_batched_tokens=2048)
    for length, seconds in zip(lengths, swept.seconds, strict=True):
        expected = 0.0
        for start in range(0, length, 2048):
            chunk = min(2048, length - start)
            step = Step(prefill=(Prefill(chunk, start, sampled=int(start + chunk == length)),))
            expected += step_time(ledger(spec, step), H100, sequences=1).seconds
        assert seconds == pytest.approx(expected, rel=1e-12)


def test_prompts_together_share_the_budget() -> None:
    spec = model("llama3.1-8b")
    two = prefill_times(spec, H100, isl=[1500], batch=[2], max_num_batched_tokens=2048)
    chunks = [(1024, 0, 0), (476, 1024, 1)]
    expected = sum(
        step_time(ledger(spec, Step(prefill=(Prefill(tokens, prefix, 2, sampled),))), H100, sequences=2).seconds
        for tokens, prefix, sampled in chunks
    )
    assert two.seconds[0] == pytest.approx(expected, rel=1e-12)


def test_requests_are_prefill_and_decode() -> None:
    spec = model("llama3.1-8b")
    isl, osl = np.array([100, 1000])[:, None], np.array([1, 2, 100])[None, :]
    whole = request_times(spec, H100, isl=isl, osl=osl, batch=4)
    assert whole.seconds.shape == (2, 3)
    first = prefill_times(spec, H100, isl=isl, batch=4)
    assert whole.seconds[:, 0] == pytest.approx(first.seconds[:, 0])
    steps = decode_times(spec, H100, batch=4, context=1000 + 50)
    assert whole.seconds[1, 2] == pytest.approx(first.seconds[1, 0] + 99 * steps.seconds)
    one_by_one = first.seconds[1, 0] + sum(
        decode_times(spec, H100, batch=4, context=1000 + place).seconds for place in range(1, 100)
    )
    assert whole.seconds[1, 2] == pytest.approx(one_by_one, rel=1e-4)  # a step is nearly linear in the context


def test_sizes_that_cannot_be_are_refused() -> None:
    with pytest.raises(UsageError):
        decode_grid(model("llama3.1-8b"), H100, batches=[1], contexts=[1], tps=[64])


def test_a_hundred_thousand_points_take_no_time() -> None:
    """The benchmark asks for a million in 2 s; this catches a sweep that has fallen back to loops."""
    spec = model("llama3.1-70b")
    start = time.perf_counter()
    decode_grid(spec, H100, batches=np.arange(1, 251), contexts=np.arange(1, 40_000, 400), tps=(1, 2, 4, 8))
    assert time.perf_counter() - start < 2


def test_one_answer_imports_no_numpy() -> None:
    code = (
        "import sys; from capplan.cli.app import run; "
        "run(['decode', '--model', 'llama2-7b', '--gpu', 'h100', '--context', '100', '--json']); "
        "print([m for m in ('numpy', 'torch', 'rich', 'scipy') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
