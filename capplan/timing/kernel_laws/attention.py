"""Attention over separate keys and values: multi-head, grouped-query and multi-query, causal, with or without a window.

Prefill works on many new tokens at once and is bound by arithmetic; decode works on one new token a sequence and is
bound by reading the cached keys and values.
"""

from __future__ import annotations

from capplan.describe.kernel_constants import (
    CarriedPrefillConstants,
    DecodeAttentionConstants,
    PrefillAttentionConstants,
)
from capplan.timing.kernel_laws.terms import KernelTime, Quantity, Rates, larger, rounded_up, saturating, smaller

QUERY_TILE = 128
"""Queries that one thread block works on together in the measured kernels."""

PREFILL_EXPONENT = 1.5
"""How far a prefill's throughput and its last tile hide each other; fitted once over all tables."""

HALF_CONTEXT = 2000
"""Context at which half of the depth latency of a decode is paid; fitted once over all tables."""

CARRIED_MEMORY_EFFICIENCY = 0.85
"""Share of the bandwidth in the law that is carried to other GPUs, where it can't be fitted."""


def attended_pairs(tokens: Quantity, *, prefix: Quantity = 0, window: Quantity = 0) -> Quantity:
    """Query-key pairs of one causal sequence: each new token sees the prefix, itself and the new ones before it.

    pairs = s·c + s·(s + 1)/2 without a window; with one, Σ_{i=1..s} min(c + i, w)

    Args:
        tokens: s, new tokens.
        prefix: c, tokens that are cached already.
        window: w, keys a query sees at most, itself included; 0: all.
    """
    unlimited = 1.0 * tokens * prefix + 0.5 * tokens * (tokens + 1)
    reach = larger(window - prefix, 0.0)
    growing = smaller(tokens, reach)
    limited = 1.0 * growing * prefix + 0.5 * growing * (growing + 1) + (tokens - growing) * window
    has_window = smaller(window, 1)
    return has_window * limited + (1 - has_window) * unlimited


def prefill_attention_time(
    batch: Quantity,
    tokens: Quantity,
    heads: Quantity,
    kv_heads: Quantity,
    head_dim: Quantity,
    *,
    prefix: Quantity = 0,
    window: Quantity = 0,
    pairs: Quantity | None = None,
    kv_bytes: float,
    constants: PrefillAttentionConstants,
    rates: Rates,
) -> KernelTime:
    """Seconds of attention of `tokens` new tokens in each of `batch` sequences.

    t = t0 + [(F / (ec·P))^1.5 + (X / (ecrit·P/S))^1.5]^(1/1.5) + B / (em·BW)

    F = 4·h·D·pairs, pairs of all sequences; X = 4·D·128·x, the chain of one tile of 128 queries over the x keys that
    it sees, which one multiprocessor works through alone, however many heads there are; B = 4·b·s·h·D +
    2·b·(s + c)·hk·D·(2 + kvb): queries and results, keys and values read in 16 bits and once in the cache's format.
    Memory adds to arithmetic instead of hiding behind it.

    Args:
        batch: b, sequences.
        tokens: s, new tokens of each.
        heads: h, query heads.
        kv_heads: hk, key and value heads.
        head_dim: D.
        prefix: c, tokens cached before.
        window: w, keys a query sees at most; 0: all.
        pairs: query-key pairs of all sequences in one head, where they aren't those of a causal mask (an encoder's, a
            chunk's, those of sequences of different lengths); None: ``b`` times `attended_pairs`.
        kv_bytes: kvb, bytes of a cached element.
        constants: ec, em, t0, ecrit.
        rates: P, BW, S.

    Leaves out: the last tile of the longest of sequences of different lengths (means are put in), full tiles on the
    diagonal.

    Source: fitted to public kernel tables (aiconfigurator-core 0.12.0), which have no cached prefix;
    docs/kernel_accuracy.md.
    """
    if pairs is None:
        pairs = batch * attended_pairs(tokens, prefix=prefix, window=window)
    flops = 4.0 * heads * head_dim * pairs
    moved = prefill_bytes(batch, tokens, heads, kv_heads, head_dim, prefix=prefix, kv_bytes=kv_bytes)
    chain = 4.0 * head_dim * QUERY_TILE * last_tile_keys(tokens, prefix=prefix, window=window)
    return prefill_time(flops, chain, moved, constants, rates)


def prefill_time(
    flops: Quantity, chain_flops: Quantity, moved: Quantity, constants: PrefillAttentionConstants, rates: Rates
) -> KernelTime:
    """Seconds of a prefill by its work: FLOPs in all, FLOPs of the last tile, bytes; see `prefill_attention_time`."""
    tile_rate = constants.tile_efficiency * rates.multiprocessor_flops
    return KernelTime(
        serial={
            "launch": constants.launch,
            "memory": moved / (constants.memory_efficiency * rates.bandwidth),
        },
        overlapping={
            "compute": flops / (constants.compute_efficiency * rates.flops),
            "last_tile": chain_flops / tile_rate,
        },
        exponent=PREFILL_EXPONENT,
    )


