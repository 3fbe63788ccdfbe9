"""Charts: what is drawn is in the file, at its place; nothing else is needed to see it."""

from __future__ import annotations

import builtins
import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.cli.app import run
from capplan.errors import UsageError
from capplan.questions.answer import Answer
from capplan.questions.sweep import SweepFront, SweepResult
from capplan.report.charts import Axis, Chart, Scale, Series, scale_of, scales, show_tick
from capplan.report.frame import NARROW, WIDE, Layout, frame_of, text_width, wrapped
from capplan.report.plots import draw_chart, save_chart
from capplan.report.svg import DARK, LIGHT, to_html, to_svg
from capplan.report.terminal import to_terminal
from capplan.report.views.sweep import sweep_chart

SVG = "{http://www.w3.org/2000/svg}"
ROOFLINE = ["roofline", "--model", "llama2-7b", "--gpu", "h100", "--batch", "1,64", "--context", "2k"]

numbers = st.floats(-1e12, 1e12, allow_nan=False)
points = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=20)


def chart(*series: Series, log: bool = False) -> Chart:
    return Chart("a <title> & more", Axis("x, tokens", log), Axis("y, ms", log), series)


LINE = Series(
    "line", [(1, 10), (2, 20), (3, 15)], mark="square", labels=["a", "b", "c<"], band=[(1, 8, 12), (3, 9, 21)]
)


def test_every_point_stands_where_the_axes_say() -> None:
    """The first point is at x = 1 of 1..3 and y = 10 of 0..25, by the places of the ticks that are written there."""
    root = ET.fromstring(to_svg(chart(LINE)))
    labels = {
        element.text: (float(element.get("x", "nan")), float(element.get("y", "nan")))
        for element in root.iter(f"{SVG}text")
        if element.get("x")
    }
    polyline = next(element for element in root.iter(f"{SVG}polyline"))
    x, y = map(float, polyline.get("points", "").split()[0].split(","))
    assert x == pytest.approx(labels["1"][0], abs=0.2)
    assert y == pytest.approx(labels["10"][1] - 4, abs=0.2)
    assert len(list(root.iter(f"{SVG}rect"))) == 2 + 3 + 1  # ground and clip, three marks, one in the legend


