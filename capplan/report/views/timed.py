"""How steps and their operators look."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from capplan.questions.answer import Answer
from capplan.questions.decode import DecodeResult
from capplan.questions.prefill import PrefillResult
from capplan.questions.setting import UNCORRECTED
from capplan.questions.step import StepResult
from capplan.questions.timed import OperatorFigures, StepFigures
from capplan.report.tables import Column, Facts, Table, View
from capplan.report.units import show_bytes, show_count, show_seconds


def decode_view(answer: Answer[DecodeResult]) -> View:
    """The time per output token, its bound, and the operators in between."""
    result, inputs = answer.result, answer.inputs
    what = f"{subject(inputs)}, decode of {inputs['batch']:,} x {inputs['context']:,} tokens"
    headline = f"{what}: {predicted('TPOT', result.step)}"
    pairs = [*no_room(result.fits, result.missing_bytes), *time_facts("TPOT", result.step)]
    pairs.append(("at most", f"{result.output_throughput_bound:,.1f} output tokens/s"))
    if result.output_throughput is not None:
        pairs.append(("predicted", f"{result.output_throughput:,.1f} output tokens/s"))
    return View(headline, (Facts([*pairs, *work_facts(result.step)]), *step_tables(result.step)))


def prefill_view(answer: Answer[PrefillResult]) -> View:
    """The time to the first token, its bound, its steps, and the operators of all of them."""
    result, inputs = answer.result, answer.inputs
    cached = f", {inputs['prefix']:,} of them cached" if inputs["prefix"] else ""
    prompts = "" if inputs["batch"] == 1 else f"{inputs['batch']:,} x "
    what = f"{subject(inputs)}, prefill of {prompts}{inputs['isl']:,} tokens{cached}"
    pairs = [*no_room(result.fits, result.missing_bytes), *time_facts("TTFT", result.prefill)]
    if result.input_throughput is not None:
        pairs.append(("predicted", f"{result.input_throughput:,.0f} input tokens/s"))
    tables = list(step_tables(result.prefill))
    if len(result.steps) > 1:
        columns = [Column("new tokens", "tokens", "integer"), Column("cached before", "prefix", "integer")]
        columns += [Column("bound", "bound", "seconds"), Column("time", "seconds", "seconds")]
        rows = [
            [step.tokens, step.prefix, step.bound_ms / 1e3, None if step.step_ms is None else step.step_ms / 1e3]
            for step in result.steps
        ]
        tables.append(Table(columns, rows, title="Engine steps"))
    headline = f"{what}: {predicted('TTFT', result.prefill)}"
    return View(headline, (Facts([*pairs, *work_facts(result.prefill)]), *tables))


def step_view(answer: Answer[StepResult]) -> View:
    """The step's time, its bound, and its ledger."""
    result, inputs = answer.result, answer.inputs
    parts = [f"{part['sequences']:,} x 1 decoded at {part['context']:,}" for part in inputs["decode"]]
    parts += [
        f"{part['tokens']:,} prefilled" + (f" after {part['prefix']:,}" if part["prefix"] else "")
        for part in inputs["prefill"]
    ]
    headline = f"{subject(inputs)}, one step of {' + '.join(parts)}: {predicted('', result.step)}"
    pairs = [*no_room(result.fits, result.missing_bytes), *time_facts("step", result.step)]
    return View(headline, (Facts([*pairs, *work_facts(result.step)]), *step_tables(result.step)))


def subject(inputs: dict[str, Any]) -> str:
    """The model and what it runs on, in a few words."""
    count = inputs["gpus"]
    sizes = [
        f"{name} {inputs[key]}"
        for name, key in (
            ("tp", "tensor_parallel_size"),
            ("pp", "pipeline_parallel_size"),
            ("dp", "data_parallel_size"),
            ("ep", "expert_parallel_size"),
        )
        if inputs[key] > 1
    ]
    divided = f" ({', '.join(sizes)})" if sizes else ""
    return f"{inputs['model']} on {count} x {inputs['gpu']}{divided}"


