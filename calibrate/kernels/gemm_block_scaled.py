"""A linear layer in block-scaled formats: fp8 with a scale for 128 × 128 weights, MXFP8, NVFP4.

Each needs units and libraries that only some GPUs have; `missing` asks the library by a small product.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch.nn import functional

from calibrate.device import Device
from calibrate.kernels.gemm import part_of_product
from calibrate.kernels.kernel import TOLERANCE, Call, Case, Kernel, Setting, Tensor, Work, normal, sets_of
from calibrate.kernels.sizes import gemm_shapes

FORMATS = ("fp8_block", "mxfp8", "nvfp4")

_GROUP = {"fp8_block": 128, "mxfp8": 32, "nvfp4": 16}
_LARGEST = {"fp8_block": 448.0, "mxfp8": 448.0, "nvfp4": 6.0}
_FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""The values of E2M1. Source: OCP Microscaling Formats v1.0, section 5.3.3."""


def cases(device: Device) -> Sequence[Case]:
    """Every shape on a GPU."""
    return [
        Case("gemm_block_scaled", {"format": name}, shape)
        for name in FORMATS
        for shape in gemm_shapes(device, all_of_them=device.kind == "cuda")
        if shape["n"] % 128 == 0 and shape["k"] % 128 == 0
    ]


def missing(device: Device, case: Case) -> str:
    """What the library says to a small product."""
    if not hasattr(functional, "scaled_mm"):
        return "this torch has no block-scaled products"
    return _refusal(device, str(case.key["format"]))


@lru_cache(maxsize=16)
def _refusal(device: Device, name: str) -> str:
    try:
        call = prepare(Case("gemm_block_scaled", {"format": name}, {"m": 128, "n": 128, "k": 256}), Setting(device))
        call.run(0)
        device.synchronise()
    except (RuntimeError, ValueError, TypeError, AttributeError, NotImplementedError) as error:
        return f"the library refuses {name}: {str(error).splitlines()[0][:100]}"
    return ""


def work(case: Case) -> Work:
    """2·m·n·k FLOPs; weights and activations with their scales, two bytes a result."""
    m, n, k = (case.shape[axis] for axis in "mnk")
    name = str(case.key["format"])
    item = 0.5 if name == "nvfp4" else 1.0
    scale_bytes = {"fp8_block": 4 / (128 * 128), "mxfp8": 1 / 32, "nvfp4": 1 / 16}[name]
    return Work(
        2.0 * m * n * k, (item + scale_bytes) * (n * k + m * k) + 2 * m * n, "fp4" if name == "nvfp4" else "fp8"
    )


def set_bytes(case: Case) -> int:
    """One weight matrix."""
    return case.shape["n"] * case.shape["k"] // (2 if case.key["format"] == "nvfp4" else 1)


def prepare(case: Case, setting: Setting) -> Call:
    """Weights quantised before, one bf16 input quantised in every run."""
    m, n, k = (case.shape[axis] for axis in "mnk")
    name = str(case.key["format"])

    def weight_of(one: Setting) -> Tensor:
        return normal(one, n, k, scale=k**-0.5)

    weights = sets_of(setting, lambda one: (one, *quantised(weight_of(one), name, weight=True)))
    x = normal(setting.other(0), m, k)
    recipes = _recipes(name)

    def run(index: int) -> Tensor:
        _, stored, scale = weights[index]
        rows, row_scale = quantised(x, name, weight=False)
        return functional.scaled_mm(
            rows, stored.t(), row_scale, recipes[0], scale, recipes[1], *recipes[2], output_dtype=torch.bfloat16
        )

    def expected(index: int, output: Tensor) -> tuple[Tensor, Tensor]:
        weight = stood_for(weight_of(weights[index][0]), name, weight=True)
        return part_of_product(output, stood_for(x, name, weight=False), weight)

    return Call(run, expected, TOLERANCE["bf16"])


