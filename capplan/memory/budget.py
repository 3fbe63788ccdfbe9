"""Does it fit: a rank's memory from the device's total to the caches, and what those hold.

    usable = u · M                 vLLM: of all device memory
    usable = u · (M - in use)      SGLang: of what is free when it starts
    pool   = usable - Σ terms
    pool   = u · (M - in use - Σ terms)     TensorRT-LLM: of what is free once it is loaded

A pipeline stage has its own layers and so its own budget; the stage with room for the fewest blocks binds them all.

Source: vLLM, vllm/v1/worker/gpu_worker.py (determine_available_memory); SGLang, model_runner.py
(profile_max_num_token); TensorRT-LLM, kvCacheManager.cpp (calculateMaxNumBlocks).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from capplan.memory.budget_terms import (
    Term,
    exact,
    outside_states,
    plan_weights,
    rules_source,
    weight_terms,
    working_terms,
)
from capplan.memory.cache_layers import CacheLayer
from capplan.memory.offload import Offloaded
from capplan.memory.pool import Capacity, PoolKind, PoolRequest
from capplan.memory.pool_kinds import open_pool
from capplan.memory.serving_plan import ServingPlan, plan_layers
from capplan.memory.stage_weights import StageWeights, stage_layers

WEIGHT_TERMS = ("weights", "rotary caches", "drafting layers", "draft model", "Medusa heads")
_AFTER_LOAD = ("activation peak", "multimodal encoder", "CUDA graphs")
"""What SGLang keeps outside its fraction."""


@dataclass(frozen=True, slots=True)
class RankBudget:
    """One rank of one stage.

    Args:
        stage: the pipeline stage.
        layers: its layers.
        terms: everything but the caches.
        usable_bytes: what the engine allows itself; None: the device's memory is not known.
        pool_bytes: what is left for caches; negative when the rest alone is too much.
        offloaded: what lies in host memory.
    """

    stage: int
    layers: range
    terms: tuple[Term, ...]
    usable_bytes: int | None
    pool_bytes: int
    offloaded: Offloaded | None = None

    @property
    def weight_bytes(self) -> int:
        """What the engine calls the loaded model: weights, rotary caches and drafts."""
        return sum(term.bytes for term in self.terms if term.name in WEIGHT_TERMS)

    @property
    def used_bytes(self) -> int:
        """All terms."""
        return sum(term.bytes for term in self.terms)


@dataclass(frozen=True, slots=True)
class Shortage:
    """One reason why a plan does not fit.

    Args:
        reason: in words.
        bytes: how many are missing on a rank.
    """

    reason: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Edge:
    """One end of the interval of a pool."""

    pool_bytes: int
    capacity: Capacity


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """A plan's memory.

    Args:
        plan: the plan.
        ranks: one rank of each stage.
        request: what the pool depends on.
        pool: the pool that answers for other lengths.
        capacity: what it holds at the plan's own.
        layers: every cache.
        shortages: why it does not fit; empty: it fits.
        notes: what may mislead.
    """

    plan: ServingPlan
    ranks: tuple[RankBudget, ...]
    request: PoolRequest
    pool: PoolKind
    capacity: Capacity
    layers: tuple[CacheLayer, ...]
    shortages: tuple[Shortage, ...]
    notes: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether the engine starts and serves at least one request of the longest length."""
        return not self.shortages

    @property
    def binding(self) -> RankBudget:
        """The rank that has room for the fewest."""
        return self.ranks[self.capacity.binding_stage]

    @property
    def binding_rank(self) -> int:
        """The first rank of the binding stage."""
        return self.capacity.binding_stage * self.plan.parallel.tp

    @property
    def missing_bytes(self) -> int:
        """What the worst rank lacks; 0 when it fits."""
        return max((shortage.bytes for shortage in self.shortages), default=0)

    @property
    def cache_bytes(self) -> int:
        """Bytes of the caches on the rank that binds: its whole blocks, or the slots that were asked for."""
        return self.capacity.pool_bytes

    def cache_bytes_of(self, rank: RankBudget) -> int:
        """Bytes of the caches on a rank: as many blocks as on the binding one, at most what the rank has."""
        return _cache_bytes(rank, self.capacity, self.ranks)

    @property
    def request_bytes(self) -> int:
        """What one request of the longest length takes on the rank that binds, its states included."""
        rank = self.capacity.binding_stage
        return self.capacity.request_bytes + outside_states(self.plan, self.layers, rank, sequences=1)

    def at_edges(self) -> tuple[Edge, Edge]:
        """The pool and what it holds if every estimate is as bad, or as good, as has been seen."""
        return self._edge(high=True), self._edge(high=False)

    def _edge(self, *, high: bool) -> Edge:
        outside = outside_the_fraction(self.plan)
        pools = []
        for rank in self.ranks:
            terms = [term for term in rank.terms if term.name not in outside]
            more = sum((term.high if high else term.low) - term.bytes for term in terms)
            share = self.plan.utilization if self.plan.engine.rules.budget == "free_after_load" else 1
            pools.append(rank.pool_bytes if self.plan.known.pools else rank.pool_bytes - int(more * share))
        pool = open_pool(replace(self.request, pools=tuple(pools)))
        return Edge(pools[self.capacity.binding_stage], pool.capacity())


