"""Weights as they lie on one rank of one pipeline stage, in the engine's own layout.

    bytes = Σ_layers of the stage Σ_tensors count · bytes of the rank's share   (+ tables, heads, rotary caches)

Each tensor is divided first and stored then, so that groups and blocks of a scheme are those of the rank's own share.
The first stage has the token table, the encoder and the towers; the last one the final norm and the head, and a second
copy of the table where the head is tied to it.

Source: vLLM, vllm/distributed/utils.py (get_pp_indices), vllm/model_executor/layers (linear, vocab_parallel_embedding,
rotary_embedding, fused_moe).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod

from capplan.arrays import ceil_div
from capplan.describe.deployment import Parallel
from capplan.describe.engine import EngineRules
from capplan.describe.model import Attention, CompressedAttention, LatentAttention, Mixer, ModelSpec, Stack
from capplan.describe.quantisation import QuantisationPlan
from capplan.describe.weight_schemes import Mxfp4, WeightScheme, tensor_bytes
from capplan.errors import UsageError
from capplan.identity import Same
from capplan.memory.quantised_weights import NamedTensor, rank_shape, scheme_of
from capplan.memory.tensors import Tensor, block_tensors, embedding_tensors, stack_tensors

_ROTARY_BYTES = 2
"""Cosines and sines are kept in the 16 bits of the activations."""


@dataclass(frozen=True, slots=True)
class StageWeights:
    """Bytes on one rank of one stage, by part; the values add up to the whole.

    Args:
        layers: the model's layers on this stage.
        parts: bytes by component.
        experts: bytes of routed experts, also part of `parts`.
        by_layer: bytes of each layer of the model's own stack, in order.
    """

    layers: range
    parts: dict[str, int] = field(default_factory=dict)
    experts: int = 0
    by_layer: tuple[int, ...] = ()

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self.parts.values())


def stage_layers(depth: int, parallel: Parallel) -> tuple[range, ...]:
    """The layers of each pipeline stage: as even as may be, the extra ones before the last stage.

    Raises:
        UsageError: the layers don't make that many stages.
    """
    pp = parallel.pp
    sizes = list(parallel.stage_layers) or [
        depth // pp + (pp - 1 - depth % pp <= stage < pp - 1) for stage in range(pp)
    ]
    if sum(sizes) != depth or min(sizes) < 1:
        raise UsageError(
            f"{depth} layers do not make {pp} pipeline stages of {', '.join(map(str, sizes))}",
            where="--pipeline-parallel-size",
            hint=f"use at most {depth} stages, and stage layers that add up to {depth}",
        )
    starts = [sum(sizes[:stage]) for stage in range(pp)]
    return tuple(range(start, start + size) for start, size in zip(starts, sizes, strict=True))


@dataclass(frozen=True, slots=True)
class WeightLayout:
    """What decides the bytes of a rank's weights.

    Args:
        plan: how each matrix is stored.
        rules: the engine.
        parallel: how ranks divide the work.
        drafts: whether the model's own drafting layers are loaded.
    """

    plan: QuantisationPlan
    rules: EngineRules
    parallel: Parallel
    drafts: bool = False


def stage_weights(spec: ModelSpec, layout: WeightLayout) -> tuple[StageWeights, ...]:
    """The weights of one rank of every stage, the rank that holds most."""
    return _stage_weights(Same(spec), Same(layout.plan), layout.rules, layout.parallel, layout.drafts)


@lru_cache(maxsize=256)
def _stage_weights(
    of: Same[ModelSpec], stored: Same[QuantisationPlan], rules: EngineRules, parallel: Parallel, drafts: bool
) -> tuple[StageWeights, ...]:
    spec, layout = of.value, WeightLayout(stored.value, rules, parallel, drafts)
    stages = stage_layers(spec.depth, parallel)
    return tuple(
        _one_stage(spec, layout, layers, first=index == 0, last=index == len(stages) - 1)
        for index, layers in enumerate(stages)
    )


def _one_stage(spec: ModelSpec, layout: WeightLayout, layers: range, *, first: bool, last: bool) -> StageWeights:
    parts: dict[str, int] = {}
    experts = 0
    by_layer: list[int] = []
    for name, numbers in _blocks_of(spec, layers, layout.plan.depends_on_layer):
        one_layer = 0
        for tensor in block_tensors(spec.blocks[name], spec):
            named = NamedTensor(f"model.layers.{numbers[0]}.{_module(tensor)}", tensor, 1, "model")
            size = _stored(named, layout, frozenset(spec.towers))
            one_layer += size
            _add(parts, tensor.component, size * len(numbers))
            experts += size * len(numbers) if tensor.component == "experts_routed" else 0
        by_layer += [one_layer] * len(numbers)
    for component, size in _around(spec, layout, first=first, last=last):
        _add(parts, component, size)
    return StageWeights(layers, parts, experts, tuple(by_layer))


def _blocks_of(spec: Stack, layers: range, apart: bool) -> Iterator[tuple[str, list[int]]]:
    """(block, its layers of this stage); one layer at a time where a plan stores equal layers differently."""
    order = [(spec.order[layer], layer) for layer in layers]
    if apart:
        yield from ((name, [layer]) for name, layer in order)
        return
    for name in spec.blocks:
        numbers = [layer for block, layer in order if block == name]
        if numbers:
            yield name, numbers


def _around(spec: ModelSpec, layout: WeightLayout, *, first: bool, last: bool) -> Iterator[tuple[str, int]]:
    """What stands around the layers: tables, head, encoder, towers, drafting layers, rotary caches."""
    towers = frozenset(spec.towers)
    tied_copy = last and not first and spec.embedding.tied and spec.embedding.head
    for tensor in embedding_tensors(spec):
        on_this_stage = last if tensor.component == "head" else first
        copied = tied_copy and tensor.name == "embed_tokens.weight"
        if on_this_stage or copied:
            padded = _padded_vocabulary(tensor, spec, layout)
            yield tensor.component, _stored(NamedTensor(_module(tensor), padded, 1, "model"), layout, towers)
    if last:
        for tensor in stack_tensors(spec):
            yield tensor.component, _stored(NamedTensor(f"model.{_module(tensor)}", tensor, 1, "model"), layout, towers)
    if first and spec.encoder:
        yield "encoder", _whole_stack(spec.encoder, "encoder", layout, towers)
    if first:
        for name, tower in spec.towers.items():
            yield name, _whole_stack(tower, name, layout, towers)
    if last and layout.drafts and spec.mtp:
        yield "drafting layers", _whole_stack(spec.mtp, "mtp", layout, towers)
    if layout.rules.rotary_cache:
        yield "rotary caches", rotary_cache_bytes(spec)


def _whole_stack(stack: Stack, part: str, layout: WeightLayout, towers: frozenset[str]) -> int:
    total = 0
    for name, numbers in _blocks_of(stack, range(stack.depth), layout.plan.depends_on_layer):
        for tensor in block_tensors(stack.blocks[name], stack):
            named = NamedTensor(f"{part}.layers.{numbers[0]}.{_module(tensor)}", tensor, 1, part)
            total += _stored(named, layout, towers) * len(numbers)
    for tensor in stack_tensors(stack):
        total += _stored(NamedTensor(f"{part}.{_module(tensor)}", tensor, 1, part), layout, towers)
    return total


def _stored(named: NamedTensor, layout: WeightLayout, towers: frozenset[str]) -> int:
    """Bytes of a tensor's share on the rank that holds most of it, in the scheme that the plan gives it."""
    tensor, parallel = named.tensor, layout.parallel
    scheme = scheme_of(named, layout.plan, towers)
    routed = tensor.component == "experts_routed"
    shape = rank_shape(tensor, parallel.moe_tp if routed else parallel.tp)
    count = ceil_div(tensor.count, parallel.ep) if routed else tensor.count
    if routed and isinstance(scheme, Mxfp4) and len(shape) == 2:
        shape = _padded_expert(named.module, shape, layout.rules)
    rows, columns = shape if len(shape) == 2 else (1, prod(shape))
    return _bytes(scheme, rows, columns) * int(count)


