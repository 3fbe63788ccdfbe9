"""Bars: parts are as long as their values say, every word is in the picture, and a budget's bar is the budget's."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.cli.app import run
from capplan.report.charts import Axis, Bar, BarChart, Part
from capplan.report.frame import NARROW, WIDE, Layout, bars_frame_of, text_width
from capplan.report.svg import to_html, to_svg
from capplan.report.terminal import to_terminal

SVG = "{http://www.w3.org/2000/svg}"
GIB = 1 << 30
FITS = ["fit", "--model", "llama3.1-8b", "--gpu", "l4", "--max-model-len", "16k"]
TOO_LONG = ["fit", "--model", "llama3.1-8b", "--gpu", "l4"]
STAGES = ["fit", "--model", "deepseek-v3", "--gpu", "h200", "-tp", "8", "-pp", "2", "--max-model-len", "32k"]

lengths = st.lists(st.lists(st.floats(0, 1e6), min_size=1, max_size=12), min_size=1, max_size=6)


def bars(*values: list[float], limits: tuple[tuple[str, float], ...] = ()) -> BarChart:
    rows = [
        Bar(f"bar {number}", [Part(f"part <{place}>", value, f"{value:g} GiB") for place, value in enumerate(row)])
        for number, row in enumerate(values)
    ]
    return BarChart("a <title> & more", Axis("GiB"), rows, limits, ["a note"])


def parts_of(text: str) -> list[dict[str, Any]]:
    """The parts of the bars of a drawing, in order: title, left and right edge, upper edge, classes."""
    found = []
    for rect in ET.fromstring(text).iter(f"{SVG}rect"):
        title = rect.find(f"{SVG}title")
        if title is not None:
            left, width = float(rect.get("x", "nan")), float(rect.get("width", "nan"))
            found.append({"title": title.text, "left": left, "right": left + width, "top": rect.get("y"),
                          "css": rect.get("class")})  # fmt: skip
    return found


def axis_of(text: str) -> tuple[float, float]:
    """Where 0 stands, and pixels of one unit, by the values written at the axis."""
    places = {}
    for element in ET.fromstring(text).iter(f"{SVG}text"):
        if element.get("text-anchor") == "middle" and element.get("class") == "soft":
            places[float(element.text or "nan")] = float(element.get("x", "nan"))
    low, high = min(places), max(places)
    return places[low], (places[high] - places[low]) / (high - low)


def test_parts_are_as_long_as_their_values_and_follow_one_another() -> None:
    text = to_svg(bars([3, 5, 2], [4, 0, 1], limits=(("limit", 9.5),)))
    zero, unit = axis_of(text)
    edges = [((part["left"] - zero) / unit, (part["right"] - zero) / unit) for part in parts_of(text)]
    expected = [(0, 3), (3, 8), (8, 10), (0, 4), (4, 5)]
    assert [pytest.approx(pair, abs=0.02) for pair in expected] == edges
    assert len({part["top"] for part in parts_of(text)}) == 2
    limit = next(line for line in ET.fromstring(text).iter(f"{SVG}line") if line.get("class") == "limit")
    assert (float(limit.get("x1", "nan")) - zero) / unit == pytest.approx(9.5, abs=0.02)


def test_parts_of_one_name_look_alike_and_others_do_not() -> None:
    found = parts_of(to_svg(bars([1] * 12, [1] * 12)))
    looks = [part["css"] for part in found]
    assert looks[:12] == looks[12:]
    assert len(set(looks[:12])) == 12


@settings(max_examples=60, deadline=None)
@given(lengths, st.sampled_from([WIDE, NARROW]), st.integers(40, 120))
def test_no_bar_leaves_its_frame(values: list[list[float]], layout: Layout, columns: int) -> None:
    if not any(map(any, values)):
        with pytest.raises(ValueError, match="nothing to draw"):
            to_svg(bars(*values))
        return
    chart = bars(*values)
    frame = bars_frame_of(chart, chart.scale, layout)
    for part in parts_of(to_svg(chart, layout)):
        assert frame.left - 0.1 <= part["left"] <= part["right"] <= frame.right + 0.1
    for plain in (False, True):
        assert max(map(len, to_terminal(chart, columns=columns, plain=plain).splitlines())) <= columns
    assert to_terminal(chart, plain=True).isascii()


LONG = BarChart(
    "a title that is so long that it goes on in a second line and, on a narrow screen, in a third and in a fourth",
    Axis("GiB on a rank"),
    [
        Bar("a-very-long-name-without-any-space-in-it-at-all, each of 8 ranks", [Part(f"part number {n} with words", 1, "1 GiB")])
        for n in range(12)
    ],
    [("a limit that has a long name, too: 139.80 GiB", 1.5)],
    ["a note that is longer than one line of the legend can be"],
)  # fmt: skip


@pytest.mark.parametrize("layout", [WIDE, NARROW])
def test_words_stay_in_the_picture(layout: Layout) -> None:
    root = ET.fromstring(to_svg(LONG, layout))
    height, shown = float(root.get("height", "nan")), ""
    places = []
    for element in root.iter(f"{SVG}text"):
        x, y, text = float(element.get("x", "nan")), float(element.get("y", "nan")), element.text or ""
        width = text_width(
            text, 16 if "title" in str(element.get("class")) else 12.5, bold="title" in str(element.get("class"))
        )
        left = x - {"end": width, "middle": width / 2}.get(str(element.get("text-anchor")), 0.0)
        assert 0 <= left <= left + width <= layout.width + 8, text
        assert 0 < y < height
        places.append((element.get("x"), element.get("y")))
        shown += text.replace(" ", "")
    assert len(set(places)) == len(places)
    for text in (LONG.title, *(bar.name for bar in LONG.bars), *LONG.legend, *LONG.notes, LONG.x.label):
        assert text.replace(" ", "") in shown


def test_a_bar_in_the_terminal_has_a_letter_in_each_part() -> None:
    """Ten units over sixty columns: six columns a unit, the limit pointed at."""
    text = to_terminal(bars([5, 3, 2], limits=(("limit", 8.0),)), columns=60, plain=True)
    row, pointer = next(
        (line, below) for line, below in zip(text.splitlines(), text.splitlines()[1:], strict=False) if "A" in line
    )
    counts = Counter(row)
    assert (counts["#"] + counts["A"], counts["="] + counts["B"], counts["+"] + counts["C"]) == (30, 18, 12)
    assert row.index("A") < 30 <= row.index("B") < 48 <= row.index("C")
    assert pointer.index("^") == 48
    assert "A# part <0>, 5 GiB" in text
    assert "^ limit" in text


def drawn(argv: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], str]:
    """The result of a command, and the drawing of it."""
    target = tmp_path / "memory.svg"
    assert run([*argv, "--json", "--plot", str(target)]) == 0
    return json.loads(capsys.readouterr().out)["result"], target.read_text(encoding="utf-8")


def test_the_bar_of_a_budget_is_the_budget(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result, text = drawn(FITS, tmp_path, capsys)
    budget = result["budget"]
    zero, unit = axis_of(text)
    sizes = {
        part["title"].split(": ")[1].split(",")[0]: (part["right"] - part["left"]) / unit for part in parts_of(text)
    }
    for term in budget["terms"]:
        assert sizes.pop(term["name"], 0.0) == pytest.approx(term["bytes"] / GIB, abs=0.01)
    assert sizes.pop("free") == pytest.approx(budget["unclaimed_bytes"] / GIB, abs=0.01)
    assert not sizes
    end = max(part["right"] for part in parts_of(text))
    assert (end - zero) / unit == pytest.approx(budget["device_bytes"] / GIB, abs=0.01)


def test_what_one_request_lacks_reaches_beyond_the_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """16 GiB of cache for 131,072 tokens of 32 layers, 8 heads of 128, where 3 GiB are left."""
    result, text = drawn(TOO_LONG, tmp_path, capsys)
    zero, unit = axis_of(text)
    last = parts_of(text)[-1]
    assert "lacking" in last["css"]
    assert "device: lacking for one request" in last["title"]
    need = 2 * 2 * 8 * 128 * 32 * 131072
    caches = next(term["bytes"] for term in result["budget"]["terms"] if term["name"] == "caches")
    assert (last["right"] - last["left"]) / unit == pytest.approx((need - caches) / GIB, abs=0.02)
    assert (last["right"] - zero) / unit > result["budget"]["device_bytes"] / GIB


def test_each_stage_has_a_bar(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result, text = drawn(STAGES, tmp_path, capsys)
    assert Counter(part["title"].split(": ")[0] for part in parts_of(text)).keys() == {
        "stage 0, each of 8 ranks",
        "stage 1, each of 8 ranks",
    }
    for rank in result["ranks"]:
        budget = rank["budget"]
        assert sum(term["bytes"] for term in budget["terms"]) == budget["total_bytes"]
        assert budget["total_bytes"] + budget["unclaimed_bytes"] == budget["device_bytes"]
        weights = next(term["bytes"] for term in budget["terms"] if term["name"] == "weights")
        assert weights <= rank["weight_bytes"]
    (binding,) = [rank for rank in result["ranks"] if rank["rank"] == result["binding_rank"]]
    assert binding["budget"] == result["budget"]


@pytest.mark.parametrize("suffix", ["svg", "html", "png"])
def test_the_command_draws_into_files(suffix: str, tmp_path: Path) -> None:
    if suffix == "png":
        pytest.importorskip("cairosvg")
    target = tmp_path / f"memory.{suffix}"
    assert run([*FITS, "--plot", str(target)]) == 0
    data = target.read_bytes()
    assert data.startswith(b"\x89PNG") or b"activation peak" in data


def test_the_command_draws_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*TOO_LONG, "--plot", "-"]) == 0
    text = capsys.readouterr().out
    assert "lacking for one request, 13.00 GiB" in text
    assert "▲ l4, 22.04 GiB" in text


def test_a_known_pool_alone_has_a_bar_too(capsys: pytest.CaptureFixture[str]) -> None:
    """No device is named: there is no limit to draw, and no rest."""
    words = ["fit", "--model", "llama3.1-8b", "--available-kv-bytes", "5GiB", "--max-model-len", "8k", "--plot", "-"]
    assert run(words) == 0
    text = capsys.readouterr().out
    assert "caches, 5.00 GiB" in text
    assert "▲" not in text


def test_a_page_has_both_drawings() -> None:
    page = to_html(bars([1, 2]))
    assert page.count("<svg ") == 2
    assert "part &lt;0&gt;" in page
