"""``capplan compare``: documents side by side."""

from __future__ import annotations

from typing import Annotated

import typer

from capplan.cli.output import answers
from capplan.questions.answer import Answer
from capplan.questions.compare import Comparison, compare
from capplan.report.views.compare import compare_table, compare_view

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("compare")
@answers(compare_view, table=compare_table)
def command(
    documents: Annotated[
        list[str], typer.Argument(help="Files that plan, cost or estimate printed with --json; plans.json#2 is a row.")
    ],
) -> Answer[Comparison]:
    """Plans, costs or estimates side by side, with the best of each figure marked."""
    return compare(documents)
