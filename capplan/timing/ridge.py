"""Where a decode step turns from memory-bound to compute-bound as its batch grows."""

from __future__ import annotations

from collections.abc import Callable

from capplan.describe.gpu import GpuSpec
from capplan.describe.model import ModelSpec
from capplan.timing.roofline import Bound, required_bound
from capplan.work.formats import Formats
from capplan.work.operators import Operator
from capplan.work.sharding import Sharding
from capplan.work.step import Decode, Step, ledger

MOST_SEQUENCES = 1 << 20
"""Batches beyond this are not looked at."""

PRODUCTS = frozenset({"gemm", "grouped_gemm", "absorbed_product", "head"})
"""Kinds that multiply with weights."""


def ridge_batch(
    spec: ModelSpec, gpu: GpuSpec, context: int, sharding: Sharding, formats: Formats, *, whole: bool = False
) -> int | None:
    """The least batch whose decode step is compute-bound: ``Σ FLOPs / P >= Σ bytes / BW``; None where no batch is.

    Of the products with weights alone, or of the whole step with its caches: reading the cache of one more sequence
    mostly takes longer than computing with it, so that a whole step over a long context is never compute-bound.

    The ratio of both sides grows with the batch, since weights are read once for all sequences (a mixture's experts
    more and more of them, but never more than all), so that halving finds the least batch.

    Args:
        spec: the model.
        gpu: the device.
        context: positions of each sequence.
        sharding: the parallel sizes.
        formats: number formats.
        whole: whether to count the whole step.
    """

    def compute_bound(batch: int) -> bool:
        work = ledger(spec, Step(decode=(Decode(batch, context),)), sharding, formats)
        bound = _sum(gpu, [operator for operator in work.operators if whole or operator.kind in PRODUCTS])
        return bool(bound.compute >= bound.memory)

    return least_batch(compute_bound)


def least_batch(holds: Callable[[int], bool], most: int = MOST_SEQUENCES) -> int | None:
    """The least batch up to `most` for which something holds that goes on to hold: doubling, then halving the rest."""
    high = 1
    while not holds(high):
        high *= 2
        if high > most:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _sum(gpu: GpuSpec, operators: list[Operator]) -> Bound:
    return sum((required_bound(operator, gpu).times(operator.count) for operator in operators), start=Bound())
