"""Probes: exact where they are, fading with distance, never less sure than without."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log, log2

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.serving.forecast import forecast
from capplan.serving.measured_server import MeasuredServer
from capplan.serving.probe import FARTHEST, OTHER_LENGTHS, SAME_POINT, TPOT_OCTAVES, Probe, corrected, level_at, levels

SERVER = MeasuredServer("llama3.1-8b", None, "h100-sxm-80gb", "vllm", 1024, 256, 16)

ratios = st.floats(0.2, 5.0)
loads = st.floats(1, 4096)


def kriged(points: list[tuple[float, float]], at: float, octaves: float) -> tuple[float, float]:
    """Mean and standard deviation of a Gaussian process with exponential covariance, by linear algebra."""
    import numpy as np

    x = np.array([log2(place) for place, _ in points])
    r = np.array([log(ratio) for _, ratio in points])
    covariance = np.exp(-abs(x[:, None] - x[None, :]) / octaves)
    toward = np.exp(-abs(x - log2(at)) / octaves)
    weights = np.linalg.solve(covariance, toward)
    return float(weights @ r), float(max(0.0, 1 - weights @ toward))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 12), ratios), min_size=1, max_size=4, unique_by=lambda point: point[0]), loads)
def test_levels_are_those_of_the_process(points: list[tuple[int, float]], at: float) -> None:
    """Against the textbook's linear system: the process is Markov, so that only the neighbours matter."""
    named = [(2.0**place, ratio) for place, ratio in points]
    level = level_at(named, at, TPOT_OCTAVES)
    carried = [(load, ratio if load == at else min(max(ratio, 1 / FARTHEST), FARTHEST)) for load, ratio in named]
    mean, unknown = kriged(carried, at, TPOT_OCTAVES)
    assert log(level.factor) == pytest.approx(SAME_POINT * mean, abs=1e-9)
    assert level.doubt**2 == pytest.approx(1 - SAME_POINT**2 * (1 - unknown), abs=1e-9)


@given(ratios, loads, loads)
def test_a_probe_fades_with_distance(ratio: float, place: float, at: float) -> None:
    near, far = level_at([(place, ratio)], place, 4.0), level_at([(place, ratio)], at, 4.0)
    assert abs(log(far.factor)) <= abs(log(near.factor)) + 1e-12
    assert near.doubt <= far.doubt + 1e-12 <= 1 + 1e-9
    assert near.factor == pytest.approx(ratio**SAME_POINT)


def test_a_stall_is_not_carried_to_other_loads() -> None:
    """A point that took ten times as long is that point's own; others are moved by no more than a factor of three."""
    stalled = [(16.0, 10.0)]
    assert level_at(stalled, 16.0, 4.0).factor == pytest.approx(10**SAME_POINT)
    assert level_at(stalled, 32.0, 4.0).factor == pytest.approx(3 ** (SAME_POINT * exp(-1 / 4)))


def test_no_probe_changes_nothing() -> None:
    level = level_at([], 8, 4.0)
    assert (level.factor, level.doubt) == (1.0, 1.0)


def test_probes_of_one_point_are_averaged() -> None:
    both = level_at([(8, 1.2), (8, 1.5)], 8, 4.0)
    assert both.factor == pytest.approx(exp(SAME_POINT * (log(1.2) + log(1.5)) / 2))


def test_other_lengths_count_for_less() -> None:
    probes = [Probe(2048, 256, 16, 1.5, None)]
    tpot, ttft = levels(probes, 1024, 256, 16)
    assert tpot.factor == pytest.approx(1.5 ** (SAME_POINT * OTHER_LENGTHS))
    assert (ttft.factor, ttft.doubt) == (1.0, 1.0)
    same, _ = levels([*probes, Probe(1024, 256, 16, 1.1, None)], 1024, 256, 16)
    assert same.factor == pytest.approx(1.1**SAME_POINT)


@settings(max_examples=20, deadline=None)
@given(ratios, ratios)
def test_a_corrected_forecast_stays_whole(tpot: float, ttft: float) -> None:
    """Throughput follows the time of a request; intervals narrow around the new values."""
    plain = forecast(SERVER)
    new = corrected(plain, [Probe(1024, 256, 16, tpot, ttft)], 1024, 256, 16)
    assert new.point.tpot == pytest.approx(plain.point.tpot * tpot**SAME_POINT)
    assert new.point.ttft == pytest.approx(plain.point.ttft * ttft**SAME_POINT)
    assert new.point.request_rate * new.point.e2e == pytest.approx(16)
    assert new.point.e2e == pytest.approx(new.point.ttft + 255 * new.point.tpot)
    assert new.tpot.low < new.point.tpot < new.tpot.high
    assert new.tpot.high / new.tpot.low < plain.tpot.high / plain.tpot.low
    assert new.ttft.high / new.ttft.low < plain.ttft.high / plain.ttft.low


def test_a_true_measurement_is_predicted_nearly_exactly() -> None:
    """A server that is 1.3 times as slow throughout: one probe leaves 1.3^0.05 where it is, and little near it."""
    plain = forecast(SERVER)
    probe = [Probe(1024, 256, 16, 1.3, 1.3)]
    for concurrency in (8, 16, 32):
        there = forecast(replace(SERVER, concurrency=concurrency))
        new = corrected(there, probe, 1024, 256, concurrency)
        assert new.point.tpot == pytest.approx(1.3 * there.point.tpot, rel=0.07)
    assert plain.point.tpot < corrected(plain, probe, 1024, 256, 16).point.tpot
