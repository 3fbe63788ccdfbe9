"""Fitted kernels as lines of a table: what a profile holds for one kind of kernel.

A profile has hundreds of fits. They stand in its YAML as one table a kind, a block of text with a heading and one
line a fit, so that a person can read it down and a program loads it in milliseconds::

    engine version kernel ... | compute_efficiency launch_us ... | points ... | small medium large | m n k
    vllm   0.24.0  ...        | 0.81               2.44 ...      | 35742 ...  | 0.06/0.15/0.93/1.10 ... | 1..32768 ...

Bars only guide the eye. Times stand in microseconds (``_us``), an interval as ``low..high``, an absent value as ``-``.
The residuals of a size class are ``median/p90/low/high``: the median and the 90th percentile of
|predicted/measured − 1|, and the 10th and 90th percentile of measured/predicted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, Literal

from capplan.describe.kernel_constants import (
    CollectiveConstants,
    Constants,
    DecodeAttentionConstants,
    GemmConstants,
    GroupedGemmConstants,
    MlaDecodeConstants,
    PrefillAttentionConstants,
    RecurrenceConstants,
    RowsConstants,
    constants_of,
)

Kind = Literal[
    "gemm", "grouped_gemm", "prefill_attention", "decode_attention", "mla_prefill", "mla_decode", "collective",
    "rows", "recurrence",
]  # fmt: skip
Size = Literal["small", "medium", "large"]

SIZES: tuple[Size, ...] = ("small", "medium", "large")
SIZE_BOUNDS = (50e-6, 500e-6)
"""Seconds at which a call stops being small, and at which it starts being large."""

_MICRO = 1e-6
_ABSENT = "-"
_BAR = "|"


@dataclass(frozen=True)
class KernelKey:
    """Which kernel a fit is of; a part that the kind does not have is empty."""

    engine: str
    """The engine, or for a collective the library, whose kernel was measured."""
    version: str
    kernel: str
    format: str = ""
    """Of the weights (`capplan.describe.kernel_formats`), or what attention multiplies in."""
    kv_format: str = ""
    head_dim: int = 0
    heads: str = ""
    """``mha`` (one query head a KV head), ``gqa`` (2 to 16), ``mqa`` (more), ``all``."""
    window: str = ""
    """``full`` or ``window``."""
    absorbed: str = ""
    """``yes`` or ``no``."""
    collective: str = ""
    gpus: int = 0


@dataclass(frozen=True)
class KernelKind:
    """What a table of one kind has.

    Args:
        name: of the kind.
        keys: the fields of `KernelKey` that tell its fits apart.
        constants: the class of its constants.
        shape: the axes of the domain.
    """

    name: Kind
    keys: tuple[str, ...]
    constants: Any
    shape: tuple[str, ...]


_WHO = ("engine", "version", "kernel")

KINDS: dict[str, KernelKind] = {
    kind.name: kind
    for kind in (
        KernelKind("gemm", (*_WHO, "format"), GemmConstants, ("m", "n", "k")),
        KernelKind(
            "grouped_gemm",
            (*_WHO, "format"),
            GroupedGemmConstants,
            ("tokens", "hidden", "width", "top_k", "experts"),
        ),
        KernelKind(
            "prefill_attention",
            (*_WHO, "format", "kv_format", "head_dim", "window"),
            PrefillAttentionConstants,
            ("batch", "tokens", "prefix", "heads", "kv_heads"),
        ),
        KernelKind(
            "decode_attention",
            (*_WHO, "format", "kv_format", "head_dim", "heads", "window"),
            DecodeAttentionConstants,
            ("batch", "context", "heads", "kv_heads"),
        ),
        KernelKind(
            "mla_prefill",
            (*_WHO, "kv_format", "absorbed"),
            PrefillAttentionConstants,
            ("batch", "tokens", "prefix", "heads"),
        ),
        KernelKind("mla_decode", (*_WHO, "kv_format"), MlaDecodeConstants, ("batch", "context", "heads")),
        KernelKind("collective", (*_WHO, "collective", "gpus"), CollectiveConstants, ("bytes",)),
        KernelKind("rows", _WHO, RowsConstants, ("bytes",)),
        KernelKind("recurrence", _WHO, RecurrenceConstants, ("tokens", "flops", "bytes")),
    )
}

LOCAL_KINDS = ("rows", "recurrence")
"""Kinds that no public table has: `capplan calibrate` measures them."""


@dataclass(frozen=True)
class Spread:
    """How far measurements lie from predictions.

    Args:
        median: of |predicted/measured − 1|.
        p90: its 90th percentile.
        low: 10th percentile of measured/predicted.
        high: 90th percentile of measured/predicted.
    """

    median: float
    p90: float
    low: float
    high: float


@dataclass(frozen=True)
class Residuals:
    """Errors on points that a fit has not seen.

    Args:
        half_median: median error on a random half, fitted on the other half: interpolation on the grid.
        half_p90: 90th percentile of the same.
        unseen: spread on whole configurations (weight matrices, head counts, models) left out of the fit, or on
            alternate message sizes for a collective.
        sizes: the spread of `unseen` by size class, where it has points enough.
    """

    half_median: float
    half_p90: float
    unseen: Spread
    sizes: Mapping[Size, Spread] = field(default_factory=dict)


@dataclass(frozen=True)
class KernelFit:
    """One kernel's constants, how good they are and where they hold.

    Args:
        kind: of the kernel.
        key: which kernel.
        constants: what was fitted, on all points.
        points: measured points.
        configurations: distinct configurations among them.
        residuals: errors on points not seen.
        domain: least and greatest value of each axis of the shape.
    """

    kind: Kind
    key: KernelKey
    constants: Constants
    points: int
    configurations: int
    residuals: Residuals
    domain: Mapping[str, tuple[float, float]]

    def outside(self, **shape: float) -> tuple[str, ...]:
        """The axes on which a shape lies outside the domain; an axis that the domain lacks is not looked at."""
        known = {name: value for name, value in shape.items() if name in self.domain}
        return tuple(name for name, value in known.items() if not self._holds(name, value))

    def _holds(self, axis: str, value: float) -> bool:
        low, high = self.domain[axis]
        return low <= value <= high


def size_class(seconds: float) -> Size:
    """The size class of a call that takes this long."""
    small, large = SIZE_BOUNDS
    return "small" if seconds < small else "medium" if seconds < large else "large"


def constant_columns(kind: KernelKind) -> dict[str, str]:
    """The heading of each constant's column, by field: its name, with ``_us`` where it is a time."""
    return {
        name: f"{name}_us" if constant.unit == "seconds" else name
        for name, constant in constants_of(kind.constants).items()
    }


