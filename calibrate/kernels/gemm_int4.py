"""A linear layer with 4-bit weights and 16-bit arithmetic: groups of 32 weights with a scale and a zero point each."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from calibrate.device import Device
from calibrate.kernels.gemm import part_of_product
from calibrate.kernels.kernel import TOLERANCE, Call, Case, Kernel, Setting, Tensor, Work, normal, sets_of
from calibrate.kernels.sizes import gemm_shapes

GROUP = 32
INNER_TILES = 8
"""Tiles of k that torch's packing of 4-bit weights puts side by side on a GPU."""

_LEAST_CAPABILITY = (8, 0)


def cases(device: Device) -> Sequence[Case]:
    """A few shapes."""
    return [
        Case("gemm_int4", {"format": "int4_weight_only"}, shape) for shape in gemm_shapes(device, all_of_them=False)
    ]


def missing(device: Device, case: Case) -> str:
    """Why 4-bit products cannot run here."""
    if not hasattr(torch, _names(device)[1]):
        return "this torch has no 4-bit products for this device"
    if device.kind == "cuda" and torch.cuda.get_device_capability(device.torch_name) < _LEAST_CAPABILITY:
        return "torch's 4-bit products need compute capability 8.0"
    return ""


def work(case: Case) -> Work:
    """2·m·n·k FLOPs in bf16; half a byte a weight, four bytes a group, two an activation and a result."""
    m, n, k = (case.shape[axis] for axis in "mnk")
    return Work(2.0 * m * n * k, n * k / 2 + 4.0 * n * k / GROUP + 2 * (m * k + m * n), "bf16")


def set_bytes(case: Case) -> int:
    """One packed matrix."""
    return case.shape["n"] * case.shape["k"] // 2


def _names(device: Device) -> tuple[str, str]:
    """The functions of torch that pack and multiply on a kind of device."""
    if device.kind == "cpu":
        return "_convert_weight_to_int4pack_for_cpu", "_weight_int4pack_mm_for_cpu"
    return "_convert_weight_to_int4pack", "_weight_int4pack_mm"


def _numbers(setting: Setting, n: int, k: int) -> tuple[Tensor, Tensor]:
    """(n, k) numbers of 0 to 15, and scales and zeros (k/32, n, 2)."""
    numbers = normal(setting, n, k, format="fp32", scale=3).add_(8).round_().clamp_(0, 15).to(torch.int32)
    return numbers, normal(setting.other(1), k // GROUP, n, 2, scale=k**-0.5)


def _packed(setting: Setting, n: int, k: int) -> tuple[Tensor, Tensor]:
    """(packed numbers, scales and zeros)."""
    numbers, steps = _numbers(setting, n, k)
    pack = getattr(torch, _names(setting.device)[0])
    if setting.device.kind == "cpu":
        return pack(numbers, 1), steps
    bytes_of_two = (numbers[:, ::2] << 4 | numbers[:, 1::2]).to(torch.uint8)
    return pack(bytes_of_two, INNER_TILES), steps


def _exact(setting: Setting, n: int, k: int) -> Tensor:
    """The weights that the packed ones stand for, in float64; made when they are asked for, since they are large."""
    numbers, steps = _numbers(setting, n, k)
    scale, zero = steps.double().unbind(-1)
    return (numbers.double() - 8) * scale.T.repeat_interleave(GROUP, 1) + zero.T.repeat_interleave(GROUP, 1)


def prepare(case: Case, setting: Setting) -> Call:
    """Packed weights of several layers, one bf16 input."""
    m, n, k = (case.shape[axis] for axis in "mnk")
    weights = sets_of(setting, lambda one: (one, *_packed(one, n, k)))
    multiply = getattr(torch, _names(setting.device)[1])
    x = normal(setting.other(0), m, k)

    def run(index: int) -> Tensor:
        _, packed, steps = weights[index]
        return multiply(x, packed, GROUP, steps)

    def expected(index: int, output: Tensor) -> tuple[Tensor, Tensor]:
        return part_of_product(output, x, _exact(weights[index][0], n, k))

    return Call(run, expected, TOLERANCE["bf16"])


KERNEL = Kernel("gemm_int4", "gemm", cases, work, set_bytes, prepare, missing)
