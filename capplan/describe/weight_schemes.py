"""How a weight matrix is stored: the packed numbers and every scale, zero point and index beside them.

A weight matrix W has N rows (output features) and K columns (input features). Each scheme below is
one storage layout; `stored_tensors` lists the tensors that a checkpoint holds for W, with their
number formats and exact shapes, so that bytes are never an average of bits per weight.
Which matrices a library quantises at all is decided in `capplan.describe.quantisation`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Literal, TypeAlias

from capplan.describe.formats import (
    BF16,
    FP8_E4M3,
    FP16,
    FP32,
    INT8,
    INT32,
    INT64,
    UE8M0,
    UINT8,
    GgmlType,
    NumberFormat,
)


@dataclass(frozen=True)
class StoredTensor:
    """One tensor as a checkpoint stores it: a name, a number format and a shape."""

    name: str
    format: NumberFormat
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Elements = the product of the shape (1 for a scalar)."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes = ceil(elements · bits / 8)."""
        return self.format.bytes_for(self.elements)


def _ceil_div(numerator: int, denominator: int) -> int:
    """ceil(numerator / denominator) for positive integers."""
    return -(-numerator // denominator)


def _groups(columns: int, group_size: int | None) -> int:
    """Groups along K = ceil(K / g); one group when the scale holds for the whole row (g is None)."""
    return 1 if group_size is None else _ceil_div(columns, group_size)


def _packed_int32(elements: int, bits: int) -> int:
    """32-bit words that hold `elements` numbers of `bits` bits: ceil(elements · bits / 32)."""
    return _ceil_div(elements * bits, 32)


@dataclass(frozen=True)
class Plain:
    """The matrix as it is, in one number format.

    bytes = N · K · bits / 8
    """

    format: NumberFormat

    def stored_tensors(self, n: int, k: int) -> tuple[StoredTensor, ...]:
        """What a checkpoint holds for an N x K matrix."""
        return (StoredTensor("weight", self.format, (n, k)),)


@dataclass(frozen=True)
class ScaledEightBit:
    """One byte per weight and a scale per tensor, per row (channel) or per block.

    bytes = N·K + s·scales [+ a]   scales = 1 | N | ceil(N/b)·ceil(K/b) | N·ceil(K/g)

    s is the scale's bytes; a those of a static activation scale (`activation_scale`: its format, None where
    activations are scaled as they come).
    int8 per channel is bitsandbytes' LLM.int8 (``CB`` and ``SCB``) and compressed-tensors' int-quantized;
    fp8 per block is DeepSeek's ``weight_scale_inv``, and MXFP8 with g = 32 along K and E8M0 scales.
    Leaves out: the one-byte ``weight_format`` mark that bitsandbytes writes beside ``SCB``; the zero
    points of asymmetric int8, which no engine serves.
    Source: DeepSeek-V3 technical report (arXiv:2412.19437) section 3.3; compressed-tensors 0.20.1 and
    bitsandbytes 0.50.2, measured; OCP Microscaling Formats v1.0.
    """

    format: NumberFormat
    granularity: Literal["tensor", "channel", "block", "group"]
    scale: NumberFormat = FP32
    block: int = 128
    activation_scale: NumberFormat | None = None

    def stored_tensors(self, n: int, k: int) -> tuple[StoredTensor, ...]:
        """What a checkpoint holds for an N x K matrix."""
        scale_shape: tuple[int, ...] = {
            "tensor": (1,),
            "channel": (n, 1),
            "block": (_ceil_div(n, self.block), _ceil_div(k, self.block)),
            "group": (n, _ceil_div(k, self.block)),
        }[self.granularity]
        stored = [
            StoredTensor("weight", self.format, (n, k)),
            StoredTensor("weight_scale", self.scale, scale_shape),
        ]
        if self.activation_scale is not None:
            stored.append(StoredTensor("input_scale", self.activation_scale, (1,)))
        return tuple(stored)


@dataclass(frozen=True)
class Gptq:
    """GPTQ: integers packed along K into 32-bit words, zero points packed along N, an index per column.

    bytes = 4·ceil(K·b/32)·N + 4·G·ceil(N·b/32) + 2·G·N [+ 4·K] [+ 2·N]   G = ceil(K/g)

    b bits per weight, g columns per group (None: the whole row), 4·K for ``g_idx``, 2·N for the zero
    bias that AutoGPTQ wrote for layers that have none. GPTQ always stores the zero points, symmetric or not.
    Source: Frantar et al. 2022, arXiv:2210.17323; AutoGPTQ's qlinear layers.
    """

    bits: int
    group_size: int | None
    group_index: bool = True
    zero_bias: bool = False

    def stored_tensors(self, n: int, k: int) -> tuple[StoredTensor, ...]:
        """What a checkpoint holds for an N x K matrix."""
        groups = _groups(k, self.group_size)
        stored = [
            StoredTensor("qweight", INT32, (_packed_int32(k, self.bits), n)),
            StoredTensor("qzeros", INT32, (groups, _packed_int32(n, self.bits))),
            StoredTensor("scales", FP16, (groups, n)),
        ]
        if self.group_index:
            stored.append(StoredTensor("g_idx", INT32, (k,)))
        if self.zero_bias:
            stored.append(StoredTensor("bias", FP16, (n,)))
        return tuple(stored)


@dataclass(frozen=True)
class Awq:
    """AWQ's GEMM layout: integers and zero points packed along N into 32-bit words.

    bytes = 4·K·ceil(N·b/32) + 4·G·ceil(N·b/32) + 2·G·N   G = ceil(K/g)

    b bits per weight, g columns per group.
    Source: Lin et al. 2023, arXiv:2306.00978; AutoAWQ's WQLinear_GEMM.
    """

    bits: int
    group_size: int | None

    def stored_tensors(self, n: int, k: int) -> tuple[StoredTensor, ...]:
        """What a checkpoint holds for an N x K matrix."""
        groups = _groups(k, self.group_size)
        return (
            StoredTensor("qweight", INT32, (k, _packed_int32(n, self.bits))),
            StoredTensor("qzeros", INT32, (groups, _packed_int32(n, self.bits))),
            StoredTensor("scales", FP16, (groups, n)),
        )


@dataclass(frozen=True)
class PackQuantized:
    """compressed-tensors' pack-quantized: integers packed along K, the shape stored beside them.

    bytes = 4·N·ceil(K·b/32) + s·N·G + 16 [+ 4·ceil(N·b/32)·G] [+ 4·K]   G = ceil(K/g)

    s is the scale's bytes (the model's own dtype), 16 the ``weight_shape`` of two int64; asymmetric
    schemes add packed zero points, activation ordering by group adds ``weight_g_idx``.
    Source: compressed-tensors 0.20.1, measured.
    """

    bits: int
    group_size: int | None
    symmetric: bool = True
    scale: NumberFormat = BF16
    group_index: bool = False

    def stored_tensors(self, n: int, k: int) -> tuple[StoredTensor, ...]:
        """What a checkpoint holds for an N x K matrix."""
        groups = _groups(k, self.group_size)
        stored = [
            StoredTensor("weight_packed", INT32, (n, _packed_int32(k, self.bits))),
            StoredTensor("weight_scale", self.scale, (n, groups)),
            StoredTensor("weight_shape", INT64, (2,)),
        ]
        if not self.symmetric:
            stored.append(StoredTensor("weight_zero_point", INT32, (_packed_int32(n, self.bits), groups)))
        if self.group_index:
            stored.append(StoredTensor("weight_g_idx", INT32, (k,)))
        return tuple(stored)


@dataclass(frozen=True)
class BitsAndBytesFourBit:
    """bitsandbytes NF4 or FP4: blocks of g weights over the flattened matrix, one absmax each.

    bytes = N·K/2 + 4·B + 64 + blob                          B = ceil(N·K/g)
    bytes = N·K/2 + B + 4·ceil(B/256) + 64 + 1024 + blob     with double quantisation

    64 is the code book of 16 fp32 values, 1024 the nested one of 256; blob is the quantisation state
    as JSON text, which holds N and K in decimal and so has no fixed length.
    Leaves out: with double quantisation the blob spells out a float whose digits depend on the weights
    (`NESTED_OFFSET_DIGITS` is the usual length), so the total is exact to within two bytes per matrix.
    Source: Dettmers et al. 2023, arXiv:2305.14314; bitsandbytes 0.50.2, measured.
    """

    quant_type: Literal["nf4", "fp4"] = "nf4"
    double_quant: bool = False
    block: int = 64

    NESTED_BLOCK = 256
    NESTED_OFFSET_DIGITS = 18

    def _state_blob(self, n: int, k: int) -> int:
        state: dict[str, object] = {
            "quant_type": self.quant_type,
            "blocksize": self.block,
            "dtype": "bfloat16",
            "shape": [n, k],
        }
        if not self.double_quant:
            return len(json.dumps(state))
        state |= {"nested_blocksize": self.NESTED_BLOCK, "nested_dtype": "float32", "nested_offset": 0}
        return len(json.dumps(state)) - 1 + self.NESTED_OFFSET_DIGITS

    def stored_tensors(self, n: int, k: int) -> tuple[StoredTensor, ...]:
        """What a checkpoint holds for an N x K matrix."""
        blocks = _ceil_div(n * k, self.block)
        blob = StoredTensor(f"quant_state.bitsandbytes__{self.quant_type}", UINT8, (self._state_blob(n, k),))
        packed = StoredTensor("weight", UINT8, (_ceil_div(n * k, 2), 1))
        code_book = StoredTensor("weight.quant_map", FP32, (16,))
        if not self.double_quant:
            return (packed, StoredTensor("weight.absmax", FP32, (blocks,)), code_book, blob)
        return (
            packed,
            StoredTensor("weight.absmax", UINT8, (blocks,)),
            code_book,
            StoredTensor("weight.nested_absmax", FP32, (_ceil_div(blocks, self.NESTED_BLOCK),)),
            StoredTensor("weight.nested_quant_map", FP32, (256,)),
            blob,
        )


@dataclass(frozen=True)
class Mxfp4:
    """MXFP4: E2M1 numbers, two a byte, and one E8M0 scale for each 32 along K.

    bytes = N·K/2 + N·ceil(K/32)

    Source: OCP Microscaling Formats v1.0; gpt-oss checkpoints store ``blocks`` and ``scales`` so.
    """

    def stored_tensors(self, n: int, k: int) -> tuple[StoredTensor, ...]:
        """What a checkpoint holds for an N x K matrix."""
        return (
            StoredTensor("weight_packed", UINT8, (n, _ceil_div(k, 2))),
            StoredTensor("weight_scale", UE8M0, (n, _ceil_div(k, 32))),
        )


@dataclass(frozen=True)
class Nvfp4:
    """NVFP4: E2M1 numbers, two a byte, one E4M3 scale for each g along K, one fp32 scale per tensor.

    bytes = N·K/2 + N·ceil(K/g) + 4 [+ 4]

    The second 4 are the activation's global scale (`static_activation`).
    Source: NVIDIA ModelOpt's unified checkpoints; compressed-tensors 0.20.1, measured.
    """

    static_activation: bool = False
    group_size: int = 16

    def stored_tensors(self, n: int, k: int) -> tuple[StoredTensor, ...]:
        """What a checkpoint holds for an N x K matrix."""
        stored = [
            StoredTensor("weight_packed", UINT8, (n, _ceil_div(k, 2))),
            StoredTensor("weight_scale", FP8_E4M3, (n, _ceil_div(k, self.group_size))),
            StoredTensor("weight_global_scale", FP32, (1,)),
        ]
        if self.static_activation:
            stored.append(StoredTensor("input_global_scale", FP32, (1,)))
        return tuple(stored)


@dataclass(frozen=True)
class Ggml:
    """One ggml type: rows of K weights in whole blocks, scales inside the blocks.

    bytes = N · (K / block_elements) · block_bytes

    Raises UnsupportedError when K isn't a whole number of blocks.
    """

    type: GgmlType

    def stored_tensors(self, n: int, k: int) -> tuple[StoredTensor, ...]:
        """What a checkpoint holds for an N x K matrix."""
        return (StoredTensor("weight", UINT8, (self.type.bytes_for(n, k),)),)


WeightScheme: TypeAlias = (
    Plain | ScaledEightBit | Gptq | Awq | PackQuantized | BitsAndBytesFourBit | Mxfp4 | Nvfp4 | Ggml
)


@dataclass(frozen=True)
class TensorBytes:
    """The bytes of one weight matrix, tensor by tensor."""

    terms: tuple[StoredTensor, ...]

    @property
    def total(self) -> int:
        """Bytes of all the stored tensors together."""
        return sum(term.bytes for term in self.terms)

    @property
    def scale_bytes(self) -> int:
        """Bytes beside the packed weights themselves: scales, zero points, indices, state."""
        return self.total - self.terms[0].bytes


def tensor_bytes(scheme: WeightScheme, n: int, k: int) -> TensorBytes:
    """Exact bytes of an N x K weight matrix under a scheme, as named terms.

    total = Σ over the stored tensors of ceil(elements · bits / 8)

    Args:
        scheme: how the matrix is stored.
        n: rows (output features).
        k: columns (input features).
    """
    return TensorBytes(scheme.stored_tensors(n, k))


def bits_per_weight(scheme: WeightScheme, n: int, k: int) -> Fraction:
    """Bits per weight of an N x K matrix, scales included: 8 · bytes / (N · K)."""
    return Fraction(8 * tensor_bytes(scheme, n, k).total, n * k)


FP8_BLOCK = ScaledEightBit(FP8_E4M3, "block")
INT8_CHANNEL = ScaledEightBit(INT8, "channel")