def columns(kind: KernelKind) -> list[str]:
    """The heading of a kind's table."""
    quality = ["points", "configurations", "half_median", "half_p90", "unseen"]
    axes = [f"{axis}_range" for axis in kind.shape]
    groups: list[list[str]] = [list(kind.keys), list(constant_columns(kind).values()), quality, [*SIZES], axes]
    return [column for group in groups for column in (*group, _BAR)][:-1]


def write_table(kind: KernelKind, fits: Iterable[KernelFit]) -> str:
    """The fits as a table with aligned columns, one line a fit."""
    rows = [columns(kind), *(_cells(kind, fit) for fit in fits)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = (" ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(lines) + "\n"


@lru_cache(maxsize=256)
def parse_table(kind_name: Kind, text: str) -> tuple[KernelFit, ...]:
    """The fits of a kind's table.

    Raises:
        TableError: which line is wrong, and why.
    """
    kind = KINDS[kind_name]
    lines = [(number, line.split()) for number, line in enumerate(text.splitlines()) if line.strip()]
    if not lines:
        return ()
    number, heading = lines[0]
    expected = columns(kind)
    if heading != expected:
        missing = next((name for name in expected if name not in heading), None)
        unknown = next((name for name in heading if name not in expected), None)
        detail = f"{missing} is missing" if missing else f"{unknown} is unknown" if unknown else "order"
        raise TableError(number, f"the heading of {kind_name} does not fit ({detail})")
    return tuple(_fit(kind, number, heading, cells) for number, cells in lines[1:])


class TableError(ValueError):
    """A line of a profile's table that is wrong.

    Args:
        line: its number within the table, from 0.
        message: what is wrong.
    """

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


def _cells(kind: KernelKind, fit: KernelFit) -> list[str]:
    residuals = fit.residuals
    constants = [
        _number(getattr(fit.constants, name) / (_MICRO if constant.unit == "seconds" else 1))
        for name, constant in constants_of(kind.constants).items()
    ]
    quality = [
        str(fit.points),
        str(fit.configurations),
        _number(residuals.half_median),
        _number(residuals.half_p90),
        _spread(residuals.unseen),
    ]
    sizes = [_spread(residuals.sizes.get(size)) for size in SIZES]
    axes = [f"{_number(low)}..{_number(high)}" for low, high in (fit.domain[axis] for axis in kind.shape)]
    keys = [str(getattr(fit.key, name)) or _ABSENT for name in kind.keys]
    return [cell for group in (keys, constants, quality, sizes, axes) for cell in (*group, _BAR)][:-1]


def _number(value: float) -> str:
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.4g}"


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return _ABSENT
    return "/".join(f"{value:.3g}" for value in (spread.median, spread.p90, spread.low, spread.high))


def _fit(kind: KernelKind, number: int, heading: list[str], cells: list[str]) -> KernelFit:
    if len(cells) != len(heading):
        raise TableError(number, f"a line of {kind.name} has {len(cells)} columns where {len(heading)} are expected")
    row = dict(zip(heading, cells, strict=True))
    try:
        return KernelFit(
            kind=kind.name,
            key=_key(kind, row),
            constants=_constants(kind, row),
            points=int(row["points"]),
            configurations=int(row["configurations"]),
            residuals=_residuals(row),
            domain={axis: _range(row[f"{axis}_range"]) for axis in kind.shape},
        )
    except ValueError as error:
        raise TableError(number, f"a line of {kind.name}: {error}") from None


def _key(kind: KernelKind, row: Mapping[str, str]) -> KernelKey:
    present = {name: row[name] for name in kind.keys if row[name] != _ABSENT}
    values: dict[str, Any] = {
        name: int(cell) if name in ("head_dim", "gpus") else cell for name, cell in present.items()
    }
    return KernelKey(**(dict.fromkeys(_WHO, "") | values))


def _constants(kind: KernelKind, row: Mapping[str, str]) -> Constants:
    values = {}
    for name, column in constant_columns(kind).items():
        constant = constants_of(kind.constants)[name]
        value = float(row[column]) * (_MICRO if constant.unit == "seconds" else 1)
        least = 0.0 if constant.optional else constant.low
        if not least * (1 - 1e-3) <= value <= constant.high * (1 + 1e-3):
            raise ValueError(f"{column} = {row[column]} is outside what is physical")
        values[name] = value
    constants: Constants = kind.constants(**values)
    return constants


def _residuals(row: Mapping[str, str]) -> Residuals:
    sizes = {size: _parse_spread(row[size]) for size in SIZES if row[size] != _ABSENT}
    return Residuals(float(row["half_median"]), float(row["half_p90"]), _parse_spread(row["unseen"]), sizes)


def _parse_spread(text: str) -> Spread:
    parts = [float(part) for part in text.split("/")]
    if len(parts) != len(fields(Spread)):
        raise ValueError(f"{text!r} is not median/p90/low/high")
    if not (0 <= parts[0] <= parts[1] and 0 < parts[2] <= parts[3]):
        raise ValueError(f"{text!r} is not in order")
    return Spread(*parts)


def _range(text: str) -> tuple[float, float]:
    low, dots, high = text.partition("..")
    if not dots:
        raise ValueError(f"{text!r} is not low..high")
    return float(low), float(high)
