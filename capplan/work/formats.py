"""Which number formats a step works in: of every weight, of the activations, of the KV cache."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import prod

from capplan.arrays import ceil_div, each, times
from capplan.describe.formats import element_bits, number_format
from capplan.describe.model import Block, Stack
from capplan.describe.quantisation import QuantisationPlan, unquantised_plan
from capplan.describe.weight_schemes import (
    Awq,
    BitsAndBytesFourBit,
    Ggml,
    Gptq,
    Mxfp4,
    Nvfp4,
    PackQuantized,
    Plain,
    ScaledEightBit,
    WeightScheme,
    tensor_bytes,
)
from capplan.identity import Same
from capplan.memory.kv_format import kv_format
from capplan.memory.quantised_weights import NamedTensor, as_stored, scheme_of
from capplan.memory.tensors import Tensor, block_tensors
from capplan.work.operators import Number
from capplan.work.sharding import rank_matrix

MATH_FORMATS = frozenset({"fp8", "int8", "fp4"})
"""The formats that matrix units may multiply in beside 16 and 32 bits."""


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """How a weight matrix is stored and multiplied.

    Args:
        name: what kernel tables call it, as in `capplan.describe.kernel_formats`: ``bf16``, ``fp8_block``, ...
        scheme: how it is stored.
        activation: number format in which its input is multiplied; None: the activations' own (weight-only kernels).
    """

    name: str
    scheme: WeightScheme
    activation: str | None = None


@dataclass(frozen=True, slots=True)
class Formats:
    """The formats of one deployment, or, once `at` a place, of one layer.

    Args:
        dtype: number format of the activations.
        kv: number format of the KV cache; ``auto``: that of the activations.
        plan: how each weight is stored; None: all in `dtype`.
        math: which of fp8, int8 and fp4 the matrix units multiply; weights in others are turned into `dtype` first.
        part: where the tensors are: ``model``, ``encoder``, ``mtp`` or the name of a tower.
        layer: the layer whose tensors these are; None: what stands around the layers.
        tower: whether the part is a tower.
        beside_dense: whether the layer has a dense feed-forward beside its experts, which are not under ``mlp`` then.
    """

    dtype: str = "bf16"
    kv: str = "auto"
    plan: QuantisationPlan | None = None
    math: frozenset[str] = MATH_FORMATS
    part: str = "model"
    layer: int | None = None
    tower: bool = False
    beside_dense: bool = False

    def at(
        self, part: str, layer: int | None = None, block: Block | None = None, *, tower: bool | None = None
    ) -> Formats:
        """The formats of one layer of one part of the model, or of what stands around its layers."""
        kinds = {type(ffn) for ffn in block.ffn} if block else set()
        in_tower = self.tower if tower is None else tower
        return replace(self, part=part, layer=layer, tower=in_tower, beside_dense=len(kinds) > 1)

    def of(self, tensor: Tensor) -> WeightFormat:
        """How a tensor of this place is stored."""
        place = self.part if self.layer is None else f"{self.part}.layers.{self.layer}"
        if self.beside_dense and tensor.name.startswith(("mlp.experts.", "mlp.gate.")):
            tensor = replace(tensor, name=tensor.name.removeprefix("mlp."))
        plan = self.plan or plain_plan(self.dtype)
        return _weight_format(Same(plan), tensor, place, self.tower, self.math)

    @property
    def activation_bytes(self) -> int | Fraction:
        """Bytes of one activation."""
        return item_bytes(self.dtype)

    @property
    def kv_bytes(self) -> int | Fraction:
        """Bytes of one cached element, keys and values alike; leaves out scales that stand beside whole heads."""
        return kv_item_bytes(self.kv, self.dtype)

    @property
    def kv_name(self) -> str:
        """The KV cache's number format, with ``auto`` resolved."""
        return self.dtype if self.kv == "auto" else self.kv


@lru_cache(maxsize=64)
def plain_plan(dtype: str) -> QuantisationPlan:
    """Everything in one number format."""
    return unquantised_plan(number_format(dtype))


@lru_cache(maxsize=1 << 16)
def _weight_format(
    key: Same[QuantisationPlan], tensor: Tensor, place: str, tower: bool, math: frozenset[str]
) -> WeightFormat:
    plan = key.value
    module = tensor.name.removesuffix(".weight").removesuffix(".bias")
    path = module if tensor.component == "head" else f"{place}.{module}"
    part = place.partition(".")[0]
    towers = frozenset({part}) if tower else frozenset()
    scheme = scheme_of(NamedTensor(path, tensor, 1, part), plan, towers)
    return multiplied(scheme, math)


