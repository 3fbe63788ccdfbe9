"""``capplan speculate``: what drafting gains, by the textbook and on the hardware."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from capplan.cli.output import answers
from capplan.cli.setting import of_a_setting
from capplan.describe.quantities import parse_integer, parse_list, parse_number, parse_tokens
from capplan.questions.answer import Answer
from capplan.questions.speculate import SpeculateResult, speculate
from capplan.report.views.speculate import speculate_view

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("speculate")
@answers(speculate_view)
@partial(of_a_setting, needs_model=False)
def command(
    acceptance: Annotated[str, typer.Option("--acceptance", help="Chances that a drafted token is accepted: 0.7,0.8.")],
    setting: dict[str, Any],
    draft_tokens: Annotated[
        str, typer.Option("--draft-tokens", "--speculative-tokens", help="Tokens drafted a round.")
    ] = "4",
    draft_ratio: Annotated[
        str | None, typer.Option("--draft-ratio", help="Time of a drafted token over a step [0.1, or the hardware's].")
    ] = None,
    draft_model: Annotated[
        str | None, typer.Option("--draft-model", help="A model that drafts [the model's MTP layers].")
    ] = None,
    medusa_heads: Annotated[str, typer.Option("--medusa-heads", help="Medusa heads that draft instead.")] = "0",
    context: Annotated[str, typer.Option("--context", help="Positions of each sequence.")] = "2048",
    batch: Annotated[str, typer.Option("--batch", help="Sequences: 1,16,64.")] = "1,4,16,64,256",
) -> Answer[SpeculateResult]:
    """Tokens a round and the gain of drafting: the textbook's, and with --model the gain at each batch on a GPU."""
    return speculate(
        acceptance=parse_list(acceptance, parse_number, "--acceptance"),
        draft_tokens=parse_integer(draft_tokens, "--draft-tokens", least=1),
        draft_ratio=parse_number(draft_ratio, "--draft-ratio") if draft_ratio else None,
        draft_model=draft_model,
        medusa_heads=parse_integer(medusa_heads, "--medusa-heads"),
        context=parse_tokens(context, "--context"),
        batch=parse_list(batch, partial(parse_integer, least=1), "--batch"),
        **setting,
    )
