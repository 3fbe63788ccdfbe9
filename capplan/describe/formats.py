"""Number formats: how many bits one element takes, by every name that files and engines give it.

A format says how a single number is stored. How a whole weight matrix is stored (its groups, scales
and zero points) is a scheme, in `capplan.describe.weight_schemes`; the block formats of llama.cpp,
whose scales lie inside the block, are `GgmlType` here.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from capplan.errors import UnsupportedError, UsageError, did_you_mean


@dataclass(frozen=True)
class NumberFormat:
    """One way to store a number.

    Args:
        name: the name used throughout capplan.
        bits: bits of storage per element.
        safetensors: the name in a safetensors header, or "" where that format has none.
        aliases: further names, in lower case, by which files, engines and users know it.
    """

    name: str
    bits: int
    safetensors: str = ""
    aliases: tuple[str, ...] = ()

    def bytes_for(self, elements: int) -> int:
        """Bytes of `elements` numbers packed without gaps, the last byte filled up.

        bytes = ceil(elements · bits / 8)
        """
        return -(-elements * self.bits // 8)


# Sources: IEEE 754-2019 (fp64, fp32, fp16); Kalamkar et al. 2019, arXiv:1905.12322 (bf16); NVIDIA Ampere
# whitepaper (tf32: 19 significant bits, stored in 32); OCP 8-bit Floating Point (E4M3, E5M2) and OCP
# Microscaling Formats v1.0 (E8M0, E3M2, E2M3, E2M1); Dettmers et al. 2023, arXiv:2305.14314 (NF4);
# the safetensors format description (names in headers).
NUMBER_FORMATS: tuple[NumberFormat, ...] = (
    NumberFormat("fp64", 64, "F64", ("float64", "double", "f64")),
    NumberFormat("fp32", 32, "F32", ("float32", "float", "f32")),
    NumberFormat("tf32", 32, "", ("tensorfloat32",)),
    NumberFormat("fp16", 16, "F16", ("float16", "half", "f16")),
    NumberFormat("bf16", 16, "BF16", ("bfloat16",)),
    NumberFormat("fp8_e4m3", 8, "F8_E4M3", ("fp8", "float8_e4m3fn", "float8_e4m3", "e4m3", "e4m3fn")),
    NumberFormat("fp8_e5m2", 8, "F8_E5M2", ("float8_e5m2", "e5m2")),
    NumberFormat("fp8_e4m3fnuz", 8, "F8_E4M3FNUZ", ("float8_e4m3fnuz",)),
    NumberFormat("fp8_e5m2fnuz", 8, "F8_E5M2FNUZ", ("float8_e5m2fnuz",)),
    NumberFormat("ue8m0", 8, "F8_E8M0", ("e8m0", "float8_e8m0fnu", "fp8_e8m0")),
    NumberFormat("fp6_e2m3", 6, "F6_E2M3", ("e2m3",)),
    NumberFormat("fp6_e3m2", 6, "F6_E3M2", ("e3m2",)),
    NumberFormat("fp4_e2m1", 4, "F4", ("fp4", "e2m1", "float4_e2m1fn_x2")),
    NumberFormat("nf4", 4),
    NumberFormat("complex64", 64, "C64", ("c64",)),
    NumberFormat("int64", 64, "I64", ("i64", "long")),
    NumberFormat("uint64", 64, "U64", ("u64",)),
    NumberFormat("int32", 32, "I32", ("i32", "int")),
    NumberFormat("uint32", 32, "U32", ("u32",)),
    NumberFormat("int16", 16, "I16", ("i16", "short")),
    NumberFormat("uint16", 16, "U16", ("u16",)),
    NumberFormat("int8", 8, "I8", ("i8", "char")),
    NumberFormat("uint8", 8, "U8", ("u8", "byte")),
    NumberFormat("int4", 4, "", ("i4",)),
    NumberFormat("bool", 8, "BOOL"),
)

_BY_NAME = {name: fmt for fmt in NUMBER_FORMATS for name in (fmt.name, *fmt.aliases)}
_BY_SAFETENSORS = {fmt.safetensors: fmt for fmt in NUMBER_FORMATS if fmt.safetensors}

FP32 = _BY_NAME["fp32"]
FP16 = _BY_NAME["fp16"]
BF16 = _BY_NAME["bf16"]
FP8_E4M3 = _BY_NAME["fp8_e4m3"]
UE8M0 = _BY_NAME["ue8m0"]
INT64 = _BY_NAME["int64"]
INT32 = _BY_NAME["int32"]
INT8 = _BY_NAME["int8"]
UINT8 = _BY_NAME["uint8"]


def number_format(name: str, *, where: str = "") -> NumberFormat:
    """The number format that `name` means: capplan's name, PyTorch's (with or without ``torch.``), or a short one.

    Raises:
        UsageError: no format has that name.
    """
    key = name.strip().lower().removeprefix("torch.").replace("-", "_")
    found = _BY_NAME.get(key)
    if found is None:
        raise UsageError(f"unknown number format {name!r}", where=where, hint=did_you_mean(key, _BY_NAME))
    return found


def safetensors_format(name: str, *, where: str = "") -> NumberFormat:
    """The number format that a safetensors header calls `name`.

    Raises:
        UnsupportedError: the format description has no such name.
    """
    found = _BY_SAFETENSORS.get(name)
    if found is None:
        raise UnsupportedError(
            f"unknown safetensors dtype {name[:40]!r}", where=where, hint=did_you_mean(name, _BY_SAFETENSORS)
        )
    return found


@dataclass(frozen=True)
class GgmlType:
    """One block format of llama.cpp: `block_elements` numbers in `block_bytes` bytes, scales included.

    Args:
        name: ggml's name.
        code: the number that a GGUF tensor table writes for it.
        block_elements: numbers in one block; a row holds a whole number of blocks.
        block_bytes: bytes of one block.
        plain: whether the type is an ordinary float or integer and not a quantised one.
    """

    name: str
    code: int
    block_elements: int
    block_bytes: int
    plain: bool = False

    @property
    def bits_per_weight(self) -> Fraction:
        """Bits per weight = 8 · block_bytes / block_elements."""
        return Fraction(8 * self.block_bytes, self.block_elements)

    def bytes_for(self, rows: int, columns: int) -> int:
        """Bytes of a matrix of `rows` rows with `columns` elements each.

        bytes = rows · (columns / block_elements) · block_bytes

        Raises:
            UnsupportedError: a row isn't a whole number of blocks, which ggml can't store.
        """
        if columns % self.block_elements:
            raise UnsupportedError(
                f"a row of {columns} elements isn't a whole number of {self.name} blocks of {self.block_elements}"
            )
        return rows * (columns // self.block_elements) * self.block_bytes


# Source: ggml's type table (ggml/include/ggml.h for the codes, ggml/src/ggml-common.h for the block structs).
# The codes that are missing belong to types that ggml has removed.
GGML_TYPES: tuple[GgmlType, ...] = (
    GgmlType("F32", 0, 1, 4, plain=True),
    GgmlType("F16", 1, 1, 2, plain=True),
    GgmlType("Q4_0", 2, 32, 18),
    GgmlType("Q4_1", 3, 32, 20),
    GgmlType("Q5_0", 6, 32, 22),
    GgmlType("Q5_1", 7, 32, 24),
    GgmlType("Q8_0", 8, 32, 34),
    GgmlType("Q8_1", 9, 32, 40),
    GgmlType("Q2_K", 10, 256, 84),
    GgmlType("Q3_K", 11, 256, 110),
    GgmlType("Q4_K", 12, 256, 144),
    GgmlType("Q5_K", 13, 256, 176),
    GgmlType("Q6_K", 14, 256, 210),
    GgmlType("Q8_K", 15, 256, 292),
    GgmlType("IQ2_XXS", 16, 256, 66),
    GgmlType("IQ2_XS", 17, 256, 74),
    GgmlType("IQ3_XXS", 18, 256, 98),
    GgmlType("IQ1_S", 19, 256, 50),
    GgmlType("IQ4_NL", 20, 32, 18),
    GgmlType("IQ3_S", 21, 256, 110),
    GgmlType("IQ2_S", 22, 256, 82),
    GgmlType("IQ4_XS", 23, 256, 136),
    GgmlType("I8", 24, 1, 1, plain=True),
    GgmlType("I16", 25, 1, 2, plain=True),
    GgmlType("I32", 26, 1, 4, plain=True),
    GgmlType("I64", 27, 1, 8, plain=True),
    GgmlType("F64", 28, 1, 8, plain=True),
    GgmlType("IQ1_M", 29, 256, 56),
    GgmlType("BF16", 30, 1, 2, plain=True),
    GgmlType("TQ1_0", 34, 256, 54),
    GgmlType("TQ2_0", 35, 256, 66),
    GgmlType("MXFP4", 39, 32, 17),
    GgmlType("NVFP4", 40, 64, 36),
    GgmlType("Q1_0", 41, 128, 18),
)

_GGML_BY_NAME = {ggml.name: ggml for ggml in GGML_TYPES}
_GGML_BY_CODE = {ggml.code: ggml for ggml in GGML_TYPES}


def ggml_type(name: str, *, where: str = "") -> GgmlType:
    """The ggml type called `name` (``q4_k`` and ``Q4_K`` alike).

    Raises:
        UsageError: ggml has no type of that name.
    """
    found = _GGML_BY_NAME.get(name.strip().upper().replace("-", "_"))
    if found is None:
        known = {ggml.lower(): ggml for ggml in _GGML_BY_NAME}
        raise UsageError(f"unknown ggml type {name!r}", where=where, hint=did_you_mean(name, known))
    return found


def ggml_type_of_code(code: int, *, where: str = "") -> GgmlType:
    """The ggml type that a GGUF tensor table writes as `code`.

    Raises:
        UnsupportedError: a type that ggml has removed, or one newer than this table.
    """
    found = _GGML_BY_CODE.get(code)
    if found is None:
        raise UnsupportedError(f"unknown ggml type number {code}", where=where)
    return found


def element_bits(name: str, *, where: str = "") -> Fraction:
    """Bits per element of a number format or a ggml type, as for the elements of a KV cache.

    bits = 8 · block_bytes / block_elements for a ggml type, the format's own bits otherwise

    Raises:
        UsageError: neither a number format nor a ggml type has that name.
    """
    ggml = _GGML_BY_NAME.get(name.strip().upper().replace("-", "_"))
    if ggml is not None:
        return ggml.bits_per_weight
    key = name.strip().lower().removeprefix("torch.").replace("-", "_")
    if key not in _BY_NAME:
        names = [*_BY_NAME, *(known.lower() for known in _GGML_BY_NAME)]
        raise UsageError(f"unknown number format {name!r}", where=where, hint=did_you_mean(key, names))
    return Fraction(_BY_NAME[key].bits)
