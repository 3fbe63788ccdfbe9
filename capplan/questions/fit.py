"""Does it fit, and how many requests at once?"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from capplan.describe.model import CrossAttention, ModelSpec
from capplan.memory.budget import MemoryBudget, RankBudget, memory_budget, outside_the_fraction
from capplan.memory.budget_terms import Provenance
from capplan.memory.pool import Capacity, longest_context
from capplan.memory.serving_plan import ServingPlan
from capplan.questions.answer import Answer
from capplan.questions.fit_explained import explain_fit
from capplan.questions.fit_plan import Resolved, resolve_plan
from capplan.questions.fit_remedies import Remedy, remedies
from capplan.questions.fit_request import FitRequest

LONGEST_CONTEXT = 1 << 24
NOT_FITTING = 1
"""Exit code of a negative verdict that was asked for."""


@dataclass(frozen=True)
class FitTerm:
    """One use of a rank's memory: bytes, with the interval that they may lie in."""

    name: str
    bytes: int
    bytes_low: int
    bytes_high: int
    provenance: Provenance
    formula: str
    source: str


@dataclass(frozen=True)
class FitBudget:
    """The memory of a rank.

    Args:
        device_bytes: the device's memory as the engine sees it; null: not known.
        usable_bytes: what the engine allows itself of it.
        terms: what it is spent on, caches included.
        total_bytes: the sum of the terms, exactly.
        unclaimed_bytes: what is left of the device; negative when it does not fit.
    """

    device_bytes: int | None
    usable_bytes: int | None
    terms: tuple[FitTerm, ...]
    total_bytes: int
    unclaimed_bytes: int | None


@dataclass(frozen=True)
class FitRank:
    """One rank of a pipeline stage.

    Args:
        rank: the first of the stage.
        stage: which stage.
        first_layer: its first layer.
        layers: how many it has.
        weight_bytes: the loaded model.
        working_bytes: everything else but the caches.
        pool_bytes: what is left for caches.
        budget: term by term.
    """

    rank: int
    stage: int
    first_layer: int
    layers: int
    weight_bytes: int
    working_bytes: int
    pool_bytes: int
    budget: FitBudget


@dataclass(frozen=True)
class FitCacheGroup:
    """Layers of one kind in the pool of the rank that binds."""

    kind: str
    layers: int
    block_size: int
    request_blocks: int
    places: int
    key_bytes: int
    value_bytes: int
    state_bytes: int
    convolution_bytes: int


@dataclass(frozen=True)
class FitOffload:
    """What lies in host memory.

    Args:
        kind: weights, layers or experts.
        host_bytes: bytes in host memory, of all ranks together.
        step_bytes: bytes that cross the link of one rank in one step.
    """

    kind: str
    host_bytes: int
    step_bytes: int


@dataclass(frozen=True)
class FitResult:
    """Whether a model fits on one kind of device under one engine, and what fits beside it.

    Args:
        fits: the engine starts and serves one request of `max_model_len` tokens.
        missing_bytes: what the worst rank lacks; 0 when it fits.
        binding_rank: the first rank of the stage that has room for the fewest.
        weight_bytes_per_rank: the loaded model on that rank: weights, rotary caches, drafts.
        kv_pool_bytes_per_rank: what is left for caches on that rank.
        kv_blocks: whole blocks (slots, cells) in it.
        kv_block_size: tokens of one attention block, as the engine sets it.
        kv_tokens: the number of tokens that this version of the engine prints.
        kv_capacity_tokens: the tokens that really fit.
        max_concurrency: requests of `max_model_len` tokens that fit at once, unrounded; without caches, as many as the
            engine lets run.
        max_model_len: the longest request that was asked for.
        longest_model_len: the longest of which one fits (or as many as `concurrency` says).
        kv_request_bytes: what the engine reserves for one request of `max_model_len` tokens on a rank.
        kv_architectural_bytes: what the model must keep for it on a rank, without blocks and padding.
        state_slots: sequences whose states fit, where they have slots of their own.
        replica_concurrency: `max_concurrency` of all data-parallel groups together.
        budget: the memory of the rank that binds, term by term.
        ranks: one rank of each stage.
        cache: the pool by kind of layer.
        offload: what lies in host memory.
        reasons: why it does not fit.
        suggestions: the nearest changes that make it fit, each tried.
    """

    fits: bool
    missing_bytes: int
    binding_rank: int
    weight_bytes_per_rank: int
    kv_pool_bytes_per_rank: int
    kv_pool_bytes_per_rank_low: int
    kv_pool_bytes_per_rank_high: int
    kv_blocks: int
    kv_block_size: int
    kv_tokens: int
    kv_tokens_low: int
    kv_tokens_high: int
    kv_capacity_tokens: int
    max_concurrency: float
    max_concurrency_low: float
    max_concurrency_high: float
    max_model_len: int
    longest_model_len: int
    kv_request_bytes: int
    kv_architectural_bytes: int
    state_slots: int | None
    replica_concurrency: float
    budget: FitBudget
    ranks: tuple[FitRank, ...]
    cache: tuple[FitCacheGroup, ...]
    offload: FitOffload | None
    reasons: tuple[str, ...]
    suggestions: tuple[Remedy, ...] = field(default_factory=tuple)


