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
    weights = sets_of(setting, lambda one: quantised(normal(one, n, k, scale=k**-0.5), name, weight=True))
    x = normal(setting.other(0), m, k)
    recipes = _recipes(name)

    def run(index: int) -> Tensor:
        stored, scale, _ = weights[index]
        rows, row_scale, _ = quantised(x, name, weight=False)
        return functional.scaled_mm(
            rows, stored.t(), row_scale, recipes[0], scale, recipes[1], *recipes[2], output_dtype=torch.bfloat16
        )

    def expected(index: int, output: Tensor) -> tuple[Tensor, Tensor]:
        return part_of_product(output, quantised(x, name, weight=False)[2], weights[index][2])

    return Call(run, expected, TOLERANCE["bf16"])


def _recipes(name: str) -> tuple[Any, Any, tuple[Any, ...]]:
    """The library's names for the scalings of activations and weights, and the order that scales lie in."""
    kind, order = functional.ScalingType, functional.SwizzleType.SWIZZLE_32_4_4
    return {
        "fp8_block": (kind.BlockWise1x128, kind.BlockWise128x128, ()),
        "mxfp8": (kind.BlockWise1x32, kind.BlockWise1x32, (order, order)),
        "nvfp4": (kind.BlockWise1x16, kind.BlockWise1x16, (order, order)),
    }[name]


def quantised(x: Tensor, name: str, *, weight: bool) -> tuple[Tensor, Tensor, Tensor]:
    """(stored, scales as the library wants them, the numbers that they stand for in float64)."""
    group = _GROUP[name]
    rows, columns = x.shape
    tall = 128 if weight and name == "fp8_block" else 1
    blocks = x.float().reshape(rows // tall, tall, columns // group, group)
    scale = (blocks.abs().amax((1, 3)) / _LARGEST[name]).clamp_min(2.0**-20)
    if name == "mxfp8":
        scale = torch.exp2(torch.ceil(torch.log2(scale)))
    elif name == "nvfp4":
        scale = scale.to(torch.float8_e4m3fn).float().clamp_min(2.0**-9)
    divided = (blocks / scale[:, None, :, None]).reshape(rows, columns).clamp(-_LARGEST[name], _LARGEST[name])
    stored, values = _fp4(divided) if name == "nvfp4" else _fp8(divided)
    exact = (values.reshape_as(blocks) * scale[:, None, :, None].double()).reshape(rows, columns)
    return stored, _scales(scale, name), exact


def _fp8(x: Tensor) -> tuple[Tensor, Tensor]:
    stored = x.to(torch.float8_e4m3fn)
    return stored, stored.double()


def _fp4(x: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest E2M1 numbers, two in a byte, the even column in the low half."""
    table = torch.tensor(_FP4, device=x.device)
    middles = (table[1:] + table[:-1]) / 2
    code = torch.bucketize(x.abs(), middles)
    values = table[code].double() * x.sign().double()
    nibble = (code + 8 * (x < 0)).to(torch.uint8)
    packed = nibble[:, ::2] | nibble[:, 1::2] << 4
    return packed.view(torch.float4_e2m1fn_x2), values


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
