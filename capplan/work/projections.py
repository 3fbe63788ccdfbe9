"""Tensors to matrix products: every weight of a layer becomes part of exactly one operator.

A mixer or feed-forward takes its tensors from a `Shelf` by name, and what nobody took becomes an operator of its own,
so that the weights which a step reads are those that the memory module counts, whatever a description adds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod

from capplan.arrays import is_number, minimum, present
from capplan.memory.tensors import Tensor
from capplan.work.collectives import all_reduce
from capplan.work.formats import WeightFormat, rank_bytes
from capplan.work.operators import Gemm, Kind, Number, Operator, Rows, Traffic
from capplan.work.scope import Scope, over
from capplan.work.sharding import rank_matrix

TABLE_WORDS = ("position", "pos_emb", "tile_", "relative_attention_bias")
"""Words in the names of tables that are looked up, not multiplied."""

PROJECTOR_WORDS = ("projector", "merger", "adapter")
"""Words in the names of what stands between a tower and the decoder."""


class Shelf:
    """The tensors of a layer, each taken once."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self._left = list(tensors)

    def take(self, *modules: str) -> list[Tensor]:
        """The weights and biases of these modules, named by the end of their path (``q_proj``, ``indexer.k_norm``)."""
        taken: list[Tensor] = []
        left: list[Tensor] = []
        for tensor in self._left:
            path = "." + module_of(tensor)
            (taken if any(path.endswith("." + module) for module in modules) else left).append(tensor)
        self._left = left
        return taken

    def take_component(self, component: str) -> list[Tensor]:
        """All tensors of one component."""
        taken = [tensor for tensor in self._left if tensor.component == component]
        self._left = [tensor for tensor in self._left if tensor.component != component]
        return taken

    def rest(self) -> list[Tensor]:
        """Whatever was not taken."""
        left, self._left = self._left, []
        return left


def module_of(tensor: Tensor) -> str:
    """A tensor's name without its last word: ``self_attn.q_proj`` of ``self_attn.q_proj.weight``; ``sinks`` stays."""
    return tensor.name.removesuffix(".weight").removesuffix(".bias")


def short_name(tensor: Tensor) -> str:
    """The last module in a tensor's name: ``q_proj``."""
    return module_of(tensor).rsplit(".", 1)[-1]


def weights_of(scope: Scope, tensors: Iterable[Tensor]) -> Number:
    """Bytes of tensors on one rank, whole (experts apart, which `capplan.work.feed_forward` counts)."""
    return sum(tensor.count * rank_bytes(tensor, scope.formats.of(tensor), scope.sharding.tp) for tensor in tensors)


def products(
    scope: Scope, name: str, tensors: Sequence[Tensor], tokens: Number, *, kind: Kind = "gemm", reduce: bool = True
) -> list[Operator]:
    """One GEMM for all matrices that share an input: ``m = tokens``, ``n = Σ rows``, ``k = columns``; then their sum.

    FLOPs ``2·m·n·k``; reads the weights, their biases and the input, writes the output. Matrices divided by columns
    leave partial sums on every rank, which an all-reduce adds up. Matrices of different formats or widths are
    products of their own.
    """
    groups: dict[tuple[WeightFormat, int, bool], list[Tensor]] = {}
    biases = [tensor for tensor in tensors if not tensor.linear]
    for tensor in tensors:
        if tensor.linear:
            divided = tensor.split is not None and tensor.split.axis == 1
            groups.setdefault((scope.formats.of(tensor), tensor.shape[1], divided), []).append(tensor)
    operators: list[Operator] = []
    for (form, _, divided), members in groups.items():
        owned = [bias for bias in biases if module_of(bias) in {module_of(member) for member in members}]
        single = name if len(groups) == 1 else " + ".join(short_name(member) for member in members)
        product = _product(scope, single, members, owned, form, tokens, kind)
        operators.append(product)
        if divided and reduce:
            operators += all_reduce(scope, single, tokens * _columns(product))
    return operators


def _columns(product: Operator) -> Number:
    assert isinstance(product.shape, Gemm)
    return product.shape.n


