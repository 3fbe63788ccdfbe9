"""How many decode steps a second: a grid of batch x context x tp as arrays, and the same formulas one by one.

Run: python benchmarks/step_rate.py [points] [--model NAME] [--gpu NAME]

Prints the seconds for that many points (1,000,000 by default) of the grid, of as many scattered points, and the rate of
the scalar path; and the largest relative difference between both on a sample of points.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from capplan.questions.setting import Setting, resolve_setting
from capplan.timing.step_time import step_time
from capplan.timing.sweep import decode_grid, decode_times
from capplan.work.sharding import Sharding
from capplan.work.step import Decode, Step, ledger

TPS = (1, 2, 4, 8)
LONGEST = 131_072
SCALAR_STEPS = 2000


def timed(work: Callable[[], object]) -> float:
    """Seconds of the second run: the first one fills the caches of descriptions and fits."""
    work()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def scalar(setting: Setting, batch: int, context: int, tp: int) -> float:
    """One step by the scalar path."""
    work = ledger(setting.spec, Step(decode=(Decode(batch, context),)), Sharding(tp=tp), setting.formats)
    return float(step_time(work, setting.machine, sequences=batch).seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("points", type=int, nargs="?", default=1_000_000)
    parser.add_argument("--model", default="llama3.1-70b")
    parser.add_argument("--gpu", default="h100-sxm-80gb")
    options = parser.parse_args()
    setting = resolve_setting(options.model, options.gpu)
    side = max(1, int((options.points / len(TPS)) ** 0.5))
    batches, contexts = np.arange(1, side + 1), np.linspace(1, LONGEST, side).astype(int)
    shared = {"formats": setting.formats}
    grid = timed(
        lambda: decode_grid(setting.spec, setting.machine, batches=batches, contexts=contexts, tps=TPS, **shared)
    )
    points = side * side * len(TPS)
    print(f"grid of tp {TPS} x {side} batches x {side} contexts: {points:,} steps in {grid:.2f} s")
    print(f"  {points / grid:,.0f} steps/s")
    random = np.random.default_rng(1)
    batch, context = random.integers(1, 1024, options.points), random.integers(1, LONGEST, options.points)
    scattered = timed(
        lambda: decode_times(
            setting.spec, setting.machine, batch=batch, context=context, sharding=Sharding(tp=4), **shared
        )
    )
    print(f"scattered points, tp 4: {options.points:,} steps in {scattered:.2f} s, {options.points / scattered:,.0f}/s")
    chosen = [(int(batch[i]), int(context[i])) for i in range(min(SCALAR_STEPS, options.points))]
    one = timed(lambda: [scalar(setting, b, c, 4) for b, c in chosen])
    print(f"scalar path: {len(chosen):,} steps in {one:.2f} s, {len(chosen) / one:,.0f} steps/s")
    swept = decode_times(
        setting.spec,
        setting.machine,
        batch=batch[: len(chosen)],
        context=context[: len(chosen)],
        sharding=Sharding(tp=4),
        **shared,
    )
    apart = max(abs(a / scalar(setting, b, c, 4) - 1) for a, (b, c) in zip(swept.seconds, chosen, strict=True))
    print(f"largest relative difference between both: {apart:.1e}")


if __name__ == "__main__":
    main()
