"""The blocks of sequences: their tables over the pool, what they may still take, and prefixes that they share."""

from __future__ import annotations

from collections.abc import Sequence

from capplan.serving.prefix_cache import PrefixCache
from capplan.serving.sequences import CacheModel, ServedSequence


class SequenceBlocks:
    """The pool as a scheduler sees it.

    Args:
        cache: the pool.
        prefix_caching: whether cached prefixes are looked up.
    """

    def __init__(self, cache: CacheModel, *, prefix_caching: bool) -> None:
        self.cache, self.prefix_caching = cache, prefix_caching
        self.prefixes = PrefixCache(cache.blocks, cache.block_size)
        self.promised = 0
        """Blocks that running sequences will take yet if they run to their end."""
        self._manager = self.prefixes.manager
        self._need = cache.blocks_for

    @property
    def free(self) -> int:
        """Blocks that no sequence holds."""
        return self._manager.free_blocks

    @property
    def used(self) -> int:
        """Blocks that sequences hold."""
        return self._manager.used_blocks

    def need(self, positions: int) -> int:
        """Blocks of a sequence with so many positions in the cache."""
        return self._need(positions)

    def most(self, sequence: ServedSequence) -> int:
        """Blocks of a sequence at its end."""
        return self._need(sequence.most_positions)

    def missing(self, sequence: ServedSequence, positions: int) -> int:
        """Blocks that a sequence must take to have so many positions in the cache."""
        more = self._need(positions) - len(sequence.table)
        return more if more > 0 else 0

    def extend(self, sequence: ServedSequence, positions: int) -> None:
        """Give a sequence the blocks for so many positions."""
        self.take(sequence, self.missing(sequence, positions))

    def take(self, sequence: ServedSequence, more: int) -> None:
        """Give a sequence so many blocks more."""
        if more:
            sequence.table += self._manager.allocate(more)
            self.promised -= more

    def start(self, sequence: ServedSequence, found: Sequence[int]) -> None:
        """Begin a sequence's table with cached blocks that were found for it."""
        self._manager.share(found)
        self.prefixes.count(sequence.target, len(found) * self.cache.block_size)
        sequence.table = list(found)
        sequence.computed = len(found) * self.cache.block_size
        self.promised += self.most(sequence) - len(found)

    def resume(self, sequence: ServedSequence) -> None:
        """Give a sequence that comes back from the host the blocks for its positions and one more."""
        self.promised += self.most(sequence)
        self.extend(sequence, sequence.computed + 1)

    def drop(self, sequence: ServedSequence) -> None:
        """Take all blocks of a sequence back."""
        self.promised -= self.most(sequence) - len(sequence.table)
        self._manager.release(sequence.table)
        sequence.table = []

    def find(self, sequence: ServedSequence) -> Sequence[int]:
        """The cached blocks of a waiting request's beginning: those of its prefix, or of what was computed before."""
        request, size = sequence.request, self.cache.block_size
        if not self.prefix_caching or (request.prefix is None and not sequence.preemptions):
            return ()
        most = (sequence.target - 1) // size
        if not sequence.preemptions:
            most = min(most, request.prefix_tokens // size)
        return self.prefixes.lookup(self._keys(sequence, most))

    def idle(self, found: Sequence[int]) -> int:
        """Those of some cached blocks that count as free."""
        return sum(1 for block in found if not self._manager.references(block))

    def register_prefix(self, sequence: ServedSequence, positions: int) -> None:
        """Make the full blocks of a sequence's shared prefix known, as far as they are computed."""
        if self.prefix_caching and sequence.request.prefix is not None:
            self._register(sequence, min(positions, sequence.request.prefix_tokens))

    def register_all(self, sequence: ServedSequence) -> None:
        """Make all full blocks of a sequence known, so that it finds them when it is computed again."""
        if self.prefix_caching:
            self._register(sequence, sequence.computed)

    def _register(self, sequence: ServedSequence, positions: int) -> None:
        full = min(positions // self.cache.block_size, len(sequence.table))
        self.prefixes.register(self._keys(sequence, full), sequence.table[:full])

    def _keys(self, sequence: ServedSequence, blocks: int) -> list[int]:
        if sequence.chain is None:
            request = sequence.request
            pieces: list[tuple[str | None, int]] = [(None, request.isl - request.prefix_tokens + request.osl)]
            if request.prefix is not None:
                pieces.insert(0, (request.prefix, request.prefix_tokens))
            sequence.chain = self.prefixes.chain(pieces)
        return sequence.chain.keys(0, blocks)
