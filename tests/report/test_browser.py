"""Charts in a real browser, where there is one: its own measures say that every word is in the picture and readable."""

from __future__ import annotations

import html
import json
import re
import shutil
import struct
import subprocess
import zlib
from pathlib import Path
from typing import Any

import pytest

from calibrate.report import Section
from calibrate.report import html as report
from capplan.cli.app import run
from capplan.report.charts import Axis, Chart, Series
from capplan.report.svg import to_html

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--force-device-scale-factor=1",
)  # fmt: skip
PATIENCE = 60
LEAST_LETTERS = 9.0
"""Pixels of the smallest letters."""

MEASURE = """<script>
const shown = [...document.querySelectorAll("svg text")].filter(text => text.getClientRects().length);
const words = shown.map(text => {
  const place = text.getBoundingClientRect(), svg = text.ownerSVGElement, frame = svg.getBoundingClientRect();
  const size = parseFloat(getComputedStyle(text).fontSize) * frame.width / svg.viewBox.baseVal.width;
  return {text: text.textContent, left: place.left, right: place.right, top: place.top, bottom: place.bottom, size,
          svg: svg.classList[0], frame: [frame.left, frame.right, frame.top, frame.bottom]};
});
const page = {width: innerWidth, scrolled: document.documentElement.scrollWidth, words,
              ground: getComputedStyle(document.querySelector("svg .ground")).fill};
parent.document.getElementById("told").textContent = JSON.stringify(page);
</script></body>"""

WORST = Chart(
    "a title that is so long that it has to go on in a second line, and on a narrow screen in a third and a fourth",
    Axis("tokens a month", log=True),
    Axis("WWWWWWW, $ a month", log=True),
    [
        Series(
            f"WIDE-{place}-MMMMMMM-Instruct at some provider", [(3e9, 2.0**place), (2e11, 3.0**place)], mark="square"
        )
        for place in range(1, 24)
    ],
    ["a note with a few words"],
)
DENSE = Chart(
    "narrow ranges",
    Axis("x", log=True),
    Axis("y"),
    [Series("points", [(1.1, 0.00123), (890.0, 0.00124)], line=False, mark="diamond")],
)


def browse(browser: str, folder: Path, *arguments: str) -> bytes:
    """What the browser prints, with a profile of its own."""
    command = [browser, *FLAGS, f"--user-data-dir={folder / 'profile'}", *arguments]
    return subprocess.run(command, capture_output=True, timeout=PATIENCE, check=True).stdout


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> str:
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no browser is installed")
    try:
        answer = browse(found, tmp_path_factory.mktemp("try"), "--dump-dom", "data:text/html,<p>here</p>")
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"the browser does not start: {error}")
    if b"here" not in answer:
        pytest.skip("the browser answers nothing")
    return found


def measured(browser: str, folder: Path, text: str, width: int, *flags: str) -> dict[str, Any]:
    """What the page shows in a frame of a width: windows cannot be as narrow as a telephone."""
    page = folder / "framed.html"
    inner = html.escape(text.replace("</body>", MEASURE))
    page.write_text(
        '<!doctype html><meta charset="utf-8"><meta name="color-scheme" content="light dark"><pre id="told"></pre>'
        f'<iframe width="{width}" height="900" style="border:0" srcdoc="{inner}"></iframe>',
        encoding="utf-8",
    )
    out = browse(browser, folder, "--dump-dom", *flags, page.as_uri()).decode()
    told = re.search(r'<pre id="told">(.*?)</pre>', out, re.S)
    assert told is not None
    found: dict[str, Any] = json.loads(html.unescape(told[1]))
    return found


