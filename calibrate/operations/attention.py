"""Softmax attention by torch: prompts by any backend of SDPA or FlexAttention, single tokens over a cache.

Shapes: queries (b, h, s, D), keys and values (b, hk, L, D); a query head reads the KV head of its group.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

Tensor = Any

BACKENDS = {
    "math": SDPBackend.MATH,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
"""SDPA's backends; ``sdpa`` beside them leaves the choice to torch, ``flex`` is FlexAttention."""


def causal_attention(q: Tensor, k: Tensor, v: Tensor, *, window: int = 0, backend: str = "sdpa") -> Tensor:
    """Causal attention of new tokens over themselves and whatever stands before them in the keys.

    The last s of the L keys are the new tokens'; with a window each query sees its own and the `window - 1` before.
    """
    if v.shape[-1] < q.shape[-1]:
        return _padded(q, k, v, window=window, backend=backend)
    grouped = q.shape[1] != k.shape[1]
    if backend == "flex":
        return _flex(q, k, v, window)
    if (window and window < k.shape[2]) or q.shape[2] != k.shape[2]:
        mask = causal_mask(q.shape[2], k.shape[2], window, str(q.device))
        return _sdpa(q, k, v, backend, attn_mask=mask, enable_gqa=grouped)
    return _sdpa(q, k, v, backend, is_causal=True, enable_gqa=grouped)


def _padded(q: Tensor, k: Tensor, v: Tensor, *, window: int, backend: str) -> Tensor:
    """Values narrower than keys (MLA), padded to their width: what fused kernels ask for."""
    padded = functional.pad(v, (0, q.shape[-1] - v.shape[-1]))
    return causal_attention(q, k, padded, window=window, backend=backend)[..., : v.shape[-1]]


def _sdpa(q: Tensor, k: Tensor, v: Tensor, backend: str, **options: Any) -> Tensor:
    if backend == "sdpa":
        return functional.scaled_dot_product_attention(q, k, v, **options)
    with sdpa_kernel([BACKENDS[backend]]):
        return functional.scaled_dot_product_attention(q, k, v, **options)


@lru_cache(maxsize=32)
def causal_mask(queries: int, keys: int, window: int, device: str) -> Tensor:
    """(queries, keys) of booleans: which key a query sees."""
    position = torch.arange(keys - queries, keys, device=device)[:, None]
    key = torch.arange(keys, device=device)[None, :]
    seen = key <= position
    return seen & (key > position - window) if window else seen


def _flex(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    mask = _flex_mask(q.shape[2], k.shape[2], window, str(q.device))
    return _compiled_flex()(q, k, v, block_mask=mask, enable_gqa=q.shape[1] != k.shape[1])


@lru_cache(maxsize=1)
def _compiled_flex() -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=False)


@lru_cache(maxsize=32)
def _flex_mask(queries: int, keys: int, window: int, device: str) -> Any:
    from torch.nn.attention.flex_attention import create_block_mask

    shift = keys - queries

    def seen(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        causal = key <= query + shift
        return causal & (key > query + shift - window) if window else causal

    return create_block_mask(seen, None, None, queries, keys, device=device)


def decode_attention(q: Tensor, k: Tensor, v: Tensor, *, backend: str = "grouped") -> Tensor:
    """Attention of one new token a sequence over its whole cache: (b, h, 1, Dv).

    ``sdpa`` leaves the kernel to torch; ``grouped`` multiplies all queries of a KV head with its keys at once, which
    reads them once where torch's CPU kernel reads them for every query head.
    """
    if backend == "sdpa":
        return functional.scaled_dot_product_attention(q, k, v, enable_gqa=q.shape[1] != k.shape[1])
    batch, heads, _, dim = q.shape
    kv_heads = k.shape[1]
    queries = q.reshape(batch, kv_heads, heads // kv_heads, dim)
    product = torch.matmul(queries, k.transpose(-1, -2)) if batch * kv_heads > 1 else keys_first(queries, k)
    scores = product * dim**-0.5
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(v.dtype)
    return torch.matmul(weights, v).reshape(batch, heads, 1, v.shape[-1])


def keys_first(q: Tensor, k: Tensor) -> Tensor:
    """q·kᵀ as (k·qᵀ)ᵀ: torch's CPU kernels multiply one long matrix with a few rows faster that way round."""
    return torch.matmul(k, q.transpose(-1, -2)).transpose(-1, -2).contiguous()


def gather_blocks(blocks: Tensor, table: Tensor) -> Tensor:
    """Keys or values of a paged cache, block by block: (b, hk, n·block, D).

    Args:
        blocks: (blocks, hk, block, D), the pool.
        table: (b, n), each sequence's blocks.
    """
    batch, count = table.shape
    _, kv_heads, size, dim = blocks.shape
    found = blocks.index_select(0, table.reshape(-1)).view(batch, count, kv_heads, size, dim)
    return found.transpose(1, 2).reshape(batch, kv_heads, count * size, dim)


def latent_decode_attention(q: Tensor, cache: Tensor, latent: int, scale: float) -> Tensor:
    """Absorbed MLA: every head's query (b, h, c + r) against the one latent (b, L, c + r) a token; result (b, h, c)."""
    scores = keys_first(q, cache) * scale
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(cache.dtype)
    return torch.matmul(weights, cache[..., :latent])


def exact_attention(q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None = None, scale: float | None = None) -> Tensor:
    """The definition in float64, for some queries of one head: softmax(q·kᵀ/√D)·v.

    Args:
        q: (n, D).
        k: (L, D).
        v: (L, Dv).
        seen: (n, L), which keys each query sees; None: all.
        scale: of the scores; 1/√D by default.
    """
    scores = q.double() @ k.double().T * (scale if scale is not None else q.shape[-1] ** -0.5)
    if seen is not None:
        scores = scores.masked_fill(~seen, float("-inf"))
    return torch.softmax(scores, -1) @ v.double()
