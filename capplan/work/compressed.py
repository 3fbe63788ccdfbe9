"""DeepSeek-V4's compressed attention as operators: a window of raw positions beside compressed entries."""

from __future__ import annotations

from capplan.arrays import minimum
from capplan.describe.model import CompressedAttention
from capplan.memory import kv_cache
from capplan.memory import recurrent_state as states
from capplan.memory.tensors import compressed_attention as compressed_attention_tensors
from capplan.work.attention import KINDS
from capplan.work.attention_kernel import PHASES, Heads, Reach, cache_write
from capplan.work.attention_kernel import attention_kernel as kernel
from capplan.work.attention_pairs import compressed_pairs, limited_pairs, window_keys
from capplan.work.operators import Number, Operator, Rows, Traffic
from capplan.work.projections import Shelf, elementwise, products, remaining, weights_of
from capplan.work.recurrent import state_traffic
from capplan.work.scope import Phase, Scope, Span, over
from capplan.work.sharding import largest_share
from capplan.work.sparse import indexer


def compressed_attention(mixer: CompressedAttention, scope: Scope) -> list[Operator]:
    """A query of low rank, one key that is the value too for all heads, compressors, a grouped low-rank output.

    The kernel: ``4·h·D·pairs`` FLOPs with ``pairs = Σ min(p + i, W) + Σ min(⌊(p + i)/r⌋, k)``.

    Source: transformers 5.24.0, models/deepseek_v4.
    """
    tokens, heads = scope.tokens, largest_share(mixer.heads, scope.sharding.tp)
    shelf = Shelf(compressed_attention_tensors(mixer, scope.hidden))
    scorer = shelf.take_component("indexer")
    compression = shelf.take("compressor.kv_proj", "compressor.gate_proj")
    operators = products(scope, "qkv_a_proj", shelf.take("q_a_proj", "kv_proj"), tokens)
    for norm, width in (("q_a_norm", mixer.q_lora_rank), ("self_attn.kv_norm", mixer.head_dim)):
        weights = shelf.take(norm)
        operators.append(elementwise(scope, norm, "attention", tokens, width, weights=weights, kind="norm"))
    operators += products(scope, "q_b_proj", shelf.take("q_b_proj"), tokens)
    if mixer.rotary_dim:
        operators.append(elementwise(scope, "rotary embedding", "attention", tokens, (heads + 1) * mixer.rotary_dim))
    window, *compressed = kv_cache.compressed_attention(mixer)
    operators.append(cache_write(scope, tokens, window.elements))
    if mixer.rate:
        operators += products(scope, "compressor", compression, tokens)
        operators += _compression(mixer, scope, shelf, compressed[0].elements)
    if mixer.indexer and mixer.rate:
        operators += indexer(mixer.indexer, scope, scorer, rate=mixer.rate)
    sinks = weights_of(scope, shelf.take("sinks"))
    for phase in PHASES:
        operators += _kernel(mixer, scope, phase, heads, sinks)
    operators += products(scope, "o_a_proj", shelf.take("o_a_proj"), tokens)
    operators += products(scope, "o_b_proj", shelf.take("o_b_proj"), tokens)
    return operators + remaining(scope, shelf.rest(), tokens)


def _compression(mixer: CompressedAttention, scope: Scope, shelf: Shelf, elements: int) -> list[Operator]:
    """Gated pooling of each full group of `rate` positions into one entry, the open group kept as a state."""
    rate = mixer.rate or 1
    entries = over(scope.spans, lambda span: span.context // rate - span.prefix // rate)
    parameters = shelf.take("position_bias", "compressor.kv_norm")
    read, written = 0, 0
    for state in states.compressed_attention(mixer):
        more_read, more_written = state_traffic(scope, state)
        read, written = read + more_read, written + more_written
    width = (2 if mixer.overlap else 1) * mixer.head_dim
    pooling = Operator(
        kind="elementwise",
        name="compression",
        component="attention",
        shape=Rows(scope.tokens, width),
        traffic=Traffic(
            weights=weights_of(scope, parameters),
            state_read=read,
            state_written=written,
            activations_read=scope.activations(2 * scope.tokens * width),
            activations_written=scope.activations(entries * elements),
        ),
        activation_format=scope.formats.dtype,
    )
    return [pooling, cache_write(scope, entries, elements, name="compressed cache write")]


def _kernel(mixer: CompressedAttention, scope: Scope, phase: Phase, heads: Number, sinks: Number) -> list[Operator]:
    spans = scope.phase(phase)
    if not spans:
        return []
    shape = Heads(heads, 1, mixer.head_dim, mixer.head_dim)
    window = kernel(scope, KINDS[phase], _window_reach(mixer, spans), shape, weights=sinks, name="window attention")
    if not mixer.rate:
        return [window]
    entries = Heads(heads, 1, mixer.head_dim, mixer.head_dim, entry=mixer.head_dim)
    return [window, kernel(scope, KINDS[phase], _entry_reach(mixer, spans), entries, name="compressed attention")]


def _window_reach(mixer: CompressedAttention, spans: tuple[Span, ...]) -> Reach:
    return Reach(
        over(spans, lambda span: 1),
        over(spans, lambda span: span.tokens),
        over(spans, lambda span: limited_pairs(span.prefix, span.tokens, mixer.window)),
        over(spans, lambda span: window_keys(span.prefix, span.tokens, mixer.window)),
        over(spans, lambda span: span.tokens * span.context),
        mixer.window,
    )


def _entry_reach(mixer: CompressedAttention, spans: tuple[Span, ...]) -> Reach:
    rate = mixer.rate or 1
    top_k = mixer.indexer.top_k if mixer.indexer else None

    def keys(span: Span) -> Number:
        entries = span.context // rate
        return entries if top_k is None else minimum(entries, span.tokens * top_k)

    return Reach(
        over(spans, lambda span: 1),
        over(spans, lambda span: span.tokens),
        over(spans, lambda span: compressed_pairs(span.prefix, span.tokens, rate, top_k)),
        over(spans, keys),
        over(spans, lambda span: span.tokens * (span.context // rate)),
        top_k,
    )