def _recipes(name: str) -> tuple[Any, Any, tuple[Any, ...]]:
    """The library's names for the scalings of activations and weights, and the order that scales lie in."""
    kind, order = functional.ScalingType, functional.SwizzleType.SWIZZLE_32_4_4
    return {
        "fp8_block": (kind.BlockWise1x128, kind.BlockWise128x128, ()),
        "mxfp8": (kind.BlockWise1x32, kind.BlockWise1x32, (order, order)),
        "nvfp4": (kind.BlockWise1x16, kind.BlockWise1x16, (order, order)),
    }[name]


def quantised(x: Tensor, name: str, *, weight: bool) -> tuple[Tensor, Tensor]:
    """(stored, scales as the library wants them)."""
    divided, scale = _divided(x, name, weight=weight)
    stored = _packed_in_pairs(_fp4_codes(divided)) if name == "nvfp4" else divided.to(torch.float8_e4m3fn)
    return stored, _scales(scale, name)


def stood_for(x: Tensor, name: str, *, weight: bool) -> Tensor:
    """The numbers that a quantised tensor stands for, in float64."""
    divided, scale = _divided(x, name, weight=weight)
    if name == "nvfp4":
        codes = _fp4_codes(divided)
        table = torch.tensor((*_FP4, *(-value for value in _FP4)), device=x.device, dtype=torch.float64)
        values = table[codes.long()]
    else:
        values = divided.to(torch.float8_e4m3fn).double()
    group, tall = _GROUP[name], x.shape[0] // scale.shape[0]
    return values * scale.double().repeat_interleave(tall, 0).repeat_interleave(group, 1)


def _divided(x: Tensor, name: str, *, weight: bool) -> tuple[Tensor, Tensor]:
    """(every block divided by its scale, the scales (blocks down, blocks across))."""
    group = _GROUP[name]
    rows, columns = x.shape
    tall = 128 if weight and name == "fp8_block" else 1
    blocks = x.float().reshape(rows // tall, tall, columns // group, group)
    scale = (blocks.abs().amax((1, 3)) / _LARGEST[name]).clamp_min(2.0**-20)
    if name == "mxfp8":
        scale = torch.exp2(torch.ceil(torch.log2(scale)))
    elif name == "nvfp4":
        scale = scale.to(torch.float8_e4m3fn).float().clamp_min(2.0**-9)
    return (blocks / scale[:, None, :, None]).reshape(rows, columns).clamp(-_LARGEST[name], _LARGEST[name]), scale


def _fp4_codes(x: Tensor) -> Tensor:
    """The nearest E2M1 numbers: three bits of magnitude, and a sign above them."""
    table = torch.tensor(_FP4, device=x.device)
    middles = (table[1:] + table[:-1]) / 2
    return (torch.bucketize(x.abs(), middles) + 8 * (x < 0)).to(torch.uint8)


def _packed_in_pairs(codes: Tensor) -> Tensor:
    """Two numbers in a byte, the even column in the low half."""
    packed = codes[:, ::2] | codes[:, 1::2] << 4
    return packed.view(torch.float4_e2m1fn_x2)


def _scales(scale: Tensor, name: str) -> Tensor:
    """Scales in their own format and order."""
    if name == "fp8_block":
        return scale.contiguous()
    own = scale.to(torch.float8_e8m0fnu if name == "mxfp8" else torch.float8_e4m3fn)
    return swizzled(own)


def swizzled(scale: Tensor) -> Tensor:
    """Scales (rows, columns) in tiles of 128 × 4, each as 32 lines of 4 × 4: the order that block-scaled units read.

    Source: NVIDIA cuBLAS documentation, "1D Block Scaling Factors Layout".
    """
    rows, columns = scale.shape
    padded = torch.zeros(-(-rows // 128) * 128, -(-columns // 4) * 4, dtype=torch.uint8, device=scale.device)
    padded[:rows, :columns] = scale.view(torch.uint8)
    tiles = padded.view(padded.shape[0] // 128, 4, 32, padded.shape[1] // 4, 4)
    return tiles.permute(0, 3, 2, 1, 4).reshape(-1).view(scale.dtype)


KERNEL = Kernel("gemm_block_scaled", "gemm", cases, work, set_bytes, prepare, missing)
