"""``capplan prices``: what GPUs and tokens cost."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated

import typer

from capplan.cli.options import HardwareDir, ModelsDir
from capplan.cli.output import answers
from capplan.errors import UsageError
from capplan.questions.answer import Answer
from capplan.questions.prices import ImportedPrices, PriceList, PriceSheet, price_import, price_list, price_show
from capplan.report.views.prices import price_import_view, price_list_view, price_sheet_view

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Prices of GPUs and of tokens.",
    pretty_exceptions_enable=False,
)

Day = Annotated[str | None, typer.Option("--on", help="Prices known on a day: 2026-11-01 [today].")]


@app.command("list")
@answers(price_list_view)
def list_command(
    gpu: Annotated[str | None, typer.Option("--gpu", help="One GPU [all].")] = None,
    provider: Annotated[str | None, typer.Option("--provider", help="One provider [all].")] = None,
    commitment: Annotated[
        str | None, typer.Option("--commitment", help="on-demand, spot, reserved, serverless or assumed.")
    ] = None,
    on: Day = None,
    hardware_dir: HardwareDir = [],
) -> Answer[PriceList]:
    """List the span of current prices by GPU, provider and kind."""
    return price_list(gpu=gpu, provider=provider, commitment=commitment, on=day_named(on), hardware_dirs=hardware_dir)


@app.command("show")
@answers(price_sheet_view)
def show_command(
    name: Annotated[str, typer.Argument(help="A GPU, a provider, or a model behind APIs.")],
    on: Day = None,
    hardware_dir: HardwareDir = [],
    models_dir: ModelsDir = [],
) -> Answer[PriceSheet]:
    """Show every price of a GPU, a provider or a model, with dates and sources."""
    return price_show(name, on=day_named(on), hardware_dirs=hardware_dir, models_dirs=models_dir)


@app.command("import")
@answers(price_import_view)
def import_command(
    file: Annotated[Path, typer.Argument(help="A gpuhunt CSV or zip, or a table with the shipped columns.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A .csv to write, as hardware/prices/mine.csv.")
    ] = None,
    provider: Annotated[str | None, typer.Option("--provider", help="Whose prices [the file's name].")] = None,
    on: Annotated[str | None, typer.Option("--on", help="The day that the catalog is of [today].")] = None,
) -> Answer[ImportedPrices]:
    """Read a price catalog and write it as a table that every command reads."""
    return price_import(file, output=output, provider=provider, on=day_named(on))


def day_named(text: str | None) -> datetime.date | None:
    """A date as users write it."""
    if text is None:
        return None
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text[:40]!r} is not a date such as 2026-11-01", where="--on") from None
