"""How long does the prefill of a prompt take: the time to its first token?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Unpack

from capplan.describe.gpu import GpuSpec
from capplan.describe.model import CrossAttention, ModelSpec
from capplan.errors import UsageError
from capplan.questions.answer import Answer
from capplan.questions.decode import milliseconds, step_provenance
from capplan.questions.room import room
from capplan.questions.setting import Setting, SettingOptions, resolve_setting
from capplan.questions.timed import StepFigures, step_figures, together
from capplan.questions.timed_explained import explain_step
from capplan.timing.step_time import Overhead, StepTime
from capplan.work.step import Decode, Prefill, Step, is_encoder, ledger

MOST_STEPS = 1024
"""Engine steps of a prompt that one answer takes."""


@dataclass(frozen=True)
class PrefillStep:
    """One engine step of a prompt's prefill.

    Args:
        tokens: new tokens of each prompt.
        prefix: tokens before them that are cached.
        bound_ms: the datasheet's bound.
        step_ms: the prediction; null without a measured profile.
    """

    tokens: int
    prefix: int
    bound_ms: float
    step_ms: float | None


@dataclass(frozen=True)
class PrefillResult:
    """The prefill of one prompt, or of several together, on an engine that has nothing else to do.

    Args:
        fits: whether weights and caches fit into the device's memory.
        missing_bytes: what a rank lacks.
        ttft_ms: time to the first token; null without a measured profile.
        ttft_ms_low: lower end of its 80 % interval.
        ttft_ms_high: upper end.
        ttft_bound_ms: the datasheet's bound of all steps.
        input_throughput: input tokens a second at `ttft_ms`.
        steps: the engine's steps, in order.
        prefill: all of them together, operator by operator.
    """

    fits: bool
    missing_bytes: int
    ttft_ms: float | None
    ttft_ms_low: float | None
    ttft_ms_high: float | None
    ttft_bound_ms: float
    input_throughput: float | None
    steps: tuple[PrefillStep, ...]
    prefill: StepFigures


def prefill(
    model: str | ModelSpec,
    gpu: str | GpuSpec | None = None,
    *,
    isl: int,
    prefix: int = 0,
    batch: int = 1,
    source_seq: int | None = None,
    **options: Unpack[SettingOptions],
) -> Answer[PrefillResult]:
    """Time to the first token of a prompt: its steps of at most the token budget, and the engine's terms.

    ``TTFT = Σ_chunks max(kernels, bound, host) + front end + tokenising · ISL + k · decode step``

    An encoder has no first token: the time is that of its output. An encoder-decoder model reads its input with the
    encoder and starts the decoder with one token.

    Args:
        model: a reference as for ``--model``, or a description.
        gpu: a name, a YAML file, ``auto`` or a description.
        isl: tokens of the prompt.
        prefix: how many of them are cached already.
        batch: prompts together.
        source_seq: positions of an encoder's input, where that is not the prompt.
        options: see `capplan.questions.setting.resolve_setting`.

    Leaves out queueing, other requests, images, and the network between client and server.

    Raises:
        CapplanError: inputs that make no question.
    """
    for flag, value, least in (("--isl", isl, 1), ("--batch", batch, 1), ("--prefix", prefix, 0)):
        if value < least:
            raise UsageError(f"must be at least {least}, not {value}", where=flag)
    if prefix >= isl:
        raise UsageError(
            f"a prompt of {isl} tokens cannot have {prefix} cached ones", where="--prefix", hint=f"at most {isl - 1}"
        )
    setting = resolve_setting(model, gpu, **options)
    tokens, source, assumed = decoder_input(setting.spec, isl, source_seq)
    timed = list(_steps(setting, tokens, prefix, batch, source))
    terms = _front_end(setting, tokens, isl, source) if setting.corrected else ()
    whole = together([figures for _, figures, _ in timed], terms)
    space = room(setting, [(batch, tokens)], source=source)
    new = (isl - prefix) * batch
    return Answer(
        command="prefill",
        inputs={**setting.inputs, "isl": isl, "prefix": prefix, "batch": batch, "source_seq": source},
        result=PrefillResult(
            fits=space.fits,
            missing_bytes=space.missing_bytes,
            ttft_ms=milliseconds(whole.seconds),
            ttft_ms_low=milliseconds(whole.seconds_low),
            ttft_ms_high=milliseconds(whole.seconds_high),
            ttft_bound_ms=1e3 * whole.bound_seconds,
            input_throughput=new / whole.seconds if whole.seconds else None,
            steps=tuple(
                PrefillStep(chunk[0], chunk[1], 1e3 * figures.bound_seconds, milliseconds(figures.seconds))
                for chunk, figures, _ in timed
            ),
            prefill=whole,
        ),
        explanation=tuple(line for _, figures, time in timed for line in explain_step(figures, setting, time)),
        assumptions=(*setting.assumptions, *assumed, "the engine has nothing else to do"),
        warnings=setting.warnings,
        sources=setting.sources,
        provenance=step_provenance(whole, ("ttft_ms", "input_throughput"), ("ttft_bound_ms",)),
    )


def chunks(tokens: int, prefix: int, most: int) -> Iterator[tuple[int, int]]:
    """(new tokens, cached before) of each step of a prompt: at most `most` new tokens a step."""
    for start in range(prefix, tokens, most):
        yield min(most, tokens - start), start


def decoder_input(spec: ModelSpec, isl: int, source_seq: int | None) -> tuple[int, int, tuple[str, ...]]:
    """(positions of the decoder, positions of the source, assumptions) of a prompt."""
    if is_encoder(spec):
        return isl, 0, (f"{spec.name} is an encoder: the time is that of its output",)
    mixers = [mixer for block in spec.blocks.values() for mixer in block.mixer]
    fixed = any(isinstance(mixer, CrossAttention) and isinstance(mixer.source, int) for mixer in mixers)
    if spec.encoder is None or fixed or source_seq is not None:
        return isl, source_seq or 0, ()
    return 1, isl, ("the prompt is the encoder's input, and the decoder starts with one token",)


def _steps(
    setting: Setting, tokens: int, prefix: int, batch: int, source: int
) -> Iterator[tuple[tuple[int, int], StepFigures, StepTime | None]]:
    budget = setting.deployment.max_num_batched_tokens or tokens
    most = tokens if is_encoder(setting.spec) else max(1, budget // batch)
    if (tokens - prefix) / most > MOST_STEPS:
        raise UsageError(
            f"{tokens - prefix} tokens in steps of {most} are more than {MOST_STEPS} steps",
            where="--max-num-batched-tokens",
            hint="allow more tokens a step, or ask for a shorter prompt",
        )
    for chunk, before in chunks(tokens, prefix, most):
        sampled = int(before + chunk == tokens)
        step = Step(prefill=(Prefill(chunk, before, batch, sampled, source),))
        work = ledger(setting.spec, step, setting.sharding, setting.formats)
        figures, time = step_figures(setting, work, sequences=batch)
        yield (chunk, before), figures, time


def _front_end(setting: Setting, tokens: int, isl: int, source: int) -> tuple[Overhead, ...]:
    """What an engine takes beside the steps of a lone prompt."""
    times = setting.machine.times
    text = times.sources.get("first_token", "")
    terms = [Overhead("front end", times.first_token, text)]
    terms.append(Overhead("tokenising", times.per_input_token * isl, times.sources.get("per_input_token", "")))
    if not is_encoder(setting.spec) and times.first_token_steps:
        step = Step(decode=(Decode(1, tokens + 1, source=source),))
        figures, _ = step_figures(setting, ledger(setting.spec, step, setting.sharding, setting.formats), sequences=1)
        steps = times.first_token_steps
        waited = steps * (figures.seconds or 0.0)
        terms.append(Overhead(f"scheduling and delivery: {steps:g} decode steps", waited, text))
    return tuple(term for term in terms if term.seconds)
