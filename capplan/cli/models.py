"""``capplan models``: list, show, import and validate model descriptions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from capplan.cli.options import IgnoreKey, ModelsDir
from capplan.cli.output import answers
from capplan.questions.answer import Answer
from capplan.questions.checks import FileChecks
from capplan.questions.models import (
    ModelDetail,
    ModelList,
    import_model,
    list_models,
    show_model,
    validate_models,
)
from capplan.report.views.checks import checks_view
from capplan.report.views.models import model_detail_view, model_list_view, model_yaml_view

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Model descriptions.",
    pretty_exceptions_enable=False,
)


@app.command("list")
@answers(model_list_view)
def list_command(models_dir: ModelsDir = []) -> Answer[ModelList]:
    """List every model of the catalog with its sizes."""
    return list_models(models_dirs=models_dir)


@app.command("show")
@answers(model_detail_view)
def show_command(
    name: Annotated[str, typer.Argument(help="Anything that --model takes.")],
    models_dir: ModelsDir = [],
    ignore_key: IgnoreKey = [],
) -> Answer[ModelDetail]:
    """Show one model: its layers in order, and what they are made of."""
    return show_model(name, models_dirs=models_dir, ignore_keys=ignore_key)


@app.command("import")
@answers(model_yaml_view)
def import_command(
    config: Annotated[Path, typer.Argument(help="A config.json or a checkpoint's folder.")],
    name: Annotated[str | None, typer.Option("--name", help="The name of the description.")] = None,
    huggingface_id: Annotated[str | None, typer.Option("--huggingface-id", help="The id on the hub.")] = None,
    output: Annotated[Path | None, typer.Option("--output", help="Write the description to this file.")] = None,
    ignore_key: IgnoreKey = [],
) -> Answer[ModelDetail]:
    """Turn a config.json into a YAML description, printed and, with --output, written."""
    return import_model(config, name=name, huggingface_id=huggingface_id, output=output, ignore_keys=ignore_key)


@app.command("validate")
@answers(checks_view)
def validate_command(files: Annotated[list[Path], typer.Argument(help="YAML descriptions.")]) -> Answer[FileChecks]:
    """Check YAML descriptions; exit 2 when one is invalid."""
    return validate_models(files)
