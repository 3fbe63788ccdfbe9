"""A deployment as the simulator needs it: its pool in blocks, its scheduler's settings, its clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from math import ceil

from capplan.describe.batching import BatchingRules, Policy, Preemption, graph_sizes
from capplan.describe.gpu import GpuSpec
from capplan.memory.budget import MemoryBudget
from capplan.memory.pool import PoolKind
from capplan.memory.pool_kinds import BlockPool
from capplan.memory.serving_plan import ServingPlan
from capplan.serving.replica import Replica
from capplan.serving.replica_clock import ReplicaClock
from capplan.serving.scheduler import SchedulerConfig
from capplan.serving.sequences import CacheModel
from capplan.serving.simulator import SimulatorConfig
from capplan.timing.operator_time import HOST_LINK_SHARE
from capplan.timing.roofline import host_rate

LEAST_BLOCK = 16
"""Tokens of a simulated block, at least: pools of single tokens are taken in blocks of so many."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What a user says of the scheduler; None: as the engine does by default.

    Args:
        chunked_prefill: whether prompts may be divided.
        prefix_caching: whether cached prefixes are looked up.
        preemption: what happens to requests when blocks run out.
        stream_interval: tokens of a message.
        receive_interval: decode steps between two looks at the queue.
        batch_wait_steps: steps for which prompts wait for company.
        step_tokens: tokens of a step.
        graph_padding: whether batches are padded to the next captured graph.
    """

    chunked_prefill: bool | None = None
    prefix_caching: bool | None = None
    preemption: Preemption | None = None
    stream_interval: int | None = None
    receive_interval: int | None = None
    batch_wait_steps: int | None = None
    step_tokens: int | None = None
    graph_padding: bool | None = None


def cache_model(budget: MemoryBudget) -> CacheModel:
    """The pool of one data-parallel group as blocks of which a request takes so many by its length.

    ``need(k) = ⌈N / concurrency(k·b)⌉`` of N blocks, with the pool's own answer to how many such requests fit. Where
    several groups of layers grow together (``w`` blocks for every b tokens), w of them make one block here.

    Leaves out the blocks that a windowed layer holds beyond its window while a chunk of a prompt is computed.
    """
    capacity, plan = budget.capacity, budget.plan
    size = max(1, capacity.block_size)
    size *= ceil(LEAST_BLOCK / size)
    longest = ceil(plan.max_model_len / size)
    if not capacity.parts:
        return CacheModel(max(1, plan.max_num_seqs), size, lambda filled: 0)
    pool = _between_steps(budget.pool)
    blocks = capacity.blocks * max(1, capacity.block_size) // size
    if plan.engine.rules.pool in ("cells", "dynamic"):
        blocks = int(pool.concurrency(plan.max_model_len) * longest)
    width = _width(pool, blocks, size)
    need = _need(pool, blocks, size, width)
    return CacheModel(max(1, blocks // width), size, need)


def _between_steps(pool: PoolKind) -> PoolKind:
    """A pool whose windowed layers hold no more than their window; an engine reserves a step's tokens on top."""
    if not isinstance(pool, BlockPool):
        return pool
    limits = replace(pool.request.limits, batched_tokens=1, in_flight_batches=1)
    return BlockPool(replace(pool.request, limits=limits))


def _need(pool: PoolKind, blocks: int, size: int, width: int) -> Callable[[int], int]:
    @cache
    def need(filled: int) -> int:
        return ceil(ceil(blocks / pool.concurrency(max(1, filled) * size)) / width)

    return need


def _width(pool: PoolKind, blocks: int, size: int) -> int:
    """Blocks that a long context takes for every b tokens more."""
    far = 1 << 16
    grown = blocks / pool.concurrency(2 * far * size) - blocks / pool.concurrency(far * size)
    return max(1, round(grown / far))


def policy_of(rules: BatchingRules, chunked: bool) -> Policy:
    """How prompts and decoding share steps: the engine's way, which may be another once prompts are divided."""
    return rules.chunked_policy if chunked and not rules.chunked_prefill and rules.chunked_policy else rules.policy


def scheduler_config(
    budget: MemoryBudget, rules: BatchingRules, options: ServerOptions, cache: CacheModel
) -> SchedulerConfig:
    """The scheduler of a budget's plan: the engine's rules, with what the user says in their place."""
    plan = budget.plan
    above = plan.engine.rules.chunked_prefill_above
    default = rules.chunked_prefill or (above is not None and plan.max_model_len > above)
    chunked = default if options.chunked_prefill is None else options.chunked_prefill
    step_tokens = options.step_tokens or rules.step_tokens or plan.max_num_batched_tokens
    caching = rules.prefix_caching if options.prefix_caching is None else options.prefix_caching
    states = any(layer.kind == "state" for layer in budget.layers)
    wait = rules.batch_wait_steps if options.batch_wait_steps is None else options.batch_wait_steps
    return SchedulerConfig(
        policy=policy_of(rules, chunked),
        step_tokens=step_tokens,
        max_num_seqs=plan.max_num_seqs,
        max_model_len=plan.max_model_len,
        chunked_prefill=chunked,
        admission=rules.admission,
        watermark_blocks=int(rules.watermark * cache.blocks),
        output_share=rules.output_share,
        preemption=options.preemption or rules.preemption,
        victim=rules.victim,
        batch_wait_steps=wait,
        batch_wait_tokens=int(rules.batch_wait_share * step_tokens),
        pad_prompts=rules.pad_prompts,
        prefix_caching=caching and not (states and plan.state_mode == "none"),
    )


def server_config(
    budget: MemoryBudget, rules: BatchingRules, replica: Replica, options: ServerOptions
) -> SimulatorConfig:
    """The whole server of a budget: pool, scheduler, front end, the way to the client.

    Of the decode steps that the engine's constants put between arrival and first token, the simulated loop has its own:
    half a step until the next plan, and one more where steps are planned ahead. The rest is the way to the client.
    """
    times, cache = replica.machine.times, cache_model(budget)
    own = 0.5 + rules.steps_ahead
    return SimulatorConfig(
        scheduler=scheduler_config(budget, rules, options, cache),
        cache=cache,
        steps_ahead=rules.steps_ahead,
        receive_interval=options.receive_interval or rules.receive_interval,
        stream_interval=options.stream_interval or rules.stream_interval,
        front_end=times.first_token,
        front_end_token=times.per_input_token,
        delivery_steps=max(0.0, times.first_token_steps - own),
        swap_block=_swap_seconds(budget, cache, replica.machine.gpu),
    )


def _swap_seconds(budget: MemoryBudget, cache: CacheModel, gpu: GpuSpec) -> float:
    """Seconds to move one simulated block over the host's link."""
    if gpu.pcie is None:
        return 0.0
    size = budget.capacity.pool_bytes / cache.blocks
    return size / (HOST_LINK_SHARE * host_rate(gpu))


def server_clock(replica: Replica, plan: ServingPlan, rules: BatchingRules, options: ServerOptions) -> ReplicaClock:
    """The clock of a replica, with the batches for which its engine captures graphs."""
    padding = rules.graph_padding if options.graph_padding is None else options.graph_padding
    sizes = graph_sizes(rules, max_num_seqs=plan.max_num_seqs, device_bytes=plan.device.bytes, ranks=plan.parallel.tp)
    return ReplicaClock(replica, graph_sizes=sizes, graph_padding=padding, eager=plan.eager or rules.eager)
