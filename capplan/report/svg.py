"""A chart as SVG: one file that needs nothing else, readable on light and on dark ground; or as a page for any width.

Colours are chosen by the reader's own setting (``prefers-color-scheme``); the palette keeps its order apart for the
colour-blind and in grey.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from capplan.report.charts import (
    Axis,
    Bar,
    BarChart,
    Chart,
    Drawing,
    Mark,
    Part,
    Scale,
    Series,
    scales,
    show_tick,
)
from capplan.report.frame import (
    BAR,
    BAR_SHARE,
    LINE,
    NARROW,
    SWATCH,
    TITLE_LINE,
    WIDE,
    Entry,
    Frame,
    Layout,
    bars_frame_of,
    frame_of,
    text_width,
)

LIGHT = ("#0b62c4", "#c2510c", "#0f7b5f", "#8a3ab9", "#b3123e", "#6b6300", "#4a5568", "#00788a")
DARK = ("#6db3ff", "#ffab5e", "#52d6a8", "#cf9cff", "#ff7d97", "#d6cb4a", "#a9b6c8", "#4fd3e4")

LACKING = 4
"""The colour of what is not there."""

PAGE_META = (
    '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    '<meta name="color-scheme" content="light dark">'
)
"""What the head of a page says first: its encoding, that it fits any screen, that it follows the reader's setting."""

FIGURE_STYLE = (
    "svg{width:100%;height:auto}svg.narrow{display:none}"
    "@media (max-width:640px){body{margin:.5rem auto;padding:0 .25rem}svg.wide{display:none}svg.narrow{display:block}}"
    "@media (prefers-color-scheme:dark){body{background:#12161c;color:#e8ecf1}}"
)
"""Of the two drawings of a chart a page shows the one that fits the screen; letters keep their size."""

_STYLE = """
.ground{{fill:#ffffff}} .ink{{fill:#1a202c}} .soft{{fill:#5a6472}} .axis{{stroke:#1a202c;stroke-width:1}}
.grid{{stroke:#dfe3e8;stroke-width:1}} .minor{{stroke:#eef0f3;stroke-width:1}}
text{{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;font-size:12.5px}}
.title{{font-size:16px;font-weight:600}} .line{{fill:none;stroke-width:2.2;stroke-linejoin:round}}
.on{{fill:#ffffff}} .left{{fill:none;stroke:#5a6472;stroke-width:1;stroke-dasharray:3 3}}
.lacking{{fill-opacity:.2;stroke-width:1.4;stroke-dasharray:5 3}} .again{{fill-opacity:.6}}
.limit{{stroke:#1a202c;stroke-width:1.6;stroke-dasharray:6 4}}
.faint{{stroke-dasharray:6 4;stroke-width:1.6}} .band{{stroke:none;fill-opacity:.16}} .mark{{stroke-width:1.2}}
{light}
@media (prefers-color-scheme:dark){{
.ground{{fill:#12161c}} .ink{{fill:#e8ecf1}} .soft{{fill:#a3adba}} .axis{{stroke:#e8ecf1}} .grid{{stroke:#2b323c}}
.minor{{stroke:#1e242c}} .on{{fill:#12161c}} .left{{stroke:#a3adba}} .limit{{stroke:#e8ecf1}}
{dark}
}}"""


