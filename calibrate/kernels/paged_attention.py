"""Attention of one new token a sequence over a paged cache: its blocks are gathered, then attended to."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from calibrate.device import Device
from calibrate.kernels.decode_attention import STACKS_BACKEND, decode_key, part_of_decode, set_bytes, sizes_of
from calibrate.kernels.kernel import TOLERANCE, Call, Case, Kernel, Setting, Tensor, Work, normal, sets_of
from calibrate.kernels.sizes import decode_shapes
from calibrate.operations.attention import decode_attention, gather_blocks

BLOCK = 16
"""Tokens of a block."""

SPARE = 2
"""The pool has this many times the blocks that are in use, in a random order."""


def cases(device: Device) -> Sequence[Case]:
    """Contexts of whole blocks."""
    found = []
    for shape in decode_shapes(device):
        sizes = dict(shape)
        dim = sizes.pop("head_dim")
        if shape["batch"] > 1 and shape["context"] >= 128:
            key = {**decode_key(dim, sizes, STACKS_BACKEND[device.kind]), "layout": "paged"}
            found.append(Case("paged_attention", key, sizes))
    return found


def work(case: Case) -> Work:
    """4·b·h·D·L FLOPs; the cache read, written together, and read again."""
    batch, context, heads, kv_heads, dim = sizes_of(case)
    cache = 4.0 * batch * kv_heads * dim * context
    return Work(4.0 * batch * heads * dim * context, 3 * cache + 4.0 * batch * heads * dim, "bf16")


def prepare(case: Case, setting: Setting) -> Call:
    """The pools of several layers, one table of blocks, one query."""
    batch, context, heads, kv_heads, dim = sizes_of(case)
    count = context // BLOCK
    pool = SPARE * batch * count
    keys = sets_of(setting, lambda one: normal(one.other(1), pool, kv_heads, BLOCK, dim))
    values = sets_of(setting, lambda one: normal(one.other(2), pool, kv_heads, BLOCK, dim))
    table = torch.randperm(pool)[: batch * count].view(batch, count).to(setting.device.torch_name)
    query = normal(setting.other(0), batch, heads, 1, dim, scale=0.5)
    backend = str(case.key["backend"])

    def run(index: int) -> Tensor:
        k, v = gather_blocks(keys[index], table), gather_blocks(values[index], table)
        return decode_attention(query, k, v, backend=backend)

    def expected(index: int, output: Tensor) -> tuple[Tensor, Tensor]:
        k, v = (_in_order(part[index], table) for part in (keys, values))
        return part_of_decode(output, query, k, v)

    return Call(run, expected, TOLERANCE["bf16"])


def _in_order(blocks: Tensor, table: Tensor) -> Tensor:
    """The keys or values of every sequence, block after block, by plain indexing."""
    return torch.stack([torch.cat([blocks[int(block)] for block in row], 1) for row in table])


def pool_bytes(case: Case) -> int:
    """The pool of one layer."""
    return SPARE * set_bytes(case)


KERNEL = Kernel("paged_attention", None, cases, work, pool_bytes, prepare)
