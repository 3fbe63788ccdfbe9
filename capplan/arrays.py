"""Arithmetic that works on plain integers and, where a sweep passes them, on NumPy arrays.

NumPy is imported only when an array comes in, so that a single answer never pays for it.
"""

from __future__ import annotations

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
