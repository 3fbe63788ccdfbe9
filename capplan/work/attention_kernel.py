"""The attention kernel as an operator, whatever the mixer: FLOPs by pairs, bytes by positions read."""

from __future__ import annotations

from dataclasses import dataclass, replace

from capplan.arrays import ceil_div, is_number, present
from capplan.work.attention_traffic import SCORE_PASSES
from capplan.work.collectives import collective, context_parallel_in, context_parallel_out
from capplan.work.operators import AttentionShape, Kind, Number, Operator, Rows, Traffic
from capplan.work.scope import Phase, Scope, Span, over

PHASES: tuple[Phase, Phase] = ("prefill", "decode")


@dataclass(frozen=True, slots=True)
class Heads:
    """The heads of one kernel on one rank.

    Args:
        query: h, query heads.
        kv: hk, key/value heads (1 where all heads share one latent).
        key_dim: Dk, elements of a query or key head.
        value_dim: Dv, elements of a value head.
        entry: elements that one position holds for these heads; None: ``hk·(Dk + Dv)``.
    """

    query: Number
    kv: Number
    key_dim: int
    value_dim: int
    entry: Number | None = None

    @property
    def entry_elements(self) -> Number:
        """Elements of one position's keys and values."""
        return self.kv * (self.key_dim + self.value_dim) if self.entry is None else self.entry


@dataclass(frozen=True, slots=True)
class Reach:
    """What the queries of some spans see together.

    Args:
        sequences: sequences of all spans.
        tokens: query positions.
        pairs: query-key pairs a head.
        keys: positions whose keys and values are read.
        rectangle: pairs of a kernel that computes every query against every key and masks afterwards.
        limit: the most keys that a query sees; None: all.
    """

    sequences: Number
    tokens: Number
    pairs: Number
    keys: Number
    rectangle: Number
    limit: int | None = None


def attention_kernel(
    scope: Scope,
    kind: Kind,
    seen: Reach,
    heads: Heads,
    *,
    cached: bool = True,
    weights: Number = 0,
    name: str = "attention",
) -> Operator:
    """Softmax attention over the sequences of a phase.

    FLOPs ``2·h·(Dk + Dv)·pairs``; reads ``keys`` entries and the queries once, writes the outputs. Where scores are
    materialised, pairs are all ``n·s`` of the rectangle, and ``4·h·n·s`` elements of scores cross memory.

    Args:
        scope: formats and options.
        kind: which law it follows.
        seen: pairs, positions and queries.
        heads: the heads on this rank.
        cached: whether keys and values come from the cache; else they are activations.
        weights: bytes of parameters that the kernel reads (sinks).
        name: the operator's name.
    """
    pairs = seen.rectangle if scope.materialise_scores else seen.pairs
    scores = SCORE_PASSES // 2 * heads.query * pairs if scope.materialise_scores else 0
    entries = seen.keys * heads.entry_elements
    loose = 0 if cached else entries
    shape = AttentionShape(
        seen.sequences, seen.tokens, seen.keys, pairs, heads.query, heads.kv, heads.key_dim, heads.value_dim, seen.limit
    )
    return Operator(
        kind=kind,
        name=name,
        component="attention",
        shape=shape,
        count=1 if is_number(seen.sequences) else present(seen.sequences),
        flops=2 * heads.query * (heads.key_dim + heads.value_dim) * pairs,
        traffic=Traffic(
            weights=weights,
            kv_read=scope.kv(entries) if cached else 0,
            activations_read=scope.activations(seen.tokens * heads.query * heads.key_dim + loose + scores),
            activations_written=scope.activations(seen.tokens * heads.query * heads.value_dim + scores),
        ),
        activation_format=scope.formats.dtype,
        kv_format=scope.formats.kv_name if cached else "",
    )


def context_parallel(
    scope: Scope, phase: Phase, spans: tuple[Span, ...], kind: Kind, seen: Reach, heads: Heads, weights: Number = 0
) -> list[Operator]:
    """Attention of ranks that share one cache by position, with its messages; without them the kernel alone.

    In decode a rank serves the heads of all `cp` ranks on its ``1/cp`` of the positions. In prefill it gathers the
    cached prefix and attends as if alone.

    Source: SGLang and vLLM documentation, decode context parallelism (read 2026-11-30).
    """
    cp = scope.sharding.cp
    if cp == 1:
        return [attention_kernel(scope, kind, seen, heads, weights=weights)]
    if phase == "prefill":
        prefix = over(spans, lambda span: span.prefix) * heads.entry_elements
        gather = collective("gather prefix", "all_gather", cp, scope.kv(prefix), present(prefix))
        return [*gather, attention_kernel(scope, kind, seen, heads, weights=weights)]
    local = replace(
        seen, pairs=ceil_div(seen.pairs, cp), keys=ceil_div(seen.keys, cp), rectangle=ceil_div(seen.rectangle, cp)
    )
    gathered = Heads(heads.query * cp, heads.kv, heads.key_dim, heads.value_dim, heads.entry)
    return [
        *context_parallel_in(scope, seen.tokens, heads.query, heads.key_dim),
        attention_kernel(scope, kind, local, gathered, weights=weights),
        *context_parallel_out(scope, seen.tokens, heads.query, heads.value_dim),
    ]


def cache_write(scope: Scope, tokens: Number, elements: Number, name: str = "KV cache write") -> Operator:
    """New positions' entries from activations into the cache; under `cp` a rank writes its share of them."""
    entries = ceil_div(tokens, scope.sharding.cp)
    return Operator(
        kind="elementwise",
        name=name,
        component="attention",
        shape=Rows(entries, elements),
        traffic=Traffic(
            activations_read=scope.activations(entries * elements), kv_written=scope.kv(entries * elements)
        ),
        activation_format=scope.formats.dtype,
        kv_format=scope.formats.kv_name,
    )