def apart(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two texts share no place, but for the empty edges of their lines."""
    across = min(one["right"], other["right"]) - max(one["left"], other["left"])
    down = min(one["bottom"], other["bottom"]) - max(one["top"], other["top"])
    return across <= 1 or down <= 4


def readable(page: dict[str, Any], width: int, layout: str) -> str:
    """All words of a page, which are in their picture, apart from one another and large enough."""
    assert page["width"] == width
    assert page["scrolled"] <= width
    words = page["words"]
    assert {word["svg"] for word in words} == {layout}
    for place, word in enumerate(words):
        left, right, top, bottom = word["frame"]
        assert left - 1 <= word["left"] < word["right"] <= right + 1, word
        assert top - 1 <= word["top"] < word["bottom"] <= bottom + 1, word
        assert word["size"] >= LEAST_LETTERS, word
        assert all(apart(word, other) for other in words[:place]), word
    return "".join(word["text"] for word in words).replace(" ", "")


@pytest.mark.parametrize("chart", [WORST, DENSE])
@pytest.mark.parametrize(("width", "layout"), [(1280, "wide"), (700, "wide"), (420, "narrow")])
def test_every_word_is_readable(browser: str, tmp_path: Path, chart: Chart, width: int, layout: str) -> None:
    shown = readable(measured(browser, tmp_path, to_html(chart), width), width, layout)
    for text in (chart.title, chart.x.label, chart.y.label, *(series.name for series in chart.series), *chart.notes):
        assert text.replace(" ", "") in shown


SERVED = ["--model", "llama3.1-8b", "--gpu", "h100", "--isl", "512", "--osl", "64"]


@pytest.mark.parametrize(
    ("command", "word"),
    [
        (["cost", *SERVED, "--concurrency", "8", "--requests-per-day", "90000", "--on", "2026-11-30"], "thisload"),
        (["plan", *SERVED, "--request-rate", "50", "--ttft", "1s", "--on", "2026-11-30"], "TTFTatmost1000ms"),
        (["sweep", *SERVED, "--concurrency", "1:64", "--on", "2026-11-30"], "h100-sxm-80gb"),
        (["roofline", "--model", "llama3.1-8b", "--gpu", "h100"], "roof,bf16"),
        (["fit", "--model", "deepseek-v3", "--gpu", "h200", "-tp", "8", "-pp", "2"], "stage1,eachof8ranks"),
        (["fit", "--model", "llama3.1-8b", "--gpu", "l4"], "lackingforonerequest,13.00GiB"),
        (["simulate", *SERVED, "--concurrency", "8", "--requests", "40"], "running"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_the_page_of_each_command_is_readable(browser: str, tmp_path: Path, command: list[str], word: str) -> None:
    page = tmp_path / "page.html"
    assert run([*command, "--plot", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    for width, layout in ((1280, "wide"), (420, "narrow")):
        assert word in readable(measured(browser, tmp_path, text, width), width, layout)


@pytest.mark.parametrize(("width", "layout"), [(1280, "wide"), (420, "narrow")])
def test_the_report_of_a_calibration_is_readable(browser: str, tmp_path: Path, width: int, layout: str) -> None:
    """Two charts on one page, and a table wider than a telephone, which scrolls by itself."""
    row = ["a kernel with a long name", *["1,234.56 ms"] * 9]
    section = Section("Kernels", ["Some words."], row, [row] * 3, [DENSE, WORST])
    shown = readable(measured(browser, tmp_path, report("A device", [section]), width), width, layout)
    assert "narrowranges" in shown
    assert "atitlethatissolong" in shown


def test_the_ground_follows_the_reader(browser: str, tmp_path: Path) -> None:
    grounds = [
        measured(browser, tmp_path, to_html(DENSE), 1280, f"--blink-settings=preferredColorScheme={scheme}")["ground"]
        for scheme in (1, 0)
    ]
    assert grounds == ["rgb(255, 255, 255)", "rgb(18, 22, 28)"]


def test_the_picture_is_not_blank(browser: str, tmp_path: Path) -> None:
    page, picture = tmp_path / "page.html", tmp_path / "picture.png"
    page.write_text(to_html(WORST), encoding="utf-8")
    browse(browser, tmp_path, f"--screenshot={picture}", "--window-size=1280,900", page.as_uri())
    data = picture.read_bytes()
    assert struct.unpack(">II", data[16:24]) == (1280, 900)
    assert len(colours(data)) > 100


def colours(png: bytes) -> set[bytes]:
    """The different bytes of a picture's rows: one picture of one colour has hardly any."""
    at, rows = 8, b""
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at : at + 8])
        rows += png[at + 8 : at + 8 + size] if kind == b"IDAT" else b""
        at += size + 12
    return {bytes([value]) for value in zlib.decompress(rows)}
