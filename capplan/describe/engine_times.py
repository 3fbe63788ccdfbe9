"""What an engine adds to its kernels in every step, as named constants with their sources."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from capplan.describe.parts import Part, hydrated
from capplan.describe.yaml_file import read_yaml

_FILE = Path(__file__).parent / "engine_times.yaml"


@dataclass(frozen=True, kw_only=True)
class EngineTimes(Part):
    """Seconds and shares that stand beside the laws of the large kernels.

    Args of a step::

        step = kernel_share · Σ bodies + Σ launches + small_kernel · N + per_sequence · B + per_step
    """

    kernel_share: float = 1.0
    """Time of a kernel's body inside a replayed step over that of the kernel measured alone."""
    small_kernel: float = 3e-6
    """Seconds of a norm, rotation, cache write or activation function beside its bytes."""
    small_kernel_bandwidth: float = 0.7
    """Share of the memory bandwidth that such kernels reach."""
    per_sequence: float = 0.0
    """Seconds of scheduling, sampling and detokenising a sequence in every step."""
    per_step: float = 0.0
    """Seconds of a step beside its kernels and its sequences."""
    host_launch: float = 5e-6
    """Seconds that the host takes to launch one kernel when no graph is replayed."""
    sources: dict[str, str] = field(default_factory=dict)


@lru_cache(maxsize=1)
def _all_times() -> dict[str, EngineTimes]:
    data = read_yaml(_FILE).data
    return {name: hydrated(EngineTimes, fields) for name, fields in data["engines"].items()}


def engine_times(engine: str) -> EngineTimes:
    """The terms of an engine; those of ``default`` for one that was not fitted."""
    known = _all_times()
    return known.get(engine, known["default"])
