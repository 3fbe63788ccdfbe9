"""The report: well-formed, whole in itself, with every figure in it."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest

from calibrate.profile_fit import FittedProfile, fit_profile
from calibrate.report import html, markdown, report_sections
from calibrate.samples import Recording
from calibrate.svg import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Axis, Series, axis_over, plot
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
    assert len(list(tree.iter(f"{SVG}svg"))) == 2
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


def test_points_are_drawn_at_their_places() -> None:
    x, y = Axis("x", 1.0, 100.0), Axis("y", 0.0, 10.0, logarithmic=False)
    text = plot("t", x, y, [Series("a <b>", [(10.0, 5.0), (1.0, 0.0), (1e9, 5.0), (-1.0, 2.0)])])
    tree = ElementTree.fromstring(text)
    dots = [dot for dot in tree.iter(f"{SVG}circle") if dot.get("fill-opacity")]
    places = [(float(dot.get("cx", 0)), float(dot.get("cy", 0))) for dot in dots]
    middle = (LEFT + (WIDTH - LEFT - RIGHT) / 2, HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) / 2)
    assert places == [pytest.approx(middle, abs=0.1), pytest.approx((LEFT, HEIGHT - BOTTOM), abs=0.1)]


def test_axes_hold_their_values_and_have_round_ticks() -> None:
    axis = axis_over("t", [3e-5, 0.2])
    assert axis.low < 3e-5
    assert axis.high > 0.2
    assert axis.ticks() == [1e-4, 1e-3, 1e-2, 1e-1]
    flat = axis_over("t", [5.0, 5.0], logarithmic=False)
    assert flat.low < 5.0 < flat.high