def multiplied(scheme: WeightScheme, math: frozenset[str] = MATH_FORMATS) -> WeightFormat:
    """The kernel that multiplies weights of a scheme: in their own format where the matrix units can, else weight-only.

    Source: the kernels of vLLM, SGLang and TensorRT-LLM as the public kernel tables name them.
    """
    match scheme:
        case Plain(form):
            return WeightFormat(form.name, scheme)
        case ScaledEightBit(form, granularity):
            kind = "int8" if form.name == "int8" else "fp8"
            suffix = {"block": "_block", "group": "_group"}.get(granularity, "")
            return _native(f"{kind}{suffix}", scheme, kind, math)
        case Nvfp4():
            return _native("nvfp4", scheme, "fp4", math)
        case Mxfp4():
            native = WeightFormat("mxfp4_mxfp8", scheme, "fp8")
            return native if {"fp4", "fp8"} <= math else WeightFormat("mxfp4_weight_only", scheme)
        case Gptq(bits=bits) | Awq(bits=bits) | PackQuantized(bits=bits):
            return WeightFormat(f"int{bits}_weight_only", scheme)
        case BitsAndBytesFourBit(quant_type=quant_type):
            return WeightFormat(f"{quant_type}_weight_only", scheme)
        case Ggml(ggml):
            return WeightFormat(f"{ggml.name.lower()}_weight_only", scheme)


def _native(name: str, scheme: WeightScheme, kind: str, math: frozenset[str]) -> WeightFormat:
    return WeightFormat(name, scheme, kind) if kind in math else WeightFormat(f"{name}_weight_only", scheme)


@lru_cache(maxsize=64)
def item_bytes(name: str) -> int | Fraction:
    """Bytes of one element in a number format or ggml type: an integer where it is one."""
    return _whole(element_bits(name) / 8)


@lru_cache(maxsize=64)
def kv_item_bytes(name: str, dtype: str) -> int | Fraction:
    """Bytes of one cached element: the mean of keys and values."""
    found = kv_format(name, dtype)
    return _whole((found.key_bits + found.value_bits) / 16)


def _whole(size: Fraction) -> int | Fraction:
    return int(size) if size.denominator == 1 else size


def element_bytes(elements: Number, item: int | Fraction) -> Number:
    """Bytes of `elements` elements of `item` bytes."""
    return times(elements, item)


def rank_bytes(tensor: Tensor, form: WeightFormat, tp: Number) -> Number:
    """Bytes of one of a tensor's equal matrices on the rank that holds most of it; broadcasts over `tp`."""
    shape = rank_matrix(tensor, tp)
    if isinstance(form.scheme, Plain):
        return ceil_div(prod(shape) * form.scheme.format.bits, 8)

    def stored(rows: int, columns: int) -> int:
        return _stored_bytes(form.scheme, rows, columns)

    return each(stored, *shape)


@lru_cache(maxsize=4096)
def _stored_bytes(scheme: WeightScheme, rows: int, columns: int) -> int:
    return tensor_bytes(scheme, rows, columns).total


def layer_variants(
    stack: Stack, name: str, layers: range, formats: Formats, part: str = "model"
) -> list[tuple[int, Formats]]:
    """The layers of one block in a range of layers, by how their weights are stored: (layers alike, their formats).

    One group, unless a checkpoint's own list stores equal modules of different layers differently.
    """
    block = stack.blocks[name]
    indices = [index for index in layers if stack.order[index] == name]
    if not indices:
        return []
    if formats.plan is None or not formats.plan.depends_on_layer:
        return [(len(indices), formats.at(part, stack.order.index(name), block))]
    return [
        (count, formats.at(part, first, block))
        for first, count in _alike(
            Same(stack), name, tuple(indices), Same(formats.plan), formats.math, part, formats.tower
        )
    ]


@lru_cache(maxsize=1024)
def _alike(
    stack_key: Same[Stack],
    name: str,
    indices: tuple[int, ...],
    plan_key: Same[QuantisationPlan | None],
    math: frozenset[str],
    part: str,
    tower: bool,
) -> tuple[tuple[int, int], ...]:
    """(first layer, number of layers) of each way in which the block's weights are stored."""
    stack = stack_key.value
    formats = Formats(plan=plan_key.value, math=math, tower=tower)
    tensors = tuple(as_stored(block_tensors(stack.blocks[name], stack)))
    groups: dict[tuple[WeightFormat, ...], list[int]] = {}
    for index in indices:
        place = formats.at(part, index, stack.blocks[name])
        groups.setdefault(tuple(place.of(tensor) for tensor in tensors), []).append(index)
    return tuple((members[0], len(members)) for members in groups.values())
