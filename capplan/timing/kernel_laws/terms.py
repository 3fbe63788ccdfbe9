"""The pieces that every kernel law is made of: its terms, the hardware they refer to, arithmetic for numbers or arrays.

The same formula serves one shape and a sweep: a `Quantity` is a number or a NumPy array, and NumPy is imported only
when an array comes in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast, overload

OVERLAP_EXPONENT = 3.0
"""How far arithmetic and memory hide each other in a GEMM on a GPU; fitted once over all public tables."""

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Quantity: TypeAlias = "float | npt.NDArray[np.float64]"
else:
    Quantity: TypeAlias = Any


@dataclass(frozen=True)
class Rates:
    """The datasheet figures of one GPU that a law refers to.

    Args:
        flops: dense FLOP/s of the format that the kernel multiplies in.
        bandwidth: bytes a second of device memory.
        multiprocessors: streaming multiprocessors, S.
        overlap: how far arithmetic and memory hide each other in a product, as the exponent of a sum of powers.
    """

    flops: float
    bandwidth: float
    multiprocessors: int
    overlap: float = OVERLAP_EXPONENT

    @property
    def multiprocessor_flops(self) -> float:
        """FLOP/s of one multiprocessor: P / S."""
        return self.flops / self.multiprocessors


@dataclass(frozen=True)
class KernelTime:
    """Seconds of one kernel call, term by term.

    total = Σ serial + (Σ overlapping^p)^(1/p)

    Args:
        serial: terms that follow one another, by name, in seconds; ``launch`` is the first.
        overlapping: terms that hide behind one another, by name, in seconds.
        exponent: p: ∞ hides all but the longest, 1 hides nothing, below 1 the terms hinder one another.
    """

    serial: Mapping[str, Quantity]
    overlapping: Mapping[str, Quantity]
    exponent: float

    @property
    def total(self) -> Quantity:
        """Seconds of the call."""
        return sum(self.serial.values(), start=self.overlap)

    @property
    def body(self) -> Quantity:
        """Seconds without the launch."""
        return self.total - self.serial.get("launch", 0.0)

    @property
    def overlap(self) -> Quantity:
        """Seconds of the overlapping terms together: (Σ x^p)^(1/p)."""
        return power_mean_sum(tuple(self.overlapping.values()), self.exponent)


def power_mean_sum(terms: tuple[Quantity, ...], exponent: float) -> Quantity:
    """(Σ x^p)^(1/p), scaled by the longest term so that no power overflows; p = ∞ is the maximum.

    Args:
        terms: x, seconds, none negative.
        exponent: p, above 0.
    """
    if not terms:
        return 0.0
    longest = terms[0]
    for term in terms[1:]:
        longest = larger(longest, term)
    if exponent == float("inf"):
        return longest
    scale = larger(longest, 1e-300)
    return scale * sum((term / scale) ** exponent for term in terms) ** (1 / exponent)


def is_array(value: Quantity) -> bool:
    """Whether the value is a NumPy array rather than a number."""
    return getattr(value, "ndim", 0) > 0


@overload
def larger(a: float, b: float) -> float: ...


@overload
def larger(a: Quantity, b: Quantity) -> Quantity: ...


def larger(a: Quantity, b: Quantity) -> Quantity:
    """max(a, b), element by element."""
    if is_array(a) or is_array(b):
        import numpy as np

        return cast("Quantity", np.maximum(a, b))
    return max(a, b)


@overload
def smaller(a: float, b: float) -> float: ...


@overload
def smaller(a: Quantity, b: Quantity) -> Quantity: ...


def smaller(a: Quantity, b: Quantity) -> Quantity:
    """min(a, b), element by element."""
    if is_array(a) or is_array(b):
        import numpy as np

        return cast("Quantity", np.minimum(a, b))
    return min(a, b)


def rounded_up(value: Quantity, unit: int) -> Quantity:
    """The least multiple of `unit` that is at least `value`: ⌈value / unit⌉ · unit."""
    return -(-value // unit) * unit


def saturating(value: Quantity, half: float) -> Quantity:
    """A share that rises from 0 to 1: value / (value + half)."""
    return value / (value + half)
