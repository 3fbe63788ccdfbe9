"""Steps that many servers of one search have in common: ledgers, and operators on a device, worked out once.

A search asks for the same loads of servers that differ in little: in the cache's format, in how experts are divided, in
the device. Their ledgers are the same for every device, and most of their operators are the same for every division of
the rest.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np

from capplan.identity import Same
from capplan.serving.replica import Replica
from capplan.timing.machine import Machine
from capplan.timing.operator_time import OperatorParts, operator_parts
from capplan.timing.step_sums import Alike, StepSums, laid_out, sums_of
from capplan.work.operators import Operator
from capplan.work.step import Step, ledger

_UNTIMED = frozenset({"component", "stage"})
"""What of an operator its time does not depend on."""


class StepMemory:
    """What one search remembers; its `sums` is what a `capplan.serving.replica.Replica` is `summed_by`."""

    def __init__(self) -> None:
        self._steps: dict[Any, tuple[Alike, ...]] = {}
        self._numbers: dict[Any, int] = {}
        self._of_operator: dict[int, int] = {}
        self._parts: dict[tuple[int, Same[Machine]], OperatorParts] = {}
        self._sums: dict[Any, StepSums] = {}

    def sums(self, replica: Replica, step: Step) -> StepSums:
        """What a step of a server, or each of many, is made of."""
        step_key = (Same(replica.spec), replica.sharding, Same(replica.formats), content(step))
        key = (step_key, Same(replica.machine))
        if key not in self._sums:
            self._sums[key] = sums_of(self._groups(step_key, replica, step), replica.machine, self._known)
        return self._sums[key]

    def _groups(self, key: Any, replica: Replica, step: Step) -> tuple[Alike, ...]:
        """The operators of a step, which no machine changes."""
        if key not in self._steps:
            operators = ledger(replica.spec, step, replica.sharding, replica.formats).operators
            self._steps[key] = groups = laid_out(operators)
            for group in groups:
                self._of_operator |= {id(operator): self._number(operator) for operator in group.operators}
        return self._steps[key]

    def _number(self, operator: Operator) -> int:
        """The same for all operators that take the same time on any machine."""
        return self._numbers.setdefault(content(operator, _UNTIMED), len(self._numbers))

    def _known(self, operator: Operator, machine: Machine) -> OperatorParts:
        key = (self._of_operator[id(operator)], Same(machine))
        found = self._parts.get(key)
        if found is None:
            found = self._parts[key] = operator_parts(operator, machine)
        return found


def content(value: Any, without: frozenset[str] = frozenset()) -> Any:
    """A value with arrays in it as something that can be compared; of a dataclass some fields may be left out."""
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    kind: Any = type(value)
    values = _values_of(kind, without)
    if values is not None:
        return kind.__name__, *map(content, values(value))
    return tuple(map(content, value)) if kind is tuple else value


@cache
def _values_of(kind: Any, without: frozenset[str]) -> Any:
    """What reads the fields of a dataclass, all at once; None: it is none."""
    if not is_dataclass(kind):
        return None
    names = [entry.name for entry in fields(kind) if entry.name not in without]
    return attrgetter(*names) if len(names) > 1 else lambda value: tuple(getattr(value, name) for name in names)
