"""What every question returns: the figures, and everything that is needed to trust them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

R = TypeVar("R")

SCHEMA_VERSION = 1

Provenance = Literal["exact", "measured", "fitted", "extrapolated", "assumed"]


@dataclass(frozen=True)
class Explained:
    """One step of an answer: its formula in symbols, the numbers put into it, and what came out.

    Args:
        name: what is computed.
        formula: the formula in the field's symbols.
        numbers: the same formula with the numbers in it.
        value: the result in its base unit.
        unit: the base unit (``B``, ``FLOP``, ``s``, ``parameters``, ...).
        source: where the formula or a figure in it comes from.
    """

    name: str
    formula: str
    numbers: str
    value: int | float
    unit: str
    source: str = ""


@dataclass(frozen=True)
class Answer(Generic[R]):
    """The answer to one question.

    Args:
        command: the command that asks it.
        inputs: the inputs as resolved.
        result: the figures.
        explanation: every step from the inputs to the figures.
        assumptions: what was taken for granted.
        warnings: what may mislead.
        sources: where the figures that went in came from.
        provenance: how each figure of the result was come by, by its path.
        exit_code: what the process exits with: 0, or that of a verdict that was asked for.
    """

    command: str
    inputs: dict[str, Any]
    result: R
    explanation: tuple[Explained, ...] = ()
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    provenance: dict[str, Provenance] = field(default_factory=dict)
    exit_code: int = 0
