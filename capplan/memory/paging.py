"""Blocks: how many a request takes, what is lost in the last one, and against reserving the maximum length.

    blocks = ⌈S / b⌉        lost = blocks · b - S

for a context of S tokens in blocks of b. A windowed layer holds ``⌈min(W - 1 + T, S) / b⌉ + 1`` blocks, with T the
tokens that a step may add before older ones are given back; the one more is there since a window need not begin where
a block does. A state takes one page, more while prefixes are cached or tokens drafted.

Source: Kwon et al., PagedAttention (arXiv:2309.06180); vLLM, vllm/v1/kv_cache_interface.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from capplan.arrays import ceil_div
from capplan.describe.engine import StateMode
from capplan.memory.cache_layers import CacheLayer, Kind


@dataclass(frozen=True, slots=True)
class StepLimits:
    """What the engine lets run at once.

    Args:
        batched_tokens: tokens of one step, at most.
        in_flight_batches: steps whose tokens a window may still have to hold.
        draft_tokens: tokens drafted a step.
        state_mode: how states are kept for prefix caching.
        context_ranks: ranks that share one cache by position.
    """

    batched_tokens: int
    in_flight_batches: int = 1
    draft_tokens: int = 0
    state_mode: StateMode = "none"
    context_ranks: int = 1

    @property
    def in_flight_tokens(self) -> int:
        """Tokens that may be scheduled and not yet done with: ``batches · batched_tokens``."""
        return self.in_flight_batches * self.batched_tokens


@dataclass(frozen=True, slots=True)
class PageSpec:
    """The pages of one kind of layer.

    Args:
        kind: what the layer keeps.
        block_size: tokens of one page.
        page_bytes: bytes of one page on one rank, padding included.
        used_bytes: bytes of it that hold something.
        span: tokens of the window, the chunk or the source.
    """

    kind: Kind
    block_size: int
    page_bytes: int
    used_bytes: int
    span: int | None = None

    def blocks(self, length: int, limits: StepLimits) -> int:
        """Pages that one request of `length` tokens may take in one layer, at most."""
        return request_blocks(self.kind, length, self.block_size, self.span, limits)


def request_blocks(kind: Kind, length: int, block_size: int, span: int | None, limits: StepLimits) -> int:
    """Pages of one layer for one request of `length` tokens, as the engine reserves them at admission."""
    if kind == "full":
        return int(ceil_div(ceil_div(length, limits.context_ranks), block_size))
    if kind == "window":
        return int(ceil_div(min((span or 1) - 1 + limits.in_flight_tokens, length), block_size)) + 1
    if kind == "chunk":
        return int(ceil_div(min((span or 0) + limits.in_flight_tokens, length), block_size))
    if kind == "cross":
        return int(ceil_div(span or 0, block_size))
    if limits.state_mode == "all":
        return int(ceil_div(length, block_size))
    return (2 if limits.state_mode == "align" else 1) + limits.draft_tokens


def page_spec(layer: CacheLayer, block_size: int, state_page: int | None = None) -> PageSpec:
    """The pages of a layer with `block_size` tokens each; a state is one page, padded to `state_page`.

    A page that would end inside a byte (compressed entries) is filled up.
    """
    if layer.kind == "state":
        return PageSpec("state", block_size, max(layer.state_bytes, state_page or 0), layer.state_bytes)
    size = Fraction(layer.token_bytes) * block_size
    whole = -(-size.numerator // size.denominator)
    return PageSpec(layer.kind, block_size, whole, whole, layer.span)


@dataclass(frozen=True, slots=True)
class PagedContext:
    """What one context takes in blocks, beside what it holds and what a reservation of the maximum would take.

    Args:
        tokens: S, tokens of the context.
        block_size: b, tokens of a block.
        blocks: ``⌈S / b⌉``.
        lost_tokens: places of the last block that hold nothing.
        reserved_tokens: the maximum length that is compared with.
        blocks_lost_share: ``lost / (blocks · b)``.
        reservation_lost_share: ``1 - S / reserved``.
    """

    tokens: int
    block_size: int
    blocks: int
    lost_tokens: int
    reserved_tokens: int
    blocks_lost_share: Fraction
    reservation_lost_share: Fraction

    @property
    def allocated_tokens(self) -> int:
        """Places of all blocks."""
        return self.blocks * self.block_size


def paged_context(tokens: int, block_size: int, reserved_tokens: int) -> PagedContext:
    """Blocks of a context, the loss in the last one, and the loss of a reservation of `reserved_tokens` places.

    A reservation shorter than the context is as long as the context.

    Source: Kwon et al., PagedAttention (arXiv:2309.06180), section 3.1 (internal fragmentation).
    """
    blocks = ceil_div(tokens, block_size)
    allocated = blocks * block_size
    reserved = max(tokens, reserved_tokens)
    return PagedContext(
        tokens,
        block_size,
        blocks,
        allocated - tokens,
        reserved,
        Fraction(allocated - tokens, allocated) if allocated else Fraction(0),
        1 - Fraction(tokens, reserved) if reserved else Fraction(0),
    )
