"""``capplan prefill``: the time to the first token of a prompt."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from capplan.cli.output import answers
from capplan.cli.setting import of_a_setting
from capplan.describe.quantities import parse_integer, parse_tokens
from capplan.questions.answer import Answer
from capplan.questions.prefill import PrefillResult, prefill
from capplan.report.views.timed import prefill_view

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("prefill")
@answers(prefill_view)
@of_a_setting
def command(
    isl: Annotated[str, typer.Option("--isl", help="Tokens of the prompt: 2048, 32k.")],
    setting: dict[str, Any],
    prefix: Annotated[str, typer.Option("--prefix", help="How many of them are cached already.")] = "0",
    batch: Annotated[str, typer.Option("--batch", help="Prompts together.")] = "1",
    source_seq: Annotated[
        str | None, typer.Option("--source-seq", help="Positions of an encoder's input [the prompt].")
    ] = None,
) -> Answer[PrefillResult]:
    """Time to the first token of one prompt on an idle engine: the bound, the corrected value and its interval."""
    return prefill(
        isl=parse_tokens(isl, "--isl"),
        prefix=parse_tokens(prefix, "--prefix", least=0),
        batch=parse_integer(batch, "--batch", least=1),
        source_seq=parse_tokens(source_seq, "--source-seq") if source_seq else None,
        **setting,
    )