def prefill_bytes(
    batch: Quantity,
    tokens: Quantity,
    heads: Quantity,
    kv_heads: Quantity,
    head_dim: Quantity,
    *,
    prefix: Quantity = 0,
    kv_bytes: float,
) -> Quantity:
    """Bytes that a prefill's attention moves: 4·b·s·h·D + 2·b·(s + c)·hk·D·(2 + kvb)."""
    queries = 4.0 * batch * tokens * heads * head_dim
    return queries + 2.0 * batch * (tokens + prefix) * kv_heads * head_dim * (2.0 + kv_bytes)


def last_tile_keys(tokens: Quantity, *, prefix: Quantity = 0, window: Quantity = 0) -> Quantity:
    """Keys that the last tile of queries sees, in whole tiles: all of them, or the window and one tile more."""
    keys = rounded_up(tokens + prefix, QUERY_TILE)
    has_window = smaller(window, 1)
    seen = smaller(window + QUERY_TILE, keys)
    return has_window * seen + (1 - has_window) * keys


def carried_prefill_attention_time(
    batch: Quantity,
    tokens: Quantity,
    heads: Quantity,
    kv_heads: Quantity,
    head_dim: Quantity,
    *,
    prefix: Quantity = 0,
    window: Quantity = 0,
    kv_bytes: float,
    constants: CarriedPrefillConstants,
    rates: Rates,
) -> KernelTime:
    """Seconds of a prefill's attention by the law whose constants vary least between GPUs.

    t = t0 + F/(ec·P) + τ·b·h·⌈s/128⌉/S + B/(0.85·BW)

    Symbols as in `prefill_attention_time`; τ is the fixed cost of a tile of queries.
    """
    flops = 4.0 * batch * heads * head_dim * attended_pairs(tokens, prefix=prefix, window=window)
    moved = prefill_bytes(batch, tokens, heads, kv_heads, head_dim, prefix=prefix, kv_bytes=kv_bytes)
    tiles = batch * heads * rounded_up(tokens, QUERY_TILE) / QUERY_TILE
    return KernelTime(
        serial={
            "launch": constants.launch,
            "compute": flops / (constants.compute_efficiency * rates.flops),
            "tiles": constants.tile * tiles / rates.multiprocessors,
            "memory": moved / (CARRIED_MEMORY_EFFICIENCY * rates.bandwidth),
        },
        overlapping={},
        exponent=1.0,
    )


def decode_attention_time(
    batch: Quantity,
    context: Quantity,
    heads: Quantity,
    kv_heads: Quantity,
    head_dim: Quantity,
    *,
    window: Quantity = 0,
    kv_bytes: float,
    constants: DecodeAttentionConstants,
    rates: Rates,
) -> KernelTime:
    """Seconds of attention of one new token in each of `batch` sequences over their cached contexts.

    t = t0 + tL·L/(L + 2000) + sqrt[(2·b·hk·D·kvb·L / (em·BW))² + (τ·b·hk/S)²] + 4·b·D·(h + hk) / (em·BW)

    L = min(context, window). The root joins reading keys and values with the fixed cost of each (sequence, KV
    head); tL is the latency of walking along one context, until kernels split it over multiprocessors.

    Args:
        batch: b, sequences.
        context: tokens that each new token sees, itself included.
        heads: h, query heads.
        kv_heads: hk, key and value heads.
        head_dim: D.
        window: w, keys a query sees at most; 0: all.
        kv_bytes: kvb, bytes of a cached element.
        constants: em, t0, tL, τ.
        rates: BW, S.

    Leaves out: arithmetic (below the ridge for the group sizes measured), contexts that differ within the batch
    (put in their mean: the law is nearly linear), the block table.

    Source: fitted to public kernel tables (aiconfigurator-core 0.12.0); docs/kernel_accuracy.md.
    """
    has_window = smaller(window, 1)
    seen = has_window * smaller(context, window) + (1 - has_window) * context
    bandwidth = constants.memory_efficiency * rates.bandwidth
    return KernelTime(
        serial={
            "launch": constants.launch,
            "depth": constants.depth * saturating(seen, HALF_CONTEXT),
            "queries": 4.0 * batch * head_dim * (heads + kv_heads) / bandwidth,
        },
        overlapping={
            "kv_cache": 2.0 * batch * kv_heads * head_dim * kv_bytes * seen / bandwidth,
            "blocks": constants.block * batch * kv_heads / rates.multiprocessors,
        },
        exponent=2.0,
    )
