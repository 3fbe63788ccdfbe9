"""The report of a calibration, as Markdown and as one HTML page with its plots inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from calibrate.profile_fit import FittedGroup, FittedProfile
from calibrate.samples import Recording, Sample
from capplan.describe.closed_loop import ERROR_LIMIT, NOISE_FACTOR, ClosedLoop
from capplan.describe.profile_table import KINDS
from capplan.report.charts import MARKS, Axis, Chart, Series
from capplan.report.svg import FIGURE_STYLE, PAGE_META, to_figure

_STYLE = (
    "body{font-family:sans-serif;max-width:66rem;margin:2rem auto;padding:0 1rem;line-height:1.4}"
    "div{overflow-x:auto}table{border-collapse:collapse;margin:1rem 0}"
    "td,th{border:1px solid #8888;padding:.2rem .5rem;text-align:right;white-space:nowrap}"
    "td:first-child,th:first-child{text-align:left}" + FIGURE_STYLE
)


@dataclass(frozen=True)
class Section:
    """A heading, some sentences, a table, plots; whatever is there."""

    title: str
    paragraphs: Sequence[str] = ()
    heading: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    plots: Sequence[Chart] = ()


def markdown(title: str, sections: Sequence[Section]) -> str:
    """The report as Markdown; plots are HTML's alone."""
    lines = [f"# {title}", ""]
    for section in sections:
        lines += [f"## {section.title}", ""]
        for paragraph in section.paragraphs:
            lines += [paragraph, ""]
        if section.rows:
            lines.append("| " + " | ".join(section.heading) + " |")
            lines.append("|---" + "|--:" * (len(section.heading) - 1) + "|")
            lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in section.rows]
            lines.append("")
    return "\n".join(lines)


def html(title: str, sections: Sequence[Section]) -> str:
    """The report as one page that needs nothing beside it."""
    parts = [f"<h1>{escape(title)}</h1>"]
    for number, section in enumerate(sections):
        parts.append(f"<h2>{escape(section.title)}</h2>")
        parts += [f"<p>{escape(paragraph)}</p>" for paragraph in section.paragraphs]
        parts += [to_figure(chart, f"plot-{number}-{place}") for place, chart in enumerate(section.plots)]
        if section.rows:
            parts += ["<div><table>", _html_row(section.heading, "th"), *(_html_row(row, "td") for row in section.rows)]
            parts.append("</table></div>")
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head>{PAGE_META}<title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )


