"""The scorer of sparse attention: index scores of every pair, and the choice of the best keys."""

from __future__ import annotations

from capplan.arrays import is_number, present
from capplan.describe.model import Indexer
from capplan.memory.tensors import Tensor
from capplan.work.attention_kernel import PHASES, cache_write
from capplan.work.attention_pairs import causal_pairs, compressed_pairs
from capplan.work.operators import AttentionShape, Number, Operator, Rows, Traffic
from capplan.work.projections import Shelf, elementwise, products, remaining
from capplan.work.scope import Phase, Scope, over

SCORE_BYTES = 4
"""Scores and chosen positions are fp32 and int32."""


def indexer(part: Indexer, scope: Scope, tensors: list[Tensor], *, rate: int = 1) -> list[Operator]:
    """Projections, norm, rotary embedding and cache of the index keys; scores; the top k.

    Every rank computes all of it. A layer that reuses another layer's choice does nothing here.

    Args:
        part: the scorer.
        scope: the scope.
        tensors: its tensors.
        rate: positions that share one index key (compression).

    Leaves out the fp8 layout with scales in which engines cache these keys.
    Source: DeepSeek-V3.2-Exp report (2025), section 2.1.
    """
    if not part.own:
        return []
    shelf, tokens = Shelf(tensors), scope.tokens
    operators = products(scope, "index query projection", shelf.take("wq_b", "q_b_proj"), tokens)
    keys = shelf.take("wk", "weights_proj", "kv_proj", "gate_proj")
    operators += products(scope, "index key projection", keys, tokens)
    norms = shelf.take("k_norm", "kv_norm", "q_norm")
    if norms:
        operators.append(
            elementwise(scope, "index key norm", "indexer", tokens, part.head_dim, weights=norms, kind="norm")
        )
    width = (part.heads + 1) * part.head_dim
    operators.append(elementwise(scope, "index rotary embedding", "indexer", tokens, width))
    if part.head_weights:
        operators.append(elementwise(scope, "index head weights", "indexer", tokens, part.heads))
    operators.append(index_cache_write(part, scope, rate))
    for phase in PHASES:
        operators += index_scores(part, scope, phase, rate)
    return operators + remaining(scope, shelf.rest(), tokens)


def index_cache_write(part: Indexer, scope: Scope, rate: int) -> Operator:
    """The new index keys, one for each full group of `rate` positions."""
    entries = over(scope.spans, lambda span: span.context // rate - span.prefix // rate)
    return cache_write(scope, entries, part.head_dim, name="index key cache write")


def index_scores(part: Indexer, scope: Scope, phase: Phase, rate: int) -> list[Operator]:
    """Scores of all causal pairs, then the best `top_k` of each query's.

    ``2·hi·Di·pairs`` FLOPs, reading ``Di`` cached elements a key and writing one score a pair; the choice reads the
    scores and writes k positions a query.
    """
    spans = scope.phase(phase)
    if not spans:
        return []
    pairs = over(
        spans,
        lambda span: (
            causal_pairs(span.prefix, span.tokens) if rate == 1 else compressed_pairs(span.prefix, span.tokens, rate)
        ),
    )
    keys = over(spans, lambda span: span.context // rate)
    tokens = over(spans, lambda span: span.tokens)
    sequences = over(spans, lambda span: 1)
    chosen = tokens * (part.top_k or 0)
    count = 1 if is_number(sequences) else present(sequences)
    scores = Operator(
        kind="index_scores",
        name="index scores",
        component="indexer",
        shape=AttentionShape(sequences, tokens, keys, pairs, part.heads, 1, part.head_dim, 0),
        count=count,
        flops=2 * part.heads * part.head_dim * pairs,
        traffic=Traffic(
            kv_read=scope.kv(keys * part.head_dim),
            activations_read=scope.activations(tokens * part.heads * part.head_dim),
            activations_written=SCORE_BYTES * pairs,
        ),
        activation_format=scope.formats.dtype,
        kv_format=scope.formats.kv_name,
    )
    return [scores, _selection(scope, "index top-k", pairs, chosen, tokens, count)] + (
        [_selection(scope, "index to cache slots", chosen, chosen, tokens, count)] if part.top_k else []
    )


def _selection(scope: Scope, name: str, read: Number, written: Number, tokens: Number, count: Number) -> Operator:
    return Operator(
        kind="elementwise",
        name=name,
        component="indexer",
        shape=Rows(tokens, 1),
        count=count,
        traffic=Traffic(activations_read=SCORE_BYTES * read, activations_written=SCORE_BYTES * written),
        activation_format=scope.formats.dtype,
    )
