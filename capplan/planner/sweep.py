"""Many loads of one deployment as columns: what a sweep computes, block by block.

The loads of a deployment are a grid of input lengths, output lengths and concurrencies, of which only a block is ever
laid out, so that memory does not grow with the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from capplan.planner.capacity import slowdown
from capplan.serving.load_curve import operating_points
from capplan.serving.replica import Replica
from capplan.serving.workload import Workloads

Real = npt.NDArray[np.float64]
Columns = dict[str, npt.NDArray[Any]]

BLOCK = 1 << 14
"""Loads that are worked out together."""

FIGURES = (
    "isl",
    "osl",
    "concurrency",
    "ttft_ms",
    "tpot_ms",
    "e2e_ms",
    "ttft_ms_high",
    "tpot_ms_high",
    "request_throughput",
    "output_throughput",
    "total_token_throughput",
    "tokens_per_second_per_gpu",
    "admitted_batch",
    "queued",
    "kv_utilisation",
    "cost_per_1m_tokens",
)
"""The columns of a load, in order."""


@dataclass(frozen=True)
class LoadGrid:
    """Every combination of lengths and concurrencies, the last varying fastest.

    Args:
        isl: input tokens.
        osl: output tokens.
        concurrency: clients.
    """

    isl: tuple[int, ...]
    osl: tuple[int, ...]
    concurrency: tuple[int, ...]

    @property
    def size(self) -> int:
        """Loads."""
        return len(self.isl) * len(self.osl) * len(self.concurrency)

    @property
    def longest(self) -> int:
        """The longest request."""
        return max(self.isl) + max(self.osl)

    @property
    def mixes(self) -> list[tuple[int, int]]:
        """Pairs of lengths whose fronts are kept: first, middle and last of each axis, the middle ones first."""
        chosen = [[axis[len(axis) // 2], axis[0], axis[-1]] for axis in (sorted(self.isl), sorted(self.osl))]
        return list(dict.fromkeys((isl, osl) for isl in chosen[0] for osl in chosen[1]))

    @property
    def block_count(self) -> int:
        """Blocks."""
        return -(-self.size // BLOCK)

    def block(self, number: int) -> tuple[int, int]:
        """(first, one past the last) load of a block."""
        return number * BLOCK, min((number + 1) * BLOCK, self.size)

    def loads(self, start: int, stop: int, hit: float = 0.0) -> Workloads:
        """The loads of a block."""
        shape = (len(self.isl), len(self.osl), len(self.concurrency))
        places = np.unravel_index(np.arange(start, stop), shape)
        axes = (self.isl, self.osl, self.concurrency)
        isl, osl, clients = (
            np.asarray(axis, dtype=np.float64)[place] for axis, place in zip(axes, places, strict=True)
        )
        return Workloads(isl, osl, clients, hit)


def load_columns(replica: Replica, loads: Workloads, gpus: int, usd_per_hour: float) -> Columns:
    """The figures of some loads of a deployment, as columns.

    Args:
        replica: the server.
        loads: what clients ask.
        gpus: devices of the replica.
        usd_per_hour: what the replica costs.
    """
    point: Any = operating_points(replica, loads)
    slow_first, slow_token = slowdown(replica.machine, 1.0)
    total = point.output_rate + point.input_rate
    groups = replica.sharding.dp
    held = loads.isl + replica.machine.times.held_output * loads.osl
    pool = replica.kv_tokens
    used = point.admitted_batch / groups * held / pool if pool else np.zeros_like(held)
    values = (
        loads.isl.astype(np.int64),
        loads.osl.astype(np.int64),
        loads.concurrency.astype(np.int64),
        1e3 * point.ttft,
        1e3 * point.tpot,
        1e3 * point.e2e,
        1e3 * point.ttft * slow_first,
        1e3 * point.tpot * slow_token,
        point.request_rate,
        point.output_rate,
        total,
        total / gpus,
        point.admitted_batch,
        point.queued,
        np.minimum(used, 1.0),
        usd_per_hour / 3600 / total * 1e6,
    )
    return dict(zip(FIGURES, values, strict=True))


def on_front(columns: Columns, names: tuple[str, ...]) -> npt.NDArray[np.intp]:
    """Rows that no other is at least as good as in all the named columns and better than in one; smaller is better."""
    points = np.stack([columns[name].astype(np.float64) for name in names], axis=1)
    order = np.lexsort(points.T[::-1])
    kept: list[int] = []
    best = np.empty((0, len(names)))
    for row in order:
        if not (best <= points[row]).all(axis=1).any():
            kept.append(int(row))
            best = np.vstack([best, points[row]])
    return np.array(sorted(kept), dtype=np.intp)
