"""How the answers of calibrating look."""

from __future__ import annotations

from capplan.questions.answer import Answer
from capplan.questions.calibrate import (
    CalibrationResult,
    CheckResult,
    EndpointResult,
    ImportResult,
    KernelImportResult,
    PhaseCheck,
    PhasesResult,
)
from capplan.report.tables import Column, Facts, Section, Table, View
from capplan.report.units import show_bytes

_PHASE_COLUMNS = (
    Column("model", "model"),
    Column("layers", "layers", "integer"),
    Column("phase", "phase"),
    Column("mode", "mode"),
    Column("batch", "batch", "integer"),
    Column("prompt", "prompt", "integer"),
    Column("measured", "measured", "seconds"),
    Column("predicted", "predicted", "seconds"),
    Column("low", "predicted_low", "seconds"),
    Column("high", "predicted_high", "seconds"),
    Column("error", "error", "percent"),
    Column("noise", "noise", "percent"),
)


def calibration_view(answer: Answer[CalibrationResult]) -> View:
    """The verdict, the closed loop, the kernels, the files."""
    result = answer.result
    verdict = "not checked"
    if result.check is not None:
        verdict = _verdict(result.check)
    sections: list[Section] = []
    if result.check is not None:
        sections.append(_phases(result.check.phases))
    columns = [
        Column("kernel", "kernel"),
        Column("points", "points", "integer"),
        Column("median, fitted", "median_error", "percent"),
        Column("median, unseen", "unseen_median_error", "percent"),
        Column("median, held out", "held_out_median_error", "percent"),
    ]
    rows = [
        [one.kernel, one.points, one.median_error, one.unseen_median_error, one.held_out_median_error]
        for one in result.kernels
    ]
    sections.append(Table(columns, rows, title="Kernels"))
    skipped = [("skipped", text) for text in result.check.skipped] if result.check else []
    skipped += [("not fitted", text) for text in result.refused]
    sections.append(Facts([*skipped, *(("written", file) for file in result.files)]))
    return View(f"{result.device}: {result.samples} samples, {verdict}", sections)


def check_view(answer: Answer[CheckResult]) -> View:
    """The verdict and every phase."""
    result = answer.result
    notes = [("skipped", text) for text in result.skipped]
    notes += [("written", file) for file in result.files]
    return View(_verdict(result), (_phases(result.phases), Facts(notes)))


def _verdict(result: CheckResult) -> str:
    word = "passed its check" if result.passed else "FAILED its check"
    return f"{word}: median error {100 * result.median_error:.1f} %, noise {100 * result.median_noise:.1f} %"


def _phases(phases: tuple[PhaseCheck, ...]) -> Table:
    rows = [[getattr(phase, column.name) for column in _PHASE_COLUMNS] for phase in phases]
    return Table(_PHASE_COLUMNS, rows, title="Models that no fit had seen")


def phases_view(answer: Answer[PhasesResult]) -> View:
    """TTFT, TPOT, throughput, and the bytes of the caches."""
    result = answer.result
    layers = f"{result.layers} layers, {result.runner}, {result.mode}"
    same = "equal" if result.cache_bytes == result.expected_cache_bytes else "DIFFERENT"
    facts = [
        ("input tokens", f"{result.batch} x {result.input_tokens:,}"),
        ("output tokens", f"{result.batch} x {result.output_tokens:,}"),
        ("TTFT", _spread(result.median_ttft_ms, result.median_ttft_ms_low, result.median_ttft_ms_high)),
        ("TPOT", _spread(result.median_tpot_ms, result.median_tpot_ms_low, result.median_tpot_ms_high)),
        ("throughput", f"{result.output_throughput:,.1f} output tokens/s"),
        ("weights", show_bytes(result.weight_bytes)),
        ("cache", f"{result.cache_bytes:,} bytes; capplan kv: {result.expected_cache_bytes:,} ({same})"),
    ]
    low, high = show_bytes(result.expected_peak_bytes_low), show_bytes(result.expected_peak_bytes_high)
    facts.append(("expected peak", f"{show_bytes(result.expected_peak_bytes)} ({low} to {high})"))
    if result.peak_bytes is not None:
        facts.append(("peak allocation", show_bytes(result.peak_bytes)))
    if result.predicted_ttft_ms is not None:
        facts.append(("predicted TTFT", f"{result.predicted_ttft_ms:,.2f} ms"))
    if result.predicted_tpot_ms is not None:
        facts.append(("predicted TPOT", f"{result.predicted_tpot_ms:,.2f} ms"))
    return View(f"{result.model} ({layers})", (Facts(facts),))


