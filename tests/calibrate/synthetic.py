"""Measured calls made from planted constants."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrate.kernel_groups import Group
from capplan.describe.profile import RatedHardware
from capplan.describe.profile_table import KernelKey, Kind
from capplan.timing.kernel_estimates import kernel_time

HARDWARE = RatedHardware(
    architecture="hopper",
    compute_capability="9.0",
    dense_rates={"bf16": 989.4e12, "fp8": 1978.9e12},
    bandwidth=3.35e12,
    compute_units=132,
    link=450e9,
    link_kind="scale_up",
)


def key_for(kind: Kind) -> KernelKey:
    parts: dict[str, dict[str, Any]] = {
        "gemm": {"format": "bf16"},
        "grouped_gemm": {"format": "fp8_block"},
        "prefill_attention": {"format": "bf16", "kv_format": "bf16", "head_dim": 128, "window": "full"},
        "decode_attention": {"format": "bf16", "kv_format": "fp8", "head_dim": 128, "heads": "gqa", "window": "full"},
        "mla_prefill": {"kv_format": "bf16", "absorbed": "no"},
        "mla_decode": {"kv_format": "bf16"},
        "collective": {"collective": "all_reduce", "gpus": 8},
    }
    return KernelKey(engine="vllm", version="1.0", kernel="made", **parts[kind])


def shapes_for(kind: Kind) -> dict[str, np.ndarray]:
    """A grid like the tables'."""
    powers = 2.0 ** np.arange(0, 14)
    axes: dict[str, tuple[tuple[str, Any], ...]] = {
        "gemm": (("m", powers), ("n", [512, 1024, 4096, 8192]), ("k", [512, 2048, 7168, 16384])),
        "grouped_gemm": (
            ("tokens", powers), ("hidden", [2048, 7168]), ("width", [256, 768, 2048]), ("top_k", [2, 8]),
            ("experts", [64, 256]),
        ),
        "prefill_attention": (("batch", [1, 4, 32]), ("tokens", powers[3:]), ("prefix", [0]), ("heads", [4, 32, 64]), ("kv_heads", [4, 1])),
        "decode_attention": (("batch", powers[:11]), ("context", powers[3:]), ("heads", [8, 32, 64]), ("kv_heads", [2, 8])),
        "mla_prefill": (("batch", [1, 4, 32]), ("tokens", powers[3:]), ("prefix", [0]), ("heads", [4, 16, 64, 128])),
        "mla_decode": (("batch", powers[:11]), ("context", powers[3:]), ("heads", [4, 16, 64, 128])),
        "collective": (("bytes", 2.0 ** np.arange(9, 30)),),
    }  # fmt: skip
    names = [name for name, _ in axes[kind]]
    grid = np.meshgrid(*(np.asarray(values, dtype=float) for _, values in axes[kind]), indexing="ij")
    return {name: values.ravel() for name, values in zip(names, grid, strict=True)}


def planted(kind: Kind, constants: Any, noise: float = 0.0, outliers: float = 0.0) -> Group:
    """Calls that take what the law says, times lognormal noise; a share of them three times as long."""
    random = np.random.default_rng(3)
    key, shape = key_for(kind), shapes_for(kind)
    exact = np.asarray(kernel_time(kind, key, constants, shape, HARDWARE).total, dtype=float)
    seconds = exact * np.exp(noise * random.standard_normal(exact.size))
    seconds[random.random(exact.size) < outliers] *= 3
    first = next(name for name in shape if name in ("n", "hidden", "heads", "bytes"))
    configurations = np.unique(shape[first], return_inverse=True)[1]
    return Group(kind, key, shape, seconds, configurations)
