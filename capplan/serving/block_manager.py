"""Physical blocks of a paged KV cache: a queue of free ones, reference counts, and a table for each request.

A block is free when no table refers to it. Free blocks are handed out in the order in which they became free, so that
a block whose content may be wanted again (see `capplan.serving.prefix_cache`) stays as long as possible.

Source: Kwon et al., PagedAttention (arXiv:2309.06180), section 4; vLLM, vllm/v1/core/block_pool.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from capplan.arrays import ceil_div


class OutOfBlocksError(Exception):
    """More blocks were asked for than are free: the caller should have looked first.

    Args:
        wanted: how many were asked for.
        free: how many there were.
    """

    def __init__(self, wanted: int, free: int) -> None:
        super().__init__(f"{wanted} blocks wanted, {free} free")
        self.wanted, self.free = wanted, free


class BlockManager:
    """A pool of `blocks` equal blocks.

    Args:
        blocks: N, physical blocks.
        on_reuse: called with blocks that are handed out again, before they are; what they held is lost then.
    """

    def __init__(self, blocks: int, on_reuse: Callable[[list[int]], None] | None = None) -> None:
        self.blocks = blocks
        self._queue: deque[int] = deque(range(blocks))
        self._references = [0] * blocks
        self._free = blocks
        self._outdated: dict[int, int] = {}
        """Entries of the queue that count no longer, by block: it was shared while it was free."""
        self._on_reuse = on_reuse

    @property
    def free_blocks(self) -> int:
        """Blocks that no table refers to, whatever they still hold."""
        return self._free

    @property
    def used_blocks(self) -> int:
        """Blocks that at least one table refers to; a shared one counts once."""
        return self.blocks - self._free

    def references(self, block: int) -> int:
        """Tables that refer to a block."""
        return self._references[block]

    def allocate(self, count: int) -> list[int]:
        """`count` free blocks, those free for longest first, each with one reference.

        Raises:
            OutOfBlocksError: fewer are free.
        """
        if count > self._free:
            raise OutOfBlocksError(count, self._free)
        following = self._queue.popleft
        taken = [following() for _ in range(count)] if not self._outdated else [self._next() for _ in range(count)]
        if self._on_reuse is not None:
            self._on_reuse(taken)
        references = self._references
        for block in taken:
            references[block] = 1
        self._free -= count
        return taken

    def _next(self) -> int:
        """The block that has been free for longest, past entries that count no longer."""
        while True:
            block = self._queue.popleft()
            outdated = self._outdated.get(block)
            if outdated is None:
                return block
            if outdated == 1:
                del self._outdated[block]
            else:
                self._outdated[block] = outdated - 1

    def share(self, blocks: Iterable[int]) -> None:
        """One more reference to each of some blocks, which are no longer free if they were."""
        for block in blocks:
            if not self._references[block]:
                self._free -= 1
                self._outdated[block] = self._outdated.get(block, 0) + 1
            self._references[block] += 1

    def release(self, table: Sequence[int]) -> None:
        """One reference less to each block of a table; its last blocks become free before its first.

        Of a chain whose blocks are wanted only together with those before them, the end is thus given up first.
        """
        references, append = self._references, self._queue.append
        for block in reversed(table):
            left = references[block] - 1
            if left < 0:
                raise ValueError(f"block {block} is free already")
            references[block] = left
            if not left:
                append(block)
                self._free += 1


class BlockTables:
    """Block tables by request over one pool: what a paged cache does with requests that share nothing.

    Args:
        blocks: N, physical blocks.
        block_size: b, tokens of a block.
    """

    def __init__(self, blocks: int, block_size: int) -> None:
        self.manager = BlockManager(blocks)
        self.block_size = block_size
        self.tables: dict[int, list[int]] = {}

    def admit(self, request: int, tokens: int) -> int:
        """Give a request ``⌈tokens / b⌉`` blocks, and return how many.

        Raises:
            OutOfBlocksError: fewer are free.
        """
        need = int(ceil_div(tokens, self.block_size))
        self.tables[request] = self.manager.allocate(need)
        return need

    def grow(self, request: int, tokens: int) -> int:
        """Extend a request's table to `tokens` tokens, and return how many blocks that took."""
        table = self.tables[request]
        more = max(0, int(ceil_div(tokens, self.block_size)) - len(table))
        table += self.manager.allocate(more)
        return more

    def finish(self, request: int) -> None:
        """Give all blocks of a request back."""
        self.manager.release(self.tables.pop(request))