def _spread(value: float, low: float, high: float) -> str:
    return f"{value:,.2f} ms ({low:,.2f} to {high:,.2f})"


def endpoint_view(answer: Answer[EndpointResult]) -> View:
    """One row a load."""
    result = answer.result
    columns = [
        Column("prefix", "prefix"),
        Column("concurrency", "concurrency", "integer"),
        Column("rate", "request_rate", "number"),
        Column("done", "completed", "integer"),
        Column("failed", "failed", "integer"),
        Column("requests/s", "request_throughput", "ratio"),
        Column("output tokens/s", "output_throughput", "ratio"),
    ]
    names = ("median_ttft_ms", "p99_ttft_ms", "median_tpot_ms", "median_itl_ms", "p99_itl_ms", "median_e2el_ms")
    columns += [Column(name.replace("_", " "), name, "ratio") for name in names]
    rows = [
        [
            level.prefix, level.concurrency, level.request_rate, level.completed, level.failed,
            level.request_throughput, level.output_throughput, *(level.metrics.get(name) for name in names),
        ]
        for level in result.levels
    ]  # fmt: skip
    sections: list[Section] = [Table(columns, rows)]
    predicted = [
        (f"predicted at {level.concurrency or level.request_rate}", f"{name} {value:,.2f}")
        for level in result.levels
        for name, value in (level.predicted or {}).items()
    ]
    errors = [("failed", text) for level in result.levels for text in level.errors]
    facts = [*predicted, *errors]
    if result.warm_over_cold_ttft is not None:
        facts.append(("warm prefix", f"TTFT is {result.warm_over_cold_ttft:.2f} of a cold one's"))
    if facts:
        sections.append(Facts(facts))
    return View(f"{result.model} at {result.url}", sections)


def import_view(answer: Answer[ImportResult]) -> View:
    """The fitted terms, and every figure beside them."""
    result = answer.result
    terms = Table(
        [Column("term", "name"), Column("value", "value", "number"), Column("low", "low", "number"),
         Column("high", "high", "number")],
        [[term.name, term.value, term.low, term.high] for term in result.terms],
        title="Fitted terms",
    )  # fmt: skip
    figures = Table(
        [Column("file", "file"), Column("tool", "tool"), Column("figure", "metric"),
         Column("measured", "measured", "number"), Column("predicted", "predicted", "number")],
        [[one.file, one.tool, one.metric, one.measured, one.predicted] for one in result.comparisons],
        title="Measured and predicted",
    )  # fmt: skip
    notes = [("not used", text) for text in result.unused] + [("written", file) for file in result.files]
    headline = f"{result.engine}: {result.runs} runs, median error {100 * result.median_error:.1f} %"
    return View(headline, (terms, figures, Facts(notes)))


def kernel_import_view(answer: Answer[KernelImportResult]) -> View:
    """How many kernels were fitted, and what was left out."""
    result = answer.result
    facts = [(f"left out: {rule}", f"{count:,} rows") for rule, count in result.left_out.items()]
    facts += [("not fitted", text) for text in result.refused]
    facts += [("written", file) for file in result.files]
    return View(f"{result.device}: {result.fits} kernels of {result.points:,} measured points", (Facts(facts),))
