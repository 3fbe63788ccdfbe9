"""Exact bytes of a model's weights as a quantisation plan stores them, matrix by matrix.

    bytes = Σ_layers Σ_tensors count · bytes of the tensor's scheme

The sum runs over the tensor inventory (`capplan.memory.tensors`); what the plan leaves alone keeps the checkpoint's
own format. Routers' correction biases, and the decay and skip parameters of state-space mixers, are fp32 in every
published checkpoint, whatever the rest is in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from capplan.describe.formats import FP32
from capplan.describe.model import ModelSpec, Stack
from capplan.describe.quantisation import QuantisationPlan
from capplan.describe.weight_schemes import Plain, WeightScheme, tensor_bytes
from capplan.memory.tensors import Tensor, block_tensors, embedding_tensors, stack_tensors

_ALWAYS_FP32 = (".A_log", ".D")
_QUERIES = "self_attn.q_proj.weight"
_GATE = "self_attn.gate_proj.weight"


@dataclass(frozen=True, slots=True)
class NamedTensor:
    """A tensor of the inventory with its full module path.

    Args:
        module: the path of its module, such as ``model.layers.3.self_attn.q_proj``.
        tensor: the tensor (or its `count` equal ones).
        layers: how many layers hold it; 1 unless the layers were not told apart.
        part: ``model``, ``encoder``, ``mtp`` or the name of a tower.
    """

    module: str
    tensor: Tensor
    layers: int
    part: str


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """Bytes of one component's tensors that are stored alike.

    Args:
        component: the inventory's component, or the name of a tower.
        scheme: how they are stored.
        matrices: how many tensors there are.
        elements: their parameters.
        bytes: their bytes, scales included.
        scale_bytes: the bytes beside the packed weights.
        stored_elements: elements of all stored tensors, as the Hub counts them.
    """

    component: str
    scheme: WeightScheme
    matrices: int
    elements: int
    bytes: int
    scale_bytes: int
    stored_elements: int


@dataclass(frozen=True, slots=True)
class QuantisedWeights:
    """The weights of a model under a plan, as terms that add up to the total."""

    terms: tuple[StoredWeights, ...]

    @property
    def total(self) -> int:
        """All bytes, without file headers."""
        return sum(term.bytes for term in self.terms)

    @property
    def elements(self) -> int:
        """All parameters and buffers."""
        return sum(term.elements for term in self.terms)

    @property
    def quantised(self) -> tuple[StoredWeights, ...]:
        """The terms that are stored in a quantised scheme."""
        return tuple(term for term in self.terms if not isinstance(term.scheme, Plain))

    @property
    def unquantised(self) -> tuple[StoredWeights, ...]:
        """The terms that are stored as plain numbers."""
        return tuple(term for term in self.terms if isinstance(term.scheme, Plain))


def named_tensors(spec: ModelSpec, *, by_layer: bool = True, mtp: bool = False) -> Iterator[NamedTensor]:
    """Every tensor of a model under its module path.

    Args:
        spec: the model.
        by_layer: whether each layer's tensors come one by one, or those of equal layers together.
        mtp: whether the layers that draft further tokens are in it, with the tables that they bring.
    """
    tables = embedding_tensors(spec)
    for tensor in tables:
        prefix = "" if tensor.component == "head" else "model."
        yield NamedTensor(prefix + _module(tensor), tensor, 1, "model")
    yield from _stack(spec, "model", by_layer)
    if spec.encoder:
        yield from _stack(spec.encoder, "encoder", by_layer)
    for name, tower in spec.towers.items():
        yield from _stack(tower, name, by_layer)
    if mtp and spec.mtp:
        yield from _stack(spec.mtp, "mtp", by_layer)
        for component, copied in (("embedding", spec.mtp.embedding_copy), ("head", spec.mtp.head_copy)):
            table = next((tensor for tensor in tables if tensor.component == component), tables[0])
            if copied:
                yield NamedTensor(f"mtp.{_module(table)}", table, 1, "mtp")


def _stack(stack: Stack, part: str, by_layer: bool) -> Iterator[NamedTensor]:
    first = {name: stack.order.index(name) for name in stack.blocks}
    layers = enumerate(stack.order) if by_layer else ((first[name], name) for name in stack.blocks)
    for index, name in layers:
        repeat = 1 if by_layer else stack.counts[name]
        for tensor in as_stored(block_tensors(stack.blocks[name], stack)):
            yield NamedTensor(f"{part}.layers.{index}.{_module(tensor)}", tensor, repeat, part)
    for tensor in stack_tensors(stack):
        yield NamedTensor(f"{part}.{_module(tensor)}", tensor, 1, part)


def as_stored(tensors: Sequence[Tensor]) -> Iterator[Tensor]:
    """A layer's tensors as checkpoints have them, where that isn't one for one what the inventory names.

    A gate on attention's output that is as wide as the queries lies beside them in one matrix; and where a layer has a
    dense feed-forward and experts side by side, the experts are not under ``mlp``.
    """
    by_name = {tensor.name: tensor for tensor in tensors}
    queries, gate = by_name.get(_QUERIES), by_name.get(_GATE)
    gated = queries is not None and gate is not None and queries.shape == gate.shape
    side_by_side = "mlp.up_proj.weight" in by_name and "mlp.experts.*.up_proj.weight" in by_name
    for tensor in tensors:
        if gated and tensor.name == _GATE:
            continue
        if gated and tensor.name == _QUERIES:
            yield replace(tensor, shape=(2 * tensor.shape[0], tensor.shape[1]))
        elif side_by_side and tensor.name.startswith(("mlp.experts.", "mlp.gate.")):
            yield replace(tensor, name=tensor.name.removeprefix("mlp."))
        else:
            yield tensor


def _module(tensor: Tensor) -> str:
    return tensor.name.removesuffix(".weight").removesuffix(".bias")


def scheme_of(named: NamedTensor, plan: QuantisationPlan, towers: frozenset[str]) -> WeightScheme:
    """How one tensor is stored: by the plan when it is the matrix of a linear map, else as plain numbers."""
    tensor = named.tensor
    correction_bias = tensor.component == "router" and not tensor.trained
    if correction_bias or tensor.name.endswith(_ALWAYS_FP32):
        return Plain(FP32)
    if not tensor.linear:
        return Plain(plan.unquantised)
    component = "other" if named.part in towers else tensor.component
    return plan.scheme_for(named.module, component, tensor.shape)


def rank_shape(tensor: Tensor, tp: int) -> tuple[int, ...]:
    """The shape of a tensor's share on the rank that holds most of it: ``ceil(units / tp)`` of its pieces."""
    if tensor.split is None:
        return tensor.shape
    axis, units = tensor.split.axis, tensor.split.units
    share = tensor.shape[axis] * -(-units // tp) // units
    return (*tensor.shape[:axis], share, *tensor.shape[axis + 1 :])


def quantised_weights(spec: ModelSpec, plan: QuantisationPlan, *, mtp: bool = False) -> QuantisedWeights:
    """Bytes of a model's weights as `plan` stores them, by component and scheme.

    Args:
        spec: the model.
        plan: how each matrix is stored.
        mtp: whether the layers that draft further tokens count.
    """
    return rank_weights(spec, plan, tp=1, mtp=mtp)


def rank_weights(
    spec: ModelSpec, plan: QuantisationPlan, *, tp: int, ep: int = 1, mtp: bool = False
) -> QuantisedWeights:
    """Bytes on the rank of a tensor-parallel group that holds most.

    Each tensor is divided first and then stored, so that blocks and groups are those of the rank's own share. Routed
    experts divide by `ep` groups in number and by ``tp / ep`` in width; towers are whole on every rank.

    Args:
        spec: the model.
        plan: how each matrix is stored.
        tp: ranks of the group.
        ep: groups of experts; 1: every rank holds a part of every expert.
        mtp: whether the layers that draft further tokens count.
    """
    towers = frozenset(spec.towers)
    sums: dict[tuple[str, WeightScheme], list[int]] = {}
    for named in named_tensors(spec, by_layer=plan.depends_on_layer, mtp=mtp):
        tensor = named.tensor
        scheme = scheme_of(named, plan, towers)
        in_tower = named.part in towers
        routed = tensor.component == "experts_routed"
        shape = tensor.shape if in_tower else rank_shape(tensor, max(1, tp // ep) if routed else tp)
        rows, columns = shape if len(shape) == 2 else (1, prod(shape))
        stored = tensor_bytes(scheme, rows, columns)
        count = named.layers * (-(-tensor.count // ep) if routed else tensor.count)
        row = sums.setdefault((named.part if in_tower else tensor.component, scheme), [0, 0, 0, 0, 0])
        one = (1, rows * columns, stored.total, stored.scale_bytes, sum(term.elements for term in stored.terms))
        for position, value in enumerate(one):
            row[position] += value * count
    return QuantisedWeights(tuple(StoredWeights(*key, *row) for key, row in sums.items()))
