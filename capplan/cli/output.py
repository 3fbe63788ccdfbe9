"""The way out for every command: one place that prints answers and errors, and knows the exit codes."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from capplan.errors import CapplanError, UsageError

if TYPE_CHECKING:
    from capplan.questions.answer import Answer
    from capplan.report.charts import Chart
    from capplan.report.tables import Table, View

_PANEL = "Output"


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
    chart: Callable[[Answer[Any]], Chart] | None = None


def answers(
    view: Callable[[Answer[Any]], View],
    *,
    table: Callable[[Answer[Any]], Table] | None = None,
    chart: Callable[[Answer[Any]], Chart] | None = None,
) -> Callable[[Callable[..., Answer[Any]]], Callable[..., int]]:
    """Turn a function that returns an `Answer` into a command that prints it, with the output flags added."""
    looks = Looks(view, table, chart)
    flags = [*_OUTPUT_PARAMETERS, _PLOT_PARAMETER] if chart else _OUTPUT_PARAMETERS

    def decorate(question: Callable[..., Answer[Any]]) -> Callable[..., int]:
        signature = inspect.signature(question, eval_str=True)

        def command(**arguments: Any) -> int:
            arguments.pop("debug")
            given = {name: arguments.pop(name) for name in vars(OutputOptions()) if name in arguments}
            answer = question(**arguments)
            print_answer(answer, looks, OutputOptions(**given))
            return answer.exit_code

        parameters = [*signature.parameters.values(), *flags]
        keyword = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
        command.__signature__ = signature.replace(parameters=keyword, return_annotation=None)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in keyword}
        command.__name__ = question.__name__
        command.__doc__ = question.__doc__
        return command

    return decorate


def print_answer(answer: Answer[Any], looks: Looks, options: OutputOptions) -> None:
    """Print an answer in the form that was asked for, and draw it where that was asked for too."""
    drawing = plotted(answer, looks, options) if options.plot else ""
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
        tables.print_rich(shown, notes, color=wants_color(options.no_color))
        if drawing:
            write(f"\n{drawing}")
        return
    lines = "\n".join(f"{label}: {text}" for label, text in notes)
    write("\n\n".join(part for part in (tables.to_text(shown), drawing, lines) if part))


def write_table(answer: Answer[Any], looks: Looks, options: OutputOptions) -> None:
    """Print an answer's table as CSV or Markdown."""
    from capplan.report import tables

    table = looks.table(answer) if looks.table else looks.view(answer).main
    if table is None:
        raise UsageError("this answer is not a table", where="--csv" if options.csv else "--markdown", hint="--json")
    write(tables.to_csv(table) if options.csv else tables.to_markdown(table))


def plotted(answer: Answer[Any], looks: Looks, options: OutputOptions) -> str:
    """Draw an answer into the file that was asked for, or return the drawing for the terminal."""
    from capplan.report.plots import FLAG, draw_chart, save_chart

    assert looks.chart is not None
    assert options.plot is not None
    chart = looks.chart(answer)
    if options.plot != "-":
        save_chart(chart, options.plot)
        print(f"wrote {options.plot}", file=sys.stderr)
        return ""
    if options.json or options.csv or options.markdown:
        raise UsageError("standard output already carries the answer", where=FLAG, hint="name a file to draw into")
    return draw_chart(chart, plain=not draws_dots())


def draws_dots() -> bool:
    """Whether the reader's terminal shows more than ASCII."""
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
    return os.environ.get("TERM") != "dumb" and encoding.startswith("utf")


class PipeClosedError(Exception):
    """The reader of standard output has gone away: nothing more to say, and no mistake."""


def write(text: str) -> None:
    """Print to standard output, whole."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise PipeClosedError from None


def wants_terminal() -> bool:
    """Whether a person reads the output on a terminal (or asked for its looks)."""
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def wants_color(no_color: bool) -> bool:
    """Whether colours are wanted: ``--no-color`` and ``NO_COLOR`` switch them off."""
    return not no_color and not os.environ.get("NO_COLOR")


def print_error(error: CapplanError, *, json: bool) -> None:
    """One block: what is wrong, where, how to mend it."""
    if json:
        from capplan.report.document import error_document, to_json

        print(to_json(error_document(error)))
        return
    lines = [f"error: {error.message}"]
    if error.where:
        lines.append(f"  where: {error.where}")
    if error.hint:
        lines.append(f"  hint:  {error.hint}")
    print("\n".join(lines), file=sys.stderr)
