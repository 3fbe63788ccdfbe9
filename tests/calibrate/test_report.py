"""The report: well-formed, whole in itself, with every figure in it."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest

from calibrate.profile_fit import FittedProfile, fit_profile
from calibrate.report import html, kernel_name, markdown, report_sections, residual_plot, roofline_plot
from calibrate.samples import Recording
from capplan.describe.closed_loop import ClosedLoop, ClosedLoopRow

sys.path.insert(0, str(Path(__file__).parent))
from samples_made import made, recording

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def calibrated() -> tuple[FittedProfile, Recording, ClosedLoop]:
    found = recording("gemm", "norm")
    wrong = replace(made("norm")[0], problem="the result <differs> & more", shape={"rows": 9.0, "width": 9.0})
    found = replace(found, samples=(*found.samples, wrong))
    row = ClosedLoopRow(
        model="a <model>", layers=2, phase="decode", mode="eager", batch=1, prompt=128, new=9, measured=0.01,
        predicted=0.0105, low=0.009, high=0.012, noise=0.02,
    )  # fmt: skip
    return fit_profile(found, bootstraps=5), found, ClosedLoop(date="2026-11-30", rows=(row,))


def test_the_page_is_well_formed_and_needs_nothing_beside_it(
    calibrated: tuple[FittedProfile, Recording, ClosedLoop],
) -> None:
    text = html("A & B", report_sections(*calibrated))
    body = text.split("<body>")[1].split("</body>")[0]
    tree = ElementTree.fromstring(f"<body>{body}</body>")
    assert [drawing.get("class") for drawing in tree.iter(f"{SVG}svg")] == ["wide", "narrow"] * 2
    names = [element.get("id") for element in tree.iter() if element.get("id")]
    assert len(set(names)) == len(names) == 4
    assert "http" not in body.replace("http://www.w3.org/2000/svg", "")
    assert "<script" not in text
    assert "src=" not in text


def test_every_figure_stands_in_the_markdown(calibrated: tuple[FittedProfile, Recording, ClosedLoop]) -> None:
    text = markdown("Title", report_sections(*calibrated))
    for words in (
        "passed its check", "+5.0 %", "10.00 ms", "10.50 ms", "gemm bf16", "compute_efficiency", "held", "20.0 GB/s",
        "used nowhere", "Made Up CPU", "of them marked",
    ):  # fmt: skip
        assert words in text, words


def test_an_unchecked_profile_has_no_verdict(calibrated: tuple[FittedProfile, Recording, ClosedLoop]) -> None:
    fitted, found, _ = calibrated
    assert "Closed loop" not in markdown("Title", report_sections(fitted, found, None))


def test_every_sample_is_drawn_under_the_roof(calibrated: tuple[FittedProfile, Recording, ClosedLoop]) -> None:
    """The roof turns where the fastest products meet the bandwidth; no product is faster than the fastest."""
    fitted, _, _ = calibrated
    (chart,) = roofline_plot(fitted)
    *products, roof = chart.series
    peak, bandwidth = max(fitted.gpu.dense_rates.values()), fitted.gpu.memory.bandwidth
    assert roof.points[1] == pytest.approx((peak / bandwidth, peak))
    assert roof.points[0][1] == pytest.approx(roof.points[0][0] * bandwidth)
    samples = [sample for group in fitted.groups for sample in group.samples.samples if sample.flops and sample.bytes]
    drawn = [point for series in products for point in series.points]
    assert sorted(drawn) == sorted((s.flops / s.bytes, s.flops / s.seconds) for s in samples)
    assert min(x for x, _ in roof.points) <= min(x for x, _ in drawn)


def test_residuals_are_all_drawn(calibrated: tuple[FittedProfile, Recording, ClosedLoop]) -> None:
    fitted, _, _ = calibrated
    (chart,) = residual_plot(fitted.groups)
    *kernels, right = chart.series
    assert [series.name for series in kernels] == [kernel_name(group).replace("_", " ") for group in fitted.groups]
    assert sum(len(series.points) for series in kernels) == sum(len(group.fit.ratios) for group in fitted.groups)
    assert {y for _, y in right.points} == {1.0}
