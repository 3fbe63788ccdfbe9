"""How many query-key pairs attention computes, and how many cached positions it must read: exact closed forms.

A span is `t` new positions of one sequence after a prefix of `p` positions whose keys and values are cached. The
i-th new position (i = 1 ... t) stands at place ``p + i`` and sees itself and what the mask lets it see of the places
before. All functions broadcast over `prefix` and `tokens`; they count one head of one sequence.

These are counts of dependences. A kernel computes whole tiles, and so somewhat more at the mask's edges.
"""

from __future__ import annotations

from dataclasses import dataclass

from capplan.arrays import maximum, minimum
from capplan.work.operators import Number


def triangle(n: Number) -> Number:
    """``1 + 2 + ... + n = n(n + 1)/2``."""
    return n * (n + 1) // 2


def causal_pairs(prefix: Number, tokens: Number) -> Number:
    """Full causal attention: ``Σ (p + i) = p·t + t(t + 1)/2``."""
    return prefix * tokens + triangle(tokens)


def limited_pairs(prefix: Number, tokens: Number, limit: int) -> Number:
    """At most `limit` keys a query (a sliding window, or the top-k of sparse attention): ``Σ min(p + i, w)``.

    The first ``f = clip(w - p, 0, t)`` new positions see everything before them, the rest see w:
    ``p·f + f(f + 1)/2 + (t - f)·w``.
    """
    growing = minimum(maximum(limit - prefix, 0), tokens)
    return causal_pairs(prefix, growing) + (tokens - growing) * limit


def chunk_pairs(prefix: Number, tokens: Number, chunk: int) -> Number:
    """Chunked attention: a query sees its own chunk of `c` places up to itself, ``Σ ((p + i - 1) mod c + 1)``.

    With ``F(n) = ⌊n/c⌋·c(c + 1)/2 + r(r + 1)/2``, r = n mod c, for the first n places: ``F(p + t) - F(p)``.
    """

    def first(n: Number) -> Number:
        return n // chunk * triangle(chunk) + triangle(n % chunk)

    return first(prefix + tokens) - first(prefix)


def bidirectional_pairs(tokens: Number, window: int | None = None) -> Number:
    """An encoder: all ``t²``; with ``h = w//2`` places on either side, ``Σ (1 + min(i - 1, h) + min(t - i, h))``."""
    if window is None:
        return tokens * tokens
    half = window // 2
    return 2 * limited_pairs(0, tokens, half + 1) - tokens


def compressed_pairs(prefix: Number, tokens: Number, rate: int, top_k: int | None = None) -> Number:
    """Pairs with compressed entries, one for each full group of `r` places: ``Σ min(⌊(p + i)/r⌋, k)``.

    With ``G(n) = r·a(a - 1)/2 + a(b + 1)``, a = n // r, b = n mod r, the sum of ``⌊q/r⌋`` for q = 1 ... n; beyond
    ``k·r`` places every query sees k.
    """

    def first(n: Number) -> Number:
        growing = n if top_k is None else minimum(n, top_k * rate)
        groups, rest = growing // rate, growing % rate
        pairs = rate * (groups * (groups - 1) // 2) + groups * (rest + 1)
        return pairs if top_k is None else pairs + (n - growing) * top_k

    return first(prefix + tokens) - first(prefix)


def window_keys(prefix: Number, tokens: Number, window: int) -> Number:
    """Places that the queries of a span see together through a window: ``min(p + t, w - 1 + t)``."""
    return minimum(prefix + tokens, window - 1 + tokens)


def chunk_keys(prefix: Number, tokens: Number, chunk: int) -> Number:
    """Places from the start of the first query's chunk to the last query: ``p + t - ⌊p/c⌋·c``."""
    return prefix + tokens - prefix // chunk * chunk


@dataclass(frozen=True, slots=True)
class AttentionPairs:
    """Query-key pairs of a prompt and of the positions after it, for one head of one layer.

    Args:
        prompt: pairs of the prompt.
        with_cache: pairs that each further position adds when keys and values are kept.
        without_cache: pairs of each recomputation of the whole prefix when they are not.
    """

    prompt: int
    with_cache: tuple[int, ...]
    without_cache: tuple[int, ...]

    @property
    def cached_total(self) -> int:
        """``n(n + 1)/2 + Σ (n + j)``."""
        return self.prompt + sum(self.with_cache)

    @property
    def recomputed_total(self) -> int:
        """``Σ_{j = 0}^{m} (n + j)(n + j + 1)/2``."""
        return self.prompt + sum(self.without_cache)


def attention_pairs(prompt: int, new: int, *, window: int | None = None) -> AttentionPairs:
    """Query-key pairs with and without a KV cache, term by term.

    A prompt of n positions has ``n(n + 1)/2`` pairs. With the cache, the j-th further position adds ``n + j``
    (m of them ``m·n + m(m + 1)/2``); without it the whole prefix of ``n + j`` positions is computed again. The
    first output token is chosen from the prompt's last logits, so that only positions that are fed back count.

    Args:
        prompt: n, positions of the prompt.
        new: m, positions processed after it.
        window: the most keys that a query sees; None: all.

    Leaves out FLOPs, heads and layers: it counts dependences, not time.
    """

    def pairs(prefix: int, tokens: int) -> int:
        return int(causal_pairs(prefix, tokens) if window is None else limited_pairs(prefix, tokens, window))

    return AttentionPairs(
        prompt=pairs(0, prompt),
        with_cache=tuple(pairs(prompt + j - 1, 1) for j in range(1, new + 1)),
        without_cache=tuple(pairs(0, prompt + j) for j in range(1, new + 1)),
    )
