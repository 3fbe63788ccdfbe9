"""Latent attention (MLA) of prompts, with keys and values expanded from the latent: 192 and 128 wide.

Sizes as in DeepSeek-V2 and V3 (arXiv:2405.04434, section 2.1), which the law of latent attention is written for.
"""

from __future__ import annotations

from collections.abc import Sequence

from calibrate.device import Device
from calibrate.kernels.kernel import TOLERANCE, Call, Case, Kernel, Setting, Tensor, Work, normal, sets_of
from calibrate.kernels.prefill_attention import part_of_attention
from calibrate.kernels.sizes import latent_prefill_shapes
from calibrate.operations.attention import causal_attention
from capplan.timing.kernel_laws.mla import HEAD, ROTARY

KEY_DIM, VALUE_DIM = HEAD + ROTARY, HEAD
UNABSORBED_WIDTH = KEY_DIM + VALUE_DIM


def cases(device: Device) -> Sequence[Case]:
    """Every shape."""
    key = {"kv_format": "bf16", "absorbed": "no"}
    return [Case("latent_prefill", key, shape) for shape in latent_prefill_shapes(device)]


def work(case: Case) -> Work:
    """2·b·h·(Dk + Dv)·pairs FLOPs; queries, keys, values and results once."""
    batch, tokens, heads = (case.shape[axis] for axis in ("batch", "tokens", "heads"))
    pairs = tokens * (tokens + 1) / 2
    return Work(2.0 * batch * heads * UNABSORBED_WIDTH * pairs, 4.0 * batch * tokens * heads * UNABSORBED_WIDTH, "bf16")


def set_bytes(case: Case) -> int:
    """Queries, keys and values."""
    batch, tokens, heads = (case.shape[axis] for axis in ("batch", "tokens", "heads"))
    return 2 * batch * tokens * heads * (2 * KEY_DIM + VALUE_DIM)


def prepare(case: Case, setting: Setting) -> Call:
    """Several prompts."""
    batch, tokens, heads = (case.shape[axis] for axis in ("batch", "tokens", "heads"))
    queries = sets_of(setting, lambda one: normal(one, batch, heads, tokens, KEY_DIM))
    keys = sets_of(setting, lambda one: normal(one.other(1), batch, heads, tokens, KEY_DIM))
    values = sets_of(setting, lambda one: normal(one.other(2), batch, heads, tokens, VALUE_DIM))

    def run(index: int) -> Tensor:
        return causal_attention(queries[index], keys[index], values[index])

    def expected(index: int, output: Tensor) -> tuple[Tensor, Tensor]:
        return part_of_attention(output, queries[index], keys[index], values[index], 0)

    return Call(run, expected, TOLERANCE["bf16"])


KERNEL = Kernel("latent_prefill", "mla_prefill", cases, work, set_bytes, prepare)
