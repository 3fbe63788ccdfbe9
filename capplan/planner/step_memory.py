"""Steps that many servers of one search have in common: ledgers, and operators on a device, worked out once.

A search asks for the same loads of servers that differ in little: in the cache's format, in how experts are divided, in
the device. Their ledgers are the same for every device, and most of their operators are the same for every division of
the rest.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from capplan.identity import Same
from capplan.serving.replica import Replica
from capplan.timing.machine import Machine
from capplan.timing.operator_time import OperatorParts, operator_parts
from capplan.timing.step_sums import StepSums, step_sums
from capplan.work.operators import Operator
from capplan.work.step import Step, ledger


class StepMemory:
    """What one search remembers; its `sums` is what a `capplan.serving.replica.Replica` is `summed_by`."""

    def __init__(self) -> None:
        self._ledgers: dict[Any, tuple[Operator, ...]] = {}
        self._contents: dict[int, Any] = {}
        self._parts: dict[Any, OperatorParts] = {}

    def sums(self, replica: Replica, step: Step) -> StepSums:
        """What a step of a server, or each of many, is made of."""
        key = (Same(replica.spec), replica.sharding, Same(replica.formats), content(step))
        if key not in self._ledgers:
            operators = ledger(replica.spec, step, replica.sharding, replica.formats).operators
            self._ledgers[key] = operators
            self._contents |= {id(operator): _calculated(operator) for operator in operators}
        return step_sums(self._ledgers[key], replica.machine, self._known)

    def _known(self, operator: Operator, machine: Machine) -> OperatorParts:
        contents = self._contents.get(id(operator))
        if contents is None:
            return operator_parts(operator, machine)
        key = (Same(machine), contents)
        if key not in self._parts:
            self._parts[key] = operator_parts(operator, machine)
        return self._parts[key]


def _calculated(operator: Operator) -> Any:
    """Everything that an operator's time depends on."""
    return tuple(
        content(getattr(operator, entry.name)) for entry in fields(operator) if entry.name not in ("component", "stage")
    )


def content(value: Any) -> Any:
    """A value with arrays in it as something that can be compared."""
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    if is_dataclass(value):
        return type(value).__name__, *(content(getattr(value, entry.name)) for entry in fields(value))
    return tuple(map(content, value)) if isinstance(value, tuple) else value