def to_svg(chart: Drawing, layout: Layout = WIDE, *, dark: bool | None = None, name: str = "plot") -> str:
    """The chart as the text of an SVG file.

    Args:
        chart: what to draw.
        layout: the arrangement.
        dark: fix the ground instead of following the reader's setting.
        name: tells drawings on one page apart.

    Raises:
        ValueError: there is nothing to draw.
    """
    if isinstance(chart, BarChart):
        frame = bars_frame_of(chart, chart.scale, layout)
        described, drawn = chart.x.label, _bars_body(chart, frame)
    else:
        x, y = scales(chart)
        frame = frame_of(chart, x, y, layout)
        described, drawn = (
            f"{chart.y.label} over {chart.x.label}",
            _lines_body(chart, frame, x, y, f"{name}-{layout.name}"),
        )
    width, height = layout.width, f"{frame.height:.0f}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        f' class="{layout.name}" role="img">',
        f"<title>{escape(chart.title)}</title>",
        f"<desc>{escape(described)}</desc>",
        f"<style>{_style(dark)}</style>",
        f'<rect class="ground" width="{width}" height="{height}"/>',
        *_title(frame),
        *drawn,
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _lines_body(chart: Chart, frame: Frame, x: Scale, y: Scale, clip: str) -> Iterator[str]:
    """Grid, axes, lines and points, legend."""
    yield from _grid(frame, x, y)
    yield from _labels(chart, frame, x, y)
    yield (
        f'<clipPath id="{clip}"><rect x="{frame.left - 6:.1f}" y="{frame.top - 6:.1f}"'
        f' width="{frame.right - frame.left + 12:.1f}" height="{frame.bottom - frame.top + 12:.1f}"/></clipPath>'
    )
    yield f'<g clip-path="url(#{clip})">'
    for index, series in enumerate(chart.series):
        yield from _series(series, index, frame, x, y)
    yield "</g>"
    yield from _legend(chart, frame)


def to_figure(chart: Drawing, name: str = "plot") -> str:
    """The chart twice, for a page with `FIGURE_STYLE`: on a narrow screen the legend stands below.

    Args:
        chart: what to draw.
        name: tells the charts of one page apart.
    """
    return to_svg(chart, name=name) + to_svg(chart, NARROW, name=name)


def to_html(chart: Drawing) -> str:
    """The chart as a page of its own."""
    return (
        f'<!doctype html>\n<html lang="en"><head>{PAGE_META}<title>{escape(chart.title)}</title>'
        f"<style>body{{margin:2rem auto;max-width:56rem;padding:0 1rem}}{FIGURE_STYLE}</style></head><body>\n"
        f"{to_figure(chart)}</body></html>\n"
    )


def _style(dark: bool | None) -> str:
    def colours(palette: tuple[str, ...]) -> str:
        return " ".join(
            f".s{index}{{stroke:{colour}}} .f{index}{{fill:{colour}}}" for index, colour in enumerate(palette)
        )

    text = _STYLE.format(light=colours(LIGHT), dark=colours(DARK))
    start = text.index("@media")
    if dark is None:
        return text
    if not dark:
        return text[:start]
    return text[:start] + text[text.index("{", start) + 1 : text.rindex("}")]


def _title(frame: Frame) -> Iterator[str]:
    for number, line in enumerate(frame.title):
        at = 26 + TITLE_LINE * number
        yield f'<text class="ink title" x="{frame.left:.1f}" y="{at}">{escape(line)}</text>'


def _grid(frame: Frame, x: Scale, y: Scale | None) -> Iterator[str]:
    top, bottom, left, right = frame.top, frame.bottom, frame.left, frame.right
    minor: list[float] = y.minor_ticks() if y is not None else []
    rows = (("minor", x.minor_ticks(), minor), ("grid", frame.x_ticks, frame.y_ticks))
    for css, xs, ys in rows:
        for value in xs:
            at = frame.across(x.place(value))
            yield f'<line class="{css}" x1="{at:.1f}" x2="{at:.1f}" y1="{top:.1f}" y2="{bottom:.1f}"/>'
        for place in [y.place(value) for value in ys] if y is not None else ():
            at = frame.down(place)
            yield f'<line class="{css}" x1="{left:.1f}" x2="{right:.1f}" y1="{at:.1f}" y2="{at:.1f}"/>'
    yield f'<line class="axis" x1="{left:.1f}" x2="{right:.1f}" y1="{bottom:.1f}" y2="{bottom:.1f}"/>'
    yield f'<line class="axis" x1="{left:.1f}" x2="{left:.1f}" y1="{top:.1f}" y2="{bottom:.1f}"/>'


