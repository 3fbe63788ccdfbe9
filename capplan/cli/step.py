"""``capplan step``: the ledger of one engine step."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from capplan.cli.output import answers
from capplan.cli.setting import of_a_setting
from capplan.describe.quantities import parse_integer, parse_tokens
from capplan.errors import UsageError
from capplan.questions.answer import Answer
from capplan.questions.step import StepResult, step
from capplan.report.views.timed import step_view

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("step")
@answers(step_view)
@of_a_setting
def command(
    setting: dict[str, Any],
    decode: Annotated[
        list[str], typer.Option("--decode", help="Sequences that get a token each, at a context: 64@4096.")
    ] = [],
    prefill: Annotated[
        list[str], typer.Option("--prefill", help="A prompt's tokens, after a cached prefix: 2048 or 2048@8k.")
    ] = [],
    source_seq: Annotated[str, typer.Option("--source-seq", help="Positions of an encoder's input.")] = "0",
) -> Answer[StepResult]:
    """One engine step as a ledger with times: decode sequences, prefill chunks, or both."""
    return step(
        decode=[_decode(part) for text in decode for part in text.split(",")],
        prefill=[_prefill(part) for text in prefill for part in text.split(",")],
        source_seq=parse_tokens(source_seq, "--source-seq", least=0),
        **setting,
    )


def _decode(text: str) -> tuple[int, int]:
    """``64@4096`` as 64 sequences of 4,096 positions."""
    sequences, at, context = text.partition("@")
    if not at:
        raise UsageError(f"{text[:40]!r} has no context", where="--decode", hint="write SEQUENCES@CONTEXT: 64@4096")
    return parse_integer(sequences, "--decode", least=1), parse_tokens(context, "--decode")


def _prefill(text: str) -> tuple[int, int]:
    """``2048@8k`` as 2,048 new tokens after 8,192 cached ones; without ``@`` after none."""
    tokens, _, prefix = text.partition("@")
    return parse_tokens(tokens, "--prefill"), parse_tokens(prefix, "--prefill", least=0) if prefix else 0
