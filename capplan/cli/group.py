"""The group of all commands, which imports a command's module only when that command is asked for."""

from __future__ import annotations

import importlib
from typing import Any

import typer
from typer.core import TyperGroup

from capplan.cli.streams import write


def build(commands: dict[str, tuple[str, str]]) -> Any:
    """The command group over the table of commands."""

    class Commands(TyperGroup):
        """Looks commands up in the table."""

        def list_commands(self, ctx: Any) -> list[str]:
            return list(commands)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            if cmd_name not in commands:
                return None
            module, summary = commands[cmd_name]
            app: typer.Typer = importlib.import_module(f"capplan.cli.{module}").app
            command = typer.main.get_command(app)
            command.name = cmd_name
            command.short_help = summary
            return command

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            name = args[0] if args else ""
            if name and not name.startswith("-") and name not in commands:
                from capplan.errors import UsageError, did_you_mean

                raise UsageError(
                    f"there is no command {name[:40]!r}",
                    where="capplan",
                    hint=did_you_mean(name, commands) or "capplan --help lists them",
                )
            return super().resolve_command(ctx, args)

    app = typer.Typer(
        cls=Commands,
        name="capplan",
        help="Capacity and cost planner for LLM inference: memory, speed and dollars, with the working shown.",
        no_args_is_help=True,
        add_completion=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback(invoke_without_command=True)
    def root(
        version: bool = typer.Option(False, "--version", "-V", help="Print the version."),
    ) -> None:
        """Capacity and cost planner for LLM inference: memory, speed and dollars, with the working shown."""
        if version:
            from capplan import __version__

            write(f"capplan {__version__}")
            raise typer.Exit()

    return typer.main.get_command(app)
