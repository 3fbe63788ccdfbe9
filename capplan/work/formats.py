"""Which number formats a step works in: of every weight, of the activations, of the KV cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import prod

from capplan.arrays import ceil_div, each, times
from capplan.describe.formats import element_bits, number_format
from capplan.describe.weight_schemes import Plain, WeightScheme, tensor_bytes
from capplan.memory.kv_cache import KV_DTYPE_BYTES
from capplan.memory.tensors import Tensor
from capplan.work.operators import Number
from capplan.work.sharding import rank_matrix

UNQUANTISED = frozenset({"router", "head", "norms", "embedding", "other"})
"""Components whose matrices stay in the activations' dtype unless a checkpoint says otherwise."""


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """How a weight matrix is stored and multiplied.

    Args:
        name: the name that kernel laws know it by, such as ``bf16``, ``fp8``, ``fp8_block``, ``nvfp4``, ``int4_wo``.
        scheme: how it is stored.
        activation: number format in which its input is multiplied; None: the activations' own (weight-only formats).
    """

    name: str
    scheme: WeightScheme
    activation: str | None = None


@dataclass(frozen=True, slots=True)
class Formats:
    """The formats of one deployment.

    Args:
        dtype: number format of the activations and of every tensor that is not quantised.
        kv: number format of the KV cache.
        quantised: the format of the matrix of a linear map, or None where it is stored in `dtype`; None: nothing is
            quantised.
    """

    dtype: str = "bf16"
    kv: str = "bf16"
    quantised: Callable[[Tensor], WeightFormat | None] | None = None

    def of(self, tensor: Tensor) -> WeightFormat:
        """How this tensor is stored."""
        found = self.quantised(tensor) if self.quantised and tensor.linear else None
        return found or plain_format(self.dtype)

    @property
    def activation_bytes(self) -> int | Fraction:
        """Bytes of one activation."""
        return item_bytes(self.dtype)

    @property
    def kv_bytes(self) -> int | Fraction:
        """Bytes of one cached element."""
        return item_bytes(self.kv)


def quantised_linears(dtype: str, kv: str, weights: WeightFormat) -> Formats:
    """Every matrix of attention, linear mixers, feed-forwards and experts in one format, the rest in `dtype`.

    What most quantised checkpoints do; one whose own list says otherwise passes that as `Formats.quantised`.
    """

    def quantised(tensor: Tensor) -> WeightFormat | None:
        return weights if tensor.linear and tensor.component not in UNQUANTISED else None

    return Formats(dtype, kv, quantised)


@lru_cache(maxsize=64)
def plain_format(dtype: str) -> WeightFormat:
    """A matrix as it is, in one number format."""
    return WeightFormat(dtype, Plain(number_format(dtype)))


@lru_cache(maxsize=64)
def item_bytes(name: str) -> int | Fraction:
    """Bytes of one element in a number format or ggml type: an integer where it is one."""
    if name in KV_DTYPE_BYTES:
        return KV_DTYPE_BYTES[name]
    size = element_bits(name) / 8
    return int(size) if size.denominator == 1 else size


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


def element_bytes(elements: Number, item: int | Fraction) -> Number:
    """Bytes of `elements` elements of `item` bytes."""
    return times(elements, item)
