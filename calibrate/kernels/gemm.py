"""A linear layer in the formats that torch multiplies as they are: fp32, tf32, fp16, bf16."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch.nn import functional

from calibrate.device import Device
from calibrate.formats import ITEM_BYTES
from calibrate.kernels.kernel import (
    CHECKED_COLUMNS,
    CHECKED_ROWS,
    TOLERANCE,
    Call,
    Case,
    Kernel,
    Setting,
    Tensor,
    Work,
    chosen,
    normal,
    sets_of,
)
from calibrate.kernels.sizes import gemm_shapes


def cases(device: Device) -> Sequence[Case]:
    """Every shape in bf16, and a few of every other format."""
    formats = ("bf16", "fp16", "fp32", "tf32") if device.kind == "cuda" else ("bf16", "fp32")
    return [
        Case("gemm", {"format": name}, shape)
        for name in formats
        for shape in gemm_shapes(device, all_of_them=name == formats[0])
    ]


def work(case: Case) -> Work:
    """2·m·n·k FLOPs; weights, activations and result once."""
    m, n, k = (case.shape[axis] for axis in "mnk")
    name = str(case.key["format"])
    return Work(2.0 * m * n * k, ITEM_BYTES[name] * float(n * k + m * k + m * n), name)


def set_bytes(case: Case) -> int:
    """One weight matrix."""
    return ITEM_BYTES[str(case.key["format"])] * case.shape["n"] * case.shape["k"]


def prepare(case: Case, setting: Setting) -> Call:
    """Weights of several layers, one input."""
    m, n, k = (case.shape[axis] for axis in "mnk")
    name = str(case.key["format"])
    weights = sets_of(setting, lambda one: normal(one, n, k, format=name, scale=k**-0.5))
    x = normal(setting.other(0), m, k, format=name)

    def run(index: int) -> Tensor:
        return functional.linear(x, weights[index])

    def run_tf32(index: int) -> Tensor:
        with tf32():
            return functional.linear(x, weights[index])

    def expected(index: int, output: Tensor) -> tuple[Tensor, Tensor]:
        return part_of_product(output, x, weights[index])

    return Call(run_tf32 if name == "tf32" else run, expected, TOLERANCE[name])


@contextmanager
def tf32() -> Iterator[None]:
    """Multiply fp32 by tensor cores, which round the operands to 10 bits."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def part_of_product(output: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Some rows and columns of x·weightᵀ, as computed and in float64."""
    rows, columns = chosen(x.shape[0], CHECKED_ROWS), chosen(weight.shape[0], CHECKED_COLUMNS)
    return output[rows][:, columns], x[rows].double() @ weight[columns].double().T


KERNEL = Kernel("gemm", "gemm", cases, work, set_bytes, prepare)