def test_the_file_needs_nothing_else() -> None:
    text = to_svg(chart(LINE))
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|<script|@import|url\((?!#)", text)
    assert "&lt;title&gt; &amp; more" in text
    assert "prefers-color-scheme:dark" in text
    assert "<title>line: c&lt;</title>" in text
    page = to_html(chart(LINE))
    assert page.startswith("<!doctype html>")
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|<script|@import|url\((?!#)", page)
    names = re.findall(r' id="([^"]+)"', page)
    assert len(names) == len(set(names)) == 2
    assert "prefers-color-scheme" not in to_svg(chart(LINE), dark=False)
    assert DARK[0] in to_svg(chart(LINE), dark=True)
    ET.fromstring(to_svg(chart(LINE), dark=True))


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize(("palette", "ground"), [(LIGHT, "#ffffff"), (DARK, "#12161c")])
def test_colours_stand_out_from_their_ground(palette: tuple[str, ...], ground: str) -> None:
    """WCAG 2.1 asks 3:1 of graphics."""
    for colour in palette:
        light, dark = sorted((luminance(colour), luminance(ground)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 3, colour


@settings(max_examples=60, deadline=None)
@given(st.lists(points, min_size=1, max_size=3), st.booleans(), st.sampled_from([WIDE, NARROW]), st.integers(40, 120))
def test_no_chart_leaves_its_frame(
    lists: list[list[tuple[float, float]]], log: bool, layout: Layout, columns: int
) -> None:
    if log:
        lists = [[(abs(x) + 1e-9, abs(y) + 1e-9) for x, y in one] for one in lists]
    drawn = chart(*(Series(f"s{i}", one, mark="circle") for i, one in enumerate(lists)), log=log)
    frame = frame_of(drawn, *scales(drawn), layout)
    assert 0 < frame.left < frame.right <= layout.width
    assert 0 < frame.top < frame.bottom <= frame.height
    root = ET.fromstring(to_svg(drawn, layout))
    for polyline in root.iter(f"{SVG}polyline"):
        for place in polyline.get("points", "").split():
            x, y = map(float, place.split(","))
            assert frame.left - 0.1 <= x <= frame.right + 0.1
            assert frame.top - 0.1 <= y <= frame.bottom + 0.1
    for text in (to_terminal(drawn, columns=columns), to_terminal(drawn, columns=columns, plain=True)):
        assert max(map(len, text.splitlines())) <= columns
    assert to_terminal(drawn, plain=True).isascii()


LONG = Chart(
    "one-very-long-name-without-any-space-in-it-that-no-line-can-hold-whole-and-more of a title that goes on and on",
    Axis("x"),
    Axis("y"),
    [
        *(Series(f"series number {number} with words", [(0, number), (1, number + 1)]) for number in range(24)),
        Series("another-very-long-name-without-any-space-in-it", [(0, 0)], line=False, mark="cross"),
    ],
    ["a note that is longer than one line of the legend can be"],
)


@pytest.mark.parametrize("layout", [WIDE, NARROW])
def test_words_stay_in_the_picture(layout: Layout) -> None:
    """Every word of titles, names and notes is there, inside the picture, and no two lines share a place."""
    root = ET.fromstring(to_svg(LONG, layout))
    height = float(root.get("height", "nan"))
    lines = [element for element in root.iter(f"{SVG}text") if element.get("text-anchor") is None]
    for element in lines:
        size, bold = (16.0, True) if "title" in element.get("class", "") else (12.5, False)
        assert float(element.get("x", "nan")) + text_width(element.text or "", size, bold=bold) <= layout.width
        assert 0 < float(element.get("y", "nan")) < height
    assert len({(element.get("x"), element.get("y")) for element in lines}) == len(lines)
    shown = "".join(element.text or "" for element in lines).replace(" ", "")
    for text in (LONG.title, *(series.name for series in LONG.series), *LONG.notes):
        assert text.replace(" ", "") in shown


def test_words_are_broken_where_they_may_be() -> None:
    assert wrapped("Llama-3.1-70B-Instruct at Avian", 170) == ("Llama-3.1-70B-Instruct", "at Avian")
    assert len(wrapped("x" * 100, 50)) > 10
    assert wrapped("", 50) == ()


def test_lines_without_marks_have_letters_in_the_terminal() -> None:
    """A falling and a rising line: the first letter stands high on the left, the other low."""
    lines = [Series("falls", [(0, 10), (10, 0)]), Series("rises", [(0, 0), (10, 10)])]
    text = to_terminal(chart(*lines), rows=10, columns=60)
    assert "A falls   B rises" in text
    rows = [line.split("│")[1] for line in text.splitlines() if "│" in line]
    falling = [(row.index("A"), place) for place, row in enumerate(rows) if "A" in row]
    rising = [(row.index("B"), place) for place, row in enumerate(rows) if "B" in row]
    assert len(falling) == len(rising) == 3
    assert sorted(falling) == falling
    assert sorted(rising) == rising[::-1]
    alone = to_terminal(chart(lines[0]), rows=10, columns=60)
    assert "⠤⠤ falls" in alone


@pytest.mark.parametrize(("columns", "width"), [("60", 60), ("20", 40), ("500", 120)])
def test_a_drawing_is_as_wide_as_the_terminal(columns: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert max(map(len, draw_chart(chart(LINE), plain=True).splitlines())) == width


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(1e-12, 1e15), min_size=1, max_size=5), st.booleans())
def test_scales_hold_their_values(values: list[float], log: bool) -> None:
    scale = scale_of(Axis("x", log), values)
    assert all(-1e-9 <= scale.place(value) <= 1 + 1e-9 for value in values)
    ticks = scale.ticks()
    assert 2 <= len(ticks) <= 14
    assert ticks == sorted(set(ticks))
    assert all(-1e-9 <= scale.place(tick) <= 1.3 for tick in ticks)


@pytest.mark.parametrize(
    ("values", "ends"),
    [([3, 40], (2, 50)), ([2, 50], (2, 50)), ([0.15], (0.1, 0.2)), ([10], (5, 20)), ([989e12, 3.3e12], (2e12, 1e15))],
)
def test_logarithmic_axes_end_at_round_values(values: list[float], ends: tuple[float, float]) -> None:
    scale = scale_of(Axis("x", log=True), values)
    assert (scale.low, scale.high) == pytest.approx(ends, rel=1e-12)


def test_values_without_a_place_are_left_out() -> None:
    broken = Series("s", [(0, 1), (1, math.inf), (10, 10), (100, 20)], mark="circle")
    text = to_svg(chart(broken, log=True))
    assert "nan" not in text
    assert "inf" not in text
    assert text.count("<circle") == 2 + 1


def test_nothing_to_draw_is_said() -> None:
    with pytest.raises(UsageError, match="nothing to draw"):
        draw_chart(chart(Series("s", [])), plain=False)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (0.1, "0.1"),
        (1, "1"),
        (999, "999"),
        (1000, "1k"),
        (2.5e6, "2.5M"),
        (1e12, "1T"),
        (1e15, "1P"),
        (1e-7, "1e-07"),
    ],
)
def test_ticks(value: float, shown: str) -> None:
    assert show_tick(value) == shown


def test_minor_ticks_stand_between_decades() -> None:
    scale = Scale(1.0, 100.0, log=True)
    assert scale.ticks() == [1, 2, 5, 10, 20, 50, 100]
    assert scale.ticks(6) == [1, 10, 100]
    assert scale.ticks(2) == [1, 100]
    assert scale.minor_ticks() == [*range(2, 10), *range(20, 100, 10)]


def test_marks_and_lines_in_the_terminal() -> None:
    """A straight line from corner to corner has a mark at either end and dots in between."""
    lines = to_terminal(chart(Series("s", [(0, 0), (10, 10)], mark="circle")), rows=10).splitlines()
    plot = [line for line in lines if "│" in line]
    assert plot[0].endswith("●")
    assert plot[-1].split("│")[1].startswith("●")
    assert all(any(0x2800 < ord(character) <= 0x28FF for character in line) for line in plot[1:-1])


@pytest.mark.parametrize("suffix", ["svg", "html", "SVG"])
def test_the_command_writes_files(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / f"roofline.{suffix}"
    assert run([*ROOFLINE, "--plot", str(target), "--json"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("{")
    assert err == f"wrote {target}\n"
    assert "decode, B = 64" in target.read_text(encoding="utf-8")


def test_the_command_draws_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*ROOFLINE, "--plot", "-"]) == 0
    text = capsys.readouterr().out
    assert "arithmetic intensity, FLOPs a byte" in text
    assert "⠤⠤ roof, fp16" in text


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--plot", "x.bmp"], ".svg, .html or .png"),
        (["--plot", "/nowhere/at/all.svg"], "cannot write"),
        (["--plot", "-", "--json"], "standard output"),
    ],
)
def test_plots_that_cannot_be(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*ROOFLINE, *argv]) == 2
    out, err = capsys.readouterr()
    assert said in out + err


def test_a_png_without_its_library_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "cairosvg":
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match="cairosvg") as error:
        save_chart(chart(LINE), str(tmp_path / "x.png"))
    assert "capplan[plot]" in error.value.hint


