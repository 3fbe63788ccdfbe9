"""Sequences that a server works on, and the ones among them that decode, in steps that cost no work a sequence.

All decoding sequences advance by one token a step, so that where each stands follows from the number of decode steps
since it joined. Two calendars say what a step has to look at: which sequences end with it, and which begin a new block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from capplan.serving.prefix_cache import Chain
from capplan.serving.requests import Request


@dataclass(slots=True, eq=False)
class ServedSequence:
    """One request inside the server.

    Args:
        index: its number in the order of arrival.
        request: what was asked.
        prompt: positions of its prompt in the cache, padding included.
        generated: tokens that it has been given.
        computed: positions in the cache, as of the last time it joined or left the decoding ones.
        table: its blocks.
        chain: the contents of its blocks, where prefixes are cached.
        cached: tokens of its prompt that were found cached when it was first admitted.
        scheduled: when its first step began; below 0: not yet.
        first_token: when its first token was ready.
        last_token: when its latest token was ready.
        joined: decode steps that had been done when it joined them; below 0: it does not decode.
        last_step: the decode step that ends it.
        preemptions: how often it had to give way.
        swapped: its cache lies in host memory.
        runs: (when a prompt was complete, decode steps done by then) of each time it joined, where token times matter.
        lefts: decode steps done when it had to leave again.
    """

    index: int
    request: Request
    prompt: int
    generated: int = 0
    computed: int = 0
    table: list[int] = field(default_factory=list)
    chain: Chain | None = None
    cached: int = 0
    scheduled: float = -1.0
    first_token: float = -1.0
    last_token: float = -1.0
    joined: int = -1
    last_step: int = -1
    preemptions: int = 0
    swapped: bool = False
    runs: list[tuple[float, int]] = field(default_factory=list)
    lefts: list[int] = field(default_factory=list)

    @property
    def target(self) -> int:
        """Positions that must be in the cache before the next token: the prompt and what was generated."""
        return self.prompt + self.generated

    @property
    def most_positions(self) -> int:
        """Positions in the cache when the last token is made; that token itself is never cached."""
        return self.prompt + self.request.osl - 1


@dataclass(frozen=True, slots=True)
class CacheModel:
    """The KV pool of one data-parallel group, in blocks.

    Args:
        blocks: N.
        block_size: b, tokens of a block.
        need: blocks of a request whose context fills so many blocks' worth of tokens (not less for a longer one).
        max_sequences: sequences whose states fit at once; None: no such limit.
    """

    blocks: int
    block_size: int
    need: Callable[[int], int] = lambda filled: filled
    max_sequences: int | None = None

    def blocks_for(self, tokens: int) -> int:
        """Blocks that a request with `tokens` positions in the cache takes."""
        return self.need(-(-tokens // self.block_size))


class DecodingSet:
    """The sequences that decode one token a step.

    Args:
        block_size: b, tokens of a block.
    """

    def __init__(self, block_size: int) -> None:
        self.steps = 0
        """Decode steps done."""
        self.count = 0
        """B, sequences that decode."""
        self.context = 0
        """Positions in the cache before the next step, of all of them."""
        self._block_size = block_size
        self._ending: dict[int, list[ServedSequence]] = {}
        self._growing: list[dict[ServedSequence, None]] = [{} for _ in range(block_size)]

    def join(self, sequence: ServedSequence) -> None:
        """Take a sequence in whose positions are all cached but for its latest token."""
        sequence.joined = self.steps
        sequence.last_step = self.steps + sequence.request.osl - sequence.generated
        self._ending.setdefault(sequence.last_step, []).append(sequence)
        self._growing[self._phase(sequence)][sequence] = None
        self.count += 1
        self.context += sequence.computed

    def leave(self, sequence: ServedSequence) -> None:
        """Let a sequence go, and write down how far it has come."""
        del self._growing[self._phase(sequence)][sequence]
        ending = self._ending.get(sequence.last_step, [])
        if sequence in ending:
            ending.remove(sequence)
        done = self.steps - sequence.joined
        sequence.computed += done
        sequence.generated += done
        sequence.joined, sequence.last_step = -1, -1
        self.count -= 1
        self.context -= sequence.computed

    def _phase(self, sequence: ServedSequence) -> int:
        """The decode steps, modulo the block size, in which a sequence writes the first position of a block."""
        return (sequence.joined - sequence.computed + 1) % self._block_size

    def growing(self) -> Sequence[ServedSequence]:
        """The sequences that write the first position of a block in the next step."""
        bucket = self._growing[(self.steps + 1) % self._block_size]
        return list(bucket) if bucket else ()

    def position(self, sequence: ServedSequence) -> int:
        """Positions in the cache once the next step is done."""
        return sequence.computed + self.steps + 1 - sequence.joined

    def outputs(self, sequence: ServedSequence) -> int:
        """Tokens that a sequence has been given, whether it decodes or not."""
        return sequence.generated + (self.steps - sequence.joined if sequence.joined >= 0 else 0)

    def advance(self) -> Sequence[ServedSequence]:
        """One token more for each; returns those that have their last one. They decode until they `leave`."""
        self.steps += 1
        self.context += self.count
        return self._ending.pop(self.steps, ())
