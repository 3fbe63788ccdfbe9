"""Collectives between real processes, and α and β from made-up ones."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrate.alpha_beta import fit_alpha_beta, relative_line
from calibrate.hardware import measured_link
from calibrate.samples import Sample, read_samples
from capplan.errors import UsageError

ROOT = Path(__file__).parents[2]
SHARES = {"all_reduce": 2 * 3 / 4, "all_gather": 3 / 4, "reduce_scatter": 3 / 4, "all_to_all": 3 / 4}
"""Bytes that cross one of four ranks' links for a byte of the message."""


def made(collective: str, alpha: float, beta: float, noise: float, ranks: int = 4) -> list[Sample]:
    random = np.random.default_rng(3)
    found = []
    for power in range(10, 27):
        size = float(1 << power)
        seconds = (alpha + size * SHARES[collective] / beta) * float(np.exp(noise * random.standard_normal()))
        key: dict[str, Any] = {"collective": collective, "gpus": ranks, "library": "gloo"}
        found.append(
            Sample("collective", collective, key, {"bytes": size}, "cold", seconds, seconds, seconds, (seconds,))
        )
    return found


@pytest.mark.parametrize("collective", SHARES)
def test_planted_latency_and_bandwidth_come_back(collective: str) -> None:
    (exact,) = fit_alpha_beta(made(collective, 20e-6, 5e9, 0.0))
    assert exact.alpha == pytest.approx(20e-6)
    assert exact.beta == pytest.approx(5e9)
    (noisy,) = fit_alpha_beta(made(collective, 20e-6, 5e9, 0.05))
    assert noisy.alpha == pytest.approx(20e-6, rel=0.1)
    assert noisy.beta == pytest.approx(5e9, rel=0.1)
    assert noisy.median_error < 0.08


def test_the_line_is_that_of_weighted_least_squares() -> None:
    x, y = [1.0, 2.0, 5.0, 9.0], [3.1, 4.9, 11.2, 18.7]
    a, b = relative_line(x, y)
    slope, start = np.polyfit(x, y, 1, w=1 / np.array(y))
    assert (a, b) == pytest.approx((start, slope))


def test_neither_latency_nor_slope_is_negative() -> None:
    assert relative_line([1.0, 2.0], [1.0, 10.0])[0] == 0
    assert relative_line([1.0, 2.0], [2.0, 1.0])[1] > 0
    with pytest.raises(UsageError, match="more than one size"):
        relative_line([1.0, 1.0], [2.0, 1.0])


def test_wrong_results_count_for_nothing() -> None:
    wrong = [replace(sample, problem="wrong") for sample in made("all_reduce", 1e-5, 1e9, 0.0)]
    assert fit_alpha_beta(wrong) == []
    assert measured_link(wrong) is None


def test_the_link_is_the_fastest_transfer() -> None:
    link = measured_link(made("all_reduce", 20e-6, 5e9, 0.0))
    assert link is not None
    assert link.per_direction == pytest.approx(5e9, rel=0.01)
    assert link.domain_size == 4


@pytest.mark.torch
@pytest.mark.parametrize("processes", [2, 4])
def test_torchrun_measures_right_results_and_fits_them(processes: int, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("this torch has no gloo")
    path = tmp_path / "collectives.jsonl"
    names = (
        ["all_reduce", "all_gather"] if processes == 4 else ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
    )
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes),
        "-m", "calibrate.collectives", "--backend", "gloo", "--device", "cpu", "--samples", str(path),
        "--most-bytes", "65536", *(word for name in names for word in ("--collective", name)),
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = read_samples(path)
    assert [sample.problem for sample in found.samples] == [""] * len(found.samples)
    assert {str(sample.key["collective"]) for sample in found.samples} == set(names)
    assert {sample.key["gpus"] for sample in found.samples} == {processes}
    assert len(done.stdout.splitlines()) == len(names)
    assert all("β" in line for line in done.stdout.splitlines())
    assert len(fit_alpha_beta(found.samples)) == len(names)
