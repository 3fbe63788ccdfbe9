"""A linear layer in int8: integers times integers, summed in int32, quantising the activations row by row."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from calibrate.device import Device
from calibrate.kernels.gemm import part_of_product
from calibrate.kernels.kernel import TOLERANCE, Call, Case, Kernel, Setting, Tensor, Work, normal, sets_of
from calibrate.kernels.sizes import gemm_shapes

LARGEST = 127.0

_LEAST_ROWS = 17
"""cuBLASLt's int8 product as torch calls it wants more than 16 rows; smaller batches are padded."""


def cases(device: Device) -> Sequence[Case]:
    """A few shapes."""
    return [Case("gemm_int8", {"format": "int8"}, shape) for shape in gemm_shapes(device, all_of_them=False)]


def missing(device: Device, case: Case) -> str:
    """Why int8 products cannot run here."""
    return "" if hasattr(torch, "_int_mm") else "this torch has no int8 products"


def work(case: Case) -> Work:
    """2·m·n·k operations; one byte a weight and activation, two a result."""
    m, n, k = (case.shape[axis] for axis in "mnk")
    return Work(2.0 * m * n * k, float(n * k + m * k + 2 * m * n), "int8")


def set_bytes(case: Case) -> int:
    """One weight matrix."""
    return case.shape["n"] * case.shape["k"]


def quantised(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of x / s in int8 and each row's scale s = max|x| / 127."""
    scale = (x.abs().amax(-1, keepdim=True).float() / LARGEST).clamp_min(1e-12)
    return (x.float() / scale).round().to(torch.int8), scale


def prepare(case: Case, setting: Setting) -> Call:
    """Weights quantised before, one bf16 input quantised in every run."""
    m, n, k = (case.shape[axis] for axis in "mnk")
    padded = max(m, _LEAST_ROWS) if setting.device.kind == "cuda" else m
    weights = sets_of(setting, lambda one: quantised(normal(one, n, k, scale=k**-0.5)))
    x = normal(setting.other(0), padded, k)

    def run(index: int) -> Tensor:
        stored, scale = weights[index]
        rows, row_scale = quantised(x)
        sums = torch._int_mm(rows, stored.t())[:m]
        return (sums.float() * row_scale[:m] * scale.T).bfloat16()

    def expected(index: int, output: Tensor) -> tuple[Tensor, Tensor]:
        stored, scale = weights[index]
        rows, row_scale = quantised(x)
        exact = stored.double() * scale.double()
        return part_of_product(output, rows[:m].double() * row_scale[:m].double(), exact)

    return Call(run, expected, TOLERANCE["bf16"])


KERNEL = Kernel("gemm_int8", "gemm", cases, work, set_bytes, prepare, missing)
