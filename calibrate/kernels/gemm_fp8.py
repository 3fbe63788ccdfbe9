"""A linear layer in fp8 (E4M3): one scale a tensor, quantising the activations on the way as engines do."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from calibrate.device import Device
from calibrate.kernels.gemm import part_of_product
from calibrate.kernels.kernel import TOLERANCE, Call, Case, Kernel, Setting, Tensor, Work, normal, sets_of
from calibrate.kernels.sizes import gemm_shapes

LARGEST = 448.0
"""The largest E4M3 number. Source: Micikevicius et al., FP8 Formats for Deep Learning (arXiv:2209.05433), table 1."""

_LEAST_CAPABILITY = (8, 9)


def cases(device: Device) -> Sequence[Case]:
    """Every shape on a GPU, a few where fp8 is emulated."""
    shapes = gemm_shapes(device, all_of_them=device.kind == "cuda")
    return [Case("gemm_fp8", {"format": "fp8"}, shape) for shape in shapes]


def missing(device: Device, case: Case) -> str:
    """Why fp8 products cannot run here."""
    if not hasattr(torch, "_scaled_mm"):
        return "this torch has no fp8 products"
    if device.kind == "cuda" and not torch.version.hip:
        capability = torch.cuda.get_device_capability(device.torch_name)
        if capability < _LEAST_CAPABILITY:
            return f"compute capability {capability[0]}.{capability[1]} has no fp8 units"
    return ""


def work(case: Case) -> Work:
    """2·m·n·k FLOPs; one byte a weight and activation, two a result."""
    m, n, k = (case.shape[axis] for axis in "mnk")
    return Work(2.0 * m * n * k, float(n * k + m * k + 2 * m * n), "fp8")


def set_bytes(case: Case) -> int:
    """One weight matrix."""
    return case.shape["n"] * case.shape["k"]


def quantised(x: Tensor) -> tuple[Tensor, Tensor]:
    """Returns x / s in E4M3 and the scale s = max|x| / 448."""
    scale = (x.abs().amax().float() / LARGEST).clamp_min(1e-12)
    return (x.float() / scale).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn), scale


def prepare(case: Case, setting: Setting) -> Call:
    """Weights quantised before, one bf16 input quantised in every run."""
    m, n, k = (case.shape[axis] for axis in "mnk")
    weights = sets_of(setting, lambda one: quantised(normal(one, n, k, scale=k**-0.5)))
    x = normal(setting.other(0), m, k)

    def run(index: int) -> Tensor:
        stored, scale = weights[index]
        rows, row_scale = quantised(x)
        return torch._scaled_mm(rows, stored.t(), scale_a=row_scale, scale_b=scale, out_dtype=torch.bfloat16)

    def expected(index: int, output: Tensor) -> tuple[Tensor, Tensor]:
        stored, scale = weights[index]
        rows, row_scale = quantised(x)
        part, reference = part_of_product(output, rows.double(), stored.double())
        return part, reference * float(scale) * float(row_scale)

    return Call(run, expected, TOLERANCE["fp8"])


KERNEL = Kernel("gemm_fp8", "gemm", cases, work, set_bytes, prepare, missing)
