"""Rows of kernel tables, grouped into what shares one set of constants, as arrays."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from calibrate.routing import distinct_experts
from capplan.describe.profile_choice import head_group
from capplan.describe.profile_table import KernelKey, Kind
from capplan.measured.kernel_rows import (
    CollectiveRow,
    DecodeAttentionRow,
    GemmRow,
    GroupedGemmRow,
    MlaDecodeRow,
    MlaPrefillRow,
    PrefillAttentionRow,
)
from capplan.measured.kernel_tables import KernelTable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

LEAST_POINTS = 100
"""Points below which a group is not fitted: its residuals would say little."""

LEAST_MESSAGES = 8
"""The same for a collective, whose points are message sizes."""


@dataclass(frozen=True)
class Group:
    """The measured calls that one set of constants is fitted to.

    Args:
        kind: of the kernel.
        key: which kernel.
        shape: the axes of the law, an array each.
        seconds: measured.
        configurations: for each point the number of its configuration: what stays the same while a server runs.
    """

    kind: Kind
    key: KernelKey
    shape: dict[str, Array]
    seconds: Array
    configurations: npt.NDArray[np.int64]

    @property
    def points(self) -> int:
        """How many calls."""
        return len(self.seconds)

    def take(self, chosen: npt.NDArray[Any]) -> Group:
        """The chosen points as a group."""
        shape = {axis: values[chosen] for axis, values in self.shape.items()}
        return Group(self.kind, self.key, shape, self.seconds[chosen], self.configurations[chosen])


@dataclass(frozen=True)
class _Grouping:
    """How rows of one kind become groups.

    Args:
        key: the parts of the key that tell groups apart, besides the engine and its version.
        shape: the axes.
        configuration: what stays the same while a server runs.
    """

    key: Callable[[Any], dict[str, Any]]
    shape: Callable[[Any], dict[str, float]]
    configuration: Callable[[Any], tuple[Any, ...]]


def groups_of(table: KernelTable) -> list[Group]:
    """The groups of a table that have points enough to be fitted, by key."""
    grouping = _GROUPINGS[table.file.kind]
    rows: dict[tuple[tuple[str, Any], ...], list[Any]] = defaultdict(list)
    for row in table.rows:
        rows[tuple(sorted(grouping.key(row).items()))].append(row)
    least = LEAST_MESSAGES if table.file.kind == "collective" else LEAST_POINTS
    return [_group(table, dict(key), found) for key, found in sorted(rows.items()) if len(found) >= least]


def _group(table: KernelTable, parts: dict[str, Any], rows: Sequence[Any]) -> Group:
    import numpy as np

    grouping = _GROUPINGS[table.file.kind]
    kernel = parts.pop("kernel", None) or Counter(row.kernel for row in rows).most_common(1)[0][0]
    key = KernelKey(engine=table.file.engine, version=table.file.version, kernel=kernel.replace(" ", "_"), **parts)
    shapes = [grouping.shape(row) for row in rows]
    shape = {axis: np.array([one[axis] for one in shapes], dtype=float) for axis in shapes[0]}
    kind: Any = table.file.kind
    seconds = np.array([row.seconds for row in rows])
    return Group(kind, key, shape, seconds, _numbered(grouping.configuration(row) for row in rows))


def _numbered(values: Iterable[tuple[Any, ...]]) -> npt.NDArray[np.int64]:
    import numpy as np

    numbers: dict[tuple[Any, ...], int] = {}
    return np.array([numbers.setdefault(value, len(numbers)) for value in values])


def _gemm_shape(row: GemmRow) -> dict[str, float]:
    return {"m": row.m, "n": row.n, "k": row.k}


def _grouped_gemm_shape(row: GroupedGemmRow) -> dict[str, float]:
    return {
        "tokens": row.tokens,
        "hidden": row.hidden,
        "width": row.intermediate / row.tensor_parallel,
        "top_k": row.top_k,
        "experts": row.experts,
        "distinct_experts": distinct_experts(row.tokens, row.experts, row.top_k, row.routing),
    }


def _prefill_shape(row: PrefillAttentionRow) -> dict[str, float]:
    heads = {"batch": row.batch, "tokens": row.tokens, "heads": row.heads, "kv_heads": row.kv_heads}
    return {**heads, "prefix": row.prefix, "window": row.window}


def _decode_shape(row: DecodeAttentionRow) -> dict[str, float]:
    heads = {"batch": row.batch, "context": row.context, "heads": row.heads, "kv_heads": row.kv_heads}
    return {**heads, "window": row.window}


def _prefill_key(row: PrefillAttentionRow) -> dict[str, Any]:
    return {
        "kernel": row.kernel,
        "format": row.format,
        "kv_format": row.kv_format,
        "head_dim": row.head_dim,
        "window": "window" if row.window else "full",
    }


def _decode_key(row: DecodeAttentionRow) -> dict[str, Any]:
    return {
        "kernel": row.kernel,
        "format": row.format,
        "kv_format": row.kv_format,
        "head_dim": row.head_dim,
        "heads": head_group(row.heads, row.kv_heads),
        "window": "window" if row.window else "full",
    }


def _mla_prefill_shape(row: MlaPrefillRow) -> dict[str, float]:
    return {"batch": row.batch, "tokens": row.tokens, "heads": row.heads, "prefix": row.prefix}


def _mla_decode_shape(row: MlaDecodeRow) -> dict[str, float]:
    return {"batch": row.batch, "context": row.context, "heads": row.heads}


def _collective_key(row: CollectiveRow) -> dict[str, Any]:
    return {"kernel": row.kernel, "collective": row.collective, "gpus": row.gpus}


_GROUPINGS: dict[str, _Grouping] = {
    "gemm": _Grouping(lambda row: {"format": row.format}, _gemm_shape, lambda row: (row.n, row.k)),
    "grouped_gemm": _Grouping(
        lambda row: {"kernel": row.kernel, "format": row.format},
        _grouped_gemm_shape,
        lambda row: (row.hidden, row.intermediate, row.top_k, row.experts),
    ),
    "prefill_attention": _Grouping(_prefill_key, _prefill_shape, lambda row: (row.heads, row.kv_heads, row.window)),
    "decode_attention": _Grouping(_decode_key, _decode_shape, lambda row: (row.heads, row.kv_heads, row.window)),
    "mla_prefill": _Grouping(lambda row: {"kv_format": row.kv_format}, _mla_prefill_shape, lambda row: (row.heads,)),
    "mla_decode": _Grouping(lambda row: {"kv_format": row.kv_format}, _mla_decode_shape, lambda row: (row.heads,)),
    "collective": _Grouping(_collective_key, lambda row: {"bytes": row.bytes}, lambda row: (row.bytes,)),
}
