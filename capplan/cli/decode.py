"""``capplan decode``: the time per output token of a batch."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from capplan.cli.output import answers
from capplan.cli.setting import of_a_setting
from capplan.describe.quantities import parse_integer, parse_tokens
from capplan.questions.answer import Answer
from capplan.questions.decode import DecodeResult, decode
from capplan.report.views.timed import decode_view

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("decode")
@answers(decode_view)
@of_a_setting
def command(
    context: Annotated[str, typer.Option("--context", help="Positions of each sequence: 4096, 32k.")],
    setting: dict[str, Any],
    batch: Annotated[str, typer.Option("--batch", help="Sequences of a data-parallel group.")] = "1",
    source_seq: Annotated[str, typer.Option("--source-seq", help="Positions of an encoder's output.")] = "0",
) -> Answer[DecodeResult]:
    """Time per output token of one batch: the bound, the corrected value and its interval, operator by operator."""
    return decode(
        context=parse_tokens(context, "--context"),
        batch=parse_integer(batch, "--batch", least=1),
        source_seq=parse_tokens(source_seq, "--source-seq", least=0),
        **setting,
    )
