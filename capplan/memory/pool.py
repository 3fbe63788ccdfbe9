"""How much fits into the memory that is left for caches: the same questions to every engine's kind of pool.

Each kind (`capplan.memory.pool_kinds`) answers how many sequences of a length it holds; from that come the largest
concurrency at a length and the greatest length at a concurrency.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from capplan.describe.engine import EngineRules
from capplan.memory.cache_layers import CacheLayer
from capplan.memory.paging import StepLimits


@dataclass(frozen=True, slots=True)
class PoolRequest:
    """What a pool depends on.

    Args:
        layers: every cache of the model.
        rules: the engine.
        stages: the layers of each pipeline stage; drafting layers belong to the last one.
        pools: bytes for caches on one rank of each stage.
        block_size: tokens of a block, as asked for.
        limits: what the engine lets run at once.
        max_model_len: the longest request.
        max_num_seqs: the most requests at once.
        hybrid: windowed layers keep no more than their window.
        prefix_caching: prefixes are kept for later requests.
        state_slots: slots for states, where the user says how many.
    """

    layers: tuple[CacheLayer, ...]
    rules: EngineRules
    stages: tuple[range, ...]
    pools: tuple[int, ...]
    block_size: int
    limits: StepLimits
    max_model_len: int
    max_num_seqs: int
    hybrid: bool = True
    prefix_caching: bool = True
    state_slots: int | None = None


@dataclass(frozen=True, slots=True)
class PoolPart:
    """Layers of one kind in a pool, on the rank that binds.

    Args:
        name: the kind; ``draft`` in front of it for drafting layers with tensors of their own, ``index`` behind it
            for the keys of sparse attention's scorers.
        layers: how many.
        block_size: tokens of one of its blocks.
        places: tokens (or states) that it has room for.
        key_bytes: bytes of keys, latents and index keys.
        value_bytes: bytes of values.
        state_bytes: bytes of states.
        convolution_bytes: bytes of the convolutions' columns among them.
        request_blocks: blocks that one request of the longest length takes.
    """

    name: str
    layers: int
    block_size: int
    places: int
    key_bytes: int
    value_bytes: int = 0
    state_bytes: int = 0
    convolution_bytes: int = 0
    request_blocks: int = 0

    @property
    def bytes(self) -> int:
        """All of it."""
        return self.key_bytes + self.value_bytes + self.state_bytes


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a pool holds.

    Args:
        block_size: tokens of an attention block.
        blocks: blocks of the pool (cells, slots), the fewest of all ranks.
        block_bytes: bytes of one block on the rank that binds.
        pool_bytes: bytes that the blocks take on that rank.
        binding_stage: the stage whose ranks have the fewest.
        printed_tokens: the number of tokens that this version of the engine prints.
        capacity_tokens: the tokens that really fit at the longest length.
        concurrency: requests of the longest length that fit, unrounded.
        request_blocks: blocks that one of them takes.
        request_bytes: bytes that one of them takes on the rank that binds.
        state_slots: sequences whose states fit; None: the model has none, or they share the blocks.
        parts: the pool by kind of layer.
    """

    block_size: int
    blocks: int
    block_bytes: int
    pool_bytes: int
    binding_stage: int
    printed_tokens: int
    capacity_tokens: int
    concurrency: Fraction
    request_blocks: int
    request_bytes: int
    state_slots: int | None
    parts: tuple[PoolPart, ...]


class PoolKind(Protocol):
    """One kind of pool, filled for one request."""

    def concurrency(self, length: int) -> Fraction:
        """Requests of `length` tokens that fit at once, unrounded."""

    def shortfall(self, length: int, sequences: int) -> int:
        """Bytes that the worst rank lacks for so many requests of `length` tokens; 0 when they fit."""

    def capacity(self) -> Capacity:
        """All figures at the longest length."""


def longest_context(pool: PoolKind, sequences: int, most: int) -> int:
    """The greatest length, `most` at most, of which `sequences` requests fit at once; 0: not even one token does."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if pool.concurrency(middle) >= sequences:
            low = middle
        else:
            high = middle - 1
    return low


def binding(units: tuple[int | None, ...]) -> tuple[int, int]:
    """(stage, units) of the stage that has the fewest; stages without caches don't count."""
    counted = [(number, stage) for stage, number in enumerate(units) if number is not None]
    number, stage = min(counted, default=(0, 0))
    return stage, number


def stage_of(layer: int, stages: tuple[range, ...]) -> int:
    """The stage that holds a layer; drafting layers are on the last one."""
    return next((index for index, layers in enumerate(stages) if layer in layers), len(stages) - 1)
