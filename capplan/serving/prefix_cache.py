"""Reuse of cached prefixes: full blocks found again by the chain of contents that leads to them, and closed forms.

A block's content depends on every token before it, so it is known by a chain: the key of block i names its own tokens
and the key of block i - 1. Two requests share the blocks up to the first difference, whole blocks only, and never the
whole prompt: the last token is computed anew, since its logits are wanted.

    reusable = min(⌊p / b⌋, ⌊(L - 1) / b⌋)        of a prompt of L tokens with p cached ones, in blocks of b

Contents are named instead of stored: a prompt is a list of pieces (name, tokens), and equal names mean equal tokens.

Source: vLLM, vllm/v1/core/kv_cache_utils.py (hash_block_tokens), block_pool.py; SGLang, RadixAttention
(arXiv:2312.07104), evicts by least recent use, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from capplan.arrays import ceil_div
from capplan.serving.block_manager import BlockManager

_PLACES = 1 << 40
"""Blocks of one chain, at most: a key is ``chain · 2^40 + place``."""


class PrefixCache:
    """Blocks by the chain of contents that leads to them, over one pool; the least recently used go first.

    Args:
        blocks: N, physical blocks.
        block_size: b, tokens of a block.
    """

    def __init__(self, blocks: int, block_size: int) -> None:
        self.manager = BlockManager(blocks, self._forget)
        self.block_size = block_size
        self.queried_tokens = 0
        self.hit_tokens = 0
        self.evictions = 0
        self._block_of: dict[int, int] = {}
        self._key_of: dict[int, int] = {}
        self._chains: dict[tuple[int, str, int], int] = {}
        self._private = 0

    def chain(self, pieces: Sequence[tuple[str | None, int]]) -> Chain:
        """The chain of a prompt made of named pieces; a piece without a name is like no other.

        Args:
            pieces: (name, tokens) in order.
        """
        ends, keys = [], []
        parent, start = 0, 0
        for name, tokens in pieces:
            parent = self._child(parent, name, start)
            start += tokens
            ends.append(start)
            keys.append(parent)
        return Chain(tuple(ends), tuple(keys), self.block_size)

    def _child(self, parent: int, name: str | None, start: int) -> int:
        if name is None:
            self._private -= 1
            return self._private
        return self._chains.setdefault((parent, name, start), len(self._chains) + 1)

    def lookup(self, keys: Sequence[int]) -> list[int]:
        """The cached blocks of the longest known beginning of a chain; they are not taken yet (`share` them)."""
        found = []
        block_of = self._block_of
        for key in keys:
            block = block_of.get(key)
            if block is None:
                break
            found.append(block)
        return found

    def register(self, keys: Sequence[int], blocks: Sequence[int]) -> None:
        """Make full blocks known by their keys; a key that is known keeps its block."""
        block_of, key_of = self._block_of, self._key_of
        for key, block in zip(keys, blocks, strict=True):
            if key not in block_of:
                block_of[key] = block
                key_of[block] = key

    def count(self, queried: int, hit: int) -> None:
        """Count tokens of an admitted prompt, and those that were cached."""
        self.queried_tokens += queried
        self.hit_tokens += hit

    @property
    def hit_rate(self) -> float:
        """Cached tokens over tokens of all admitted prompts."""
        return self.hit_tokens / self.queried_tokens if self.queried_tokens else 0.0

    @property
    def cached_blocks(self) -> int:
        """Blocks that can be found, in use or free."""
        return len(self._block_of)

    def _forget(self, blocks: list[int]) -> None:
        key_of = self._key_of
        if not key_of:
            return
        for block in blocks:
            key = key_of.pop(block, None)
            if key is not None:
                del self._block_of[key]
                self.evictions += 1


@dataclass(frozen=True, slots=True)
class Chain:
    """The contents of one sequence, as keys of its blocks.

    Args:
        ends: the last position of each piece, plus one.
        chains: the chain's name up to each piece, pieces before it included.
        block_size: b.
    """

    ends: tuple[int, ...]
    chains: tuple[int, ...]
    block_size: int

    def keys(self, first: int, last: int) -> list[int]:
        """The keys of blocks `first` up to and without `last`; tokens beyond the last piece belong to it.

        A block is named by the piece in which it ends.
        """
        found: list[int] = []
        place = first
        for end, chain in zip(self.ends[:-1], self.chains[:-1], strict=True):
            stop = min(last, end // self.block_size)
            if stop > place:
                found += range(chain * _PLACES + place, chain * _PLACES + stop)
                place = stop
        if last > place:
            found += range(self.chains[-1] * _PLACES + place, self.chains[-1] * _PLACES + last)
        return found


def reusable_blocks(cached: int, prompt: int, block_size: int) -> int:
    """Blocks of a prompt of L tokens that p cached tokens spare: ``min(⌊p / b⌋, ⌊(L - 1) / b⌋)``."""
    return max(0, min(cached // block_size, (prompt - 1) // block_size))


@dataclass(frozen=True, slots=True)
class PrefixSavings:
    """What a shared prefix spares each request that finds it cached, and a batch of such requests.

    Args:
        cached_tokens: tokens that need not be computed.
        computed_tokens: tokens that must.
        pairs_saved: query-key pairs a head that need not be computed, ``p(p + 1)/2``.
        pairs: those that must.
        blocks_together: blocks of n such requests at once, the shared ones once.
        blocks_apart: blocks of n requests that share nothing.
    """

    cached_tokens: int
    computed_tokens: int
    pairs_saved: int
    pairs: int
    blocks_together: int
    blocks_apart: int

    @property
    def share_of_tokens(self) -> float:
        """Cached tokens over the prompt's."""
        return self.cached_tokens / (self.cached_tokens + self.computed_tokens)

    @property
    def blocks_saved(self) -> int:
        """Blocks that sharing frees."""
        return self.blocks_apart - self.blocks_together