def _bytes(scheme: WeightScheme, rows: int, columns: int) -> int:
    return tensor_bytes(scheme, rows, columns).total


def _padded_expert(module: str, shape: Sequence[int], rules: EngineRules) -> tuple[int, int]:
    """An expert's matrix with its width and the hidden size rounded up for the kernels."""
    inner, hidden = rules.mxfp4_intermediate_multiple, rules.mxfp4_hidden_multiple
    down = module.endswith("down_proj")
    multiples = (hidden, inner) if down else (inner, hidden)
    rows, columns = (int(ceil_div(size, multiple)) * multiple for size, multiple in zip(shape, multiples, strict=True))
    return rows, columns


def _padded_vocabulary(tensor: Tensor, spec: ModelSpec, layout: WeightLayout) -> Tensor:
    """A table or head with its rows rounded up to the engine's multiple."""
    rows, multiple = spec.embedding.vocab_size, layout.rules.vocabulary_multiple
    if tensor.split is None or tensor.shape[0] != rows:
        return tensor
    padded = int(ceil_div(rows, multiple)) * multiple
    return replace(tensor, shape=(padded, *tensor.shape[1:]), split=replace(tensor.split, units=padded))


def rotary_cache_bytes(spec: ModelSpec) -> int:
    """``positions · rotary_dim · 2`` bytes of cosines and sines, once for each kind of rotation in the model."""
    if spec.max_positions is None:
        return 0
    kinds = {rotated for _, _, block in spec.each_block() for mixer in block.mixer for rotated in _rotations(mixer)}
    return sum(spec.max_positions * size * _ROTARY_BYTES for size in kinds)


def _rotations(mixer: Mixer) -> list[int]:
    if isinstance(mixer, Attention):
        return [mixer.head_dim if mixer.rotary_dim is None else mixer.rotary_dim]
    if isinstance(mixer, LatentAttention):
        return [mixer.qk_rope_head_dim]
    return [mixer.rotary_dim] if isinstance(mixer, CompressedAttention) else []


def _module(tensor: Tensor) -> str:
    return tensor.name.removesuffix(".weight").removesuffix(".bias")


def _add(parts: dict[str, int], component: str, size: int) -> None:
    parts[component] = parts.get(component, 0) + size
