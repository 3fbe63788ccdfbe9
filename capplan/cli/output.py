"""The way out for every command: one place that prints answers and errors, and knows the exit codes."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from capplan.cli.streams import UnwritableError, tell, write
from capplan.errors import CapplanError, UsageError

if TYPE_CHECKING:
    from capplan.questions.answer import Answer
    from capplan.report.charts import Drawing
    from capplan.report.tables import Table, View

_PANEL = "Output"

HERE = "-"
"""What ``--plot`` takes for the terminal."""


@dataclass(frozen=True)
class OutputOptions:
    """How the user wants to see the answer."""

    json: bool = False
    explain: bool = False
    csv: bool = False
    markdown: bool = False
    no_color: bool = False
    plot: str | None = None


Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.", rich_help_panel=_PANEL)]
Explain = Annotated[bool, typer.Option("--explain", help="Show the working.", rich_help_panel=_PANEL)]
Csv = Annotated[bool, typer.Option("--csv", help="Print the table as CSV, in base units.", rich_help_panel=_PANEL)]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown.", rich_help_panel=_PANEL)]
NoColor = Annotated[bool, typer.Option("--no-color", help="Print without colours.", rich_help_panel=_PANEL)]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of a bug.", rich_help_panel=_PANEL)]

Plot = Annotated[
    str | None, typer.Option("--plot", help="Draw into a .svg, .html or .png file, or - here.", rich_help_panel=_PANEL)
]

_OUTPUT_PARAMETERS = [
    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation)
    for name, annotation in (
        ("json", Json),
        ("explain", Explain),
        ("csv", Csv),
        ("markdown", Markdown),
        ("no_color", NoColor),
        ("debug", Debug),
    )
]
_PLOT_PARAMETER = inspect.Parameter("plot", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Plot)


@dataclass(frozen=True)
class Looks:
    """How an answer is shown.

    Args:
        view: for people.
        table: what CSV and Markdown carry; None: the view's first table.
        chart: what ``--plot`` draws; None: the answer is no curve.
    """

    view: Callable[[Answer[Any]], View]
    table: Callable[[Answer[Any]], Table] | None = None
    chart: Callable[[Answer[Any]], Drawing] | None = None


def answers(
    view: Callable[[Answer[Any]], View],
    *,
    table: Callable[[Answer[Any]], Table] | None = None,
    chart: Callable[[Answer[Any]], Drawing] | None = None,
) -> Callable[[Callable[..., Answer[Any]]], Callable[..., int]]:
    """Turn a function that returns an `Answer` into a command that prints it, with the output flags added."""
    looks = Looks(view, table, chart)
    flags = [*_OUTPUT_PARAMETERS, _PLOT_PARAMETER] if chart else _OUTPUT_PARAMETERS

    def decorate(question: Callable[..., Answer[Any]]) -> Callable[..., int]:
        signature = inspect.signature(question, eval_str=True)

        def command(**arguments: Any) -> int:
            arguments.pop("debug")
            options = OutputOptions(
                **{name: arguments.pop(name) for name in vars(OutputOptions()) if name in arguments}
            )
            check_plot(options)
            return print_answer(question(**arguments), looks, options)

        parameters = [*signature.parameters.values(), *flags]
        keyword = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
        command.__signature__ = signature.replace(parameters=keyword, return_annotation=None)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in keyword}
        command.__name__ = question.__name__
        command.__doc__ = question.__doc__
        return command

    return decorate


def check_plot(options: OutputOptions) -> None:
    """Refuse, before anything is worked out, a drawing that has no place to go.

    Raises:
        UsageError: a file of another kind, or the terminal where the answer is for a program.
    """
    if options.plot is None:
        return
    from capplan.report.plots import FLAG, check_target

    if options.plot != HERE:
        check_target(options.plot)
    elif options.json or options.csv or options.markdown:
        raise UsageError("standard output already carries the answer", where=FLAG, hint="name a file to draw into")


def print_answer(answer: Answer[Any], looks: Looks, options: OutputOptions) -> int:
    """Print an answer in the form that was asked for, whatever becomes of the drawing that was asked for too.

    Returns:
        The exit code: the answer's own, or that of a drawing that could not be made.
    """
    drawing, refused = "", None
    try:
        drawing = drawn_here(answer, looks) if options.plot == HERE else ""
    except CapplanError as error:
        refused = error
    show_answer(answer, looks, options, drawing)
    try:
        if options.plot not in (None, HERE):
            draw_into(answer, looks, str(options.plot))
    except CapplanError as error:
        refused = error
    if refused is None:
        return answer.exit_code
    print_error(refused, json=False)
    return refused.exit_code


def show_answer(answer: Answer[Any], looks: Looks, options: OutputOptions, drawing: str = "") -> None:
    """Print an answer in the form that was asked for, with a drawing beside it where people read it."""
    if options.json:
        from capplan.report.document import answer_document, to_json

        write(to_json(answer_document(answer, explain=options.explain)))
        return
    if options.csv or options.markdown:
        write_table(answer, looks, options)
        return
    from dataclasses import replace

    from capplan.report import tables

    shown = looks.view(answer)
    if shown.verbatim:
        write(shown.verbatim)
        return
    if options.explain and answer.explanation:
        from capplan.report.explain import explanation_table

        shown = replace(shown, sections=(*shown.sections, explanation_table(answer.explanation)))
    notes = [("warning", text) for text in answer.warnings] + [("assumed", text) for text in answer.assumptions]
    if options.explain:
        notes += [("source", text) for text in answer.sources]
    if wants_terminal():
        write(tables.to_rich(shown, notes, color=wants_color(options.no_color)))
        if drawing:
            write(f"\n{drawing}")
        return
    lines = "\n".join(f"{label}: {text}" for label, text in notes)
    write("\n\n".join(part for part in (tables.to_text(shown), drawing, lines) if part))


def write_table(answer: Answer[Any], looks: Looks, options: OutputOptions) -> None:
    """Print an answer's table as CSV or Markdown; what may mislead goes to standard error."""
    from capplan.report import tables

    table = looks.table(answer) if looks.table else looks.view(answer).main
    if table is None:
        raise UsageError("this answer is not a table", where="--csv" if options.csv else "--markdown", hint="--json")
    write(tables.to_csv(table) if options.csv else tables.to_markdown(table))
    for text in answer.warnings:
        tell(f"warning: {text}")


