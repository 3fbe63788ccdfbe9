"""Copies between pinned host memory and the device, in both directions."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from calibrate.device import Device
from calibrate.kernels.kernel import Call, Case, Kernel, Setting, Tensor, Work, normal, sets_of, some_of

SIZES = tuple(1 << power for power in (12, 16, 20, 24, 28))


def cases(device: Device) -> Sequence[Case]:
    """Five sizes in two directions; a CPU has no link to itself."""
    if device.kind == "cpu":
        return []
    return [
        Case("host_transfer", {"direction": direction}, {"bytes": size})
        for direction in ("to_device", "to_host")
        for size in SIZES
    ]


def work(case: Case) -> Work:
    """Every byte crosses the link once."""
    return Work(0.0, float(case.shape["bytes"]))


def set_bytes(case: Case) -> int:
    """The buffer on the device."""
    return case.shape["bytes"]


def prepare(case: Case, setting: Setting) -> Call:
    """Pairs of a pinned and a device buffer."""
    count = case.shape["bytes"] // 4
    to_device = case.key["direction"] == "to_device"
    on_device = sets_of(setting, lambda one: normal(one, count, format="fp32"))
    on_host = [pinned(buffer.cpu().flip(0)) for buffer in on_device]
    sources, targets = (on_host, on_device) if to_device else (on_device, on_host)
    originals = [source.clone() for source in sources]

    def run(index: int) -> Tensor:
        return targets[index].copy_(sources[index], non_blocking=True)

    def expected(index: int, output: Tensor) -> tuple[Tensor, Tensor]:
        part = slice(*some_of(count))
        return output[part], originals[index][part].double()

    def reset() -> None:
        for target in targets:
            target.fill_(torch.nan)

    return Call(run, expected, 1e-12, reset)


def pinned(buffer: Tensor) -> Tensor:
    """Host memory that a GPU reads by itself; there is none where there is no GPU."""
    return buffer.pin_memory() if torch.cuda.is_available() else buffer


KERNEL = Kernel("host_transfer", None, cases, work, set_bytes, prepare)
