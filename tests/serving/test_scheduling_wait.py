"""How long a scheduler holds a lone prompt back, against the rule itself played out at random."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

import numpy as np
import pytest

from capplan.serving.random_source import RandomSource
from capplan.serving.replica import EngineSettings
from capplan.serving.steady_state import scheduling_wait


def played(rate: float, hold: float, prompts: int = 40_000) -> float:
    """Mean wait where a prompt that finds nobody waiting is held for `hold`, and whoever comes meanwhile goes with it."""
    source = RandomSource(3, "arrivals")
    times = list(accumulate(source.exponential(1 / rate) for _ in range(prompts)))
    waits, place = 0.0, 0
    while place < len(times):
        leaves = times[place] + hold
        after = bisect_left(times, leaves, place)
        waits += sum(leaves - time for time in times[place:after])
        place = after
    return waits / len(times)


@pytest.mark.parametrize("running", [1, 8, 64, 512])
@pytest.mark.parametrize("hold", [10, 40])
def test_prompts_are_held_for_company(running: int, hold: int) -> None:
    """Prompts come at C/O a step; the first of those that wait waits all of it, the others half on average."""
    wait = scheduling_wait(EngineSettings(batch_wait=hold), running, 1000, 1)
    assert wait == pytest.approx(played(running / 1000, hold), rel=0.02)


def test_groups_wait_no_longer_than_until_each_has_a_prompt() -> None:
    """Of four groups, each with a prompt every 10 steps, the last has one after 10·(1 + 1/2 + 1/3 + 1/4) = 20.8 steps."""
    longest = 10 * (1 + 1 / 2 + 1 / 3 + 1 / 4)
    joining = 4 / 10 * longest
    wait = scheduling_wait(EngineSettings(batch_wait=60), 100, 1000, 4)
    assert wait == pytest.approx(longest * (1 + joining / 2) / (1 + joining))
    alone = scheduling_wait(EngineSettings(batch_wait=60), 100, 1000, 1)
    assert wait < alone


def test_without_a_batch_wait_there_is_the_receive_interval_alone() -> None:
    assert scheduling_wait(EngineSettings(), 100, 1000, 1) == 0
    assert scheduling_wait(EngineSettings(receive_interval=11), 100, 1000, 4) == 5


def test_many_loads_at_once() -> None:
    settings, running, osl = (
        EngineSettings(batch_wait=30, receive_interval=3),
        [1.0, 20.0, 300.0],
        [128.0, 900.0, 4000.0],
    )
    together = scheduling_wait(settings, np.array(running), np.array(osl), 4)  # type: ignore[arg-type]
    assert list(together) == pytest.approx(
        [scheduling_wait(settings, b, o, 4) for b, o in zip(running, osl, strict=True)]
    )