def drawn_here(answer: Answer[Any], looks: Looks) -> str:
    """The drawing of an answer for the terminal."""
    from capplan.report.plots import draw_chart

    assert looks.chart is not None
    return draw_chart(looks.chart(answer), plain=not draws_dots())


def draw_into(answer: Answer[Any], looks: Looks, target: str) -> None:
    """Draw an answer into a file."""
    from capplan.report.plots import save_chart

    assert looks.chart is not None
    save_chart(looks.chart(answer), target)
    tell(f"wrote {target}")


def draws_dots() -> bool:
    """Whether the reader's terminal shows more than ASCII."""
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
    return os.environ.get("TERM") != "dumb" and encoding.startswith("utf")


def wants_terminal() -> bool:
    """Whether a person reads the output on a terminal (or asked for its looks)."""
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def wants_color(no_color: bool) -> bool:
    """Whether colours are wanted: ``--no-color`` and ``NO_COLOR`` switch them off."""
    return not no_color and not os.environ.get("NO_COLOR")


def print_error(error: CapplanError, *, json: bool) -> None:
    """One block: what is wrong, where, how to mend it; as JSON on standard output where that can be written."""
    if json:
        from capplan.report.document import error_document, to_json

        with contextlib.suppress(UnwritableError):
            write(to_json(error_document(error)))
            return
    lines = [f"error: {error.message}"]
    if error.where:
        lines.append(f"  where: {error.where}")
    if error.hint:
        lines.append(f"  hint:  {error.hint}")
    tell("\n".join(lines))
