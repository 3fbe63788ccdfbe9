"""What does one engine step ask of the hardware, and how long does it take?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Unpack

from capplan.describe.gpu import GpuSpec
from capplan.describe.model import ModelSpec
from capplan.errors import UsageError
from capplan.questions.answer import Answer
from capplan.questions.decode import milliseconds, step_provenance
from capplan.questions.room import room
from capplan.questions.setting import SettingOptions, resolve_setting
from capplan.questions.timed import StepFigures, step_figures
from capplan.questions.timed_explained import explain_step
from capplan.work.step import Decode, Prefill, Step, ledger


@dataclass(frozen=True)
class StepResult:
    """One forward pass of an engine.

    Args:
        fits: whether weights and caches fit into the device's memory.
        missing_bytes: what a rank lacks.
        step_ms: its time; null without a measured profile.
        step_ms_low: lower end of its 80 % interval.
        step_ms_high: upper end.
        step_bound_ms: the datasheet's bound.
        step: operator by operator.
    """

    fits: bool
    missing_bytes: int
    step_ms: float | None
    step_ms_low: float | None
    step_ms_high: float | None
    step_bound_ms: float
    step: StepFigures


def step(
    model: str | ModelSpec,
    gpu: str | GpuSpec | None = None,
    *,
    decode: Sequence[tuple[int, int]] = (),
    prefill: Sequence[tuple[int, int]] = (),
    source_seq: int = 0,
    **options: Unpack[SettingOptions],
) -> Answer[StepResult]:
    """The ledger of one step, any mix of decode sequences and prefill chunks, with times.

    Args:
        model: a reference as for ``--model``, or a description.
        gpu: a name, a YAML file, ``auto`` or a description.
        decode: (sequences, context) of sequences that get one token each.
        prefill: (new tokens, cached prefix) of prompts or chunks of them.
        source_seq: positions of an encoder's input or output that cross-attention sees.
        options: see `capplan.questions.setting.resolve_setting`.

    Raises:
        CapplanError: inputs that make no question.
    """
    if not decode and not prefill:
        raise UsageError(
            "the step has nothing to do", where="--decode, --prefill", hint="--decode 64@4096 --prefill 2048"
        )
    setting = resolve_setting(model, gpu, **options)
    parts = Step(
        decode=tuple(Decode(sequences, context, source=source_seq) for sequences, context in decode),
        prefill=tuple(Prefill(tokens, prefix, source=source_seq) for tokens, prefix in prefill),
    )
    work = ledger(setting.spec, parts, setting.sharding, setting.formats)
    sequences = sum(count for count, _ in decode) + len(prefill)
    figures, time = step_figures(setting, work, sequences=sequences)
    space = room(setting, [*decode, *((1, tokens + prefix) for tokens, prefix in prefill)], source=source_seq)
    return Answer(
        command="step",
        inputs={
            **setting.inputs,
            "decode": [{"sequences": sequences, "context": context} for sequences, context in decode],
            "prefill": [{"tokens": tokens, "prefix": prefix} for tokens, prefix in prefill],
            "source_seq": source_seq,
        },
        result=StepResult(
            fits=space.fits,
            missing_bytes=space.missing_bytes,
            step_ms=milliseconds(figures.seconds),
            step_ms_low=milliseconds(figures.seconds_low),
            step_ms_high=milliseconds(figures.seconds_high),
            step_bound_ms=1e3 * figures.bound_seconds,
            step=figures,
        ),
        explanation=tuple(explain_step(figures, setting, time)),
        assumptions=setting.assumptions,
        warnings=setting.warnings,
        sources=setting.sources,
        provenance=step_provenance(figures, ("step_ms",), ("step_bound_ms",)),
    )
