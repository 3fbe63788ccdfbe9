"""What one model keeps for its sequences: the KV cache and the fixed states, summed per block.

    kv    = B · Σ_blocks layers · Σ_rules entries(S) · elements · b
    state = B · Σ_blocks layers · Σ_states bytes

The whole is the sum of its groups exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from capplan.describe.model import Block, ModelSpec
from capplan.memory.kv_cache import KV_DTYPE_BYTES, CacheRule, cache_rules
from capplan.memory.kv_format import kv_format
from capplan.memory.recurrent_state import StateTensor, state_tensors


@dataclass(frozen=True, slots=True)
class Lengths:
    """The lengths that a cache depends on, in tokens a sequence.

    Args:
        context: S, tokens in the decoder's context.
        encoder: tokens of an encoder's input.
        images: tokens of all images that cross-attention sees.
    """

    context: int
    encoder: int = 0
    images: int = 0

    def of(self, rule: CacheRule) -> int:
        """The length that a rule counts."""
        return {"context": self.context, "encoder": self.encoder, "images": self.images}[rule.length_of]


@dataclass(frozen=True, slots=True)
class CacheTerm:
    """One cached tensor of one kind of layer, for all its layers and sequences.

    ``bytes = layers · sequences · entries · elements · item_bytes``
    """

    rule: CacheRule
    layers: int
    sequences: int
    entries: int
    item_bytes: int | Fraction

    @property
    def bytes(self) -> int:
        """Bytes on all ranks together, replicas not counted."""
        return self._stored(self.entries * self.rule.elements)

    def rank_bytes(self, tp: int) -> int:
        """Bytes on one of `tp` ranks."""
        return self._stored(self.entries * self.rule.rank_elements(tp))

    def _stored(self, elements: int) -> int:
        """Bytes of so many elements in each layer of each sequence, the last byte filled up."""
        exact = Fraction(self.layers * self.sequences * elements) * self.item_bytes
        return -(-exact.numerator // exact.denominator)

    def paged_bytes(self, tokens: int, block_size: int) -> int:
        """Bytes in whole blocks of `block_size` tokens, for a context of `tokens`."""
        if self.rule.fixed is not None or self.rule.remainder:
            return self.bytes
        kept = tokens if self.rule.limit is None else min(tokens, self.rule.limit)
        entries = -(-kept // block_size) * block_size // self.rule.rate
        return self._stored(entries * self.rule.elements)

    def growth(self, length: int) -> Fraction:
        """Bytes that one more token of one sequence adds."""
        return self.layers * self.rule.growth(length) * self.rule.elements * self.item_bytes


@dataclass(frozen=True, slots=True)
class StateTerm:
    """One state tensor of one kind of layer, for all its layers and sequences."""

    state: StateTensor
    layers: int
    sequences: int

    @property
    def bytes(self) -> int:
        """``layers · sequences · prod(shape) · b``."""
        return self.layers * self.sequences * self.state.bytes

    def rank_bytes(self, tp: int) -> int:
        """Bytes on one of `tp` ranks."""
        return self.layers * self.sequences * self.state.rank_bytes(tp)


@dataclass(frozen=True, slots=True)
class GroupMemory:
    """The cache and state of all layers of one block."""

    name: str
    kind: str
    layers: int
    cache: tuple[CacheTerm, ...]
    state: tuple[StateTerm, ...]

    @property
    def kv_bytes(self) -> int:
        """Bytes of the cache."""
        return sum(term.bytes for term in self.cache)

    @property
    def state_bytes(self) -> int:
        """Bytes of the states."""
        return sum(term.bytes for term in self.state)

    def rank_bytes(self, tp: int) -> int:
        """Cache and state bytes on one of `tp` ranks."""
        return sum(term.rank_bytes(tp) for term in self.cache) + sum(term.rank_bytes(tp) for term in self.state)


@dataclass(frozen=True, slots=True)
class SequenceMemory:
    """The cache and state of a whole model."""

    groups: tuple[GroupMemory, ...]
    lengths: Lengths

    @property
    def kv_bytes(self) -> int:
        """Bytes of the cache of all sequences."""
        return sum(group.kv_bytes for group in self.groups)

    @property
    def state_bytes(self) -> int:
        """Bytes of the fixed states of all sequences."""
        return sum(group.state_bytes for group in self.groups)

    @property
    def total_bytes(self) -> int:
        """Cache and states."""
        return self.kv_bytes + self.state_bytes

    @property
    def bytes_per_token(self) -> Fraction:
        """Bytes that one more token of one sequence adds at this length (windows that are full add nothing)."""
        terms = [term.growth(self.lengths.context) for group in self.groups for term in group.cache]
        return sum(terms, Fraction(0))

    def paged_bytes(self, block_size: int) -> int:
        """Cache in whole blocks, and states, of all sequences."""
        terms = [term for group in self.groups for term in group.cache]
        return self.state_bytes + sum(term.paged_bytes(self.lengths.of(term.rule), block_size) for term in terms)

    def rank_bytes(self, tp: int) -> int:
        """Cache and state bytes on the tensor-parallel rank that holds most."""
        return sum(group.rank_bytes(tp) for group in self.groups)


def sequence_memory(spec: ModelSpec, lengths: Lengths, *, sequences: int = 1, kv_dtype: str = "bf16") -> SequenceMemory:
    """Cache and state of `sequences` equal sequences, by block in the order of the description."""
    if spec.cache_positions is not None:
        lengths = Lengths(min(lengths.context, spec.cache_positions), lengths.encoder, lengths.images)
    item_bytes = kv_item_bytes(kv_dtype)
    groups = []
    for name, layers, block in spec.each_block():
        cache = tuple(
            CacheTerm(rule, layers, sequences, int(rule.entries(lengths.of(rule))), item_bytes)
            for rule in cache_rules(block)
        )
        state = tuple(StateTerm(state, layers, sequences) for state in state_tensors(block, spec.hidden_size))
        groups.append(GroupMemory(name, block_kind(block), layers, cache, state))
    return SequenceMemory(tuple(groups), lengths)


def kv_item_bytes(name: str) -> int | Fraction:
    """Bytes of one cached element in a dtype: a plain one, an 8-bit float, or one of ggml's (``q8_0``: 34/32).

    Raises:
        UsageError: no such dtype.
    """
    plain = KV_DTYPE_BYTES.get(name)
    return plain if plain is not None else kv_format(name, "bf16").key_bits / 8


def block_kind(block: Block) -> str:
    """A layer's mixers in a few words, such as ``attention (window 1024)``."""
    names = []
    for mixer in block.mixer:
        name = str(mixer.kind).replace("_", " ")
        for feature in ("window", "chunk", "rate"):
            if getattr(mixer, feature, None):
                name += f" ({feature} {getattr(mixer, feature)})"
        if getattr(mixer, "cache", "own") == "shared":
            name += " (shared cache)"
        names.append(name)
    return " + ".join(names) or "no mixer"
