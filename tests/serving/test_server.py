"""Deployments as simulated servers: the pool in blocks against the pool's own answers, and each engine's scheduler."""

from __future__ import annotations

from typing import Any

import pytest

from capplan.describe.batching import batching_rules
from capplan.memory.budget import MemoryBudget
from capplan.questions.setting import resolve_setting
from capplan.questions.setting_memory import setting_budget
from capplan.serving.replica import Replica
from capplan.serving.server import ServerOptions, cache_model, scheduler_config, server_config


def budget(model: str, gpu: str, engine: str = "vllm", tp: int = 1, length: int = 8192, **more: Any) -> MemoryBudget:
    setting = resolve_setting(model, gpu, engine=engine, tensor_parallel_size=tp)
    return setting_budget(setting, length, **more)


@pytest.mark.parametrize(
    ("model", "gpu", "engine", "tp"),
    [
        ("llama3.1-8b", "h100_sxm", "vllm", 1),
        ("deepseek-v3", "h200", "vllm", 8),
        ("qwen3-next-80b-a3b-instruct", "h200", "vllm", 4),
        ("llama3.1-70b", "h100_sxm", "sglang", 4),
        ("gpt-oss-20b", "h100_sxm", "trtllm", 1),
        ("falcon-mamba-7b", "h100_sxm", "vllm", 1),
        ("llama3.1-8b", "h100_sxm", "transformers", 1),
    ],
)
def test_the_simulated_pool_holds_as_many_requests_as_the_pool_itself(
    model: str, gpu: str, engine: str, tp: int
) -> None:
    """At the longest length and at shorter ones, to the blocks that a pool of single tokens is counted in."""
    made = budget(model, gpu, engine, tp)
    cache = cache_model(made)
    for length in (8192, 3072, 1024):
        wanted = float(made.pool.concurrency(length))
        found = cache.blocks / cache.blocks_for(length)
        assert found == pytest.approx(wanted, rel=0.02)
    held = [cache.blocks_for(tokens) for tokens in range(1, 4000, 37)]
    assert held == sorted(held)


def test_windows_hold_no_more_than_their_window_between_steps() -> None:
    """gemma-3-27b-it: 10 layers of 62 see everything; a context of 8k takes far less than the engine sets aside."""
    made = budget("gemma-3-27b-it", "h200")
    cache = cache_model(made)
    assert cache.blocks / cache.blocks_for(8192) > 2 * float(made.pool.concurrency(8192))
    far = [cache.need(filled) for filled in (500, 600, 700)]
    assert far[1] - far[0] == far[2] - far[1] == 100


def test_a_model_without_a_cache_takes_no_blocks() -> None:
    cache = cache_model(budget("bert-base-uncased", "l4", length=512))
    assert cache.blocks_for(512) == 0


def test_what_a_user_says_stands_in_place_of_the_engines_defaults() -> None:
    made = budget("llama3.1-8b", "h100_sxm")
    cache = cache_model(made)
    rules = batching_rules("vllm").rules
    plain = scheduler_config(made, rules, ServerOptions(), cache)
    assert (plain.policy, plain.chunked_prefill, plain.prefix_caching, plain.preemption) == (
        "decode_first",
        True,
        True,
        "recompute",
    )
    assert plain.step_tokens == made.plan.max_num_batched_tokens
    changed = scheduler_config(
        made, rules, ServerOptions(False, False, "swap", step_tokens=4096, batch_wait_steps=7), cache
    )
    assert (changed.chunked_prefill, changed.prefix_caching, changed.preemption) == (False, False, "swap")
    assert (changed.step_tokens, changed.batch_wait_steps) == (4096, 7)


def test_the_older_generation_mixes_steps_once_prompts_are_divided() -> None:
    made = budget("llama3.1-8b", "h100_sxm")
    cache, rules = cache_model(made), batching_rules("vllm", "0.6.3").rules
    assert scheduler_config(made, rules, ServerOptions(), cache).policy == "prefill_first"
    assert scheduler_config(made, rules, ServerOptions(chunked_prefill=True), cache).policy == "decode_first"
    assert scheduler_config(made, rules, ServerOptions(), cache).watermark_blocks == cache.blocks // 100


def test_hybrids_keep_no_prefixes_unless_their_states_are_kept() -> None:
    made = budget("qwen3-next-80b-a3b-instruct", "h200", tp=4)
    cache, rules = cache_model(made), batching_rules("vllm", "0.12.0").rules
    kept = made.plan.state_mode != "none"
    assert scheduler_config(made, rules, ServerOptions(), cache).prefix_caching == kept


def test_the_way_to_the_client_is_what_the_loop_does_not_have_itself() -> None:
    setting = resolve_setting("llama3.1-8b", "h100_sxm")
    made = setting_budget(setting, 8192)
    replica = Replica(setting.spec, setting.machine, setting.sharding, setting.formats)
    config = server_config(made, batching_rules("vllm").rules, replica, ServerOptions())
    times = setting.machine.times
    assert config.delivery_steps + 1.5 == pytest.approx(max(1.5, times.first_token_steps))
    assert (config.front_end, config.front_end_token) == (times.first_token, times.per_input_token)
    block = made.capacity.pool_bytes / made.capacity.blocks
    assert config.swap_block == pytest.approx(block / (0.85 * 64e9), rel=0.05)
