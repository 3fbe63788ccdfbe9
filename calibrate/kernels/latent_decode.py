"""Latent attention (MLA) of one new token a sequence, absorbed: all heads against one latent of 512 + 64 a token."""

from __future__ import annotations

from collections.abc import Sequence

from calibrate.device import Device
from calibrate.kernels.kernel import TOLERANCE, Call, Case, Kernel, Setting, Tensor, Work, chosen, normal, sets_of
from calibrate.kernels.sizes import latent_decode_shapes
from calibrate.operations.attention import exact_attention, latent_decode_attention
from capplan.timing.kernel_laws.mla import CACHED, HEAD, LATENT, ROTARY

ABSORBED_WIDTH = CACHED + LATENT

SCALE = (HEAD + ROTARY) ** -0.5
"""Scores are scaled by the width of an expanded query."""


def cases(device: Device) -> Sequence[Case]:
    """Every shape."""
    return [Case("latent_decode", {"kv_format": "bf16"}, shape) for shape in latent_decode_shapes(device)]


def work(case: Case) -> Work:
    """2·b·h·1088·L FLOPs; 576 elements a token read, queries and results."""
    batch, context, heads = (case.shape[axis] for axis in ("batch", "context", "heads"))
    moved = 2.0 * batch * (CACHED * context + ABSORBED_WIDTH * heads)
    return Work(2.0 * batch * heads * ABSORBED_WIDTH * context, moved, "bf16")


def set_bytes(case: Case) -> int:
    """The latents of one layer."""
    return 2 * case.shape["batch"] * case.shape["context"] * CACHED


def prepare(case: Case, setting: Setting) -> Call:
    """The latents of several layers, one query."""
    batch, context, heads = (case.shape[axis] for axis in ("batch", "context", "heads"))
    caches = sets_of(setting, lambda one: normal(one.other(1), batch, context, CACHED))
    query = normal(setting.other(0), batch, heads, CACHED, scale=0.5)

    def run(index: int) -> Tensor:
        return latent_decode_attention(query, caches[index], LATENT, SCALE)

    def expected(index: int, output: Tensor) -> tuple[Tensor, Tensor]:
        sequence, cache = int(chosen(batch, 1)), caches[index]
        latents = cache[sequence]
        reference = exact_attention(query[sequence], latents, latents[:, :LATENT], scale=SCALE)
        return output[sequence], reference

    return Call(run, expected, TOLERANCE["bf16"])


KERNEL = Kernel("latent_decode", "mla_decode", cases, work, set_bytes, prepare)
