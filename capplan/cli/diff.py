"""``capplan diff``: what a change costs a month."""

from __future__ import annotations

from typing import Annotated

import typer

from capplan.cli.money import optional_money
from capplan.cli.output import answers
from capplan.questions.answer import Answer
from capplan.questions.cost_diff import CostDiff, cost_diff
from capplan.report.views.compare import diff_view

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("diff")
@answers(diff_view)
def command(
    before: Annotated[str, typer.Argument(help="A file that cost or plan printed with --json; plans.json#2 is a row.")],
    after: Annotated[str, typer.Argument(help="The same after the change.")],
    fail_above: Annotated[
        str | None, typer.Option("--fail-above", help="Exit 1 when a month grows by more dollars than this; 0: at all.")
    ] = None,
) -> Answer[CostDiff]:
    """A month's bill before and after a change, line by line: + added, - removed, ~ changed."""
    return cost_diff(before, after, fail_above=optional_money(fail_above, "--fail-above", zero=True))
