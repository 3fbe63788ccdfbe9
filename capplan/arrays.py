"""Arithmetic that works on plain integers and, where a sweep passes them, on NumPy arrays.

NumPy is imported only when an array comes in, so that a single answer never pays for it.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any


def minimum(a: Any, b: Any) -> Any:
    """The smaller of two numbers, elementwise for arrays."""
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return min(a, b)
    import numpy

    return numpy.minimum(a, b)


def maximum(a: Any, b: Any) -> Any:
    """The larger of two numbers, elementwise for arrays."""
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return max(a, b)
    import numpy

    return numpy.maximum(a, b)


def ceil_div(a: Any, b: Any) -> Any:
    """``ceil(a / b)`` for integers and integer arrays."""
    return -(-a // b)


def is_number(value: Any) -> bool:
    """Whether a value is a single number and no array."""
    return isinstance(value, (int, float, Fraction))


def present(value: Any) -> Any:
    """1 where a count is above zero, else 0."""
    return int(value > 0) if is_number(value) else (value > 0).astype(int)


def quotient(a: Any, b: Any) -> Any:
    """``a / b``: an integer where integers divide, else a real number."""
    if isinstance(a, int) and isinstance(b, int) and a % b == 0:
        return a // b
    return a / b


def times(value: Any, factor: Fraction | int) -> Any:
    """``value · factor`` for an exact factor: exact for integers, real for arrays."""
    if isinstance(factor, int) or factor.denominator == 1:
        return value * int(factor)
    if isinstance(value, (int, Fraction)):
        product = value * factor
        return int(product) if product.denominator == 1 else product
    return value * factor.numerator / factor.denominator


def each(function: Callable[..., int], *arguments: Any) -> Any:
    """An integer function of integers, for every element of arrays: each distinct combination is computed once."""
    if all(isinstance(argument, int) for argument in arguments):
        return function(*arguments)
    import numpy

    columns = numpy.broadcast_arrays(*arguments)
    rows = numpy.stack([column.ravel() for column in columns], axis=1)
    distinct, places = numpy.unique(rows, axis=0, return_inverse=True)
    values = numpy.array([function(*(int(item) for item in row)) for row in distinct])
    return values[places.ravel()].reshape(columns[0].shape)
