"""Prefix reuse: chains of contents, least recent use, and the closed forms against counting and against simulation."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.serving.lengths import FixedLength
from capplan.serving.prefix_cache import PrefixCache, expected_hit_rate, prefix_savings, reusable_blocks
from capplan.serving.random_source import RandomSource
from capplan.serving.requests import OpenLoop, Request, RequestFactory, SharedPrefixes, uniform_arrivals
from tests.serving.clocks import ConstantClock, LinearClock, run

Pieces = list[tuple[str | None, int]]


def contents(pieces: Pieces) -> list[object]:
    """A prompt's tokens written out: equal names give equal tokens, a piece without a name is like no other."""
    return [(name or object(), index) for name, tokens in pieces for index in range(tokens)]


pieces_of_prompts = st.lists(
    st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(1, 9)), min_size=1, max_size=4),
    min_size=2,
    max_size=4,
)


@settings(max_examples=300, deadline=None)
@given(pieces_of_prompts, st.integers(1, 5))
def test_keys_are_equal_where_all_tokens_up_to_the_block_are(prompts: list[Pieces], size: int) -> None:
    """Against token lists: block i of two prompts has the same key if and only if their first (i + 1)·b tokens agree.

    Equal tokens under other names (a of 5, then b of 3, against a of 5 and b of 9) are found as far as names go.
    """
    cache = PrefixCache(1, size)
    chains = [cache.chain(pieces).keys(0, sum(tokens for _, tokens in pieces) // size) for pieces in prompts]
    tokens = [contents(pieces) for pieces in prompts]
    for one, first in zip(chains, tokens, strict=True):
        for other, second in zip(chains, tokens, strict=True):
            for place in range(min(len(one), len(other))):
                end = (place + 1) * size
                if one[place] == other[place]:
                    assert first[:end] == second[:end]
    for one, pieces in zip(chains, prompts, strict=True):
        assert len(set(one)) == len(one)
        again = cache.chain([*pieces, (None, 3)]).keys(0, len(one))
        whole = sum(tokens for _, tokens in pieces) // size
        assert again[:whole] == one[:whole]


def test_a_piece_without_a_name_is_like_no_other() -> None:
    cache = PrefixCache(1, 4)
    one, other = (cache.chain([("system", 10), (None, 10)]).keys(0, 5) for _ in range(2))
    assert one[:2] == other[:2]  # 10 tokens are two whole blocks of 4
    assert not set(one[2:]) & set(other[2:])


def test_the_least_recently_used_block_is_given_up_first() -> None:
    cache = PrefixCache(4, 1)
    for name in ("a", "b"):
        keys = cache.chain([(name, 2)]).keys(0, 2)
        table = cache.manager.allocate(2)
        cache.register(keys, table)
        cache.manager.release(table)
    found = cache.lookup(cache.chain([("a", 2)]).keys(0, 2))
    assert len(found) == 2
    cache.manager.share(found)
    cache.manager.release(found)  # now b is the older
    cache.manager.allocate(2)
    assert len(cache.lookup(cache.chain([("a", 2)]).keys(0, 2))) == 2
    assert cache.lookup(cache.chain([("b", 2)]).keys(0, 2)) == []
    assert cache.evictions == 2


@pytest.mark.parametrize(
    ("cached", "prompt", "blocks"), [(0, 100, 0), (100, 200, 6), (96, 96, 5), (200, 97, 6), (15, 100, 0), (16, 17, 1)]
)
def test_whole_blocks_and_never_the_last_token(cached: int, prompt: int, blocks: int) -> None:
    assert reusable_blocks(cached, prompt, 16) == blocks


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 200), st.integers(1, 300), st.integers(1, 100), st.integers(1, 32), st.integers(1, 9))
def test_savings_by_counting_one_by_one(prefix: int, more: int, output: int, size: int, requests: int) -> None:
    prompt = prefix + more
    savings = prefix_savings(prefix, prompt, output, size, requests)
    assert savings.cached_tokens + savings.computed_tokens == prompt
    pairs = [query + 1 for query in range(prompt)]
    assert savings.pairs_saved == sum(pairs[: savings.cached_tokens])
    assert savings.pairs == sum(pairs[savings.cached_tokens :])
    whole = range(-(-(prompt + output) // size))
    held = {
        ("all" if (block + 1) * size <= savings.cached_tokens else one, block)
        for one in range(requests)
        for block in whole
    }
    assert savings.blocks_together == len(held)
    assert savings.blocks_apart == requests * len(whole)


def test_requests_with_one_prefix_compute_it_once() -> None:
    """n requests of 1,000 tokens of which 900 are common: 56 blocks of 16 are found n - 1 times."""
    requests = [Request(float(index), 1000, 5, "system", 900) for index in range(20)]
    done = run(OpenLoop(requests, 20), LinearClock(1e-4), blocks=2000, scheduler={"prefix_caching": True})
    assert done.computed_tokens == 20 * 1000 - 19 * 56 * 16
    assert done.hit_rate == pytest.approx(19 * 56 * 16 / 20_000)
    assert list(done.log.cached) == [0] + [56 * 16] * 19
    cold = run(OpenLoop(requests, 20), LinearClock(1e-4), blocks=2000)
    assert cold.computed_tokens == 20_000
    assert done.log.ttft[5] < cold.log.ttft[5] / 3
    assert done.peak_used_blocks <= cold.peak_used_blocks


def test_requests_that_come_together_share_blocks_as_the_closed_form_says() -> None:
    requests = [Request(0.0, 100, 60, "system", 80) for _ in range(6)]
    done = run(OpenLoop(requests, 6), ConstantClock(), blocks=200, scheduler={"prefix_caching": True})
    assert done.peak_used_blocks == prefix_savings(80, 100, 60 - 1, 16, 6).blocks_together
    apart = run(OpenLoop(requests, 6), ConstantClock(), blocks=200)
    assert apart.peak_used_blocks == prefix_savings(80, 100, 60 - 1, 16, 6).blocks_apart


def test_prompts_that_share_nothing_gain_nothing() -> None:
    """With prefix caching on, unique prompts are served exactly as without it."""
    times = []
    for caching in (True, False):
        factory = RequestFactory(FixedLength(300), FixedLength(40), 3)
        done = run(uniform_arrivals(40, 400, factory), LinearClock(), blocks=600, scheduler={"prefix_caching": caching})
        assert (done.hit_rate, done.preemptions) == (0, 0)
        times.append(list(done.log.e2e))
    assert times[0] == times[1]


def test_a_request_that_gave_way_finds_what_it_had_computed() -> None:
    recomputed = []
    for caching in (True, False):
        factory = RequestFactory(FixedLength(300), FixedLength(40), 3)
        done = run(uniform_arrivals(40, 200, factory), LinearClock(), blocks=200, scheduler={"prefix_caching": caching})
        assert done.preemptions > 0
        assert (done.hit_rate > 0) == caching
        recomputed.append(done.computed_tokens / done.preemptions)
    assert recomputed[0] < recomputed[1]


@pytest.mark.parametrize(("count", "capacity", "skew"), [(50, 10, 0.0), (50, 10, 1.0), (200, 80, 0.8), (20, 20, 1.0)])
def test_the_expected_hit_rate_against_a_cache_that_is_run(count: int, capacity: int, skew: float) -> None:
    """Che's approximation against an LRU list of prefixes, 40,000 requests."""
    popularity = SharedPrefixes(count, 1, skew=skew).popularity()
    source, recent, hits = RandomSource(9, "lru"), list[int](), 0
    for round_number in range(40_000):
        draw, choice = source.uniform(), 0
        while choice < count - 1 and draw >= popularity[choice]:
            draw -= popularity[choice]
            choice += 1
        if choice in recent:
            hits += round_number >= 5000
            recent.remove(choice)
        recent.append(choice)
        del recent[:-capacity]
    assert expected_hit_rate(popularity, capacity) == pytest.approx(hits / 35_000, abs=0.012)


@pytest.mark.parametrize(("blocks", "own"), [(131, 1), (300, 6), (90, 4)])
def test_the_servers_own_cache_finds_prefixes_as_often_as_expected(blocks: int, own: int) -> None:
    """40 prefixes of 10 blocks, each request with blocks of its own that nobody wants again, one running at a time."""
    shared = SharedPrefixes(40, 160, skew=0.7)
    prompt = 160 + 16 * own
    factory = RequestFactory(FixedLength(prompt), FixedLength(1), 5, shared)
    done = run(
        uniform_arrivals(1 / 3, 6000, factory), ConstantClock(), blocks=blocks, scheduler={"prefix_caching": True}
    )
    expected = expected_hit_rate(shared.popularity(), (blocks - own) / 10, own / 10)
    assert done.hit_rate * prompt / 160 == pytest.approx(expected, abs=0.05)
    assert done.evictions > 1000


def test_edges_of_the_expected_hit_rate() -> None:
    assert expected_hit_rate([0.5, 0.5], 2) == 1
    assert expected_hit_rate([0.5, 0.5], 0) == 0
    assert expected_hit_rate([0.25] * 4, 1) == pytest.approx(0.25, abs=0.03)
    assert expected_hit_rate([0.2] * 4, 5) == pytest.approx(0.8)
    assert expected_hit_rate([], 5) == 0
    assert expected_hit_rate([0.25] * 4, 3, once=1.0) < expected_hit_rate([0.25] * 4, 3)
