"""Softmax attention as operators: full, sliding-window, chunked, sparse, and across to an encoder's output."""

from __future__ import annotations

from capplan.arrays import minimum
from capplan.describe.model import Attention, CrossAttention
from capplan.memory.quantised_weights import as_stored
from capplan.memory.tensors import attention as attention_tensors
from capplan.memory.tensors import cross_attention as cross_attention_tensors
from capplan.work.attention_kernel import PHASES, Heads, Reach, cache_write, context_parallel
from capplan.work.attention_kernel import attention_kernel as kernel
from capplan.work.attention_pairs import (
    bidirectional_pairs,
    causal_pairs,
    chunk_keys,
    chunk_pairs,
    limited_pairs,
    window_keys,
)
from capplan.work.collectives import collective
from capplan.work.operators import Kind, Number, Operator
from capplan.work.projections import Shelf, elementwise, products, remaining, weights_of, where
from capplan.work.scope import Phase, Scope, Span, over
from capplan.work.sharding import largest_share
from capplan.work.sparse import indexer

KINDS: dict[Phase, Kind] = {"prefill": "prefill_attention", "decode": "decode_attention"}


def attention(mixer: Attention, scope: Scope) -> list[Operator]:
    """Projections, rotary embedding, the cache's new entries, the attention itself, the output projection.

    The kernel: ``2·h·(D + Dv)·pairs`` FLOPs; ``keys·hk·(D + Dv)`` cached elements read. KV heads on a rank:
    ``⌈hk/tp⌉``, so that ranks beyond the KV heads hold copies.

    Leaves out tiles that a kernel computes beyond the mask's edge, and keys read again for further query tiles,
    which the cache between memory and processors serves.
    Source: Ainslie et al., GQA (arXiv:2305.13245); Dao, FlashAttention-2 (arXiv:2307.08691).
    """
    tp = scope.sharding.tp
    heads = Heads(largest_share(mixer.heads, tp), largest_share(mixer.kv_heads, tp), mixer.head_dim, mixer.value_dim)
    shelf = Shelf(as_stored(attention_tensors(mixer, scope.hidden)))
    scorer = shelf.take_component("indexer")
    sinks = weights_of(scope, shelf.take("sinks"))
    operators = _projections(mixer, scope, shelf) + _on_heads(mixer, scope, shelf, heads)
    if mixer.indexer:
        operators += indexer(mixer.indexer, scope, scorer)
    for phase in PHASES:
        operators += _kernels(mixer, scope, phase, heads, sinks)
    if mixer.output_gate != "none":
        width = heads.query * mixer.value_dim
        operators.append(elementwise(scope, "output gate", "attention", scope.tokens, width, read=2))
    operators += products(scope, "o_proj", shelf.take("o_proj"), scope.tokens)
    return operators + remaining(scope, shelf.rest(), scope.tokens)


def _projections(mixer: Attention, scope: Scope, shelf: Shelf) -> list[Operator]:
    """Everything that starts from the hidden state in one product, then the query's second half of low rank."""
    first = shelf.take("q_proj", "q_a_proj", "k_proj", "v_proj", "gate_proj")
    operators = products(scope, "qkv_proj", first, scope.tokens)
    if mixer.q_lora_rank:
        norm = shelf.take("q_a_norm")
        operators.append(
            elementwise(scope, "q_a_norm", "attention", scope.tokens, mixer.q_lora_rank, weights=norm, kind="norm")
        )
        operators += products(scope, "q_b_proj", shelf.take("q_b_proj"), scope.tokens)
    return operators


def _on_heads(mixer: Attention, scope: Scope, shelf: Shelf, heads: Heads) -> list[Operator]:
    """Norms on queries and keys, rotary embedding, and the new cache entries."""
    operators = []
    turned = heads.query + (heads.kv if mixer.kv_projection else 0)
    norms = shelf.take("q_norm", "k_norm", "v_norm")
    if mixer.qk_norm != "none":
        width = turned * mixer.head_dim
        if mixer.qk_norm == "full":
            operators += _mean_squares(scope, width)
        operators.append(elementwise(scope, "q/k norm", "attention", scope.tokens, width, weights=norms, kind="norm"))
    if mixer.rotary_dim != 0:
        width = turned * (mixer.rotary_dim or mixer.head_dim)
        operators.append(elementwise(scope, "rotary embedding", "attention", scope.tokens, width))
    if mixer.cache == "own":
        operators.append(cache_write(scope, scope.tokens, heads.entry_elements))
    return operators


