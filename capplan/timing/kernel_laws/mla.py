"""Multi-head latent attention: every head attends over one shared latent of 512 + 64 numbers a token.

Prefill multiplies either with the keys and values that it expands from the latent (*unabsorbed*: 192 and 128 wide),
or with the latent itself (*absorbed*: 576 and 512 wide). Decode always does the latter.

Source of the sizes: DeepSeek-V2, arXiv:2405.04434, section 2.1 (latent 512, decoupled rotary key 64, head 128).
"""

from __future__ import annotations

from capplan.describe.kernel_constants import MlaDecodeConstants, PrefillAttentionConstants
from capplan.timing.kernel_laws.attention import (
    HALF_CONTEXT,
    QUERY_TILE,
    attended_pairs,
    last_tile_keys,
    prefill_time,
)
from capplan.timing.kernel_laws.terms import KernelTime, Quantity, Rates, saturating

LATENT = 512
ROTARY = 64
HEAD = 128
CACHED = LATENT + ROTARY
"""Numbers cached a token: 576."""


def mla_prefill_time(
    batch: Quantity,
    tokens: Quantity,
    heads: Quantity,
    *,
    prefix: Quantity = 0,
    limit: Quantity = 0,
    pairs: Quantity | None = None,
    absorbed: bool,
    key_dim: Quantity | None = None,
    value_dim: Quantity | None = None,
    kv_bytes: float,
    constants: PrefillAttentionConstants,
    rates: Rates,
) -> KernelTime:
    """Seconds of causal latent attention of `tokens` new tokens in each of `batch` sequences.

    t = t0 + [(F / (ec·P))^1.5 + (X / (ecrit·P/S))^1.5]^(1/1.5) + B / (em·BW)

    F = 2·h·W·pairs, pairs of all sequences, and X = 2·W·128·(s + c) with W = Dk + Dv: 320, or 1088 absorbed.
    B = 2·b·s·h·E + 576·b·(s + c)·kvb: E = 2·W elements a head (query, key, value and result), or W absorbed (query and
    result alone).

    Args:
        batch: b, sequences.
        tokens: s, new tokens of each.
        heads: h, query heads on this GPU.
        prefix: c, tokens cached before.
        limit: keys a query sees at most (the choice of a scorer); 0: all.
        pairs: query-key pairs of all sequences in one head, where their lengths differ; None: ``b`` times
            `attended_pairs`.
        absorbed: whether the kernel multiplies with the latent itself.
        key_dim: Dk, of a model with other widths than those measured.
        value_dim: Dv, likewise.
        kv_bytes: kvb, bytes of a cached element.
        constants: ec, em, t0, ecrit.
        rates: P, BW, S.

    Leaves out: expanding the latent and projecting the queries (GEMMs of their own); that the keys a scorer chose
    lie scattered, which was measured nowhere.

    Source: fitted to public kernel tables (aiconfigurator-core 0.12.0), which have no cached prefix;
    docs/kernel_accuracy.md.
    """
    if key_dim is None or value_dim is None:
        key_dim, value_dim = (CACHED, LATENT) if absorbed else (HEAD + ROTARY, HEAD)
    width = key_dim + value_dim
    elements = width if absorbed else 2 * width
    if pairs is None:
        pairs = batch * attended_pairs(tokens, prefix=prefix, window=limit)
    flops = 2.0 * heads * width * pairs
    chain = 2.0 * width * QUERY_TILE * last_tile_keys(tokens, prefix=prefix, window=limit)
    moved = 2.0 * batch * tokens * heads * elements + CACHED * batch * (tokens + prefix) * kv_bytes
    return prefill_time(flops, chain, moved, constants, rates)


def mla_decode_time(
    batch: Quantity,
    context: Quantity,
    heads: Quantity,
    *,
    latent: Quantity = LATENT,
    cached: Quantity = CACHED,
    kv_bytes: float,
    constants: MlaDecodeConstants,
    rates: Rates,
) -> KernelTime:
    """Seconds of latent attention of one new token in each of `batch` sequences, absorbed.

    t = t0 + tL·L/(L + 2000) + sqrt[(2·b·h·L'·W / (ec·P))² + (c·b·kvb·L' / (em·BW))²] + 2·b·h·W / (em·BW)

    W = c + c': 576 for the score and 512 for the sum, 1088 together. L' = sqrt(L² + L0²): below L0 tokens a shorter
    context is no faster.

    Args:
        batch: b, sequences.
        context: L, tokens that each new token sees, itself included.
        heads: h, query heads on this GPU; times the tokens where each sequence has several new ones.
        latent: c', elements of the latent.
        cached: c, elements cached a token.
        kv_bytes: kvb, bytes of a cached element.
        constants: ec, em, t0, tL, L0.
        rates: P, BW.

    Leaves out: the two absorbed products (GEMMs of their own), contexts that differ within the batch.

    Source: fitted to public kernel tables (aiconfigurator-core 0.12.0); docs/kernel_accuracy.md.
    """
    length = (context**2 + constants.floor_tokens**2) ** 0.5
    bandwidth = constants.memory_efficiency * rates.bandwidth
    width = cached + latent
    flops = 2.0 * batch * heads * length * width
    return KernelTime(
        serial={
            "launch": constants.launch,
            "depth": constants.depth * saturating(context, HALF_CONTEXT),
            "queries": 2.0 * batch * heads * width / bandwidth,
        },
        overlapping={
            "compute": flops / (constants.compute_efficiency * rates.flops),
            "kv_cache": cached * batch * kv_bytes * length / bandwidth,
        },
        exponent=2.0,
    )
