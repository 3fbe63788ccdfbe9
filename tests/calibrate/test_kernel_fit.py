"""Fits of the kernel laws against constants that were planted, and the scoring against errors that are known."""

from __future__ import annotations

import sys
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrate.fit import FitError
from calibrate.kernel_fit import fit_group, fit_law, half_errors, spread, unseen_ratios
from capplan.describe.kernel_constants import (
    CollectiveConstants,
    DecodeAttentionConstants,
    GemmConstants,
    GroupedGemmConstants,
    MlaDecodeConstants,
    PrefillAttentionConstants,
)

sys.path.insert(0, str(Path(__file__).parent))
from synthetic import HARDWARE, planted

PLANTED: dict[str, Any] = {
    "gemm": GemmConstants(0.75, 0.85, 4e-6, 6e-6, 1.5),
    "grouped_gemm": GroupedGemmConstants(0.5, 0.8, 30e-6, 2.0, 3e-7),
    "prefill_attention": PrefillAttentionConstants(0.65, 0.45, 12e-6, 0.9),
    "decode_attention": DecodeAttentionConstants(0.8, 11e-6, 9e-6, 4e-6),
    "mla_prefill": PrefillAttentionConstants(0.6, 0.5, 10e-6, 0.8),
    "mla_decode": MlaDecodeConstants(0.7, 0.8, 12e-6, 8e-6, 150.0),
    "collective": CollectiveConstants(9e-6, 0.7, 0.6),
}


@pytest.mark.parametrize("kind", sorted(PLANTED))
def test_planted_constants_come_back_exactly_without_noise(kind: Any) -> None:
    constants, _ = fit_law(planted(kind, PLANTED[kind]), HARDWARE)
    assert astuple(constants) == pytest.approx(astuple(PLANTED[kind]), rel=1e-4)


@pytest.mark.parametrize("kind", sorted(PLANTED))
def test_planted_constants_come_back_through_noise_and_outliers(kind: Any) -> None:
    constants, optimum = fit_law(planted(kind, PLANTED[kind], noise=0.05, outliers=0.03), HARDWARE)
    assert astuple(constants) == pytest.approx(astuple(PLANTED[kind]), rel=0.25)
    assert astuple(constants)[:2] == pytest.approx(astuple(PLANTED[kind])[:2], rel=0.06)
    assert optimum.relative_offset <= 1e-3


def test_a_term_that_is_not_there_is_left_out() -> None:
    without = replace(PLANTED["decode_attention"], depth=0.0)
    constants, _ = fit_law(planted("decode_attention", without, noise=0.03), HARDWARE)
    assert constants.depth < 0.5e-6  # type: ignore[union-attr]
    assert constants.memory_efficiency == pytest.approx(0.8, rel=0.03)  # type: ignore[union-attr]


def test_an_efficiency_above_one_stops_at_the_bound() -> None:
    group = planted("decode_attention", PLANTED["decode_attention"])
    constants, optimum = fit_law(replace(group, seconds=group.seconds / 3), HARDWARE)
    assert constants.memory_efficiency == pytest.approx(1.0)  # type: ignore[union-attr]
    assert optimum.at_bound[0]


def test_points_that_tell_nothing_are_refused() -> None:
    group = planted("prefill_attention", PLANTED["prefill_attention"])
    same = group.take(np.zeros(200, dtype=int))
    with pytest.raises(FitError):
        fit_law(same, HARDWARE)


@pytest.mark.parametrize("kind", ["gemm", "collective"])
def test_the_errors_are_the_noise_that_was_planted(kind: Any) -> None:
    """|exp(0.1·z) − 1| of a standard normal z has a median near 0.0675 and a 90th percentile near 0.166."""
    group = planted(kind, PLANTED[kind], noise=0.1)
    if kind == "gemm":
        median, p90 = half_errors(group, HARDWARE)
        assert median == pytest.approx(0.0675, rel=0.15)
        assert p90 == pytest.approx(0.166, rel=0.2)
    ratios, chosen = unseen_ratios(group, HARDWARE)
    assert sorted(chosen) == list(range(group.points))
    found = spread(ratios)
    assert found.low < 1 < found.high
    if kind == "gemm":
        assert found.median == pytest.approx(0.0675, rel=0.2)
        assert (found.low, found.high) == pytest.approx((np.exp(-0.128), np.exp(0.128)), rel=0.05)


def test_a_configuration_unlike_the_others_shows_in_the_unseen_errors_alone() -> None:
    group = planted("gemm", PLANTED["gemm"], noise=0.02)
    odd = group.configurations == 2
    group = replace(group, seconds=np.where(odd, group.seconds * 1.6, group.seconds))
    ratios, chosen = unseen_ratios(group, HARDWARE)
    assert np.median(ratios[odd[chosen]]) == pytest.approx(1.6, rel=0.1)


def test_a_fit_has_what_a_profile_needs() -> None:
    group = planted("gemm", PLANTED["gemm"], noise=0.05)
    fit = fit_group(group, HARDWARE)
    assert (fit.points, fit.configurations) == (group.points, 4)
    assert fit.domain == {"m": (1, 8192), "n": (512, 8192), "k": (512, 16384)}
    assert set(fit.residuals.sizes) == {"small", "medium"}  # fewer than 30 calls are large


def test_slow_latent_prefill_is_taken_for_absorbed() -> None:
    group = planted("mla_prefill", PLANTED["mla_prefill"])
    absorbed = replace(group, key=replace(group.key, absorbed=""), seconds=group.seconds * 3.4)
    assert fit_group(absorbed, HARDWARE).key.absorbed == "yes"
    assert fit_group(replace(group, key=replace(group.key, absorbed="")), HARDWARE).key.absorbed == "no"
