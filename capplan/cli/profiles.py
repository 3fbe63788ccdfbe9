"""``capplan profiles``: list and show measured devices."""

from __future__ import annotations

from typing import Annotated

import typer

from capplan.cli.output import answers
from capplan.cli.setting import ProfilesDir
from capplan.questions.answer import Answer
from capplan.questions.profiles import ProfileDetail, ProfileList, profile_list, profile_show
from capplan.report.views.profiles import profile_list_view, profile_view

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Profiles of measured devices.",
    pretty_exceptions_enable=False,
)


@app.command("list")
@answers(profile_list_view)
def list_command(profiles_dir: ProfilesDir = []) -> Answer[ProfileList]:
    """List every measured device."""
    return profile_list(profiles_dirs=profiles_dir)


@app.command("show")
@answers(profile_view)
def show_command(
    name: Annotated[str, typer.Argument(help="A device's name or alias, or a YAML file.")],
    profiles_dir: ProfilesDir = [],
) -> Answer[ProfileDetail]:
    """Show one profile: the constants of every fitted kernel, their errors and their domains."""
    return profile_show(name, profiles_dirs=profiles_dir)