def _labels(chart: Chart, frame: Frame, x: Scale, y: Scale) -> Iterator[str]:
    yield from _x_labels(chart.x, frame, x)
    for value in frame.y_ticks:
        at, before = frame.down(y.place(value)) + 4, frame.left - 8
        yield f'<text class="soft" x="{before:.1f}" y="{at:.1f}" text-anchor="end">{show_tick(value)}</text>'
    yield (
        f'<text class="ink" transform="translate(18 {frame.down(0.5):.1f}) rotate(-90)" text-anchor="middle">'
        f"{escape(chart.y.label)}</text>"
    )


def _x_labels(axis: Axis, frame: Frame, x: Scale) -> Iterator[str]:
    for value in frame.x_ticks:
        at, below = frame.across(x.place(value)), frame.bottom + 18
        yield f'<text class="soft" x="{at:.1f}" y="{below:.1f}" text-anchor="middle">{show_tick(value)}</text>'
    middle, below = frame.across(0.5), frame.bottom + 46
    yield f'<text class="ink" x="{middle:.1f}" y="{below:.1f}" text-anchor="middle">{escape(axis.label)}</text>'


def _series(series: Series, index: int, frame: Frame, x: Scale, y: Scale) -> Iterator[str]:
    colour = index % len(LIGHT)

    def path(points: Sequence[tuple[float, float]]) -> str:
        held = [(x.place(a), y.place(b)) for a, b in points if x.holds(a) and y.holds(b)]
        return " ".join(f"{frame.across(a):.1f},{frame.down(b):.1f}" for a, b in held)

    if series.band:
        upper = [(a, high) for a, _, high in series.band]
        lower = [(a, low) for a, low, _ in reversed(series.band)]
        yield f'<polygon class="band f{colour}" points="{path([*upper, *lower])}"/>'
    if series.line and len(series.points) > 1:
        css = "line faint" if series.faint else "line"
        yield f'<polyline class="{css} s{colour}" points="{path(series.points)}"/>'
    if series.mark == "none":
        return
    for number, (a, b) in enumerate(series.points):
        if not (x.holds(a) and y.holds(b)):
            continue
        label = series.labels[number] if number < len(series.labels) else ""
        words = f"{series.name}: {label}" if label else series.name
        mark = series.marks[number] if number < len(series.marks) else series.mark
        yield _mark(mark, frame.across(x.place(a)), frame.down(y.place(b)), colour, words)


def _mark(mark: Mark, a: float, b: float, colour: int, words: str = "", size: float = 4.6) -> str:
    """One mark, with words that a reader sees when pointing at it."""
    shapes = {
        "circle": f'<circle cx="{a:.1f}" cy="{b:.1f}" r="{size * 0.92:.1f}"',
        "square": f'<rect x="{a - size * 0.85:.1f}" y="{b - size * 0.85:.1f}" width="{size * 1.7:.1f}"'
        f' height="{size * 1.7:.1f}"',
        "diamond": _corners([(a, b - size * 1.25), (a + size * 1.25, b), (a, b + size * 1.25), (a - size * 1.25, b)]),
        "triangle": _corners([(a, b - size * 1.2), (a + size * 1.1, b + size * 0.8), (a - size * 1.1, b + size * 0.8)]),
        "cross": f'<path d="M{a - size:.1f} {b - size:.1f}L{a + size:.1f} {b + size:.1f}'
        f'M{a - size:.1f} {b + size:.1f}L{a + size:.1f} {b - size:.1f}"',
    }
    shape = f'{shapes[mark]} class="mark s{colour} f{colour}" fill-opacity=".82"'
    return f"{shape}><title>{escape(words)}</title></{shape[1:].split(' ')[0]}>" if words else f"{shape}/>"


def _corners(points: list[tuple[float, float]]) -> str:
    return '<polygon points="' + " ".join(f"{a:.1f},{b:.1f}" for a, b in points) + '"'


def _legend(chart: Chart, frame: Frame) -> Iterator[str]:
    for entry in frame.legend:
        left, css = entry.x, "soft"
        if entry.series is not None:
            series, colour, at = chart.series[entry.series], entry.series % len(LIGHT), entry.y
            if series.line:
                stroke = "line faint" if series.faint else "line"
                yield f'<line class="{stroke} s{colour}" x1="{left}" x2="{left + 22}" y1="{at:.1f}" y2="{at:.1f}"/>'
            if series.mark != "none":
                yield _mark(series.mark, left + 11, at, colour)
            left, css = left + SWATCH, "ink"
        yield from _entry_lines(entry, left, css)


