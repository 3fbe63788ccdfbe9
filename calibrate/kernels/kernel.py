"""The one interface of everything that is measured: from a shape to a callable, its FLOPs and bytes, and a reference.

A `Kernel` lists the `Case`s that are worth measuring and turns each into a `Call`. A call has several sets of buffers,
each with random numbers of its own, so that what a kernel reads in one run is not what the cache still holds of the
run before; and for any run it gives a part of the output beside the same part computed in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch

from calibrate.device import Device
from calibrate.random_numbers import random_normal
from capplan.describe.profile_table import Kind

CacheState = Literal["cold", "warm"]
Shape = Mapping[str, int]
Key = Mapping[str, str | int]
Tensor = Any

CHECKED_ROWS, CHECKED_COLUMNS = 16, 128
"""Most rows and columns of an output that are compared: a random choice of them, fresh in every check."""


@dataclass(frozen=True)
class Case:
    """One call worth measuring.

    Args:
        kernel: the kernel's name.
        key: what tells fits apart: formats, backend, head dim.
        shape: the axes of its law.
        cache: whether what it reads lies in the cache already.
    """

    kernel: str
    key: Key
    shape: Shape
    cache: CacheState = "cold"

    @property
    def identity(self) -> str:
        """A text that no other case has."""
        parts = [f"{name}={value}" for name, value in (*sorted(self.key.items()), *sorted(self.shape.items()))]
        return " ".join((self.kernel, *parts, self.cache))


@dataclass(frozen=True)
class Work:
    """What a call must do at least.

    Args:
        flops: FLOPs, a multiply and an add counted as two.
        bytes: bytes between memory and processors when everything is read and written once.
        format: the number format that it multiplies in.
    """

    flops: float
    bytes: float
    format: str = ""


@dataclass(frozen=True)
class Setting:
    """What a call is prepared for.

    Args:
        device: where it runs.
        sets: sets of buffers that are rotated; 1 leaves the cache warm.
        seed: of its random numbers.
    """

    device: Device
    sets: int = 1
    seed: int = 0

    def other(self, number: int) -> Setting:
        """The same with other random numbers, for another tensor."""
        return replace(self, sets=1, seed=self.seed + 104_729 * (number + 1))


@dataclass(frozen=True)
class Call:
    """A case made ready to run.

    Args:
        run: runs it with the i-th set of buffers and returns its output.
        expected: from the number of the set and an output to (a part of that output, the same in float64).
        tolerance: error allowed, as a share of the reference's root mean square or of the value, whichever is more.
        reset: fills what the call writes with values that no result has, and restores what it changes.
    """

    run: Callable[[int], Tensor]
    expected: Callable[[int, Tensor], tuple[Tensor, Tensor]]
    tolerance: float
    reset: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Kernel:
    """One kind of kernel.

    Args:
        name: of the kernel.
        law: the kind of a profile's table that its samples fit; None: it is measured to be known, not to be fitted.
        cases: the cases worth measuring on a device.
        work: FLOPs and bytes of a case.
        set_bytes: bytes of one set of the buffers that are rotated.
        prepare: makes a case ready.
        missing: why a case cannot run on a device; empty when it can.
        natural: the state of the cache that the kernel finds in a real step.
    """

    name: str
    law: Kind | None
    cases: Callable[[Device], Sequence[Case]]
    work: Callable[[Case], Work]
    set_bytes: Callable[[Case], int]
    prepare: Callable[[Case, Setting], Call]
    missing: Callable[[Device, Case], str] = field(default=lambda device, case: "")
    natural: CacheState = "cold"


def dtype_of(name: str) -> Any:
    """The torch dtype of a number format."""
    return {
        "fp32": torch.float32,
        "tf32": torch.float32,
        "fp16": torch.float16,
        "bf16": torch.bfloat16,
        "fp8": torch.float8_e4m3fn,
        "int8": torch.int8,
        "fp64": torch.float64,
    }[name]


TOLERANCE = {"fp64": 1e-9, "fp32": 1e-4, "tf32": 1e-2, "fp16": 1e-2, "bf16": 5e-2, "fp8": 5e-2, "int8": 1e-6}
"""Error allowed by number format: some roundings of the format, and of sums of thousands of terms."""


def normal(setting: Setting, *shape: int, format: str = "bf16", scale: float = 1.0) -> Tensor:
    """Random normal numbers times `scale`, from the place in the pool that the setting's seed says."""
    return random_normal(setting.device.torch_name, setting.seed, shape, dtype_of(format), scale)


def sets_of(setting: Setting, make: Callable[[Setting], Tensor]) -> list[Tensor]:
    """`sets` of something, each made with another seed."""
    return [make(replace(setting, sets=1, seed=setting.seed + 7919 * index)) for index in range(setting.sets)]


def chosen(total: int, most: int) -> Any:
    """At most `most` random indices below `total`, another choice every time."""
    return torch.randperm(total)[:most].sort().values


def some_of(total: int) -> tuple[int, int]:
    """The ends of a stretch of at most 2^20 of `total` elements, at another place every time."""
    length = min(total, 1 << 20)
    start = int(torch.randint(0, total - length + 1, ()))
    return start, start + length


def error_of(actual: Tensor, expected: Tensor) -> float:
    """The largest |y − ref| / max(rms(ref), |ref|); infinite where the output is not finite.

    Args:
        actual: y, any dtype.
        expected: ref in float64.
    """
    found, reference = actual.detach().double().cpu(), expected.detach().double().cpu()
    if found.shape != reference.shape or not bool(torch.isfinite(found).all()):
        return float("inf")
    scale = reference.abs().clamp_min(float(reference.square().mean().sqrt()) or 1.0)
    return float(((found - reference).abs() / scale).max())
