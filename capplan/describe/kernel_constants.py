"""The fitted constants of the kernel laws: what each one means, its unit, and the range that is physical.

A law of `capplan.timing.kernel_laws` turns a shape, these constants and a GPU's datasheet figures into seconds. The
range beside each constant is what the fitter keeps to; a constant that is `optional` may be 0, and its term then
drops out of the law.
"""

from __future__ import annotations

import typing
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, Literal

Unit = Literal["fraction", "factor", "seconds", "tokens", "exponent"]


@dataclass(frozen=True)
class Constant:
    """What a fitter and a file must know of a constant.

    Args:
        unit: of the value.
        low: least physical value.
        high: greatest physical value.
        start: a typical value, where fitting begins.
        optional: whether the term may be left out, the constant being 0.
    """

    unit: Unit
    low: float
    high: float
    start: float
    optional: bool = False


ComputeEfficiency = Annotated[float, Constant("fraction", 0.002, 1.0, 0.6)]
"""ec: share of the datasheet's dense FLOP/s that the kernel reaches when it is bound by arithmetic."""

MemoryEfficiency = Annotated[float, Constant("fraction", 0.005, 1.0, 0.7)]
"""em: share of the datasheet's memory bandwidth that the kernel reaches when it is bound by memory."""

Launch = Annotated[float, Constant("seconds", 1e-6, 1e-3, 8e-6)]
"""t0: what the smallest call takes: launch, first wave, tail."""

Depth = Annotated[float, Constant("seconds", 1e-9, 1e-3, 2e-6, optional=True)]
"""Latency of walking the reduction axis one after the other, at its saturated end."""


@dataclass(frozen=True)
class GemmConstants:
    """Constants of `gemm_time`: ec, em, t0, tk and cq."""

    compute_efficiency: ComputeEfficiency
    memory_efficiency: MemoryEfficiency
    launch: Launch
    depth: Depth
    requantise: Annotated[float, Constant("factor", 1e-4, 100.0, 0.5, optional=True)]
    """cq: passes over the activations (three bytes an element) that quantising them on the way costs."""


@dataclass(frozen=True)
class SparseGemmConstants:
    """Constants of `gemm_time_from_few_points`: ec, em and t0."""

    compute_efficiency: ComputeEfficiency
    memory_efficiency: MemoryEfficiency
    launch: Launch


@dataclass(frozen=True)
class PrefillAttentionConstants:
    """Constants of `prefill_attention_time` and `mla_prefill_time`: ec, em, t0 and ecrit."""

    compute_efficiency: ComputeEfficiency
    memory_efficiency: MemoryEfficiency
    launch: Launch
    tile_efficiency: Annotated[float, Constant("factor", 0.01, 50.0, 0.8)]
    """ecrit: speed of the last tile of queries, as a share of one multiprocessor's datasheet FLOP/s."""


@dataclass(frozen=True)
class CarriedPrefillConstants:
    """Constants of `carried_prefill_attention_time`: ec, t0 and τ."""

    compute_efficiency: ComputeEfficiency
    launch: Launch
    tile: Annotated[float, Constant("seconds", 1e-9, 1e-3, 2e-6, optional=True)]
    """τ: fixed cost of one tile of queries on one multiprocessor."""


@dataclass(frozen=True)
class DecodeAttentionConstants:
    """Constants of `decode_attention_time`: em, t0, tL and τ."""

    memory_efficiency: MemoryEfficiency
    launch: Launch
    depth: Depth
    block: Annotated[float, Constant("seconds", 1e-9, 1e-3, 3e-6, optional=True)]
    """τ: fixed cost of one (sequence, KV head) on one multiprocessor."""


@dataclass(frozen=True)
class MlaDecodeConstants:
    """Constants of `mla_decode_time`: ec, em, t0, tL and L0."""

    compute_efficiency: ComputeEfficiency
    memory_efficiency: MemoryEfficiency
    launch: Launch
    depth: Depth
    floor_tokens: Annotated[float, Constant("tokens", 0.1, 5000.0, 100.0, optional=True)]
    """L0: the context below which a shorter one is no faster."""


@dataclass(frozen=True)
class GroupedGemmConstants:
    """Constants of `grouped_gemm_time`: ec, em, t0, ca and te."""

    compute_efficiency: Annotated[float, Constant("fraction", 0.005, 0.95, 0.5)]
    memory_efficiency: MemoryEfficiency
    launch: Annotated[float, Constant("seconds", 1e-6, 1e-3, 30e-6)]
    activations: Annotated[float, Constant("factor", 0.01, 100.0, 2.0)]
    """ca: passes over the activations: permuting, quantising, activating and adding up again."""
    expert: Annotated[float, Constant("seconds", 1e-11, 1e-4, 1e-8, optional=True)]
    """te: fixed cost of every expert that has tokens: its partly filled tiles and its place in the schedule."""


@dataclass(frozen=True)
class CollectiveConstants:
    """Constants of `collective_time`: α, β as a share of the link's datasheet figure, and p."""

    latency: Annotated[float, Constant("seconds", 0.2e-6, 2e-3, 10e-6)]
    """α: what the smallest message takes."""
    link_efficiency: Annotated[float, Constant("factor", 0.002, 3.0, 0.6)]
    """β over the link's bandwidth of one direction; above 1 where the switch adds up on the way."""
    exponent: Annotated[float, Constant("exponent", 0.2, 8.0, 0.7)]
    """p: how α and the transfer add up: 1 as a sum, below 1 slower than the sum between the two ends."""


@dataclass(frozen=True)
class LinearCollectiveConstants:
    """Constants of `linear_collective_time`: α and β as a share of the link's datasheet figure."""

    latency: Annotated[float, Constant("seconds", 0.2e-6, 2e-3, 10e-6)]
    link_efficiency: Annotated[float, Constant("factor", 0.002, 3.0, 0.6)]


@dataclass(frozen=True)
class RowsConstants:
    """Constants of `rows_time`: em and t0."""

    memory_efficiency: Annotated[float, Constant("factor", 0.002, 50.0, 0.7)]
    """em: share of the datasheet's memory bandwidth; above 1 where the rows are still in the cache."""
    launch: Launch


@dataclass(frozen=True)
class RecurrenceConstants:
    """Constants of `recurrence_time`: ec, em, t0 and tc."""

    compute_efficiency: Annotated[float, Constant("fraction", 1e-4, 1.0, 0.1)]
    memory_efficiency: MemoryEfficiency
    launch: Launch
    chunk: Annotated[float, Constant("seconds", 1e-9, 1e-2, 1e-5, optional=True)]
    """tc: fixed cost of one chunk of positions, which follow one another."""


Constants = (
    GemmConstants
    | SparseGemmConstants
    | PrefillAttentionConstants
    | CarriedPrefillConstants
    | DecodeAttentionConstants
    | MlaDecodeConstants
    | GroupedGemmConstants
    | CollectiveConstants
    | LinearCollectiveConstants
    | RowsConstants
    | RecurrenceConstants
)


@cache
def constants_of(kind: Any) -> dict[str, Constant]:
    """The constants of one of the classes above by field name, in order."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {field.name: typing.get_args(hints[field.name])[1] for field in fields(kind)}
