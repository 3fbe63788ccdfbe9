"""The number formats that measured kernels come in: what is stored, what is multiplied.

A kernel's format is more than a number format: ``fp8_block`` has a scale for every 128 × 128 weights, and
``int4_weight_only`` multiplies in bf16. `KernelFormat` says what the laws need: the bytes of a weight and of an
activation, scales included, and the format whose peak rate the arithmetic has.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from capplan.errors import UnsupportedError, did_you_mean

MathFormat = Literal["fp32", "tf32", "bf16", "fp8", "int8", "fp4"]


@dataclass(frozen=True)
class KernelFormat:
    """One way to multiply activations with weights.

    Args:
        name: capplan's name.
        table_name: the name in the public kernel tables.
        weight_bytes: bytes of one stored weight, scales included.
        activation_bytes: bytes of one activation as the multiplication reads it.
        math: the format whose dense rate the multiplication has.
    """

    name: str
    table_name: str
    weight_bytes: Fraction
    activation_bytes: Fraction
    math: MathFormat


_BYTE = Fraction(1)
_HALF = Fraction(1, 2)
_NVFP4 = _HALF + Fraction(1, 16)  # one E4M3 scale for 16 elements
_MXFP8 = _BYTE + Fraction(1, 32)  # one E8M0 scale for 32 elements
_MXFP4 = _HALF + Fraction(1, 32)  # one E8M0 scale for 32 elements

# Sources: OCP Microscaling Formats v1.0 (MXFP4's scales); NVIDIA, "Introducing NVFP4" (16 elements a scale);
# DeepSeek-V3 technical report, section 3.3.2 (128 × 128 blocks). Scales of 4 bytes for 16,384 weights, and those of
# one channel, are left out.
KERNEL_FORMATS: tuple[KernelFormat, ...] = (
    KernelFormat("bf16", "bfloat16", Fraction(2), Fraction(2), "bf16"),
    KernelFormat("fp32", "float32", Fraction(4), Fraction(4), "fp32"),
    KernelFormat("tf32", "tfloat32", Fraction(4), Fraction(4), "tf32"),
    KernelFormat("fp8", "fp8", _BYTE, _BYTE, "fp8"),
    KernelFormat("fp8_block", "fp8_block", _BYTE, _BYTE, "fp8"),
    KernelFormat("mxfp8", "mxfp8", _MXFP8, _MXFP8, "fp8"),
    KernelFormat("nvfp4", "nvfp4", _NVFP4, _NVFP4, "fp4"),
    KernelFormat("int8", "sq", _BYTE, _BYTE, "int8"),
    KernelFormat("int8_weight_only", "int8_wo", _BYTE, Fraction(2), "bf16"),
    KernelFormat("int4_weight_only", "int4_wo", _HALF, Fraction(2), "bf16"),
    KernelFormat("int4_fp8", "w4afp8", _HALF, _BYTE, "fp8"),
    KernelFormat("mxfp4_weight_only", "w4a16_mxfp4", _MXFP4, Fraction(2), "bf16"),
    KernelFormat("mxfp4_mxfp8", "w4a8_mxfp4_mxfp8", _MXFP4, _BYTE, "fp8"),
)

_BY_NAME = {known.name: known for known in KERNEL_FORMATS} | {"fp16": KERNEL_FORMATS[0]}
_BY_TABLE_NAME = {known.table_name: known for known in KERNEL_FORMATS} | {"float16": KERNEL_FORMATS[0]}


def kernel_format(name: str) -> KernelFormat:
    """The format that capplan calls `name`; fp16 runs as bf16 does.

    Raises:
        UnsupportedError: no measured kernel has that format.
    """
    if name not in _BY_NAME:
        raise UnsupportedError(f"no measured kernel has the format {name!r}", hint=did_you_mean(name, _BY_NAME))
    return _BY_NAME[name]


def table_format(name: str) -> KernelFormat | None:
    """The format that the public kernel tables call `name`, or None for one that capplan does not know."""
    return _BY_TABLE_NAME.get(name)
