"""Read documents that capplan itself printed with ``--json``, to set one beside another."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from capplan.describe.yaml_file import read_text
from capplan.errors import InvalidFileError, NotFoundError, UsageError
from capplan.questions.answer import SCHEMA_VERSION

MOST_BYTES = 64 << 20
MOST, LEAST_DIGIT = Decimal("1e24"), -60
"""Figures lie below this, and have no digits beyond that power of ten."""

COMMANDS = ("plan", "cost", "estimate")
"""Commands whose documents can be compared."""


@dataclass(frozen=True)
class Document:
    """One document, with its figures at hand.

    Args:
        name: the file, and the row of a list of plans.
        command: that printed it.
        inputs: what was asked.
        figures: the answer: of a list of plans the one of the row.
    """

    name: str
    command: str
    inputs: Mapping[str, Any]
    figures: Mapping[str, Any]

    def number(self, key: str) -> Decimal | None:
        """A figure, or an amount of money; None where there is none.

        Raises:
            InvalidFileError: a figure that capplan does not print.
        """
        return figure_of(self.figures, key, self.name)


def figure_of(figures: Mapping[str, Any], key: str, where: str) -> Decimal | None:
    """A figure, or an amount of money, of a part of a document; None where there is none.

    Raises:
        InvalidFileError: a figure that capplan does not print.
    """
    value = figures.get(key)
    if value is None or isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = Decimal(str(value))
    except ArithmeticError:
        number = Decimal("NaN")
    if not number.is_finite() or not -MOST < number < MOST or number.as_tuple().exponent < LEAST_DIGIT:  # type: ignore[operator]
        raise InvalidFileError(f"{key} is no figure but {str(value)[:40]!r}", where=where)
    return number


def read_document(reference: str) -> Document:
    """The document of a file; ``plans.json#2`` is the second plan of a list.

    Raises:
        NotFoundError: no such file or row.
        InvalidFileError: not a document of a command that can be compared.
    """
    path, _, row = reference.partition("#")
    data = _parsed(Path(path))
    command = data.get("command")
    if command not in COMMANDS or not isinstance(data.get("result"), dict):
        raise InvalidFileError(
            f"this is a document of {str(command)[:40]!r}" if command else "this is no document of capplan's",
            where=path,
            hint=f"print one with --json: {', '.join(COMMANDS)}",
        )
    if data.get("schema_version") != SCHEMA_VERSION:
        raise InvalidFileError(f"its schema_version is not {SCHEMA_VERSION}", where=path)
    result, inputs = data["result"], data.get("inputs")
    inputs = inputs if isinstance(inputs, dict) else {}
    if command != "plan":
        if row:
            raise UsageError(f"a document of {command} has no rows", where=reference)
        return Document(reference, command, inputs, result)
    plans = result.get("plans")
    return Document(reference, command, inputs, _row(plans if isinstance(plans, list) else [], row or "1", reference))


def _row(plans: list[Any], text: str, where: str) -> Mapping[str, Any]:
    number = int(text) if text.isdecimal() and len(text) < 6 else 0
    if not 1 <= number <= len(plans) or not isinstance(plans[number - 1], dict):
        raise NotFoundError(f"there are {len(plans)} plans, no row {text[:20]!r}", where=where)
    found: Mapping[str, Any] = plans[number - 1]
    return found


def _parsed(path: Path) -> Mapping[str, Any]:
    text = read_text(path, MOST_BYTES)
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise InvalidFileError("this is not valid JSON", where=f"{path}:{line}") from None
    if not isinstance(data, dict):
        raise InvalidFileError("this is no document of capplan's", where=str(path))
    return data