def predicted(name: str, figures: StepFigures) -> str:
    """The prediction with its interval, or the bound where there is none."""
    head = f"{name} " if name else ""
    if figures.seconds is None:
        return f"{head}at least {show_seconds(figures.bound_seconds)} ({UNCORRECTED})"
    return f"{head}{show_seconds(figures.seconds)} {interval(figures)}"


def interval(figures: StepFigures) -> str:
    """The 80 % interval in brackets."""
    if figures.seconds_low is None or figures.seconds_high is None:
        return ""
    return f"({show_seconds(figures.seconds_low)} to {show_seconds(figures.seconds_high)} in 80 of 100 cases)"


def time_facts(name: str, figures: StepFigures) -> list[tuple[str, str]]:
    """Bound and prediction, with what each rests on."""
    pairs = [(f"{name} bound", f"{show_seconds(figures.bound_seconds)}  ({figures.limit}-bound; {UNCORRECTED})")]
    if figures.seconds is None:
        return pairs
    factor = figures.seconds / figures.bound_seconds
    rests = [
        f"{100 * share:.0f} % {words}"
        for share, words in (
            (figures.fitted_share, "measured kernels"),
            (figures.extrapolated_share, "measured kernels, stretched"),
            (figures.assumed_share, "assumed"),
        )
        if share >= 0.005
    ]
    pairs.append((f"{name} corrected", f"{show_seconds(figures.seconds)}  {interval(figures)}, {factor:.2f} x bound"))
    pairs.append(("rests on", ", ".join(rests)))
    return pairs


def work_facts(figures: StepFigures) -> list[tuple[str, str]]:
    """What the step asks of one rank."""
    parts = [
        f"{show_bytes(size)} {words}"
        for size, words in (
            (figures.weight_bytes, "weights"),
            (figures.kv_bytes, "KV cache"),
            (figures.state_bytes, "states"),
            (figures.activation_bytes, "activations"),
        )
        if size
    ]
    pairs = [
        ("a rank's FLOPs", f"{show_count(figures.flops)}  ({figures.arithmetic_intensity:,.1f} FLOPs a byte)"),
        ("a rank's bytes", f"{show_bytes(figures.bytes)}: {', '.join(parts)}"),
    ]
    if figures.message_bytes:
        pairs.append(("a rank's messages", show_bytes(figures.message_bytes)))
    return pairs


def step_tables(figures: StepFigures) -> tuple[Table, ...]:
    """Every operator, and the terms that are none."""
    tables = [Table(operator_columns(), [operator_row(row) for row in figures.operators], title="Operators of a rank")]
    if figures.terms:
        columns = [Column("beside the operators", "term"), Column("time", "seconds", "seconds")]
        tables.append(Table(columns, [[term.name, term.seconds] for term in figures.terms]))
    return tuple(tables)


def operator_columns() -> list[Column]:
    """The columns of a ledger."""
    return [
        Column("operator", "operator"),
        Column("calls", "calls", "integer"),
        Column("FLOPs", "flops", "count"),
        Column("bytes", "bytes", "bytes"),
        Column("FLOP/B", "arithmetic_intensity", "ratio"),
        Column("bound by", "limit"),
        Column("bound", "bound_seconds", "seconds"),
        Column("time", "seconds", "seconds"),
        Column("share", "share", "percent"),
        Column("rests on", "basis"),
    ]


def operator_row(row: OperatorFigures) -> list[Any]:
    """One operator under those columns; a message's bytes are those of its vector."""
    return [
        f"{row.name} ({row.detail})" if row.detail else row.name,
        row.calls,
        row.flops or None,
        row.bytes or row.message_bytes,
        row.arithmetic_intensity or None,
        row.limit,
        row.bound_seconds,
        row.seconds,
        row.share,
        row.basis,
    ]


def no_room(fits: bool, missing: int) -> Sequence[tuple[str, str]]:
    """The first thing to say of a step that cannot run."""
    return (
        () if fits else (("DOES NOT FIT", f"a device lacks {show_bytes(missing)} (capplan fit says what would help)"),)
    )
