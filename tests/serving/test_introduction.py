"""What an introduction says of batching and prefix caching, on its own inputs; see docs/textbook-figures.md.

Source: "The complete guide to LLM inference optimisation" (Japanese, kept as plain text by the project's maintainers).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from capplan.describe.batching import batching_rules
from capplan.questions.setting import resolve_setting
from capplan.questions.setting_memory import fitting_budget
from capplan.serving.lengths import FixedLength, HistogramLength, Lengths, UniformLength
from capplan.serving.prefix_cache import PrefixCache
from capplan.serving.replica import Replica
from capplan.serving.requests import ClosedLoop, RequestFactory
from capplan.serving.server import ServerOptions, server_clock, server_config
from capplan.serving.simulator import simulate


def rates(outputs: Lengths) -> tuple[float, float]:
    """(static, continuous) output tokens a second: Llama-2-7B on one A100, batches of 32, 64 clients, one clock."""
    setting, rules, options = (
        resolve_setting("llama2-7b", "a100-sxm-80gb"),
        batching_rules("vllm").rules,
        ServerOptions(),
    )
    budget = fitting_budget(setting, 2048)
    replica = Replica(setting.spec, setting.machine, setting.sharding, setting.formats)
    clock, config = server_clock(replica, budget.plan, rules, options), server_config(budget, rules, replica, options)
    found = []
    for changes in ({"policy": "static", "pad_prompts": True, "admission": "whole"}, {"policy": "decode_first"}):
        scheduler = replace(config.scheduler, max_num_seqs=32, **changes)  # type: ignore[arg-type]
        arrivals = ClosedLoop(RequestFactory(UniformLength(50, 500), outputs, 1), 64, 320)
        done = simulate(arrivals, clock, replace(config, scheduler=scheduler))
        found.append(done.output_tokens / done.duration)
    return found[0], found[1]


@pytest.mark.parametrize(
    ("outputs", "low", "high"),
    [
        (FixedLength(200), 1.1, 1.5),
        (UniformLength(1, 200), 2.0, 2.7),
        (HistogramLength((50, 1000), (0.9, 0.1)), 5.0, 8.0),
    ],
)
def test_continuous_batching_gains_as_much_as_outputs_differ(outputs: Lengths, low: float, high: float) -> None:
    """The guide says 2 to 5 times: it depends on how much longer the longest of a batch is than the rest."""
    static, continuous = rates(outputs)
    assert low < continuous / static < high


def test_the_guides_cold_start_is_half_warm() -> None:
    """Its four questions share a system prompt, so that three of them find it cached in the run that it calls cold.

    A system prompt of 1,000 tokens and questions of 20, blocks of 16: 62 blocks are found by each but the first.
    """
    cache, size = PrefixCache(1000, 16), 16
    chains = [cache.chain([("system", 1000), (f"question {number}", 20)]) for number in range(4)]

    def computed() -> int:
        tokens = 0
        for chain in chains:
            found = cache.lookup(chain.keys(0, 1019 // size))
            cache.manager.share(found)
            table = [*found, *cache.manager.allocate(64 - len(found))]
            cache.register(chain.keys(0, 1020 // size), table[: 1020 // size])
            cache.manager.release(table)
            tokens += 1020 - len(found) * size
        return tokens

    cold, warm = computed(), computed()
    assert cold == 1020 + 3 * (1020 - 62 * 16) == 1104  # without a cache: 4,080
    assert warm == 4 * (1020 - 63 * 16) == 48
