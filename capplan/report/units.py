"""How quantities look to people: GiB, thousands separators, parameters in billions."""

from __future__ import annotations

GIB = 1 << 30

_BINARY = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_DECIMAL = (("T", 10**12), ("B", 10**9), ("M", 10**6), ("K", 10**3))


def show_bytes(value: float) -> str:
    """Bytes in the largest binary unit that leaves a number of at least one: ``20.00 GiB``."""
    for unit, size in _BINARY:
        if abs(value) >= size:
            return f"{value / size:,.2f} {unit}"
    return f"{value:,} B" if isinstance(value, int) else f"{value:,.2f} B"


def show_count(value: float) -> str:
    """A count in the largest decimal unit: ``70.55 B``."""
    for unit, size in _DECIMAL:
        if abs(value) >= size:
            return f"{value / size:,.2f} {unit}"
    return f"{value:,}"


def show_integer(value: float) -> str:
    """A whole number with thousands separators."""
    return f"{value:,}"


def show_seconds(value: float) -> str:
    """A time in the unit that suits it: ``10.36 ms``."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(value) >= size:
            return f"{value / size:,.2f} {unit}"
    return f"{value * 1e9:,.2f} ns"
