"""How long does one decode step of a batch take: the time per output token?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

from capplan.describe.gpu import GpuSpec
from capplan.describe.model import ModelSpec
from capplan.errors import UsageError
from capplan.questions.answer import Answer, Provenance
from capplan.questions.room import room
from capplan.questions.setting import SettingOptions, resolve_setting
from capplan.questions.timed import StepFigures, step_figures
from capplan.questions.timed_explained import explain_step
from capplan.work.step import Decode, Step, ledger


@dataclass(frozen=True)
class DecodeResult:
    """One decode step: every sequence of the batch gets one token.

    Args:
        fits: whether weights and caches fit into the device's memory.
        missing_bytes: what a rank lacks.
        tpot_ms: the step's time; null without a measured profile.
        tpot_ms_low: lower end of its 80 % interval.
        tpot_ms_high: upper end.
        tpot_bound_ms: the datasheet's bound: no step is faster.
        output_throughput: output tokens a second of all data-parallel groups, at `tpot_ms`.
        output_throughput_bound: the most that the bound allows.
        step: the step, operator by operator.
    """

    fits: bool
    missing_bytes: int
    tpot_ms: float | None
    tpot_ms_low: float | None
    tpot_ms_high: float | None
    tpot_bound_ms: float
    output_throughput: float | None
    output_throughput_bound: float
    step: StepFigures


def decode(
    model: str | ModelSpec,
    gpu: str | GpuSpec | None = None,
    *,
    context: int,
    batch: int = 1,
    source_seq: int = 0,
    **options: Unpack[SettingOptions],
) -> Answer[DecodeResult]:
    """Time per output token of a batch whose sequences all have one context.

    Bound: ``max(Σ FLOPs / P, Σ (weights + KV + state) / BW, Σ messages / link)``. Prediction: ``Σ launches + Σ bodies``
    of all operators by their measured laws, with the engine's terms.

    Args:
        model: a reference as for ``--model``, or a description.
        gpu: a name, a YAML file, ``auto`` or a description.
        context: S, positions of each sequence after the step.
        batch: B, sequences of one data-parallel group.
        source_seq: positions of an encoder's output (or of images) that cross-attention sees.
        options: see `capplan.questions.setting.resolve_setting`.

    Leaves out prefills of other requests in the same steps, and queueing.

    Raises:
        CapplanError: inputs that make no question.
    """
    for flag, value in (("--batch", batch), ("--context", context)):
        if value < 1:
            raise UsageError(f"must be at least 1, not {value}", where=flag)
    setting = resolve_setting(model, gpu, **options)
    work = ledger(
        setting.spec, Step(decode=(Decode(batch, context, source=source_seq),)), setting.sharding, setting.formats
    )
    figures, time = step_figures(setting, work, sequences=batch)
    space = room(setting, [(batch, context)], source=source_seq)
    tokens = batch * setting.deployment.parallel.dp
    return Answer(
        command="decode",
        inputs={**setting.inputs, "batch": batch, "context": context, "source_seq": source_seq},
        result=DecodeResult(
            fits=space.fits,
            missing_bytes=space.missing_bytes,
            tpot_ms=milliseconds(figures.seconds),
            tpot_ms_low=milliseconds(figures.seconds_low),
            tpot_ms_high=milliseconds(figures.seconds_high),
            tpot_bound_ms=1e3 * figures.bound_seconds,
            output_throughput=tokens / figures.seconds if figures.seconds else None,
            output_throughput_bound=tokens / figures.bound_seconds,
            step=figures,
        ),
        explanation=tuple(explain_step(figures, setting, time)),
        assumptions=setting.assumptions,
        warnings=setting.warnings,
        sources=setting.sources,
        provenance=step_provenance(figures, ("tpot_ms", "output_throughput"), ("tpot_bound_ms",)),
    )


def milliseconds(seconds: float | None) -> float | None:
    """Seconds as milliseconds; None stays."""
    return None if seconds is None else 1e3 * seconds


def step_provenance(figures: StepFigures, predicted: tuple[str, ...], exact: tuple[str, ...]) -> dict[str, Provenance]:
    """What predicted figures rest on, and those that follow from the datasheet and the model alone."""
    known: dict[str, Provenance] = dict.fromkeys(exact, "exact")
    if figures.seconds is not None:
        known |= dict.fromkeys(predicted, figures.provenance)
    return known
