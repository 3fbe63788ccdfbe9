"""The fit's algebra: planted constants come back from samples with noise; nothing that is not there is found."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrate.closed_loop import closed_loop
from calibrate.fit import FitError
from calibrate.predict import machine_of, predict_decode, predict_prefill
from calibrate.profile_fit import FittedProfile, best_overlap, fit_profile
from calibrate.profiles import profile_yaml
from calibrate.sample_fit import fit_samples, held_law, nested
from calibrate.sample_groups import groups_of, is_fitted
from calibrate.samples import Recording, Sample
from calibrate.step_terms import STACKS, fitted_times
from capplan.describe.closed_loop import ClosedLoop, ClosedLoopRow, closed_loop_warnings
from capplan.describe.profile import read_profile

sys.path.insert(0, str(Path(__file__).parent))
from samples_made import HARDWARE, NOISE, OVERLAP, PLANTED, PROVENANCE, made, recording

CLOSE = 0.1
"""Relative distance within which a constant that matters must come back: some times the noise."""

MATTERS = {
    "gemm": ("compute_efficiency", "memory_efficiency", "launch"),
    "decode_attention": ("memory_efficiency", "launch"),
    "prefill_attention": ("compute_efficiency",),
    "experts": ("compute_efficiency", "memory_efficiency", "expert"),
    "latent_decode": ("compute_efficiency", "launch"),
    "latent_prefill": ("compute_efficiency",),
    "norm": ("memory_efficiency", "launch"),
    "delta_rule": ("compute_efficiency",),
}


@pytest.fixture(scope="module")
def fitted() -> FittedProfile:
    """The profile of a planted device with the kernels that a plain decoder runs."""
    return fit_profile(recording("gemm", "decode_attention", "prefill_attention", "norm"), bootstraps=0)


def _group(name: str, **options: Any) -> Any:
    (found,) = groups_of(made(name, **options), "2.99")
    return found.group


@pytest.mark.parametrize("name", PLANTED)
def test_planted_constants_come_back_from_noisy_samples(name: str) -> None:
    found = fit_samples(_group(name), HARDWARE, bootstraps=20)
    for constant in MATTERS[name]:
        planted, value = getattr(PLANTED[name], constant), getattr(found.fit.constants, constant)
        assert value == pytest.approx(planted, rel=3 * CLOSE if constant == "expert" else CLOSE), constant
    assert found.fit.residuals.unseen.median < 3 * NOISE
    for constant, (low, high) in found.intervals.items():
        assert low <= high, constant


@pytest.mark.parametrize("name", ["gemm", "decode_attention", "norm"])
def test_noise_free_samples_give_the_planted_times_exactly(name: str) -> None:
    found = fit_samples(_group(name, noise=0.0), HARDWARE, bootstraps=0)
    assert max(abs(ratio - 1) for ratio in found.ratios) < 1e-3


def test_intervals_hold_the_planted_constants_about_as_often_as_they_say() -> None:
    held = []
    for seed in range(8):
        found = fit_samples(_group("norm", noise=0.05, seed=seed), HARDWARE, bootstraps=30)
        low, high = found.intervals["memory_efficiency"]
        held.append(low <= PLANTED["norm"].memory_efficiency <= high)
    assert 3 <= sum(held) <= 8  # 80 % of 8 is 6.4; fewer than 3 has a chance of one in a thousand


def test_the_overlap_of_arithmetic_and_memory_is_found() -> None:
    from calibrate.hardware import described_device

    whole = recording("gemm")
    gpu = described_device(whole)
    groups = groups_of([sample for sample in whole.samples if not sample.held_out], "2.99")
    assert best_overlap(gpu, groups).overlap == OVERLAP


def test_nested_laws_give_up_optional_terms_only() -> None:
    group = _group("gemm")
    assert nested(group)[0] == {"requantise": 0.0}  # 16-bit activations are never requantised
    assert nested(group)[-1] == {"requantise": 0.0, "depth": 0.0}
    law = held_law(group, {"requantise": 0.0, "depth": 0.0})
    free = law.constants(compute_efficiency=0.9, memory_efficiency=0.5, launch=40e-6)
    seconds = np.asarray(law.predict(group, free, HARDWARE).total)
    exact = np.asarray([sample.seconds for sample in made("gemm", noise=0.0)])
    assert seconds == pytest.approx(exact, rel=1e-9)


def test_the_law_that_is_right_for_most_points_alone_is_not_taken() -> None:
    """Single tokens of many heads take six times the planted seconds, as where their states leave the cache."""
    from dataclasses import replace

    samples = [sample for sample in made("delta_rule") if sample.shape["tokens"] != 256]
    slow = [sample.shape["tokens"] == 1 and sample.shape["heads"] > 8 for sample in samples]
    changed = [
        replace(one, seconds=one.seconds * (6.0 if late else 1.0)) for one, late in zip(samples, slow, strict=True)
    ]
    (group,) = groups_of(changed, "2.99")
    found = fit_samples(group.group, HARDWARE, bootstraps=0)
    assert max(ratio for ratio, late in zip(found.ratios, slow, strict=True) if late) < 2
    assert "memory_efficiency" not in found.held


def test_too_few_or_equal_points_are_refused() -> None:
    same = [made("norm")[0]] * 8
    (group,) = groups_of(same, "2.99")
    with pytest.raises(FitError):
        fit_samples(group.group, HARDWARE, bootstraps=0)
    assert groups_of(made("norm")[:5], "2.99") == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"shape": {"m": 1.0, "n": 2.0}}, "has no k"),
        ({"key": {"format": "bf16", "colour": "red"}}, "unknown key, colour"),
    ],
)
def test_samples_that_lack_what_their_law_needs_are_named(changes: dict[str, Any], said: str) -> None:
    from dataclasses import replace

    from capplan.errors import InvalidFileError

    with pytest.raises(InvalidFileError, match=said):
        groups_of([replace(one, **changes) for one in made("gemm")], "2.99")


def test_kernels_with_too_few_samples_are_named_with_their_number() -> None:
    from dataclasses import replace

    whole = recording("gemm", "norm")
    norms = [sample for sample in whole.samples if sample.name == "norm"]
    few = tuple(sample for sample in whole.samples if sample.name != "norm") + tuple(norms[:3])
    found = fit_profile(replace(whole, samples=few), bootstraps=0)
    assert found.refused == ("a fit takes 6 samples: gemm fp32 (1), norm (3)",)


@pytest.mark.parametrize("name", ["slug", "memory_bytes", "compute_units"])
def test_a_recording_must_say_what_it_is_of(name: str) -> None:
    from dataclasses import replace

    from calibrate.hardware import described_device
    from capplan.errors import InvalidFileError

    whole = recording("gemm")
    facts = {key: value for key, value in PROVENANCE.items() if key != name}
    with pytest.raises(InvalidFileError, match=name):
        described_device(replace(whole, provenance=facts))


def test_wrong_and_warm_samples_never_reach_a_fit() -> None:
    from dataclasses import replace

    good = made("gemm")[0]
    assert is_fitted(good)
    assert not is_fitted(replace(good, problem="differs from its reference"))
    assert not is_fitted(replace(good, cache="warm"))
    assert not is_fitted(replace(good, name="copy"))


def test_a_profile_of_samples_is_a_valid_file_that_predicts(fitted: FittedProfile, tmp_path: Any) -> None:
    path = tmp_path / f"{fitted.profile.name}.yaml"
    path.write_text(profile_yaml(fitted.profile), encoding="utf-8")
    again = read_profile(path)
    assert again.hardware == fitted.profile.hardware
    assert again.provenance["torch"] == PROVENANCE["torch"]
    assert again.engine_times.keys() == fitted.profile.engine_times.keys()
    for kind in fitted.profile.tables:
        for written, read in zip(fitted.profile.fits(kind), again.fits(kind), strict=True):
            assert read.key == written.key
            assert vars(read.constants) == pytest.approx(vars(written.constants), rel=1e-3)
    assert all(group.held_out is not None and group.held_out.median < 0.1 for group in fitted.groups)


def _phase(name: str, phase: str, load: Any, seconds: float) -> Sample:
    key = {"phase": phase, "mode": "eager", "runner": "stack", "format": "bf16"}
    shape = {"batch": load.batch, "prompt": load.prompt, "new": load.new, "layers": 1}
    return Sample("phase", name, key, shape, "cold", seconds, seconds * 0.98, seconds * 1.02, (seconds,) * 3)


def test_what_a_step_adds_to_its_kernels_comes_back(fitted: FittedProfile) -> None:
    machine = machine_of(fitted.profile, fitted.gpu)
    planted, samples = 1.2, []
    for spec, load in STACKS["cpu"]:
        for phase in ("prefill", "decode"):
            found = (
                predict_prefill(spec, load.batch, load.prompt, machine)
                if phase == "prefill"
                else predict_decode(spec, load.batch, load.mean_context, machine)
            )
            launches = sum(float(one.launch) for one in found.step.operators)
            bodies = sum(float(one.body) for one in found.step.operators)
            samples.append(_phase(spec.name, phase, load, planted * bodies + launches))
    times = fitted_times(samples, fitted.profile, fitted.gpu)
    assert times["torch"].kernel_share == pytest.approx(planted, rel=1e-6)


def _row(measured: float, predicted: float, noise: float = 0.01) -> ClosedLoopRow:
    return ClosedLoopRow(
        model="m", layers=2, phase="decode", mode="eager", batch=1, prompt=128, new=9, measured=measured,
        predicted=predicted, low=0.8 * predicted, high=1.2 * predicted, noise=noise,
    )  # fmt: skip


def test_a_closed_loop_passes_by_its_median_error_or_by_the_noise() -> None:
    good = ClosedLoop(date="2026-11-30", rows=(_row(1.0, 1.1), _row(1.0, 0.9), _row(1.0, 5.0)))
    assert good.median_error == pytest.approx(0.1)
    assert good.passed
    bad = ClosedLoop(date="2026-11-30", rows=(_row(1.0, 1.3), _row(1.0, 0.7)))
    assert not bad.passed
    assert "failed its own check" in closed_loop_warnings(bad, "x")[0]
    assert closed_loop_warnings(good, "x") == ()
    noisy = ClosedLoop(date="2026-11-30", rows=(_row(1.0, 1.3, noise=0.2), _row(1.0, 0.75, noise=0.2)))
    assert noisy.passed  # 30 % is within twice a noise of 20 %


def test_phases_of_unknown_models_and_wrong_caches_are_no_part_of_the_loop(fitted: FittedProfile) -> None:
    from dataclasses import replace

    from calibrate.phase_load import Load

    spec, load = STACKS["cpu"][0][0], Load(1, 64, 5)
    phase = _phase(spec.name, "decode", load, 0.1)
    arguments: dict[str, Any] = {"date": "2026-11-30"}
    assert closed_loop([phase], fitted.profile, fitted.gpu, find=lambda name: None, **arguments) is None
    wrong = replace(phase, problem="the caches hold more")
    assert closed_loop([wrong], fitted.profile, fitted.gpu, find=lambda name: spec, **arguments) is None
    found = closed_loop([phase], fitted.profile, fitted.gpu, find=lambda name: spec, **arguments)
    assert found is not None
    assert found.rows[0].measured == 0.1


def test_a_recording_without_rates_is_refused() -> None:
    from capplan.errors import InvalidFileError

    with pytest.raises(InvalidFileError, match="no large read"):
        fit_profile(Recording(PROVENANCE, tuple(made("norm"))))
