"""The short way for a command line that is plainly right.

Typer builds a validator for every option before it reads the first one, which takes longer than most answers. A line
made of nothing but a command's own options, each spelled in full and with its value, needs none of that: `quick`
reads it from the same annotations that typer would. For anything else (help, completion, positional arguments, a
mistake of any kind) it returns None, and typer takes the line from the start. A test holds both ways equal.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.models import OptionInfo


@dataclass(frozen=True)
class _Option:
    """One option: the parameter it fills, and whether it is a flag or repeats."""

    parameter: str
    flag: bool
    many: bool
    item: type


def quick(command: Callable[..., Any], words: Sequence[str]) -> dict[str, Any] | None:
    """The keyword arguments of `command` for a plain line, or None."""
    parameters = inspect.signature(command).parameters
    table = _table(parameters)
    if table is None:
        return None
    arguments: dict[str, Any] = {}
    rest = list(words)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        option = table.get(name)
        if option is None or (equals and not name.startswith("--")):
            return None
        if option.flag:
            if equals:
                return None
            arguments[option.parameter] = True
            continue
        if not equals:
            if not rest or rest[0].startswith("-"):
                return None
            value = rest.pop(0)
        item = option.item(value)
        if option.many:
            arguments.setdefault(option.parameter, []).append(item)
        else:
            arguments[option.parameter] = item
    for name, parameter in parameters.items():
        if name not in arguments:
            if parameter.default is inspect.Parameter.empty:
                return None
            arguments[name] = parameter.default
    return arguments


def _table(parameters: typing.Mapping[str, inspect.Parameter]) -> dict[str, _Option] | None:
    """Options by every spelling; None when a parameter is of a kind that only typer reads."""
    table: dict[str, _Option] = {}
    for name, parameter in parameters.items():
        info = next((item for item in _metadata(parameter.annotation) if isinstance(item, OptionInfo)), None)
        if info is None:
            return None
        kind = typing.get_args(parameter.annotation)[0]
        if typing.get_origin(kind) in (typing.Union, types.UnionType):
            kind = next(choice for choice in typing.get_args(kind) if choice is not type(None))
        many = typing.get_origin(kind) is list
        item = typing.get_args(kind)[0] if many else kind
        if item not in (str, bool, Path):
            return None
        spellings = spelled(info) or (f"--{name.replace('_', '-')}",)
        table.update(dict.fromkeys(spellings, _Option(name, item is bool, many, item)))
    return table


def spelled(info: OptionInfo) -> tuple[str, ...]:
    """The spellings of an option; inside `Annotated`, typer keeps the first one where the default would stand."""
    first = (info.default,) if isinstance(info.default, str) else ()
    return (*first, *(info.param_decls or ()))


def _metadata(annotation: Any) -> tuple[Any, ...]:
    return getattr(annotation, "__metadata__", ())
