"""What the operators of one layer depend on: the step's spans, the sharding, the formats."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from capplan.work.experts import Routing
from capplan.work.formats import Formats, element_bytes, item_bytes
from capplan.work.operators import Number
from capplan.work.sharding import Sharding

Phase = Literal["prefill", "decode"]


@dataclass(frozen=True, slots=True)
class Span:
    """Equal pieces of work of one phase: `tokens` new positions of each of `sequences` sequences.

    Args:
        sequences: B, sequences alike.
        tokens: t, new positions of each.
        prefix: p, positions of each that are cached before this step.
        source: positions of an encoder's output (or of images) that cross-attention sees.
        starts: 1 where this is the sequence's first piece, so that its source is new too; else 0.
        sampled: positions of each sequence whose logits are wanted.
    """

    sequences: Number
    tokens: Number
    prefix: Number = 0
    source: Number = 0
    starts: Number = 0
    sampled: Number = 0

    @property
    def context(self) -> Number:
        """Positions cached after this step: ``p + t``."""
        return self.prefix + self.tokens


@dataclass(frozen=True, slots=True)
class Scope:
    """What passes through one stack of layers in one step, on one data-parallel group of ranks.

    Args:
        hidden: the stack's hidden size.
        prefill: spans that prefill kernels serve.
        decode: spans that decode kernels serve.
        sharding: the parallel sizes.
        formats: number formats.
        materialise_scores: attention that writes its score matrix to memory (naive attention).
        routing: how tokens choose experts.
        tokens: positions that pass through.
    """

    hidden: int
    prefill: tuple[Span, ...]
    decode: tuple[Span, ...]
    sharding: Sharding
    formats: Formats
    materialise_scores: bool = False
    routing: Routing = field(default_factory=Routing)
    tokens: Number = 0

    @property
    def spans(self) -> tuple[Span, ...]:
        """All spans."""
        return (*self.prefill, *self.decode)

    def phase(self, phase: Phase) -> tuple[Span, ...]:
        """The spans of one phase."""
        return self.prefill if phase == "prefill" else self.decode

    def activations(self, elements: Number) -> Number:
        """Bytes of activations."""
        return element_bytes(elements, self.formats.activation_bytes)

    def input_bytes(self, elements: Number, dtype: str) -> Number:
        """Bytes of a product's input in the format that it is multiplied in."""
        return element_bytes(elements, item_bytes(dtype))

    def kv(self, elements: Number) -> Number:
        """Bytes of cached keys, values, latents or index keys."""
        return element_bytes(elements, self.formats.kv_bytes)


def scope_of(
    hidden: int,
    prefill: Iterable[Span],
    decode: Iterable[Span],
    sharding: Sharding,
    formats: Formats,
    *,
    materialise_scores: bool = False,
    routing: Routing | None = None,
) -> Scope:
    """A scope with its number of tokens."""
    prefill, decode = tuple(prefill), tuple(decode)
    tokens = over((*prefill, *decode), lambda span: span.tokens)
    return Scope(hidden, prefill, decode, sharding, formats, materialise_scores, routing or Routing(), tokens)


def over(spans: Iterable[Span], figure: Callable[[Span], Number]) -> Number:
    """``Σ sequences · figure(span)``."""
    return sum(span.sequences * figure(span) for span in spans)