def prefix_savings(prefix: int, prompt: int, output: int, block_size: int, requests: int) -> PrefixSavings:
    """Prefill and blocks that `requests` requests with a common cached prefix do without.

        blocks together = k + n · (⌈(L + O) / b⌉ - k)        k = min(⌊p / b⌋, ⌊(L - 1) / b⌋)

    Args:
        prefix: p, tokens in common.
        prompt: L, tokens of the prompt.
        output: O, tokens of the output.
        block_size: b.
        requests: n, requests at once.
    """
    shared = reusable_blocks(prefix, prompt, block_size)
    cached = shared * block_size
    each = int(ceil_div(prompt + output, block_size))
    saved = cached * (cached + 1) // 2
    return PrefixSavings(
        cached_tokens=cached,
        computed_tokens=prompt - cached,
        pairs_saved=saved,
        pairs=prompt * (prompt + 1) // 2 - saved,
        blocks_together=shared + requests * (each - shared),
        blocks_apart=requests * each,
    )


def expected_hit_rate(popularity: Sequence[float], capacity: float, once: float = 0.0) -> float:
    """The chance that a request finds its prefix in a cache of `capacity` prefixes that gives up the least recent.

        h = Σ q_i · (1 - exp(-q_i · t))        with t so that Σ (1 - exp(-q_i · t)) + u·t = C

    t is the characteristic time, in requests, for which a prefix stays. Requests choose independently; all prefixes
    are equally long; what running requests hold, which cannot be given up, is to be taken off the capacity.

    Args:
        popularity: q_i, the chance that a request has prefix i; they add up to at most 1.
        capacity: C, prefixes that fit.
        once: u, what each request leaves behind that nobody will want again, in prefixes' worth.

    Source: Che, Tung and Wang, Hierarchical web caching systems (IEEE JSAC 20(7), 2002).
    """
    wanted = [chance for chance in popularity if chance > 0]
    if capacity <= 0 or not wanted:
        return 0.0
    if capacity >= len(wanted) and not once:
        return sum(wanted)
    low, high = 0.0, 1.0
    while _held(wanted, high, once) < capacity:
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _held(wanted, middle, once) < capacity else (low, middle)
    return sum(chance * -math.expm1(-chance * high) for chance in wanted)


def _held(popularity: Sequence[float], time: float, once: float) -> float:
    """Prefixes' worth of blocks that were used within the last `time` requests, expected."""
    return sum(-math.expm1(-chance * time) for chance in popularity) + once * time
