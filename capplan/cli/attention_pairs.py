"""``capplan attention-pairs``: query-key pairs with and without a KV cache."""

from __future__ import annotations

from typing import Annotated

import typer

from capplan.cli.output import answers
from capplan.describe.quantities import parse_tokens
from capplan.questions.answer import Answer
from capplan.questions.attention_pairs import PairsResult, attention_pairs
from capplan.report.views.attention_pairs import pairs_view

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("attention-pairs")
@answers(pairs_view)
def command(
    prompt: Annotated[str, typer.Option("--prompt", help="Positions of the prompt.")],
    new: Annotated[str, typer.Option("--new", help="Positions processed after it.")],
    window: Annotated[str | None, typer.Option("--window", help="The most keys that a query sees.")] = None,
) -> Answer[PairsResult]:
    """Count the query-key pairs that attention computes, with the KV cache and without."""
    return attention_pairs(
        prompt=parse_tokens(prompt, "--prompt"),
        new=parse_tokens(new, "--new", least=0),
        window=parse_tokens(window, "--window") if window else None,
    )
