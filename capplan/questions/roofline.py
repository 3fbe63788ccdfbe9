"""Where do a model's operators stand on a device's roofline, decode by batch and prefill?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Unpack

from capplan.describe.gpu import GpuSpec
from capplan.describe.model import ModelSpec
from capplan.errors import UsageError
from capplan.questions.answer import Answer, Explained, Provenance
from capplan.questions.decode import milliseconds
from capplan.questions.prefill import decoder_input
from capplan.questions.room import room
from capplan.questions.setting import Setting, SettingOptions, resolve_setting
from capplan.questions.timed import StepFigures, step_figures
from capplan.questions.timed_explained import explain_step
from capplan.timing.ridge import ridge_batch
from capplan.timing.roofline import math_rate, ridge_point
from capplan.work.step import Decode, Prefill, Step, is_encoder, ledger

MOST_BATCHES = 64
"""Batches that one answer takes."""


@dataclass(frozen=True)
class Roof:
    """A device's roof for one number format.

    Args:
        format: of the operands.
        peak_flops: dense FLOP/s.
        bandwidth: B/s.
        ridge_point: FLOPs for each byte at which the roof turns flat: peak over bandwidth.
        share: share of the FLOPs of one token in that format.
    """

    format: str
    peak_flops: float
    bandwidth: float
    ridge_point: float
    share: float


@dataclass(frozen=True)
class RooflineStep:
    """One step under the roof.

    Args:
        phase: decode or prefill.
        batch: sequences.
        tokens: new tokens of each.
        context: positions that each has cached afterwards.
        fits: whether weights and caches fit into the device's memory.
        step_ms: its time; null without a measured profile.
        step_ms_low: lower end of its 80 % interval.
        step_ms_high: upper end.
        step_bound_ms: the datasheet's bound.
        attained_flops: FLOP/s of a device, at the predicted time, else at the bound.
        step: operator by operator.
    """

    phase: str
    batch: int
    tokens: int
    context: int
    fits: bool
    step_ms: float | None
    step_ms_low: float | None
    step_ms_high: float | None
    step_bound_ms: float
    attained_flops: float
    step: StepFigures


@dataclass(frozen=True)
class RooflineResult:
    """Roofs, ridge batches, and every step with its operators.

    Args:
        roofs: one a format that the model multiplies in, the most used first.
        ridge_batch: the batch from which the products with weights are compute-bound in decode; null: none.
        step_ridge_batch: the same of the whole step at this context, caches included; null: none.
        steps: decode by batch, then prefill.
    """

    roofs: tuple[Roof, ...]
    ridge_batch: int | None
    step_ridge_batch: int | None
    steps: tuple[RooflineStep, ...]


def roofline(
    model: str | ModelSpec,
    gpu: str | GpuSpec | None = None,
    *,
    batches: Sequence[int] = (1, 8, 32, 128, 512),
    context: int = 4096,
    isl: int | None = None,
    **options: Unpack[SettingOptions],
) -> Answer[RooflineResult]:
    """Every operator's FLOPs, bytes, arithmetic intensity, limit and time, in decode and prefill.

    ``bound = max(FLOPs / P, bytes / BW, message / link)``; the ridge point is ``P / BW``.

    Args:
        model: a reference as for ``--model``, or a description.
        gpu: a name, a YAML file, ``auto`` or a description.
        batches: B, sequences of decode steps.
        context: S, positions of each sequence in decode.
        isl: tokens of the prompt in prefill; None: as many as `context`.
        options: see `capplan.questions.setting.resolve_setting`.

    Raises:
        CapplanError: inputs that make no question.
    """
    for flag, value in (*(("--batch", batch) for batch in batches), ("--context", context), ("--isl", isl or 1)):
        if value < 1:
            raise UsageError(f"must be at least 1, not {value}", where=flag)
    if not 1 <= len(batches) <= MOST_BATCHES:
        raise UsageError(f"takes 1 to {MOST_BATCHES} batches, not {len(batches)}", where="--batch")
    setting = resolve_setting(model, gpu, **options)
    length = isl or context
    prompt, explained = _prefill(setting, length)
    steps = [prompt]
    ridge = whole = None
    if not is_encoder(setting.spec):
        decoded = [_decode(setting, batch, context) for batch in batches]
        steps = [step for step, _ in decoded] + [prompt]
        explained = decoded[0][1]
        arguments = (setting.spec, setting.gpu, context, setting.sharding, setting.formats)
        ridge, whole = ridge_batch(*arguments), ridge_batch(*arguments, whole=True)
    roofs = tuple(_roofs(setting))
    return Answer(
        command="roofline",
        inputs={**setting.inputs, "batch": list(batches), "context": context, "isl": length},
        result=RooflineResult(roofs, ridge, whole, tuple(steps)),
        explanation=(*_explain(roofs, ridge, whole), *explained),
        assumptions=setting.assumptions,
        warnings=(*setting.warnings, *_no_room(steps)),
        sources=setting.sources,
        provenance=_provenance(steps),
    )


def _decode(setting: Setting, batch: int, context: int) -> tuple[RooflineStep, list[Explained]]:
    step = Step(decode=(Decode(batch, context),))
    return _under_the_roof(setting, step, "decode", batch, 1, context)


def _prefill(setting: Setting, isl: int) -> tuple[RooflineStep, list[Explained]]:
    tokens, source, _ = decoder_input(setting.spec, isl, None)
    return _under_the_roof(setting, Step(prefill=(Prefill(tokens, source=source),)), "prefill", 1, tokens, tokens)


def _under_the_roof(
    setting: Setting, step: Step, phase: str, batch: int, tokens: int, context: int
) -> tuple[RooflineStep, list[Explained]]:
    work = ledger(setting.spec, step, setting.sharding, setting.formats)
    figures, time = step_figures(setting, work, sequences=batch)
    shown = RooflineStep(
        phase=phase,
        batch=batch,
        tokens=tokens,
        context=context,
        fits=room(setting, [(batch, context)]).fits,
        step_ms=milliseconds(figures.seconds),
        step_ms_low=milliseconds(figures.seconds_low),
        step_ms_high=milliseconds(figures.seconds_high),
        step_bound_ms=1e3 * figures.bound_seconds,
        attained_flops=figures.flops / (figures.seconds or figures.bound_seconds),
        step=figures,
    )
    return shown, explain_step(figures, setting, time)


def _roofs(setting: Setting) -> list[Roof]:
    """The roof of each format that operators multiply in, the most used first."""
    tokens = Step(prefill=(Prefill(1),))
    flops: dict[str, float] = {}
    for operator in ledger(setting.spec, tokens, setting.sharding, setting.formats).operators:
        if operator.flops:
            name = operator.activation_format
            flops[name] = flops.get(name, 0.0) + float(operator.flops * operator.count)
    whole = sum(flops.values())
    bandwidth = setting.gpu.memory.bandwidth
    return [
        Roof(name, math_rate(setting.gpu, name), bandwidth, ridge_point(setting.gpu, name), value / whole)
        for name, value in sorted(flops.items(), key=lambda item: -item[1])
    ]


def _explain(roofs: Sequence[Roof], ridge: int | None, whole: int | None) -> list[Explained]:
    lines = [
        Explained(
            f"ridge point, {roof.format}",
            "P / BW",
            f"{roof.peak_flops:.4g} / {roof.bandwidth:.4g}",
            roof.ridge_point,
            "FLOP/B",
        )
        for roof in roofs
    ]
    for name, batch in (("ridge batch of the products", ridge), ("ridge batch of the step", whole)):
        if batch is not None:
            lines.append(Explained(name, "least B with Σ FLOPs / P >= Σ bytes / BW", "", batch, "sequences"))
    return lines


def _no_room(steps: Sequence[RooflineStep]) -> list[str]:
    """Which batches do not fit into memory."""
    batches = [str(step.batch) for step in steps if step.phase == "decode" and not step.fits]
    return [f"these batches do not fit into memory: {', '.join(batches)}"] if batches else []


def _provenance(steps: Sequence[RooflineStep]) -> dict[str, Provenance]:
    known: dict[str, Provenance] = dict.fromkeys(
        ("roofs", "ridge_batch", "step_ridge_batch", "steps.step_bound_ms"), "exact"
    )
    if steps[0].step_ms is not None:
        known["steps.step_ms"] = steps[0].step.provenance
    return known