def fit(
    model: str | ModelSpec,
    *,
    gpu: str | None = None,
    check: bool = False,
    models_dirs: Sequence[Path] = (),
    hardware_dirs: Sequence[Path] = (),
    ignore_keys: Collection[str] = (),
    online: bool = False,
    **settings: Any,
) -> Answer[FitResult]:
    """Whether a model fits on a device under an engine, and how many requests at once.

    Args:
        model: a reference as for ``--model``, or a description.
        gpu: a reference as for ``--gpu``; not needed when the pool is given.
        check: make the exit code say whether it fits.
        models_dirs: further folders of models.
        hardware_dirs: further folders of GPUs.
        ignore_keys: keys of a ``config.json`` that are known to change no size.
        online: look a Hugging Face id up on the hub.
        settings: the fields of `capplan.questions.fit_plan.FitRequest`, under vLLM's names.

    Raises:
        CapplanError: inputs that make no question.
    """
    request = FitRequest.of(model=model, gpu=gpu, **settings)
    resolved = resolve_plan(
        request,
        models_dirs=tuple(models_dirs),
        hardware_dirs=tuple(hardware_dirs),
        ignore_keys=ignore_keys,
        online=online,
    )
    budget = memory_budget(resolved.plan)
    result = fit_result(resolved, budget, remedies(request, resolved, budget))
    return Answer(
        command="fit",
        inputs=resolved.inputs,
        result=result,
        explanation=tuple(explain_fit(budget)),
        assumptions=resolved.assumptions,
        warnings=(*resolved.warnings, *budget.notes),
        sources=resolved.sources,
        provenance=_provenance(budget),
        exit_code=NOT_FITTING if check and not budget.fits else 0,
    )


def fit_result(resolved: Resolved, budget: MemoryBudget, suggestions: tuple[Remedy, ...] = ()) -> FitResult:
    """All figures of a budget."""
    plan, capacity, rank = budget.plan, budget.capacity, budget.binding
    low, high = budget.at_edges()
    concurrency = resolved.request.concurrency or 1
    most = max(LONGEST_CONTEXT if plan.spec.max_positions is None else plan.spec.max_positions, plan.max_model_len)
    return FitResult(
        fits=budget.fits,
        missing_bytes=budget.missing_bytes,
        binding_rank=budget.binding_rank,
        weight_bytes_per_rank=rank.weight_bytes,
        kv_pool_bytes_per_rank=_pool(rank.pool_bytes, capacity, plan),
        kv_pool_bytes_per_rank_low=_pool(low.pool_bytes, capacity, plan),
        kv_pool_bytes_per_rank_high=_pool(high.pool_bytes, capacity, plan),
        kv_blocks=capacity.blocks,
        kv_block_size=capacity.block_size,
        kv_tokens=capacity.printed_tokens,
        kv_tokens_low=low.capacity.printed_tokens,
        kv_tokens_high=high.capacity.printed_tokens,
        kv_capacity_tokens=capacity.capacity_tokens,
        max_concurrency=_at_once(budget, capacity),
        max_concurrency_low=_at_once(budget, low.capacity),
        max_concurrency_high=_at_once(budget, high.capacity),
        max_model_len=plan.max_model_len,
        longest_model_len=longest_context(budget.pool, concurrency, most),
        kv_request_bytes=budget.request_bytes,
        kv_architectural_bytes=_architectural(budget),
        state_slots=capacity.state_slots,
        replica_concurrency=_at_once(budget, capacity) * plan.parallel.dp,
        budget=_budget(budget, budget.binding),
        ranks=tuple(
            FitRank(
                one.stage * plan.parallel.tp,
                one.stage,
                one.layers.start,
                len(one.layers),
                one.weight_bytes,
                one.used_bytes - one.weight_bytes,
                max(0, one.pool_bytes),
                _budget(budget, one),
            )
            for one in budget.ranks
        ),
        cache=tuple(
            FitCacheGroup(
                part.name,
                part.layers,
                part.block_size,
                part.request_blocks,
                part.places,
                part.key_bytes,
                part.value_bytes,
                part.state_bytes,
                part.convolution_bytes,
            )
            for part in capacity.parts
        ),
        offload=_offload(budget),
        reasons=tuple(shortage.reason for shortage in budget.shortages),
        suggestions=suggestions,
    )