def test_a_png_is_drawn_where_the_library_is(tmp_path: Path) -> None:
    pytest.importorskip("cairosvg")
    save_chart(chart(LINE), str(tmp_path / "x.png"))
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_a_chart_of_many_devices_draws_those_on_the_front() -> None:
    """Nine devices, of which the last beats the others in speed and one of them in cost."""
    rows = {f"gpu{n}": ({"gpu": f"gpu{n}", "tpot_ms": 10.0 + n, "cost_per_1m_tokens": 2.0 + n},) for n in range(8)}
    fast = {"gpu": "fast", "tpot_ms": 1.0, "cost_per_1m_tokens": 5.0}
    front = SweepFront(512, 64, (fast, *rows["gpu0"]), {**rows, "fast": (fast,)})
    result = SweepResult("USD", 9, 9, (), None, (front,), ())
    drawn = sweep_chart(Answer("sweep", {"model": "m"}, result))
    assert [series.name for series in drawn.series] == ["fast", "gpu0"]
    assert "7 devices" in drawn.notes[0]
    few = replace(front, by_gpu={name: front.by_gpu[name] for name in ("gpu3", "gpu0", "fast")})
    drawn = sweep_chart(Answer("sweep", {"model": "m"}, replace(result, fronts=(few,))))
    assert [series.name for series in drawn.series] == ["fast", "gpu0", "gpu3"]
    assert len({series.mark for series in drawn.series}) == 3
    assert not drawn.notes