def _mean_squares(scope: Scope, width: Number) -> list[Operator]:
    """A norm over all heads needs the mean squares of all ranks: a kernel that sums, and 2 fp32 a token all-reduced.

    Source: vLLM, model_executor/layers/mamba/linear_attn.py (``MiniMaxText01RMSNormTP.forward_qk``), read 2026-11-30.
    """
    message = collective("all-reduce of q/k mean squares", "all_reduce", scope.sharding.tp, 8 * scope.tokens)
    if not message:
        return []
    return [elementwise(scope, "q/k mean squares", "attention", scope.tokens, width, kind="norm"), *message]


def _kernels(mixer: Attention, scope: Scope, phase: Phase, heads: Heads, sinks: Number) -> list[Operator]:
    spans = scope.phase(phase)
    if not spans:
        return []
    seen = reach(mixer, spans)
    if mixer.cache == "none":
        return [kernel(scope, KINDS[phase], seen, heads, cached=False, weights=sinks)]
    return context_parallel(scope, phase, spans, KINDS[phase], seen, heads, sinks)


def reach(mixer: Attention, spans: tuple[Span, ...]) -> Reach:
    """What self-attention sees under its mask."""
    return Reach(
        over(spans, lambda span: 1),
        over(spans, lambda span: span.tokens),
        over(spans, lambda span: _pairs(mixer, span)),
        over(spans, lambda span: _keys(mixer, span)),
        over(spans, lambda span: span.tokens * span.context),
        (mixer.indexer.top_k if mixer.indexer else None) or mixer.window or mixer.chunk,
    )


def _pairs(mixer: Attention, span: Span) -> Number:
    if not mixer.causal:
        return bidirectional_pairs(span.tokens, mixer.window)
    if mixer.indexer and mixer.indexer.top_k:
        return limited_pairs(span.prefix, span.tokens, mixer.indexer.top_k)
    if mixer.window:
        return limited_pairs(span.prefix, span.tokens, mixer.window)
    if mixer.chunk:
        return chunk_pairs(span.prefix, span.tokens, mixer.chunk)
    return causal_pairs(span.prefix, span.tokens)


def _keys(mixer: Attention, span: Span) -> Number:
    if not mixer.causal:
        return span.context
    if mixer.indexer and mixer.indexer.top_k:
        return sparse_keys(span, mixer.indexer.top_k)
    if mixer.window:
        return window_keys(span.prefix, span.tokens, mixer.window)
    if mixer.chunk:
        return chunk_keys(span.prefix, span.tokens, mixer.chunk)
    return span.context


def sparse_keys(span: Span, top_k: int) -> Number:
    """Positions that `t` queries pick together: at most k each and at most all, ``min(p + t, t·k)``."""
    return minimum(span.context, span.tokens * top_k)


def cross_attention(mixer: CrossAttention, scope: Scope) -> list[Operator]:
    """Attention on the source: its keys and values are projected with a sequence's first piece, then only read.

    ``4·h·D·t·S_src`` FLOPs for t queries of a sequence; ``2·hk·D·S_src`` cached elements read.

    Source: Vaswani et al. (arXiv:1706.03762), section 3.2.3.
    """
    tp = scope.sharding.tp
    heads = Heads(largest_share(mixer.heads, tp), largest_share(mixer.kv_heads, tp), mixer.head_dim, mixer.head_dim)
    shelf = Shelf(cross_attention_tensors(mixer, scope.hidden))
    fresh = over(scope.spans, lambda span: span.starts * source_length(mixer, span))
    operators = products(scope, "cross q_proj", shelf.take("q_proj"), scope.tokens)
    project = products(scope, "cross kv_proj", shelf.take("k_proj", "v_proj"), fresh)
    operators += where(fresh, [*project, cache_write(scope, fresh, heads.entry_elements, name="cross KV cache write")])
    norms = shelf.take("q_norm", "k_norm")
    if norms:
        width = heads.query * mixer.head_dim
        operators.append(elementwise(scope, "q/k norm", "attention", scope.tokens, width, weights=norms, kind="norm"))
    for phase in PHASES:
        seen = _across(mixer, scope.phase(phase))
        operators += where(seen.keys, [kernel(scope, KINDS[phase], seen, heads, name="cross-attention")])
    operators += products(scope, "cross o_proj", shelf.take("o_proj"), scope.tokens)
    return operators + remaining(scope, shelf.rest(), scope.tokens)


def _across(mixer: CrossAttention, spans: tuple[Span, ...]) -> Reach:
    pairs = over(spans, lambda span: span.tokens * source_length(mixer, span))
    return Reach(
        over(spans, lambda span: 1),
        over(spans, lambda span: span.tokens),
        pairs,
        over(spans, lambda span: source_length(mixer, span)),
        pairs,
    )


def source_length(mixer: CrossAttention, span: Span) -> Number:
    """Positions of the source: fixed by the model, or the span's own."""
    return mixer.source if isinstance(mixer.source, int) else span.source
