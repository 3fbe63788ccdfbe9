"""Attention of one new token a sequence over a contiguous cache."""

from __future__ import annotations

from collections.abc import Sequence

from calibrate.device import Device
from calibrate.kernels.kernel import TOLERANCE, Call, Case, Kernel, Key, Setting, Tensor, Work, chosen, normal, sets_of
from calibrate.kernels.sizes import decode_shapes
from calibrate.operations.attention import decode_attention, exact_attention

STACKS_BACKEND = {"cpu": "grouped", "cuda": "sdpa"}
"""What the stacks run on each kind of device."""


def cases(device: Device) -> Sequence[Case]:
    """Every shape the way the stacks do it, and one context of each head count the other way."""
    own = STACKS_BACKEND[device.kind]
    other = "sdpa" if own == "grouped" else "grouped"
    shapes = decode_shapes(device)
    few = [shape for shape in shapes if shape["batch"] == 4 and shape["context"] == 1024]
    return [_case(shape, own) for shape in shapes] + [_case(shape, other) for shape in few]


def _case(shape: dict[str, int], backend: str) -> Case:
    sizes = dict(shape)
    return Case("decode_attention", decode_key(sizes.pop("head_dim"), sizes, backend), sizes)


def decode_key(dim: int, sizes: dict[str, int], backend: str) -> Key:
    """What tells fits of decode kernels apart."""
    from capplan.describe.profile_choice import head_group

    heads = head_group(sizes["heads"], sizes["kv_heads"])
    return {
        "format": "bf16", "kv_format": "bf16", "head_dim": dim, "heads": heads, "window": "full", "backend": backend,
    }  # fmt: skip


def sizes_of(case: Case) -> tuple[int, int, int, int, int]:
    """(batch, context, heads, KV heads, head dim)."""
    shape = case.shape
    return shape["batch"], shape["context"], shape["heads"], shape["kv_heads"], int(case.key["head_dim"])


def work(case: Case) -> Work:
    """4·b·h·D·L FLOPs; the cache read, queries and results."""
    batch, context, heads, kv_heads, dim = sizes_of(case)
    cache = 4.0 * batch * kv_heads * dim * context
    return Work(4.0 * batch * heads * dim * context, cache + 4.0 * batch * heads * dim, "bf16")


def set_bytes(case: Case) -> int:
    """The cache of one layer."""
    batch, context, _, kv_heads, dim = sizes_of(case)
    return 4 * batch * kv_heads * dim * context


def prepare(case: Case, setting: Setting) -> Call:
    """The caches of several layers, one query."""
    batch, context, heads, kv_heads, dim = sizes_of(case)
    keys = sets_of(setting, lambda one: normal(one.other(1), batch, kv_heads, context, dim))
    values = sets_of(setting, lambda one: normal(one.other(2), batch, kv_heads, context, dim))
    query = normal(setting.other(0), batch, heads, 1, dim, scale=0.5)
    backend = str(case.key["backend"])

    def run(index: int) -> Tensor:
        return decode_attention(query, keys[index], values[index], backend=backend)

    def expected(index: int, output: Tensor) -> tuple[Tensor, Tensor]:
        return part_of_decode(output, query, keys[index], values[index])

    return Call(run, expected, TOLERANCE["bf16"])


def part_of_decode(output: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """All heads of one random sequence's random KV head, as computed and by the definition."""
    batch, heads, _, _ = q.shape
    size = heads // k.shape[1]
    sequence, group = int(chosen(batch, 1)), int(chosen(k.shape[1], 1))
    members = slice(group * size, (group + 1) * size)
    reference = exact_attention(q[sequence, members, 0], k[sequence, group], v[sequence, group])
    return output[sequence, members, 0], reference


KERNEL = Kernel("decode_attention", "decode_attention", cases, work, set_bytes, prepare)
