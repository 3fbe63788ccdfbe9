"""The JSON document of an answer or of an error: fixed order, no NaN, the same bytes for the same input."""

from __future__ import annotations

import json
import math
from dataclasses import fields, is_dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from capplan import __version__
from capplan.errors import CapplanError
from capplan.questions.answer import SCHEMA_VERSION, Answer


def answer_document(answer: Answer[Any], *, explain: bool = False) -> dict[str, Any]:
    """The document of an answer, as plain data."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "capplan_version": __version__,
        "command": answer.command,
        "inputs": plain(answer.inputs),
        "result": plain(answer.result),
        "provenance": dict(answer.provenance),
        "assumptions": list(answer.assumptions),
        "warnings": list(answer.warnings),
        "sources": list(answer.sources),
    }
    if explain:
        document["explanation"] = [plain(line) for line in answer.explanation]
    return document


def error_document(error: CapplanError) -> dict[str, Any]:
    """The document of an error."""
    return {"error": error.as_dict()}


def to_json(document: dict[str, Any]) -> str:
    """The text of a document, in ASCII: the same bytes on every encoding."""
    return json.dumps(document, indent=2, allow_nan=False)


def plain(value: Any) -> Any:
    """Dataclasses, fractions, money and paths as what JSON has; infinite and undefined numbers become null."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, Fraction):
        return value.numerator if value.denominator == 1 else float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, Path):
        return str(value)
    return value
