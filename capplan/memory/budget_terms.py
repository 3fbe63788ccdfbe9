"""What one rank's memory is spent on beside caches: each a named term with its interval, formula and provenance."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from capplan.describe.deployment import Parallel
from capplan.describe.engine import Estimate
from capplan.describe.gguf import GgufFile
from capplan.describe.gguf_mix import GgufMix
from capplan.describe.quantisation import QuantisationPlan, unquantised_plan
from capplan.errors import UsageError
from capplan.memory.activations import Peak, activation_peak, adapter_bytes, encoder_peak, medusa_bytes
from capplan.memory.cache_layers import CacheLayer
from capplan.memory.gguf_weights import gguf_weights
from capplan.memory.offload import Offloaded, offloaded
from capplan.memory.pool import stage_of
from capplan.memory.serving_plan import ServingPlan
from capplan.memory.stage_weights import StageWeights, WeightLayout, stage_layers, stage_weights

_GGUF_BLOCK = re.compile(r"blk\.(\d+)\.")
Provenance = Literal["exact", "measured", "fitted", "extrapolated", "assumed"]


@dataclass(frozen=True, slots=True)
class Term:
    """Bytes of one use of a rank's memory.

    Args:
        name: what for.
        bytes: how many.
        low: the least that is likely.
        high: the most.
        provenance: how the figure was come by.
        formula: the formula with its numbers.
        source: where the formula or the figure comes from.
    """

    name: str
    bytes: int
    low: int
    high: int
    provenance: Provenance
    formula: str
    source: str = ""


def exact(name: str, size: int, formula: str, source: str = "") -> Term:
    """A term without doubt."""
    return Term(name, size, size, size, "exact", formula, source)


def given(name: str, size: int) -> Term:
    """A term that the user knows."""
    return Term(name, size, size, size, "measured", "given")


def plan_weights(plan: ServingPlan) -> tuple[StageWeights, ...]:
    """The weights of one rank of every stage."""
    if not isinstance(plan.weights, QuantisationPlan):
        return _gguf_stages(plan, plan.weights)
    drafts = plan.draft_tokens > 0 and plan.extras.draft is None
    return stage_weights(plan.spec, WeightLayout(plan.weights, plan.engine.rules, plan.parallel, drafts))


def _gguf_stages(plan: ServingPlan, weights: GgufMix | GgufFile) -> tuple[StageWeights, ...]:
    """A GGUF file's tensors by stage; llama.cpp gives devices whole layers and divides none by columns."""
    if plan.parallel.tp > 1:
        raise UsageError(
            "llama.cpp's files are divided by layers, not by columns",
            where="--tensor-parallel-size",
            hint=f"--pipeline-parallel-size {plan.parallel.tp} puts layers on {plan.parallel.tp} devices",
        )
    if isinstance(weights, GgufFile):
        sizes = [(entry.name, entry.bytes) for entry in weights.tensors]
    else:
        chosen = gguf_weights(plan.spec, weights).tensors
        sizes = [(tensor.name, ggml.bytes_for(tensor.rows, tensor.columns)) for tensor, ggml in chosen]
    stages = stage_layers(plan.spec.depth, plan.parallel)
    return tuple(
        _gguf_stage(sizes, layers, first=index == 0, last=index == len(stages) - 1)
        for index, layers in enumerate(stages)
    )


def _gguf_stage(sizes: list[tuple[str, int]], layers: range, *, first: bool, last: bool) -> StageWeights:
    """The token table with the first stage, the output and its norm with the last."""
    parts: dict[str, int] = {}
    by_layer = dict.fromkeys(layers, 0)
    for name, size in sizes:
        block = _GGUF_BLOCK.match(name)
        if block is None:
            component = "embedding" if name.startswith("token_embd") else "head"
            held = first if component == "embedding" else last
        else:
            layer = int(block[1])
            held = layer in by_layer
            component = "experts_routed" if "_exps." in name else "layers"
            if held:
                by_layer[layer] += size
        if held:
            parts[component] = parts.get(component, 0) + size
    return StageWeights(layers, parts, parts.get("experts_routed", 0), tuple(by_layer.values()))