def _at_once(budget: MemoryBudget, capacity: Capacity) -> float:
    """Requests that caches leave room for; a model without caches is held back by the engine alone."""
    if not budget.layers:
        return float(budget.plan.max_num_seqs)
    return float(capacity.concurrency)


def _pool(left: int, capacity: Capacity, plan: ServingPlan) -> int:
    """What an engine sets aside for caches: all that is left, or the slots that it was asked for."""
    reserves_slots = plan.engine.rules.pool in ("cells", "dynamic")
    return capacity.pool_bytes if reserves_slots else max(0, left)


def _budget(budget: MemoryBudget, rank: RankBudget) -> FitBudget:
    """The terms of a rank, caches last; they add up to the total exactly."""
    device = budget.plan.device.bytes
    terms = [
        FitTerm(term.name, term.bytes, term.low, term.high, term.provenance, term.formula, term.source)
        for term in rank.terms
    ]
    caches = budget.cache_bytes_of(rank)
    formula = f"{budget.capacity.blocks} blocks · {budget.capacity.block_bytes}" if budget.capacity.block_bytes else ""
    certain = bool(budget.plan.known.pools) or all(term.low == term.high for term in rank.terms)
    terms.append(FitTerm("caches", caches, caches, caches, "exact" if certain else "fitted", formula, ""))
    total = sum(term.bytes for term in terms)
    return FitBudget(device, rank.usable_bytes, tuple(terms), total, device - total if device is not None else None)


def _architectural(budget: MemoryBudget) -> int:
    """What the model itself must keep for one request on a rank, of all stages together: no blocks, no padding."""
    length, total = budget.plan.max_model_len, Fraction(0)
    for layer in budget.layers:
        kept = min(length, layer.span) if layer.kind in ("window", "chunk") and layer.span else length
        if layer.kind == "cross":
            kept = _source_tokens(budget.plan)
        total += layer.state_bytes + kept * Fraction(layer.token_bytes)
    return -(-total.numerator // total.denominator)


def _source_tokens(plan: ServingPlan) -> int:
    """Tokens of the source that cross-attention holds: a fixed number of frames, or the encoder's input."""
    mixers = [mixer for block in plan.spec.blocks.values() for mixer in block.mixer]
    fixed = [mixer.source for mixer in mixers if isinstance(mixer, CrossAttention) and isinstance(mixer.source, int)]
    return max(fixed, default=plan.max_model_len) if plan.source_tokens is None else plan.source_tokens


def _offload(budget: MemoryBudget) -> FitOffload | None:
    plan = budget.plan
    moved = [rank.offloaded for rank in budget.ranks if rank.offloaded is not None]
    if plan.offload is None or not any(one.host_bytes for one in moved):
        return None
    ranks = plan.parallel.tp * plan.parallel.dp
    host = sum(one.host_bytes for one in moved) * ranks
    return FitOffload(plan.offload.kind, host, max(one.step_bytes for one in moved))


def _provenance(budget: MemoryBudget) -> dict[str, Provenance]:
    """Exact, unless working memory had to be estimated."""
    terms = budget.binding.terms
    outside = outside_the_fraction(budget.plan)
    counted = [term for term in terms if term.name not in outside]
    doubtful = not budget.plan.known.pools and any(term.low != term.high for term in counted)
    pool: Provenance = "fitted" if doubtful else "exact"
    names = ("kv_pool_bytes_per_rank", "kv_blocks", "kv_tokens", "kv_capacity_tokens", "max_concurrency")
    provenance: dict[str, Provenance] = {"weight_bytes_per_rank": "exact", "kv_request_bytes": "exact"}
    provenance |= {"fits": pool, "missing_bytes": pool} | dict.fromkeys(names, pool)
    return provenance
