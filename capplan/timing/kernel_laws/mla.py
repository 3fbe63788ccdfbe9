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
ABSORBED_WIDTH = CACHED + LATENT
"""Multiplications a query-key pair in the latent: 576 for the score and 512 for the sum: 1088."""
UNABSORBED_WIDTH = (HEAD + ROTARY) + HEAD
"""Multiplications a query-key pair with expanded keys and values: 192 and 128: 320."""


def mla_prefill_time(
    batch: Quantity,
    tokens: Quantity,
    heads: Quantity,
    *,
    prefix: Quantity = 0,
    absorbed: bool,
    kv_bytes: float,
    constants: PrefillAttentionConstants,
    rates: Rates,
) -> KernelTime:
    """Seconds of causal latent attention of `tokens` new tokens in each of `batch` sequences.

    t = t0 + [(F / (ec·P))^1.5 + (X / (ecrit·P/S))^1.5]^(1/1.5) + B / (em·BW)

    F = 2·b·h·W·pairs and X = 2·W·128·(s + c) with W = 320, or 1088 absorbed. B = 2·b·s·h·E + 576·b·(s + c)·kvb:
    E = 640 elements a head (query, key, value and result), or 1088 absorbed (query and result alone).

    Args:
        batch: b, sequences.
        tokens: s, new tokens of each.
        heads: h, query heads on this GPU.
        prefix: c, tokens cached before.
        absorbed: whether the kernel multiplies with the latent itself.
        kv_bytes: kvb, bytes of a cached element.
        constants: ec, em, t0, ecrit.
        rates: P, BW, S.

    Leaves out: expanding the latent and projecting the queries (GEMMs of their own).

    Source: fitted to public kernel tables (aiconfigurator-core 0.12.0), which have no cached prefix;
    docs/kernel_accuracy.md.
    """
    width = ABSORBED_WIDTH if absorbed else UNABSORBED_WIDTH
    elements = ABSORBED_WIDTH if absorbed else 2 * UNABSORBED_WIDTH
    flops = 2.0 * batch * heads * width * attended_pairs(tokens, prefix=prefix)
    chain = 2.0 * width * QUERY_TILE * last_tile_keys(tokens, prefix=prefix)
    moved = 2.0 * batch * tokens * heads * elements + CACHED * batch * (tokens + prefix) * kv_bytes
    return prefill_time(flops, chain, moved, constants, rates)


def mla_decode_time(
    batch: Quantity,
    context: Quantity,
    heads: Quantity,
    *,
    kv_bytes: float,
    constants: MlaDecodeConstants,
    rates: Rates,
) -> KernelTime:
    """Seconds of latent attention of one new token in each of `batch` sequences, absorbed.

    t = t0 + tL·L/(L + 2000) + sqrt[(2·b·h·L'·1088 / (ec·P))² + (576·b·kvb·L' / (em·BW))²] + 2·b·h·1088 / (em·BW)

    L' = sqrt(L² + L0²): below L0 tokens a shorter context is no faster.

    Args:
        batch: b, sequences.
        context: L, tokens that each new token sees, itself included.
        heads: h, query heads on this GPU.
        kv_bytes: kvb, bytes of a cached element.
        constants: ec, em, t0, tL, L0.
        rates: P, BW.

    Leaves out: the two absorbed products (GEMMs of their own), contexts that differ within the batch.

    Source: fitted to public kernel tables (aiconfigurator-core 0.12.0); docs/kernel_accuracy.md.
    """
    length = (context**2 + constants.floor_tokens**2) ** 0.5
    bandwidth = constants.memory_efficiency * rates.bandwidth
    flops = 2.0 * batch * heads * length * ABSORBED_WIDTH
    return KernelTime(
        serial={
            "launch": constants.launch,
            "depth": constants.depth * saturating(context, HALF_CONTEXT),
            "queries": 2.0 * batch * heads * ABSORBED_WIDTH / bandwidth,
        },
        overlapping={
            "compute": flops / (constants.compute_efficiency * rates.flops),
            "kv_cache": CACHED * batch * kv_bytes * length / bandwidth,
        },
        exponent=2.0,
    )
