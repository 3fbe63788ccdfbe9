"""``capplan roofline``: every operator under a device's roof."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from capplan.cli.output import answers
from capplan.cli.setting import of_a_setting
from capplan.describe.quantities import parse_integer, parse_list, parse_tokens
from capplan.questions.answer import Answer
from capplan.questions.roofline import RooflineResult, roofline
from capplan.report.views.roofline import roofline_chart, roofline_rows, roofline_view

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("roofline")
@answers(roofline_view, table=roofline_rows, chart=roofline_chart)
@of_a_setting
def command(
    setting: dict[str, Any],
    batch: Annotated[str, typer.Option("--batch", help="Sequences of decode steps: 1,8,32.")] = "1,8,32,128,512",
    context: Annotated[str, typer.Option("--context", help="Positions of each sequence in decode.")] = "4096",
    isl: Annotated[str | None, typer.Option("--isl", help="Tokens of the prompt in prefill [--context].")] = None,
) -> Answer[RooflineResult]:
    """Every operator's FLOPs, bytes, intensity, limit, time and share, in decode by batch and in prefill."""
    return roofline(
        batches=parse_list(batch, lambda text, flag: parse_integer(text, flag, least=1), "--batch"),
        context=parse_tokens(context, "--context"),
        isl=parse_tokens(isl, "--isl") if isl else None,
        **setting,
    )
