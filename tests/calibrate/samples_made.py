"""Samples made from planted constants with noise, as a run on a CPU would have measured them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from calibrate.kernel_fit import law_of
from calibrate.sample_groups import groups_of
from calibrate.samples import Recording, Sample
from capplan.describe.kernel_constants import (
    DecodeAttentionConstants,
    GemmConstants,
    GroupedGemmConstants,
    MlaDecodeConstants,
    PrefillAttentionConstants,
    RecurrenceConstants,
    RowsConstants,
)
from capplan.describe.profile import RatedHardware

BANDWIDTH, PEAK, UNITS = 20e9, 200e9, 4
OVERLAP = 1.0
NOISE = 0.02

HARDWARE = RatedHardware(
    architecture="other", dense_rates={"bf16": PEAK}, bandwidth=BANDWIDTH, compute_units=UNITS, overlap=OVERLAP
)

PROVENANCE = {
    "device": "Made Up CPU", "clock": "wall", "torch": "2.99", "slug": "cpu-made-up-4-threads",
    "memory_bytes": str(16 << 30), "compute_units": str(UNITS), "threads": str(UNITS),
}  # fmt: skip

PLANTED: dict[str, Any] = {
    "gemm": GemmConstants(0.9, 0.5, 40e-6, 0.0, 0.0),
    "decode_attention": DecodeAttentionConstants(0.3, 60e-6, 0.0, 2e-6),
    "prefill_attention": PrefillAttentionConstants(0.3, 0.4, 30e-6, 2.0),
    "experts": GroupedGemmConstants(0.8, 0.45, 300e-6, 5.0, 40e-6),
    "latent_decode": MlaDecodeConstants(0.5, 0.3, 70e-6, 0.0, 0.0),
    "latent_prefill": PrefillAttentionConstants(0.25, 0.4, 30e-6, 2.0),
    "norm": RowsConstants(0.4, 14e-6),
    "delta_rule": RecurrenceConstants(0.1, 0.5, 100e-6, 50e-6),
}

_KEYS: dict[str, dict[str, str | int]] = {
    "gemm": {"format": "bf16"},
    "decode_attention": {
        "format": "bf16", "kv_format": "bf16", "head_dim": 128, "heads": "gqa", "window": "full", "backend": "grouped",
    },
    "prefill_attention": {
        "format": "bf16", "kv_format": "bf16", "head_dim": 128, "window": "full", "backend": "sdpa",
    },
    "experts": {"format": "bf16"},
    "latent_decode": {"kv_format": "bf16"},
    "latent_prefill": {"kv_format": "bf16", "absorbed": "no"},
    "norm": {},
    "delta_rule": {},
}  # fmt: skip


def _shapes(name: str) -> Iterator[dict[str, float]]:
    if name == "gemm":
        for n, k in ((1024, 1024), (2048, 2048), (6144, 2048), (512, 4096), (4096, 1024)):
            yield from ({"m": m, "n": n, "k": k} for m in (1, 4, 16, 64, 256))
    if name == "decode_attention":
        for heads, kv_heads in ((16, 4), (32, 8), (8, 4)):
            yield from (
                {"batch": b, "context": c, "heads": heads, "kv_heads": kv_heads}
                for b in (1, 4, 16)
                for c in (16, 512, 4096)
            )
    if name in ("prefill_attention", "latent_prefill"):
        for heads in (8, 16, 32):
            for batch in (1, 4):
                for tokens in (16, 128, 512, 2048):
                    shape = {"batch": batch, "tokens": tokens, "prefix": 0, "heads": heads}
                    yield shape if name == "latent_prefill" else {**shape, "kv_heads": 4}
    if name == "experts":
        for hidden, width, experts, top_k in ((1024, 512, 16, 4), (2048, 768, 32, 8), (512, 256, 64, 8)):
            yield from (
                {"tokens": t, "hidden": hidden, "width": width, "top_k": top_k, "experts": experts}
                for t in (1, 4, 16, 64, 256)
            )
    if name == "latent_decode":
        for heads in (4, 16, 32):
            yield from ({"batch": b, "context": c, "heads": heads} for b in (1, 4, 16) for c in (16, 512, 4096))
    if name == "norm":
        yield from ({"rows": r, "width": w} for w in (512, 2048, 4096) for r in (1, 8, 64, 512))
    if name == "delta_rule":
        for heads in (8, 16, 32):
            yield from (
                {"batch": b, "tokens": t, "heads": heads, "key_dim": 128, "value_dim": 128}
                for b in (1, 4)
                for t in (1, 64, 256, 1024)
            )


def _work(name: str, shape: dict[str, float]) -> tuple[float, float]:
    if name == "gemm":
        m, n, k = shape["m"], shape["n"], shape["k"]
        return 2 * m * n * k, 2 * (n * k + m * k + m * n)
    if name == "norm":
        return 0.0, 8 * shape["rows"] * shape["width"]
    if name == "delta_rule":
        tokens = shape["batch"] * shape["tokens"] * shape["heads"]
        return 7 * tokens * 128 * 128, 8 * shape["batch"] * shape["heads"] * 128 * 128 + 1024 * tokens
    return 1.0, 1.0


def plain(name: str, shape: dict[str, float], seconds: float = 1.0, held_out: bool = False) -> Sample:
    flops, moved = _work(name, shape)
    floats = {axis: float(value) for axis, value in shape.items()}
    return Sample(
        "kernel", name, _KEYS[name], floats, "warm" if name == "norm" else "cold", seconds, seconds * 0.99,
        seconds * 1.01, (seconds,) * 3, held_out=held_out, flops=flops, bytes=moved, started="2026-11-30T00:00:00+00:00",
        spent=0.1,
    )  # fmt: skip


def made(name: str, noise: float = NOISE, seed: int = 0) -> list[Sample]:
    """The samples of one kernel: every fifth held out."""
    random = np.random.default_rng(seed)
    stand_ins = [plain(name, shape) for shape in _shapes(name)]
    group = groups_of(stand_ins, "2.99", least=1)[0].group
    seconds = np.asarray(law_of(group).predict(group, PLANTED[name], HARDWARE).total)
    seconds = seconds * np.exp(noise * random.standard_normal(len(seconds)))
    return [
        plain(name, dict(sample.shape), float(time), held_out=number % 5 == 4)
        for number, (sample, time) in enumerate(zip(stand_ins, seconds, strict=True))
    ]


def rate_samples() -> list[Sample]:
    """What tells the device's rates: a large read and a large product at the peak."""
    size = 1 << 28
    read = Sample(
        "kernel", "read", {}, {"bytes": float(size)}, "cold", size / BANDWIDTH, size / BANDWIDTH, size / BANDWIDTH,
        (size / BANDWIDTH,) * 3, bytes=float(size),
    )  # fmt: skip
    flops = 2.0 * 512 * 4096 * 4096
    product = Sample(
        "kernel", "gemm", {"format": "fp32"}, {"m": 512.0, "n": 4096.0, "k": 4096.0}, "cold", flops / 80e9,
        flops / 80e9, flops / 80e9, (flops / 80e9,) * 3, flops=flops, bytes=1.0,
    )  # fmt: skip
    peak = Sample(
        "kernel", "gemm", {"format": "bf16"}, {"m": 4096.0, "n": 4096.0, "k": 4096.0}, "cold",
        8 * flops / PEAK, 8 * flops / PEAK, 8 * flops / PEAK, (8 * flops / PEAK,) * 3, flops=8 * flops, bytes=1.0,
        held_out=True,
    )  # fmt: skip
    return [read, product, peak]


def recording(*names: str) -> Recording:
    """A whole recording of the planted device."""
    samples = rate_samples()
    for number, name in enumerate(names or PLANTED):
        samples += made(name, seed=number)
    return Recording(PROVENANCE, tuple(samples), {"minutes": 5.0})
