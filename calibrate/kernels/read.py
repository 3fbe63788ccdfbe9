"""Reading device memory: the sum of all numbers, which writes next to nothing."""

from __future__ import annotations

from collections.abc import Sequence

from calibrate.device import Device
from calibrate.kernels.kernel import Call, Case, Kernel, Setting, Tensor, Work, normal, sets_of
from calibrate.kernels.sizes import copy_sizes


def cases(device: Device) -> Sequence[Case]:
    """Sizes in powers of four."""
    return [Case("read", {}, {"bytes": size}) for size in copy_sizes(device)]


def work(case: Case) -> Work:
    """Every byte read; the additions are left out."""
    return Work(0.0, float(case.shape["bytes"]))


def set_bytes(case: Case) -> int:
    """What is read."""
    return case.shape["bytes"]


def prepare(case: Case, setting: Setting) -> Call:
    """Several buffers of numbers whose mean is 1, so that their sum has a scale."""
    count = case.shape["bytes"] // 4
    buffers = sets_of(setting, lambda one: normal(one, count, format="fp32") + 1)

    def run(index: int) -> Tensor:
        return buffers[index].sum()

    def expected(index: int, output: Tensor) -> tuple[Tensor, Tensor]:
        return output, buffers[index].double().sum()

    return Call(run, expected, 1e-3)


KERNEL = Kernel("read", None, cases, work, set_bytes, prepare)
