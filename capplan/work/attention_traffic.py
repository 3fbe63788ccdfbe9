"""Attention's memory accesses, kernel by kernel: the naive one that materialises its scores, and the tiled one.

Each function returns the list of accesses of one head over ``n`` queries and ``s`` keys, in the order in which the
algorithm makes them, so that the lists can stand side by side. Units: bytes, for elements of `b` bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from capplan.arrays import ceil_div
from capplan.work.operators import Number

SCORE_PASSES = 4
"""Times that the score matrix crosses the memory bus in naive attention: S written and read, P written and read."""


@dataclass(frozen=True, slots=True)
class Access:
    """One pass over one tensor."""

    tensor: str
    direction: Literal["read", "write"]
    bytes: Number
    order: str
    """How it grows, in symbols."""


def naive_attention(queries: Number, keys: Number, key_dim: int, value_dim: int, item: int) -> list[Access]:
    """``S = QKᵀ``, ``P = softmax(S)``, ``O = PV``, each through memory: ``(n + s)·(D + Dv)·b + 4·n·s·b`` bytes.

    Args:
        queries: n, query positions.
        keys: s, key positions.
        key_dim: D, elements of a query or key.
        value_dim: Dv, elements of a value.
        item: b, bytes of an element.

    Leaves out the mask, and kernels that fuse two of the steps.
    Source: Dao et al., FlashAttention (arXiv:2205.14135), algorithm 0.
    """
    scores = queries * keys * item
    return [
        Access("Q", "read", queries * key_dim * item, "n·D"),
        Access("K", "read", keys * key_dim * item, "s·D"),
        Access("S", "write", scores, "n·s"),
        Access("S", "read", scores, "n·s"),
        Access("P", "write", scores, "n·s"),
        Access("P", "read", scores, "n·s"),
        Access("V", "read", keys * value_dim * item, "s·Dv"),
        Access("O", "write", queries * value_dim * item, "n·Dv"),
    ]


def flash_attention(queries: Number, keys: Number, key_dim: int, value_dim: int, item: int) -> list[Access]:
    """Tiled attention, each operand through memory once: ``(n + s)·(D + Dv)·b + 4·n`` bytes.

    The last term is the fp32 log-sum-exp of every query. What later versions do when the cache between memory and
    processors holds the keys and values of a head; `tiled_attention` counts without that cache.

    Source: Dao, FlashAttention-2 (arXiv:2307.08691), algorithm 1.
    """
    return [
        Access("Q", "read", queries * key_dim * item, "n·D"),
        Access("K", "read", keys * key_dim * item, "s·D"),
        Access("V", "read", keys * value_dim * item, "s·Dv"),
        Access("O", "write", queries * value_dim * item, "n·Dv"),
        Access("log-sum-exp", "write", queries * 4, "n"),
    ]


def tiled_attention(queries: Number, keys: Number, key_dim: int, value_dim: int, item: int, block: int) -> list[Access]:
    """FlashAttention's first algorithm with blocks of `block` keys: for each, all of Q, O and the softmax statistics.

    ``s·(D + Dv)·b + T·(n·(D + 2·Dv)·b + 16·n)`` bytes with ``T = ⌈s/block⌉`` passes; the statistics (running maximum
    and sum, fp32) are read and written in every pass.

    Source: Dao et al., FlashAttention (arXiv:2205.14135), algorithm 1.
    """
    passes = ceil_div(keys, block)
    return [
        Access("K", "read", keys * key_dim * item, "s·D"),
        Access("V", "read", keys * value_dim * item, "s·Dv"),
        Access("Q", "read", passes * queries * key_dim * item, "T·n·D"),
        Access("O", "read", passes * queries * value_dim * item, "T·n·Dv"),
        Access("maximum and sum", "read", passes * queries * 8, "T·n"),
        Access("O", "write", passes * queries * value_dim * item, "T·n·Dv"),
        Access("maximum and sum", "write", passes * queries * 8, "T·n"),
    ]
