"""``capplan gpus``: list, show and validate GPU descriptions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from capplan.cli.options import HardwareDir
from capplan.cli.output import answers
from capplan.describe.gpu import GpuSpec
from capplan.questions.answer import Answer
from capplan.questions.checks import FileChecks
from capplan.questions.gpus import GpuList, gpu_list, gpu_show, gpu_validate
from capplan.report.views.checks import checks_view
from capplan.report.views.gpus import gpu_list_view, gpu_view

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="GPU descriptions.",
    pretty_exceptions_enable=False,
)


@app.command("list")
@answers(gpu_list_view)
def list_command(
    hardware_dir: HardwareDir = [],
    mig: Annotated[bool, typer.Option("--mig", help="List MIG slices, too.")] = False,
) -> Answer[GpuList]:
    """List every device of the catalog."""
    return gpu_list(hardware_dirs=hardware_dir, mig=mig)


@app.command("show")
@answers(gpu_view)
def show_command(
    name: Annotated[str, typer.Argument(help="A name or alias, a YAML file, or auto for the local device.")],
    hardware_dir: HardwareDir = [],
) -> Answer[GpuSpec]:
    """Show one device: memory, dense rates, links, and what is doubtful."""
    return gpu_show(name, hardware_dirs=hardware_dir)


@app.command("validate")
@answers(checks_view)
def validate_command(files: Annotated[list[Path], typer.Argument(help="YAML descriptions.")]) -> Answer[FileChecks]:
    """Check YAML descriptions; exit 2 when one is invalid."""
    return gpu_validate(files)