def memory_budget(plan: ServingPlan) -> MemoryBudget:
    """The budget of every stage, the pool that is left, and whether that is enough."""
    layers = plan_layers(plan)
    weights = plan_weights(plan)
    ranks = tuple(
        _rank(plan, stage, index, layers, last=index == len(weights) - 1) for index, stage in enumerate(weights)
    )
    hosted = frozenset(layer for rank in ranks if rank.offloaded for layer in rank.offloaded.host_layers)
    here = tuple(layer for layer in layers if layer.layer not in hosted)
    request = PoolRequest(
        layers=here,
        rules=plan.engine.rules,
        stages=stage_layers(plan.spec.depth, plan.parallel),
        pools=tuple(rank.pool_bytes for rank in ranks),
        block_size=plan.block_size,
        limits=plan.limits,
        max_model_len=plan.max_model_len,
        max_num_seqs=plan.max_num_seqs,
        hybrid=plan.hybrid,
        prefix_caching=plan.prefix_caching,
        state_slots=plan.state_slots,
    )
    pool = open_pool(request)
    capacity = pool.capacity()
    shortages = tuple(_shortages(plan, ranks, pool, capacity))
    return MemoryBudget(plan, ranks, request, pool, capacity, here, shortages, tuple(_notes(plan, ranks, capacity)))


def _rank(
    plan: ServingPlan, stage: StageWeights, index: int, layers: tuple[CacheLayer, ...], *, last: bool
) -> RankBudget:
    terms, split = weight_terms(plan, stage, last=last)
    terms += working_terms(plan, index)
    states = outside_states(plan, layers, index)
    if states:
        formula = f"{plan.max_num_seqs} sequences · states"
        terms.append(exact("states", states, formula, rules_source(plan, "pool")))
    if plan.device.in_use:
        terms.append(exact("other processes", plan.device.in_use, "--memory-in-use"))
    usable = _usable(plan, terms)
    return RankBudget(index, stage.layers, tuple(terms), usable, _pool(plan, terms, usable, index), split)


def _usable(plan: ServingPlan, terms: list[Term]) -> int | None:
    """What the engine allows itself for weights, working memory and caches together."""
    total, rules = plan.device.bytes, plan.engine.rules
    if total is None:
        return None
    free = total - plan.device.in_use
    if rules.budget == "total":
        return int(plan.utilization * total)
    if rules.budget == "free":
        started = free - sum(term.bytes for term in terms if term.name in ("runtime", "collectives"))
        return int(plan.utilization * started)
    return free


def _pool(plan: ServingPlan, terms: list[Term], usable: int | None, stage: int) -> int:
    """What is left for caches on a rank of the stage."""
    pools, rules = plan.known.pools, plan.engine.rules
    if pools:
        return pools[stage] if len(pools) > 1 else pools[0]
    if usable is None:
        return 0
    outside = outside_the_fraction(plan)
    left = usable - sum(term.bytes for term in terms if term.name not in outside)
    return int(plan.utilization * left) if rules.budget == "free_after_load" and left > 0 else left


def outside_the_fraction(plan: ServingPlan) -> tuple[str, ...]:
    """The terms that the engine does not take out of its fraction, and that lie in the rest of the device."""
    rules = plan.engine.rules
    if rules.budget == "free":
        return ("other processes", *_AFTER_LOAD, "runtime", "collectives")
    if rules.budget == "total" and not rules.graphs_in_budget:
        return ("other processes", "CUDA graphs")
    return ("other processes",)


def _shortages(plan: ServingPlan, ranks: tuple[RankBudget, ...], pool: PoolKind, capacity: Capacity) -> list[Shortage]:
    found = []
    slots = plan.max_num_seqs if plan.engine.rules.pool in ("cells", "dynamic") else 1
    lacking = pool.shortfall(plan.max_model_len, slots)
    if lacking:
        found.append(Shortage(_too_long(plan, capacity, ranks, slots), lacking))
    found += _start_shortages(plan, ranks, capacity)
    states = any(part.name == "state" for part in capacity.parts)
    blocks_for_states = states and plan.engine.rules.pool == "groups" and plan.engine.rules.hybrid_manager
    if blocks_for_states and not plan.eager and plan.max_num_seqs > capacity.blocks and not lacking:
        reason = f"{plan.max_num_seqs} sequences need a state each, and the pool has {capacity.blocks} blocks"
        found.append(Shortage(reason, (plan.max_num_seqs - capacity.blocks) * capacity.block_bytes))
    return found + _host_shortages(plan, ranks)


