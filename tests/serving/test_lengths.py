"""Distributions: the moments that they say against what they draw, and what people type."""

from __future__ import annotations

import math

import pytest

from capplan.errors import UsageError
from capplan.serving.lengths import FixedLength, HistogramLength, Lengths, UniformLength, parse_lengths, shortened
from capplan.serving.random_source import RandomSource
from capplan.serving.requests import RequestFactory, SharedPrefixes, burst_arrivals, poisson_arrivals, uniform_arrivals


@pytest.mark.parametrize(
    "lengths", [FixedLength(7), UniformLength(3, 40), HistogramLength((10, 100, 1000), (5.0, 3.0, 2.0))]
)
def test_moments_against_draws(lengths: Lengths) -> None:
    source = RandomSource(1, "test")
    drawn = [lengths.draw(source) for _ in range(40_000)]
    assert sum(drawn) / len(drawn) == pytest.approx(lengths.mean, rel=0.02)
    assert sum(value**2 for value in drawn) / len(drawn) == pytest.approx(lengths.second_moment, rel=0.03)
    assert max(drawn) == lengths.longest


def test_moments_by_adding_up() -> None:
    values = range(3, 41)
    uniform = UniformLength(3, 40)
    assert uniform.mean == pytest.approx(sum(values) / len(values))
    assert uniform.second_moment == pytest.approx(sum(value**2 for value in values) / len(values))


def test_all_values_of_a_uniform_length_come_up() -> None:
    source = RandomSource(3)
    assert {UniformLength(5, 8).draw(source) for _ in range(200)} == {5, 6, 7, 8}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1024", FixedLength(1024)),
        ("8k", FixedLength(8192)),
        ("512-2k", UniformLength(512, 2048)),
        ("64-64", FixedLength(64)),
        ("128:0.5,1k:0.5", HistogramLength((128, 1024), (0.5, 0.5))),
    ],
)
def test_what_people_type(text: str, expected: Lengths) -> None:
    assert parse_lengths(text, "--isl") == expected


@pytest.mark.parametrize("text", ["", "-5", "5-", "10-5", "a", "5:x", "5:-1", "5:0", "5:1,,6:1", "0", "1:nan"])
def test_what_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_lengths(text, "--isl")


def test_lengths_of_a_benchmark() -> None:
    assert shortened(1024, 0.8) == UniformLength(819, 1024)
    assert shortened(1, 0.8) == UniformLength(1, 1)


def test_exponential_normal_and_gamma_numbers() -> None:
    source = RandomSource(5)
    exponential = [source.exponential(2.0) for _ in range(30_000)]
    assert sum(exponential) / 30_000 == pytest.approx(2, rel=0.03)
    assert sum(value > 2 * math.log(10) for value in exponential) / 30_000 == pytest.approx(0.1, abs=0.01)
    normal = [source.normal() for _ in range(30_000)]
    assert sum(normal) / 30_000 == pytest.approx(0, abs=0.03)
    assert sum(value**2 for value in normal) / 30_000 == pytest.approx(1, rel=0.03)
    for shape in (0.3, 1.0, 4.0):
        gamma = [source.gamma(shape, 3.0) for _ in range(30_000)]
        mean = sum(gamma) / 30_000
        assert mean == pytest.approx(3, rel=0.05)
        assert sum((value - mean) ** 2 for value in gamma) / 30_000 == pytest.approx(9 / shape, rel=0.1)


def test_streams_of_one_seed_have_nothing_to_do_with_each_other() -> None:
    first, second, again = RandomSource(1, "isl"), RandomSource(1, "osl"), RandomSource(1, "isl")
    one, other, same = ([source.uniform() for _ in range(2000)] for source in (first, second, again))
    assert one == same
    mean = sum(x * y for x, y in zip(one, other, strict=True)) / 2000
    assert mean == pytest.approx(0.25, abs=0.02)


def test_the_generator_is_the_one_that_python_promises() -> None:
    """The first numbers of the Mersenne twister for seed 0, which no version of Python may change."""
    assert RandomSource(0).uniform() == 0.8444218515250481


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_between_arrivals(burstiness: float) -> None:
    factory = RequestFactory(FixedLength(1), FixedLength(1), 2)
    arrivals = burst_arrivals(5.0, burstiness, 20_000, factory, seed=3)
    times = [arrivals.take().arrival for _ in range(20_000)]
    gaps = [after - before for before, after in zip([0.0, *times], times, strict=False)]
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(0.2, rel=0.05)
    assert sum((gap - mean) ** 2 for gap in gaps) / len(gaps) / mean**2 == pytest.approx(1 / burstiness, rel=0.1)


def test_arrivals_end() -> None:
    factory = RequestFactory(FixedLength(1), FixedLength(1), 2)
    for arrivals in (poisson_arrivals(1.0, 3, factory, 1), uniform_arrivals(2.0, 3, factory)):
        for _ in range(3):
            assert arrivals.next_arrival() == arrivals.take().arrival
        assert arrivals.next_arrival() is None
        with pytest.raises(LookupError):
            arrivals.take()


def test_prefixes_are_chosen_by_popularity() -> None:
    prefixes = SharedPrefixes(3, 50, share=0.5, skew=1.0)
    assert prefixes.popularity() == pytest.approx([6 / 11, 3 / 11, 2 / 11])
    factory = RequestFactory(UniformLength(1, 100), FixedLength(1), 9, prefixes)
    made = [factory.make(0.0) for _ in range(20_000)]
    counts = [sum(request.prefix == f"prefix {place}" for request in made) for place in range(3)]
    assert [count / 20_000 for count in counts] == pytest.approx([3 / 11, 1.5 / 11, 1 / 11], abs=0.01)
    assert all(request.isl > 50 for request in made if request.prefix)