def _entry_lines(entry: Entry, left: float, css: str) -> Iterator[str]:
    for number, line in enumerate(entry.lines):
        at = entry.y + 4 + LINE * number
        yield f'<text class="{css}" x="{left:.1f}" y="{at:.1f}">{escape(line)}</text>'


def _bars_body(chart: BarChart, frame: Frame) -> Iterator[str]:
    """Bars with their names, the lines of limits across them, legend."""
    x, row = chart.scale, (frame.bottom - frame.top) / len(chart.bars)
    looks, height = _looks(chart), min(BAR, BAR_SHARE * row)
    yield from _grid(frame, x, None)
    yield from _x_labels(chart.x, frame, x)
    for number, (bar, lines) in enumerate(zip(chart.bars, frame.rows, strict=True)):
        middle = frame.top + row * (number + 0.5)
        for place, line in enumerate(lines):
            at = middle + 4 + LINE * (place - (len(lines) - 1) / 2)
            yield f'<text class="ink" x="{frame.left - 8:.1f}" y="{at:.1f}" text-anchor="end">{escape(line)}</text>'
        end = 0.0
        for part in bar.parts:
            if part.value > 0:
                start, end = end, end + part.value
                places = frame.across(x.place(start)), frame.across(x.place(end))
                yield from _part(bar, part, looks[part.name], (*places, middle - height / 2, middle + height / 2))
    for _, value in chart.limits:
        at = frame.across(x.place(value))
        yield f'<line class="limit" x1="{at:.1f}" x2="{at:.1f}" y1="{frame.top - 4:.1f}" y2="{frame.bottom:.1f}"/>'
    yield from _bars_legend(chart, frame, looks)


def _looks(chart: BarChart) -> dict[str, str]:
    """The classes of each part by its name: colours in order, fainter where they come round again."""
    solid = [part.name for part in chart.kinds if part.look == "solid"]
    colours = [index for index in range(len(LIGHT)) if index != LACKING]
    looks = {part.name: "left" if part.look == "free" else f"lacking s{LACKING} f{LACKING}" for part in chart.kinds}
    for number, name in enumerate(solid):
        again = " again" if number >= len(colours) else ""
        looks[name] = f"f{colours[number % len(colours)]}{again}"
    return looks


def _part(bar: Bar, part: Part, css: str, place: tuple[float, float, float, float]) -> Iterator[str]:
    """A part from left to right and from its upper to its lower edge, with its value where there is room."""
    left, right, top, bottom = place
    words = "; ".join(text for text in (f"{bar.name}: {part.name}, {part.shown}", part.words) if text)
    size = f'width="{right - left:.2f}" height="{bottom - top:.1f}"'
    yield f'<rect class="part {css}" x="{left:.2f}" y="{top:.1f}" {size}>'
    yield f"<title>{escape(words)}</title></rect>"
    text = f"{part.value:.3g}"
    if text_width(text) + 8 <= right - left:
        ink = "on" if part.look == "solid" else "ink"
        across, down = (left + right) / 2, (top + bottom) / 2 + 4.5
        yield f'<text class="{ink}" x="{across:.1f}" y="{down:.1f}" text-anchor="middle">{text}</text>'


def _bars_legend(chart: BarChart, frame: Frame, looks: dict[str, str]) -> Iterator[str]:
    kinds = chart.kinds
    for entry in frame.legend:
        left, css, at = entry.x, "soft", entry.y
        if entry.series is not None:
            if entry.series < len(kinds):
                look = looks[kinds[entry.series].name]
                yield f'<rect class="part {look}" x="{left + 4:.1f}" y="{at - 6:.1f}" width="15" height="12"/>'
            else:
                yield f'<line class="limit" x1="{left}" x2="{left + 22}" y1="{at:.1f}" y2="{at:.1f}"/>'
            left, css = left + SWATCH, "ink"
        yield from _entry_lines(entry, left, css)
