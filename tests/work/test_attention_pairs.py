"""Closed forms of pairs and keys against the enumeration of every query and key, and the seed's worked example."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.work import attention_pairs as pairs

PREFIX = st.integers(0, 40)
TOKENS = st.integers(1, 40)
LIMIT = st.integers(1, 24)


def visible(prefix: int, tokens: int, sees: object) -> tuple[int, int]:
    """(pairs, distinct keys) by going through every query and every place up to it."""
    seen = [
        (query, key)
        for query in range(prefix, prefix + tokens)
        for key in range(query + 1)
        if sees(query, key)  # type: ignore[operator]
    ]
    return len(seen), len({key for _, key in seen})


@given(PREFIX, TOKENS)
def test_causal(prefix: int, tokens: int) -> None:
    assert visible(prefix, tokens, lambda q, k: True) == (pairs.causal_pairs(prefix, tokens), prefix + tokens)


@given(PREFIX, TOKENS, LIMIT)
def test_window(prefix: int, tokens: int, window: int) -> None:
    want = visible(prefix, tokens, lambda q, k: q - k < window)
    assert want == (pairs.limited_pairs(prefix, tokens, window), pairs.window_keys(prefix, tokens, window))


@given(PREFIX, TOKENS, LIMIT)
def test_chunk(prefix: int, tokens: int, chunk: int) -> None:
    want = visible(prefix, tokens, lambda q, k: q // chunk == k // chunk)
    assert want == (pairs.chunk_pairs(prefix, tokens, chunk), pairs.chunk_keys(prefix, tokens, chunk))


@given(TOKENS, st.one_of(st.none(), LIMIT))
def test_bidirectional(tokens: int, window: int | None) -> None:
    half = tokens if window is None else window // 2
    want = sum(abs(q - k) <= half for q in range(tokens) for k in range(tokens))
    assert pairs.bidirectional_pairs(tokens, window) == want


@given(PREFIX, TOKENS, st.integers(1, 8), st.one_of(st.none(), st.integers(1, 6)))
def test_compressed(prefix: int, tokens: int, rate: int, top_k: int | None) -> None:
    want = 0
    for place in range(prefix + 1, prefix + tokens + 1):
        full_groups = sum(1 for end in range(rate, place + 1, rate))
        want += full_groups if top_k is None else min(full_groups, top_k)
    assert pairs.compressed_pairs(prefix, tokens, rate, top_k) == want


@given(PREFIX, st.lists(TOKENS, min_size=1, max_size=5), LIMIT)
def test_chunks_of_a_prompt_add_up(prefix: int, chunks: list[int], limit: int) -> None:
    for count in (
        pairs.causal_pairs,
        lambda p, t: pairs.limited_pairs(p, t, limit),
        lambda p, t: pairs.chunk_pairs(p, t, limit),
        lambda p, t: pairs.compressed_pairs(p, t, limit, 3),
    ):
        starts = [prefix + sum(chunks[:i]) for i in range(len(chunks))]
        assert sum(count(start, chunk) for start, chunk in zip(starts, chunks, strict=True)) == count(
            prefix, sum(chunks)
        )


def test_arrays_broadcast() -> None:
    prefix, tokens = np.arange(30)[:, None], np.arange(1, 20)[None, :]
    for count in (
        pairs.causal_pairs,
        lambda p, t: pairs.limited_pairs(p, t, 7),
        lambda p, t: pairs.chunk_pairs(p, t, 7),
        lambda p, t: pairs.compressed_pairs(p, t, 4, 3),
        lambda p, t: pairs.window_keys(p, t, 7),
        lambda p, t: pairs.chunk_keys(p, t, 7),
    ):
        got = count(prefix, tokens)
        assert got.shape == (30, 19)
        assert all(got[p, t - 1] == count(p, t) for p in (0, 3, 6, 7, 29) for t in (1, 7, 8, 19))


def test_the_worked_example_of_a_cached_prompt() -> None:
    """Prompt of 6, two further positions: 21 + 7 + 8 = 36 with the cache, 21 + 28 + 36 = 85 without."""
    example = pairs.attention_pairs(6, 2)
    assert (example.prompt, example.with_cache, example.without_cache) == (21, (7, 8), (28, 36))
    assert (example.cached_total, example.recomputed_total) == (36, 85)


@given(st.integers(1, 60), st.integers(0, 30))
def test_the_published_closed_form(prompt: int, new: int) -> None:
    """``n(n + 1)/2`` for the prompt and ``m·n + m(m + 1)/2`` for what follows."""
    got = pairs.attention_pairs(prompt, new)
    assert got.cached_total - got.prompt == new * prompt + new * (new + 1) // 2
    assert got.prompt == prompt * (prompt + 1) // 2


@pytest.mark.parametrize("window", [1, 4, 100])
def test_a_window_bounds_every_new_position(window: int) -> None:
    got = pairs.attention_pairs(6, 3, window=window)
    assert got.with_cache == tuple(min(n, window) for n in (7, 8, 9))
