"""The three sums that a step's time is made of, for many steps at once.

Most operators of a step depend on few of the sizes that a sweep varies: a product on the number of tokens, attention on
the context. Each operator is therefore timed once for every distinct set of its own sizes, and the results are spread
over the steps that have them. For one step, or a few, this is `capplan.timing.step_time.step_time` itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from capplan.timing.kernel_laws.terms import Quantity, is_array
from capplan.timing.machine import Machine
from capplan.timing.operator_time import OperatorParts, holds_arrays, operator_parts
from capplan.timing.roofline import Bound
from capplan.work.operators import Operator

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

FEW = 64
"""Steps up to which looking for distinct sizes costs more than it saves."""


@dataclass(frozen=True, slots=True)
class StepSums:
    """Sums over all operators of a step.

    Args:
        bodies: seconds of the kernels' bodies, measured alone.
        launches: seconds of their launches.
        bound: the datasheet's bound of the whole step.
    """

    bodies: Quantity
    launches: Quantity
    bound: Quantity


@dataclass(frozen=True, slots=True)
class Distinct:
    """The distinct rows of some columns.

    Args:
        first: where each stands first.
        places: which of them each row is.
    """

    first: npt.NDArray[np.intp]
    places: npt.NDArray[np.intp]


class _Columns:
    """Finds distinct rows, once for the same columns."""

    def __init__(self) -> None:
        self._single: dict[int, Distinct] = {}
        self._several: dict[tuple[int, ...], Distinct] = {}

    def distinct(self, columns: list[Any]) -> Distinct:
        """The distinct rows of columns that the caller keeps alive."""
        key = tuple(dict.fromkeys(map(id, columns)))
        if key not in self._several:
            unique = {id(column): column for column in columns}
            found = self._of(unique[key[0]])
            for name in key[1:]:
                found = _crossed(found, self._of(unique[name]))
            self._several[key] = found
        return self._several[key]

    def _of(self, column: Any) -> Distinct:
        found = self._single.get(id(column))
        if found is None:
            import numpy as np

            _, first, places = np.unique(column, return_index=True, return_inverse=True)
            found = self._single[id(column)] = Distinct(first, places)
        return found


def _crossed(one: Distinct, other: Distinct) -> Distinct:
    import numpy as np

    if len(other.first) == 1:
        return one
    codes = one.places * len(other.first) + other.places
    _, first, places = np.unique(codes, return_index=True, return_inverse=True)
    return Distinct(first, places)


@dataclass(frozen=True, slots=True)
class Alike:
    """Operators that share their distinct rows.

    Args:
        rows: those rows; None: the operators are as they were.
        operators: their arrays reduced to the distinct rows.
    """

    rows: Distinct | None
    operators: tuple[Operator, ...]

    def spread(self, value: Quantity) -> Quantity:
        """A value of the distinct rows for every row."""
        return value[self.rows.places] if self.rows is not None and is_array(value) else value  # type: ignore[index]


def step_sums(operators: Iterable[Operator], machine: Machine) -> StepSums:
    """``Σ bodies``, ``Σ launches`` and the bound of steps whose operators hold arrays of one length.

    Args:
        operators: of the steps; any figure may be a number or an array.
        machine: what they run on.
    """
    return sums_of(laid_out(operators), machine)


def laid_out(operators: Iterable[Operator]) -> tuple[Alike, ...]:
    """The operators of steps by the rows that are distinct for each: what no machine changes."""
    columns, groups = _Columns(), dict[int, tuple[Distinct | None, list[Operator]]]()
    for operator in operators:
        sizes = [value for value in leaves(operator.shape) if is_array(value)] if holds_arrays(operator) else []
        if is_array(operator.count):
            sizes.append(operator.count)
        rows = columns.distinct(sizes) if sizes and len(sizes[0]) > FEW else None
        reduced = taken(operator, rows.first) if rows is not None else operator
        groups.setdefault(id(rows), (rows, []))[1].append(reduced)
    return tuple(Alike(rows, tuple(reduced)) for rows, reduced in groups.values())


def sums_of(
    groups: tuple[Alike, ...],
    machine: Machine,
    parts_of: Callable[[Operator, Machine], OperatorParts] = operator_parts,
) -> StepSums:
    """`step_sums` of operators that are laid out.

    Args:
        groups: of the steps.
        machine: what they run on.
        parts_of: times one operator; a search that meets operators again and again remembers them.
    """
    bodies: Quantity = 0.0
    launches: Quantity = 0.0
    stages: dict[int, Bound] = {}
    for group in groups:
        body: Quantity = 0.0
        launch: Quantity = 0.0
        bounds: dict[int, Bound] = {}
        for operator in group.operators:
            parts = parts_of(operator, machine)
            body, launch = body + parts.body, launch + parts.launch
            bounds[operator.stage] = bounds.get(operator.stage, Bound()) + parts.required
        bodies, launches = bodies + group.spread(body), launches + group.spread(launch)
        for stage, bound in bounds.items():
            spread = Bound(*(group.spread(getattr(bound, entry.name)) for entry in fields(Bound)))
            stages[stage] = stages.get(stage, Bound()) + spread
    return StepSums(bodies, launches, sum((stage.seconds for stage in stages.values()), start=0.0))


def leaves(value: Any) -> list[Any]:
    """The figures of a dataclass, nested ones included."""
    if is_dataclass(value):
        return [leaf for entry in fields(value) for leaf in leaves(getattr(value, entry.name))]
    return [value]


def taken(value: Any, rows: Any) -> Any:
    """A dataclass with every array in it reduced to some rows."""
    if is_array(value):
        return value[rows]
    if not is_dataclass(value) or isinstance(value, type):
        return value
    reduced = {entry.name: taken(getattr(value, entry.name), rows) for entry in fields(value)}
    changed = {name: new for name, new in reduced.items() if new is not getattr(value, name)}
    return replace(value, **changed) if changed else value
