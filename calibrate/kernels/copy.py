"""Copying device memory: one read and one write a byte, below and above the cache's size."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from calibrate.device import Device
from calibrate.kernels.kernel import Call, Case, Kernel, Setting, Tensor, Work, normal, sets_of, some_of
from calibrate.kernels.sizes import copy_sizes


def cases(device: Device) -> Sequence[Case]:
    """Sizes in powers of four."""
    return [Case("copy", {}, {"bytes": size}) for size in copy_sizes(device)]


def work(case: Case) -> Work:
    """No FLOPs; every byte read and written."""
    return Work(0.0, 2.0 * case.shape["bytes"])


def set_bytes(case: Case) -> int:
    """Source and destination."""
    return 2 * case.shape["bytes"]


def prepare(case: Case, setting: Setting) -> Call:
    """Pairs of buffers."""
    count = case.shape["bytes"] // 4
    pairs = sets_of(setting, lambda one: (normal(one, count, format="fp32"), torch.full((count,), torch.nan)))
    device = setting.device.torch_name
    targets = [target.to(device) for _, target in pairs]

    def run(index: int) -> Tensor:
        return targets[index].copy_(pairs[index][0])

    def expected(index: int, output: Tensor) -> tuple[Tensor, Tensor]:
        part = slice(*some_of(count))
        return output[part], pairs[index][0][part].double()

    def reset() -> None:
        for target in targets:
            target.fill_(torch.nan)

    return Call(run, expected, 1e-12, reset)


KERNEL = Kernel("copy", None, cases, work, set_bytes, prepare)
