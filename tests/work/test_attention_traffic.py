"""The lists of memory accesses against the algorithms run step by step, and against what the seed says of them."""

from __future__ import annotations

import pytest

from capplan.work.attention_traffic import flash_attention, naive_attention, tiled_attention
from capplan.work.step import Prefill, Step, ledger
from tests.work.models import small

N, D, ITEM = 1024, 64, 2


def test_the_naive_list_is_the_published_one() -> None:
    """Q, K in (N·d); S out, S in, P out, P in (N² each); V in; O out (N·d)."""
    accesses = naive_attention(N, N, D, D, ITEM)
    squares = [(a.tensor, a.direction) for a in accesses if a.bytes == N * N * ITEM]
    assert squares == [("S", "write"), ("S", "read"), ("P", "write"), ("P", "read")]
    lines = [(a.tensor, a.direction) for a in accesses if a.bytes == N * D * ITEM]
    assert lines == [("Q", "read"), ("K", "read"), ("V", "read"), ("O", "write")]
    assert len(squares) + len(lines) == len(accesses)


def test_naive_grows_with_the_square_and_flash_with_the_length() -> None:
    def total(kernel: object, n: int) -> int:
        return sum(a.bytes for a in kernel(n, n, D, D, ITEM))  # type: ignore[operator]

    assert total(flash_attention, 8 * N) == 8 * total(flash_attention, N)
    assert 50 < total(naive_attention, 8 * N) / total(naive_attention, N) < 64


@pytest.mark.parametrize(("queries", "keys", "block"), [(256, 256, 64), (100, 100, 64), (64, 200, 48)])
def test_tiles_against_the_loop_of_the_first_algorithm(queries: int, keys: int, block: int) -> None:
    """For each block of keys: K_j, V_j once; then Q_i, O_i and the two statistics of every query in, O_i and both out."""
    read, written = 0, 0
    for start in range(0, keys, block):
        size = min(block, keys - start)
        read += 2 * size * D * ITEM
        for first in range(0, queries, block):
            rows = min(block, queries - first)
            read += 2 * rows * D * ITEM + 2 * rows * 4
            written += rows * D * ITEM + 2 * rows * 4
    accesses = tiled_attention(queries, keys, D, D, ITEM, block)
    assert sum(a.bytes for a in accesses if a.direction == "read") == read
    assert sum(a.bytes for a in accesses if a.direction == "write") == written


def test_the_ledger_shows_both_kernels() -> None:
    """The same step with scores in memory: four times the score matrix of every head more, and all n·s pairs."""
    spec, length = small("dense"), 200
    books = {name: ledger(spec, Step(prefill=(Prefill(length),)), attention=name) for name in ("flash", "naive")}  # type: ignore[arg-type]
    (flash,), (naive,) = (book.of_kind("prefill_attention") for book in books.values())
    scores = 16 * length * length * ITEM
    assert naive.traffic.activations - flash.traffic.activations == 4 * scores
    assert naive.flops * (length + 1) == flash.flops * 2 * length
