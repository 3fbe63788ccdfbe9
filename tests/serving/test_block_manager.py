"""Blocks: the textbook's demonstration, order of reuse, and bookkeeping that never goes wrong.

The demonstration (1,000 blocks of 16 tokens; requests of 200, 500 and 100 tokens; the first one freed) is from "The
complete guide to LLM inference optimisation" (Japanese, kept as plain text by the project's maintainers).
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.serving.block_manager import BlockManager, BlockTables, OutOfBlocksError


def test_the_demonstration_of_paged_attention() -> None:
    tables = BlockTables(1000, 16)
    assert [tables.admit(request, tokens) for request, tokens in ((1, 200), (2, 500), (3, 100))] == [13, 32, 7]
    assert tables.manager.free_blocks == 1000 - 52
    tables.finish(1)
    assert tables.manager.free_blocks == 961
    assert [len(table) for table in tables.tables.values()] == [32, 7]


def test_a_request_that_does_not_fit_takes_nothing() -> None:
    tables = BlockTables(10, 16)
    tables.admit(1, 100)
    with pytest.raises(OutOfBlocksError, match="7 blocks wanted, 3 free"):
        tables.admit(2, 100)
    assert tables.manager.free_blocks == 3
    assert tables.tables.keys() == {1}


def test_a_table_grows_by_a_block_at_the_first_token_of_one() -> None:
    tables = BlockTables(10, 16)
    tables.admit(1, 15)
    assert [tables.grow(1, tokens) for tokens in (16, 17, 18, 32, 33)] == [0, 1, 0, 0, 1]


def test_blocks_are_reused_in_the_order_in_which_they_became_free() -> None:
    manager = BlockManager(6)
    first, second = manager.allocate(3), manager.allocate(3)
    assert (first, second) == ([0, 1, 2], [3, 4, 5])
    manager.release(second)
    manager.release(first)
    assert manager.allocate(6) == [5, 4, 3, 2, 1, 0]  # the end of a table before its beginning


def test_a_shared_block_is_free_when_its_last_table_lets_go() -> None:
    manager = BlockManager(4)
    table = manager.allocate(2)
    manager.share(table)
    manager.release(table)
    assert manager.free_blocks == 2
    manager.release(table)
    assert manager.free_blocks == 4
    with pytest.raises(ValueError, match="free already"):
        manager.release(table)


def test_a_free_block_that_is_shared_again_keeps_its_new_place_in_the_queue() -> None:
    manager = BlockManager(4)
    table = manager.allocate(2)
    manager.release(table)  # the queue: 2 3 1 0
    manager.share([1])
    assert manager.free_blocks == 3
    manager.release([1])  # 2 3 (1) 0 1
    assert manager.allocate(4) == [2, 3, 0, 1]


class Model:
    """What a pool must be, kept in the plainest way: a multiset of references."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.tables: list[list[int]] = []

    @property
    def references(self) -> Counter[int]:
        return Counter(block for table in self.tables for block in table)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 30), st.lists(st.tuples(st.sampled_from("afs"), st.integers(0, 12)), max_size=60))
def test_every_block_is_free_or_referred_to(blocks: int, actions: list[tuple[str, int]]) -> None:
    manager, model = BlockManager(blocks), Model(blocks)
    for action, size in actions:
        if action == "a" and size <= manager.free_blocks:
            taken = manager.allocate(size)
            assert len(set(taken)) == size
            assert not set(taken) & set(model.references), "a block in use was handed out"
            model.tables.append(taken)
        elif action == "f" and model.tables:
            manager.release(model.tables.pop(size % len(model.tables)))
        elif action == "s" and blocks:
            known = sorted({block % blocks for block in range(size)})
            manager.share(known)
            model.tables.append(known)
        references = model.references
        assert manager.used_blocks == len(references)
        assert manager.free_blocks + manager.used_blocks == blocks
        assert all(manager.references(block) == references[block] for block in range(blocks))
    for table in model.tables:
        manager.release(table)
    assert sorted(manager.allocate(blocks)) == list(range(blocks))
