"""Causal attention of prompts within a sliding window: FlexAttention, which skips what the window hides, and a mask."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from calibrate.device import Device
from calibrate.kernels.kernel import Case, Kernel, Key, Setting, Work
from calibrate.kernels.prefill_attention import prepare, set_bytes, sizes_of
from calibrate.kernels.sizes import prefill_shapes
from capplan.timing.kernel_laws import attended_pairs

WINDOWS = (512, 1024)


def cases(device: Device) -> Sequence[Case]:
    """Prompts longer than the window, by both ways."""
    found = []
    for shape in prefill_shapes(device):
        sizes = dict(shape)
        dim = sizes.pop("head_dim")
        for backend in ("sdpa", "flex"):
            key: Key = {"format": "bf16", "kv_format": "bf16", "head_dim": dim, "window": "window", "backend": backend}
            windows = [window for window in WINDOWS if window <= shape["tokens"] // 2]
            found += [Case("windowed_attention", key, {**sizes, "window": window}) for window in windows]
    return found


def missing(device: Device, case: Case) -> str:
    """Why FlexAttention does not run: it is compiled on the spot, which takes a compiler."""
    return _flex_missing(device, case.key["head_dim"]) if case.key["backend"] == "flex" else ""


@lru_cache(maxsize=8)
def _flex_missing(device: Device, dim: int) -> str:
    key: Key = {"head_dim": dim, "backend": "flex"}
    small = Case("windowed_attention", key, {"batch": 1, "tokens": 256, "heads": 4, "kv_heads": 2, "window": 64})
    try:
        prepare(small, Setting(device)).run(0)
        device.synchronise()
    except Exception as error:  # the compiler raises whatever it likes: this is its answer
        return f"FlexAttention cannot be compiled: {str(error).splitlines()[0][:100]}"
    return ""


def work(case: Case) -> Work:
    """4·b·h·D·pairs FLOPs within the window; queries and results, keys and values once."""
    batch, tokens, heads, kv_heads, dim = sizes_of(case)
    pairs = float(attended_pairs(tokens, window=case.shape["window"]))
    return Work(4.0 * batch * heads * dim * pairs, 4.0 * batch * tokens * dim * (heads + kv_heads), "bf16")


KERNEL = Kernel("windowed_attention", "prefill_attention", cases, work, set_bytes, prepare, missing)