def _product(
    scope: Scope,
    name: str,
    members: Sequence[Tensor],
    biases: Sequence[Tensor],
    form: WeightFormat,
    tokens: Number,
    kind: Kind,
) -> Operator:
    tp = scope.sharding.tp
    shapes = [rank_matrix(member, tp) for member in members]
    n = sum(member.count * shape[0] for member, shape in zip(members, shapes, strict=True))
    k = shapes[0][1]
    input_format = form.activation or scope.formats.dtype
    weights = sum(member.count * rank_bytes(member, form, tp) for member in members) + weights_of(scope, biases)
    return Operator(
        kind=kind,
        name=name,
        component=members[0].component,
        shape=Gemm(tokens, n, k),
        flops=2 * tokens * n * k,
        traffic=Traffic(
            weights=weights,
            activations_read=scope.input_bytes(tokens * k, input_format),
            activations_written=scope.activations(tokens * n),
        ),
        weight_format=form.name,
        activation_format=input_format,
    )


def elementwise(
    scope: Scope,
    name: str,
    component: str,
    rows: Number,
    width: Number,
    *,
    read: Number = 1,
    written: Number = 1,
    weights: Sequence[Tensor] = (),
    kind: Kind = "elementwise",
) -> Operator:
    """A kernel over ``rows x width`` activations that reads and writes each `read` and `written` times.

    Leaves out FLOPs: such kernels are bound by their bytes and their launch.
    """
    elements = rows * width
    return Operator(
        kind=kind,
        name=name,
        component=component,
        shape=Rows(rows, width),
        traffic=Traffic(
            weights=weights_of(scope, weights),
            activations_read=scope.activations(elements * read),
            activations_written=scope.activations(elements * written),
        ),
        activation_format=scope.formats.dtype,
    )


def remaining(scope: Scope, tensors: Sequence[Tensor], tokens: Number) -> list[Operator]:
    """What a description lists beyond its mixers and feed-forwards: matrices as products, the rest as parameters read.

    A matrix multiplies every position, a pooler one position a sequence, a projector the positions that leave a tower;
    a convolution is the product that it becomes when its input is unfolded. Tables are read row by row.

    Leaves out what the model does with vectors that are known by name alone, and that a convolution before one with a
    stride works at a higher rate.
    """
    operators: list[Operator] = []
    matrices = [
        tensor for tensor in tensors if len(tensor.shape) > 1 and min(tensor.shape) > 1 and not is_table(tensor)
    ]
    for tensor in matrices:
        biases = [other for other in tensors if other is not tensor and module_of(other) == module_of(tensor)]
        flat = replace(tensor, shape=(tensor.shape[0], prod(tensor.shape[1:])), linear=True)
        operators += products(scope, short_name(tensor), [flat, *biases], _positions(scope, tensor, tokens))
    multiplied = {module_of(tensor) for tensor in matrices}
    vectors = [tensor for tensor in tensors if module_of(tensor) not in multiplied and not is_table(tensor)]
    tables = [tensor for tensor in tensors if is_table(tensor)]
    if vectors or tables:
        operators.append(_parameters(scope, vectors, tables, tokens))
    return operators


def is_table(tensor: Tensor) -> bool:
    """Whether a tensor is looked up rather than multiplied."""
    return len(tensor.shape) > 1 and any(word in tensor.name for word in TABLE_WORDS)


def _positions(scope: Scope, tensor: Tensor, tokens: Number) -> Number:
    """Positions that a matrix multiplies."""
    if "pooler" in tensor.name:
        return over(scope.spans, lambda span: 1)
    if any(word in tensor.name for word in PROJECTOR_WORDS):
        return over(scope.spans, lambda span: span.sampled or span.tokens)
    return tokens


def _parameters(scope: Scope, vectors: list[Tensor], tables: list[Tensor], tokens: Number) -> Operator:
    """Vectors read whole, and the rows of tables that the positions look up."""
    rows = sum(
        minimum(table.shape[0], tokens) * rank_bytes(table, scope.formats.of(table), 1) // table.shape[0]
        for table in tables
    )
    component = (vectors or tables)[0].component
    read = elementwise(scope, "parameters", component, tokens, 0, weights=vectors)
    return replace(read, traffic=replace(read.traffic, weights=read.traffic.weights + rows))


def where(amount: Number, operators: list[Operator]) -> list[Operator]:
    """The operators if there is anything for them to do; for an array their count is 0 where there is nothing."""
    if is_number(amount):
        return operators if amount else []
    return [replace(operator, count=operator.count * present(amount)) for operator in operators]


def layered(operators: Iterable[Operator], layers: Number, stage: int = 0) -> list[Operator]:
    """The operators of one layer, for `layers` equal layers."""
    return [replace(operator, count=operator.count * layers, stage=stage) for operator in operators]
