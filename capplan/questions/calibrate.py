"""What came of measuring this machine, a server, or a benchmark's files? The answers that `calibrate` fills in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KernelQuality:
    """One fitted kernel.

    Args:
        kernel: its name and formats.
        points: samples in the fit.
        median_error: of the points in the fit.
        unseen_median_error: on whole configurations left out.
        held_out_median_error: on cases that no fit used; None where there are none.
    """

    kernel: str
    points: int
    median_error: float
    unseen_median_error: float
    held_out_median_error: float | None


@dataclass(frozen=True)
class PhaseCheck:
    """One phase of one model that no fit had seen.

    Args:
        model: its name.
        layers: how many of its layers were run.
        phase: prefill or decode.
        mode: how kernels were launched.
        batch: sequences.
        prompt: tokens of each prompt.
        measured: seconds.
        predicted: seconds.
        predicted_low: of the 80 % interval.
        predicted_high: of the 80 % interval.
        error: predicted/measured − 1.
        noise: of the repeats, as a share.
    """

    model: str
    layers: int
    phase: str
    mode: str
    batch: int
    prompt: int
    measured: float
    predicted: float
    predicted_low: float
    predicted_high: float
    error: float
    noise: float


@dataclass(frozen=True)
class CheckResult:
    """Whether a profile keeps its word.

    Args:
        passed: whether the median error is small enough.
        median_error: of all phases.
        median_noise: of their repeats.
        phases: each of them.
        skipped: models that could not be run, with the reason.
        files: what was written.
    """

    passed: bool
    median_error: float
    median_noise: float
    phases: tuple[PhaseCheck, ...]
    skipped: tuple[str, ...]
    files: tuple[str, ...]


@dataclass(frozen=True)
class CalibrationResult:
    """A device's profile.

    Args:
        device: its name.
        samples: how many were measured.
        kernels: the fits.
        refused: groups of samples that could not be fitted.
        wrong: samples whose result was wrong.
        check: the closed loop; None where none was run.
        files: what was written: profile, device, report, samples.
    """

    device: str
    samples: int
    kernels: tuple[KernelQuality, ...]
    refused: tuple[str, ...]
    wrong: tuple[str, ...]
    check: CheckResult | None
    files: tuple[str, ...]


@dataclass(frozen=True)
class PhasesResult:
    """One model's prefill and decode on this machine, in the metrics' usual names.

    Args:
        model: its name.
        layers: how many of its layers were run.
        runner: whose code ran.
        mode: how kernels were launched.
        input_tokens: of each prompt.
        output_tokens: of each sequence.
        batch: sequences.
        median_ttft_ms: time to first token.
        median_ttft_ms_low: 10th percentile of the repeats.
        median_ttft_ms_high: 90th percentile.
        median_tpot_ms: time per output token after the first.
        median_tpot_ms_low: 10th percentile of the repeats.
        median_tpot_ms_high: 90th percentile.
        output_throughput: output tokens a second, prompt included.
        cache_bytes: what the cache tensors hold.
        expected_cache_bytes: what ``capplan kv`` says.
        weight_bytes: what the parameters hold.
        peak_bytes: most memory that was allocated; None where the device does not tell.
        expected_peak_bytes: what the terms of ``capplan fit`` add up to: weights, caches, the working set of a prefill.
        predicted_ttft_ms: by a profile, where one was given.
        predicted_tpot_ms: likewise.
    """

    model: str
    layers: int
    runner: str
    mode: str
    input_tokens: int
    output_tokens: int
    batch: int
    median_ttft_ms: float
    median_ttft_ms_low: float
    median_ttft_ms_high: float
    median_tpot_ms: float
    median_tpot_ms_low: float
    median_tpot_ms_high: float
    output_throughput: float
    cache_bytes: int
    expected_cache_bytes: int
    weight_bytes: int
    peak_bytes: int | None
    expected_peak_bytes: int
    expected_peak_bytes_low: int
    expected_peak_bytes_high: int
    predicted_ttft_ms: float | None
    predicted_tpot_ms: float | None


@dataclass(frozen=True)
class EndpointLevel:
    """One load that a server was put under, in the names of ``vllm bench serve``.

    Args:
        prefix: ``none``, ``cold`` or ``warm``: whether prompts begin alike, and whether the server had seen that.
        concurrency: requests at once; None with a rate.
        request_rate: requests a second; None with a concurrency.
        completed: requests that were answered.
        failed: requests that were not.
        duration: seconds.
        total_input_tokens: of all prompts.
        total_output_tokens: of all answers.
        request_throughput: requests a second.
        output_throughput: output tokens a second.
        total_token_throughput: input and output tokens a second.
        metrics: ``mean_ttft_ms``, ``median_ttft_ms``, ``p90_ttft_ms``, ``p99_ttft_ms`` and the same of tpot, itl, e2el.
        errors: what failed requests said, each once.
        predicted: what capplan says of the same load, where a device was named.
    """

    prefix: str
    concurrency: int | None
    request_rate: float | None
    completed: int
    failed: int
    duration: float
    total_input_tokens: int
    total_output_tokens: int
    request_throughput: float
    output_throughput: float
    total_token_throughput: float
    metrics: dict[str, float]
    errors: tuple[str, ...]
    predicted: dict[str, float] | None


@dataclass(frozen=True)
class EndpointResult:
    """A server's answers to each load.

    Args:
        url: of the server.
        model: as the server calls it.
        levels: one a load.
        warm_over_cold_ttft: median TTFT with a warm prefix over that with a cold one; None where not measured.
    """

    url: str
    model: str
    levels: tuple[EndpointLevel, ...]
    warm_over_cold_ttft: float | None


@dataclass(frozen=True)
class FittedTerm:
    """One of an engine's terms.

    Args:
        name: of the term, as in a profile's ``engine_times``.
        value: seconds, or a share.
        low: of the 80 % interval.
        high: of the 80 % interval.
    """

    name: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class ImportedRun:
    """One measured run beside what the fitted terms say of it.

    Args:
        file: where it is from.
        tool: what wrote it.
        metric: which figure.
        measured: as written.
        predicted: with the fitted terms.
    """

    file: str
    tool: str
    metric: str
    measured: float
    predicted: float


@dataclass(frozen=True)
class ImportResult:
    """An engine's terms from measurements of a user's own.

    Args:
        engine: whose.
        runs: files' runs that were used.
        terms: the fitted terms.
        median_error: of the predicted figures.
        comparisons: figure by figure.
        unused: runs that could not be used, with the reason.
        files: what was written.
    """

    engine: str
    runs: int
    terms: tuple[FittedTerm, ...]
    median_error: float
    comparisons: tuple[ImportedRun, ...]
    unused: tuple[str, ...]
    files: tuple[str, ...]


@dataclass(frozen=True)
class KernelImportResult:
    """A profile from public kernel tables.

    Args:
        device: of the profile.
        fits: fitted kernels.
        points: measured points in them.
        left_out: rows that were not trusted, by rule.
        refused: groups that have no fit, with the reason.
        files: what was written.
    """

    device: str
    fits: int
    points: int
    left_out: dict[str, int]
    refused: tuple[str, ...]
    files: tuple[str, ...]