def _too_long(plan: ServingPlan, capacity: Capacity, ranks: tuple[RankBudget, ...], slots: int) -> str:
    left = ranks[capacity.binding_stage].pool_bytes
    what = "one request" if slots == 1 else f"{slots} slots"
    need = slots * capacity.request_bytes
    if left <= 0:
        return f"nothing is left for caches: weights and working memory are {_gib(-left)} too much"
    return f"{what} of {plan.max_model_len} tokens needs {_gib(need)} of cache, {_gib(left)} is left"


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"


def _start_shortages(plan: ServingPlan, ranks: tuple[RankBudget, ...], capacity: Capacity) -> list[Shortage]:
    """What keeps an engine from starting though its own sums come out: other processes, memory outside its fraction."""
    total = plan.device.bytes
    if total is None or (plan.known.pools and not plan.known.pool_is_setting):
        return []
    found = []
    free, usable = total - plan.device.in_use, ranks[0].usable_bytes or 0
    if plan.engine.rules.budget == "total" and usable > free and not plan.known.pool_is_setting:
        reason = f"the engine wants {_gib(usable)} at start, and {_gib(free)} is free beside other processes"
        found.append(Shortage(reason, usable - free))
    asked = max(rank.used_bytes + _cache_bytes(rank, capacity, ranks) for rank in ranks)
    if asked > total and not found:
        found.append(Shortage(f"all of it together is {_gib(asked)}, and the device has {_gib(total)}", asked - total))
    return found


def _cache_bytes(rank: RankBudget, capacity: Capacity, ranks: tuple[RankBudget, ...]) -> int:
    """Caches on a rank: as many blocks as on the binding one, at most what the rank has."""
    if rank is ranks[capacity.binding_stage]:
        return capacity.pool_bytes
    return min(max(0, rank.pool_bytes), capacity.pool_bytes)


def _host_shortages(plan: ServingPlan, ranks: tuple[RankBudget, ...]) -> list[Shortage]:
    if plan.host_memory is None:
        return []
    held = sum(rank.offloaded.host_bytes for rank in ranks if rank.offloaded) * plan.parallel.tp * plan.parallel.dp
    if held <= plan.host_memory:
        return []
    reason = f"the offloaded weights are {_gib(held)}, and host memory has {_gib(plan.host_memory)}"
    return [Shortage(reason, held - plan.host_memory)]


def _notes(plan: ServingPlan, ranks: tuple[RankBudget, ...], capacity: Capacity) -> list[str]:
    """What may mislead."""
    notes = []
    rules = plan.engine.rules
    if rules.budget == "free" and plan.device.bytes is not None and not plan.known.pools:
        outside = max(sum(term.bytes for term in rank.terms if term.name in _AFTER_LOAD) for rank in ranks)
        left = int((1 - plan.utilization) * (plan.device.bytes - plan.device.in_use))
        if outside > left:
            notes.append(f"activations and CUDA graphs may need {_gib(outside)}, the fraction leaves them {_gib(left)}")
    shown = capacity.printed_tokens
    if rules.printed_tokens == "blocks_over_groups" and shown < capacity.capacity_tokens // 2:
        notes.append(
            f"this version prints {shown} tokens, which is blocks over groups: {capacity.capacity_tokens} really fit"
        )
    if plan.parallel.tp > 1 and _replicated(plan):
        notes.append("there are more ranks than KV heads or latents: every rank holds whole copies")
    return notes


def _replicated(plan: ServingPlan) -> bool:
    tp = plan.parallel.tp
    for block in plan.spec.blocks.values():
        for mixer in block.mixer:
            if mixer.kind == "mla" or getattr(mixer, "kv_heads", tp) < tp:
                return True
    return False


def utilization_for(plan: ServingPlan, missing: int) -> Fraction | None:
    """The least fraction, in hundredths, that would add `missing` bytes to what the engine allows itself."""
    total = plan.device.bytes
    if total is None or plan.engine.rules.budget == "whole":
        return None
    wanted = plan.utilization + Fraction(missing, total)
    hundredths = Fraction(-(-(wanted * 100).numerator // (wanted * 100).denominator), 100)
    return hundredths if hundredths < 1 else None