def weight_terms(plan: ServingPlan, stage: StageWeights, *, last: bool) -> tuple[list[Term], Offloaded | None]:
    """The weights that lie on the device, and what an offload moves; MTP layers, rotary caches and drafts apart."""
    split = None
    if plan.offload is not None:
        split = offloaded(
            plan.spec,
            stage,
            plan.offload,
            tokens=plan.decoding or plan.max_num_seqs,
            dtype=plan.activation_dtype,
            last=last,
        )
    if plan.known.weights is not None:
        return [given("weights", plan.known.weights)], split
    apart = {name: stage.parts.get(name, 0) for name in ("rotary caches", "drafting layers")}
    own = stage.total - sum(apart.values()) - (split.host_bytes if split else 0)
    shown = " + ".join(f"{name} {size}" for name, size in stage.parts.items() if name not in apart)
    formula = shown + (f" - {split.host_bytes} in host memory" if split else "")
    terms = [exact("weights", own, formula, "the model's tensors, one rank's share of each")]
    terms += [
        exact(name, size, "positions · rotary_dim · 2" if name == "rotary caches" else "the model's MTP layers")
        for name, size in apart.items()
        if size
    ]
    if plan.extras.draft is not None and last:
        terms.append(exact("draft model", draft_bytes(plan), f"the weights of {plan.extras.draft.name}"))
    if plan.extras.medusa_heads and last:
        size = medusa_bytes(plan.spec, heads=plan.extras.medusa_heads, tp=plan.parallel.tp, dtype=plan.activation_dtype)
        terms.append(exact("Medusa heads", size, "n·(H² + H + H·V/tp)·b", "arXiv:2401.10774"))
    return terms, split


def draft_bytes(plan: ServingPlan) -> int:
    """The weights of a draft model on one rank, which divides it like the model itself."""
    draft = plan.extras.draft
    if draft is None:
        return 0
    layout = WeightLayout(plan.extras.draft_plan or unquantised_plan(), plan.engine.rules, _one_stage(plan))
    return stage_weights(draft, layout)[0].total


def _one_stage(plan: ServingPlan) -> Parallel:
    return replace(plan.parallel, pp=1, stage_layers=())


def working_terms(plan: ServingPlan, stage: int) -> Iterator[Term]:
    """What a step needs on a rank of one stage."""
    rules, parallel, known, extras = plan.engine.rules, plan.parallel, plan.known, plan.extras
    if extras.adapters:
        size = adapter_bytes(
            plan.spec,
            stage_layers(plan.spec.depth, parallel)[stage],
            rank=extras.adapter_rank,
            adapters=extras.adapters,
            tp=parallel.tp,
            dtype=plan.activation_dtype,
        )
        formula = f"n·Σ r·(K + N)·b with n = {extras.adapters}, r = {extras.adapter_rank}"
        yield exact("LoRA adapters", size, formula, "vLLM, vllm/lora/layers")
    if known.activations is not None:
        yield given("activation peak", known.activations)
    else:
        peak = activation_peak(
            plan.spec,
            tokens=plan.max_num_batched_tokens,
            sequences=plan.max_num_seqs,
            tp=parallel.tp,
            moe_tp=parallel.moe_tp,
            dtype=plan.activation_dtype,
            logit_bytes=rules.logit_bytes,
        )
        yield _peak_term("activation peak", peak)
        if stage == 0 and extras.towers:
            yield from _tower_terms(plan)
    graphs = known.graphs if known.graphs is not None else (0 if plan.eager else None)
    yield from _estimated("CUDA graphs", rules.graphs, graphs, rules_source(plan, "graphs"))
    yield from _estimated("runtime", rules.runtime, known.runtime, rules_source(plan, "runtime"))
    if parallel.gpus > 1 and known.runtime is None:
        yield from _estimated("collectives", rules.collectives, None, rules_source(plan, "collectives"))


def rules_source(plan: ServingPlan, rule: str) -> str:
    """The engine's source file behind a rule."""
    return plan.engine.sources.get(rule, "")


def _peak_term(name: str, peak: Peak) -> Term:
    return Term(name, peak.bytes, peak.low, peak.high, "fitted", peak.formula, "start-up logs")


def _tower_terms(plan: ServingPlan) -> Iterator[Term]:
    """The working set of the widest tower, whose trial run takes as many tokens as a step."""
    tokens = plan.max_num_batched_tokens if plan.extras.encoder_tokens is None else plan.extras.encoder_tokens
    stacks = list(plan.spec.towers.values())
    peaks = [encoder_peak(stack, tokens=tokens, tp=plan.parallel.tp, dtype=plan.activation_dtype) for stack in stacks]
    if peaks:
        peak = max(peaks, key=lambda one: one.bytes)
        yield Term("multimodal encoder", peak.bytes, peak.low, peak.high, "assumed", peak.formula)


def _estimated(name: str, estimate: Estimate | None, known: int | None, source: str) -> Iterator[Term]:
    if known is not None:
        if known:
            yield given(name, known)
    elif estimate is not None:
        size, low, high = estimate.bytes
        yield Term(name, size, low, high, "assumed", "usual in start-up logs", source)


def outside_states(
    plan: ServingPlan, layers: tuple[CacheLayer, ...], stage: int, *, sequences: int | None = None
) -> int:
    """Bytes of states that don't lie in the pool: one for each sequence that may run at once."""
    rules = plan.engine.rules
    if rules.pool not in ("groups", "window_shares") or rules.hybrid_manager:
        return 0
    stages = stage_layers(plan.spec.depth, plan.parallel)
    one = sum(layer.state_bytes for layer in layers if stage_of(layer.layer, stages) == stage)
    return one * (plan.max_num_seqs if sequences is None else sequences)