def _html_row(cells: Sequence[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def report_sections(fitted: FittedProfile, recording: Recording, loop: ClosedLoop | None) -> list[Section]:
    """What a calibration has to say, in order of importance."""
    sections = [verdict(loop)] if loop else []
    sections += [
        rates(fitted),
        kernels(fitted.groups),
        constants(fitted.groups),
        memory_oracle(recording.samples),
        left_out(fitted),
        provenance(recording),
    ]
    return [section for section in sections if section.rows or section.paragraphs or section.plots]


def verdict(loop: ClosedLoop) -> Section:
    """Whole models that no fit saw: predicted and measured."""
    within = sum(row.within_noise for row in loop.rows)
    words = (
        f"The profile {'passed' if loop.passed else 'FAILED'} its check: the median error over {len(loop.rows)} phases "
        f"is {_percent(loop.median_error)}, the median noise of the repeats {_percent(loop.median_noise)}. It passes "
        f"with at most {_percent(ERROR_LIMIT)}, or at most {NOISE_FACTOR:g} times the noise. {within} phases are off "
        f"by no more than {NOISE_FACTOR:g} times their own noise; {sum(row.within_interval for row in loop.rows)} lie "
        "in their 80 % interval."
    )
    rows = [
        [
            f"{row.model} ({row.layers} layers)", row.phase, row.mode, f"{row.batch} x {row.prompt}",
            _time(row.measured), _time(row.predicted), f"{_time(row.low)} to {_time(row.high)}",
            f"{100 * row.error:+.1f} %", _percent(row.noise),
        ]
        for row in loop.rows
    ]  # fmt: skip
    heading = ["model", "phase", "mode", "load", "measured", "predicted", "80 % interval", "error", "noise"]
    return Section("Closed loop: models that no fit had seen", [words], heading, rows)


def rates(fitted: FittedProfile) -> Section:
    """The rates that efficiencies are shares of, with the roofline."""
    gpu = fitted.gpu
    rows = [["memory bandwidth", f"{gpu.memory.bandwidth / 1e9:,.1f} GB/s"]]
    rows += [[f"{name} products", f"{rate / 1e9:,.1f} GFLOP/s"] for name, rate in gpu.dense_rates.items()]
    return Section("Rates and roofline", [], ["rate", "value"], rows, roofline_plot(fitted))


def kernels(groups: Sequence[FittedGroup]) -> Section:
    """How good each fit is, on what it saw and on what it did not."""
    rows = []
    for group in groups:
        fit = group.fit.fit
        held_out = group.held_out
        rows.append([
            kernel_name(group), str(fit.points), _percent(_median_inside(group)), _percent(fit.residuals.unseen.median),
            _percent(fit.residuals.unseen.p90), "–" if held_out is None else _percent(held_out.median),
        ])  # fmt: skip
    heading = ["kernel", "points", "median, fitted", "median, unseen", "p90, unseen", "median, held out"]
    words = "Unseen: whole configurations (matrices, head counts) left out in turn. Held out: cases that no fit used."
    return Section("Kernels", [words], heading, rows, residual_plot(groups))


def constants(groups: Sequence[FittedGroup]) -> Section:
    """Every fitted constant with its interval."""
    rows = [
        [kernel_name(group), name, f"{value:.4g}", _interval(group, name)]
        for group in groups
        for name, value in vars(group.fit.fit.constants).items()
    ]
    words = "The interval is that of 80 % of fits to samples drawn again with replacement; times are in seconds."
    return Section("Constants", [words], ["kernel", "constant", "value", "80 % interval"], rows)


def memory_oracle(samples: Sequence[Sample]) -> Section:
    """Real cache tensors beside what capplan says of them."""
    rows = [
        [
            f"{sample.name} ({int(sample.shape['layers'])} layers)", str(sample.key["runner"]),
            f"{int(sample.shape['batch'])} x {int(sample.shape['prompt'] + sample.shape['new'] - 1)}",
            f"{int(sample.figures['cache_bytes']):,}", f"{int(sample.figures['expected_cache_bytes']):,}",
            *_peaks(sample),
        ]
        for sample in samples
        if sample.kind == "phase" and sample.key["phase"] == "prefill"
    ]  # fmt: skip
    heading = ["model", "runner", "sequences x tokens", "caches", "capplan kv", "peak", "capplan fit"]
    return Section("Bytes of real tensors", [], heading, rows)


def _peaks(sample: Sample) -> list[str]:
    """The peak allocation, where the device tells, and what the terms of ``capplan fit`` say."""
    figures = sample.figures
    peak = f"{figures['peak_bytes'] / 2**20:,.0f} MiB" if figures["peak_bytes"] else "–"
    low, high = (figures.get(f"expected_peak_bytes_{end}", 0) / 2**20 for end in ("low", "high"))
    return [peak, f"{low:,.0f} to {high:,.0f} MiB" if high else "–"]


def left_out(fitted: FittedProfile) -> Section:
    """What could not be fitted, and what was measured wrong."""
    words = [f"Not fitted: {reason}" for reason in fitted.refused]
    words += [f"Wrong, and used nowhere: {sample.identity}: {sample.problem}" for sample in fitted.wrong]
    return Section("Left out", words)


def provenance(recording: Recording) -> Section:
    """Device, driver, software, and how disturbed the measurements were."""
    rows = [[name.replace("_", " "), value] for name, value in recording.provenance.items()]
    repeats = sum(len(sample.repeats) for sample in recording.samples)
    marked = sum(len(sample.marked) for sample in recording.samples)
    rows += [["samples", str(len(recording.samples))], ["repeats", str(repeats)], ["of them marked", str(marked)]]
    for name in sorted({key for sample in recording.samples for key in sample.conditions}):
        values = [sample.conditions[name] for sample in recording.samples if name in sample.conditions]
        rows.append([name, f"{min(values):g} to {max(values):g}"])
    return Section("Provenance", [], ["what", "value"], rows)


def roofline_plot(fitted: FittedProfile) -> list[Chart]:
    """FLOP/s over FLOPs a byte, with the roof of the fastest format; none where nothing multiplies."""
    series: list[Series] = []
    for group in fitted.groups:
        points = [(s.flops / s.bytes, s.flops / s.seconds) for s in group.samples.samples if s.flops and s.bytes]
        if points:
            series.append(_scatter(group, points, len(series)))
    if not series:
        return []
    bandwidth, peak = fitted.gpu.memory.bandwidth, max(fitted.gpu.dense_rates.values())
    across = [x for one in series for x, _ in one.points]
    ridge = peak / bandwidth
    first, last = min(*across, ridge), max(*across, ridge)
    roof = Series("roof", [(first, first * bandwidth), (ridge, peak), (last, peak)])
    return [Chart("Roofline", Axis("FLOPs a byte", log=True), Axis("FLOP/s", log=True), [*series, roof])]


def residual_plot(groups: Sequence[FittedGroup]) -> list[Chart]:
    """measured/predicted over measured seconds, of the points in the fits."""
    series: list[Series] = []
    for group in groups:
        seconds = (sample.seconds for sample in _fitted_samples(group))
        series.append(_scatter(group, list(zip(seconds, group.fit.ratios, strict=False)), len(series)))
    places = [x for one in series for x, _ in one.points]
    if not places:
        return []
    line = Series("right", [(min(places), 1.0), (max(places), 1.0)], faint=True)
    x, y = Axis("measured seconds", log=True), Axis("measured / predicted", log=True)
    return [Chart("Residuals", x, y, [*series, line])]


def _scatter(group: FittedGroup, points: list[tuple[float, float]], number: int) -> Series:
    return Series(kernel_name(group).replace("_", " "), points, line=False, mark=MARKS[number % len(MARKS)])


def _fitted_samples(group: FittedGroup) -> list[Sample]:
    return [sample for sample in group.samples.samples if not sample.held_out]


def kernel_name(group: FittedGroup) -> str:
    """A fitted kernel in words: its name, formats and sizes."""
    fit = group.fit.fit
    kind = KINDS[fit.kind]
    parts = [str(getattr(fit.key, name)) for name in kind.keys if name not in ("engine", "version")]
    return " ".join(part for part in parts if part and part != "0")


def _median_inside(group: FittedGroup) -> float:
    errors = sorted(abs(1 / ratio - 1) for ratio in group.fit.ratios)
    return errors[len(errors) // 2] if errors else 0.0


def _interval(group: FittedGroup, name: str) -> str:
    if name in group.fit.held:
        return "held"
    found = group.fit.intervals.get(name)
    return f"{found[0]:.3g} to {found[1]:.3g}" if found else "–"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:,.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:,.1f} µs"
