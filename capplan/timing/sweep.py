"""Many steps at once: the formulas of one step, with NumPy arrays for the axes that vary.

Nothing is computed here that `capplan.work.step` and `capplan.timing.step_time` do not: a sweep passes arrays where a
single question passes numbers. What a step's time depends on through a choice (which collective was measured among how
many ranks) is the tensor-parallel size, so that its values are taken one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from capplan.timing.machine import Machine
from capplan.timing.step_time import StepTime, step_time
from capplan.work.sharding import Sharding, check_sharding
from capplan.work.step import Decode, Prefill, Step, ledger

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from capplan.describe.model import ModelSpec
    from capplan.work.formats import Formats

    Values = Sequence[float] | npt.NDArray[Any]


@dataclass(frozen=True)
class SweepTimes:
    """Seconds of every point of a sweep, in arrays of one shape.

    Args:
        seconds: the prediction.
        bound: the datasheet's bound.
        low: lower end of the 80 % interval.
        high: its upper end.
    """

    seconds: npt.NDArray[np.float64]
    bound: npt.NDArray[np.float64]
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]

    @classmethod
    def of(cls, time: StepTime, shape: tuple[int, ...]) -> SweepTimes:
        """The times of a step whose figures are arrays, broadcast to the shape of the sweep."""
        import numpy as np

        low, high = time.interval
        return cls(*(np.broadcast_to(np.asarray(part, float), shape) for part in (time.seconds, time.bound, low, high)))

    def __add__(self, other: SweepTimes) -> SweepTimes:
        """One after the other; intervals add up, since both rest on the same constants."""
        return SweepTimes(*(getattr(self, name) + getattr(other, name) for name in _FIGURES))

    def times(self, count: Any) -> SweepTimes:
        """`count` times the same."""
        return SweepTimes(*(getattr(self, name) * count for name in _FIGURES))


_FIGURES = ("seconds", "bound", "low", "high")

BLOCK = 16_384
"""Points taken together where every figure is an array: 128 kB an array."""


def decode_grid(
    spec: ModelSpec,
    machine: Machine,
    *,
    batches: Values,
    contexts: Values,
    tps: Iterable[int] = (1,),
    sharding: Sharding | None = None,
    formats: Formats | None = None,
) -> SweepTimes:
    """Seconds of one decode step for every tensor-parallel size, batch and context: arrays of tp × batch × context.

    Args:
        spec: the model.
        machine: what it runs on.
        batches: sequences that decode one token each, of one data-parallel group.
        contexts: positions that each has in its cache after the step.
        tps: tensor-parallel sizes.
        sharding: the other parallel sizes.
        formats: number formats.

    Raises:
        UsageError: a size that the model cannot be divided by.
    """
    import numpy as np

    batch, context = np.asarray(batches, float)[:, None], np.asarray(contexts, float)[None, :]
    grids = [
        decode_times(
            spec,
            machine,
            batch=batch,
            context=context,
            sharding=replace(sharding or Sharding(), tp=tp),
            formats=formats,
        )
        for tp in tps
    ]
    return SweepTimes(*(np.stack([getattr(grid, name) for grid in grids]) for name in _FIGURES))


def decode_times(
    spec: ModelSpec,
    machine: Machine,
    *,
    batch: Any,
    context: Any,
    sharding: Sharding | None = None,
    formats: Formats | None = None,
) -> SweepTimes:
    """Seconds of one decode step for batches and contexts that broadcast together.

    Points one by one (two arrays of one length) are taken in blocks that fit into the processor's cache; an open grid
    (a column and a row) needs none, since only attention depends on both.
    """
    import numpy as np

    batch, context = np.asarray(batch, float), np.asarray(context, float)
    check_sharding(spec, sharding or Sharding())
    if batch.shape == context.shape and batch.ndim == 1 and batch.size > BLOCK:
        edges = range(0, batch.size, BLOCK)
        blocks = [
            decode_times(
                spec,
                machine,
                batch=batch[start : start + BLOCK],
                context=context[start : start + BLOCK],
                sharding=sharding,
                formats=formats,
            )
            for start in edges
        ]
        return SweepTimes(*(np.concatenate([getattr(block, name) for block in blocks]) for name in _FIGURES))
    work = ledger(spec, Step(decode=(Decode(batch, context),)), sharding, formats)
    shape = np.broadcast_shapes(batch.shape, context.shape)
    return SweepTimes.of(step_time(work, machine, sequences=batch), shape)


def prefill_times(
    spec: ModelSpec,
    machine: Machine,
    *,
    isl: Any,
    batch: Any = 1,
    max_num_batched_tokens: int = 8192,
    sharding: Sharding | None = None,
    formats: Formats | None = None,
) -> SweepTimes:
    """Seconds of the prefill of `batch` prompts together, in as many steps as the token budget makes of them.

    Chunk i of a prompt has ``min(budget/batch, isl - i·budget/batch)`` tokens; a prompt that is done takes no part in
    further steps. Arrays broadcast together.
    """
    import numpy as np

    isl, batch = np.broadcast_arrays(np.asarray(isl, float), np.asarray(batch, float))
    total = SweepTimes(*(np.zeros(isl.shape) for _ in _FIGURES))
    for chosen, tokens, prefix, last in _chunks(isl, np.maximum(1.0, max_num_batched_tokens // batch)):
        sequences = batch[chosen]
        step = Step(prefill=(Prefill(tokens, prefix, sequences, last),))
        times = SweepTimes.of(
            step_time(ledger(spec, step, sharding, formats), machine, sequences=sequences), tokens.shape
        )
        for name in _FIGURES:
            getattr(total, name)[chosen] += getattr(times, name)
    return total


def request_times(
    spec: ModelSpec,
    machine: Machine,
    *,
    isl: Any,
    osl: Any,
    batch: Any = 1,
    max_num_batched_tokens: int = 8192,
    sharding: Sharding | None = None,
    formats: Formats | None = None,
) -> SweepTimes:
    """Seconds of `batch` equal requests together: their prefill, then ``OSL - 1`` decode steps at the mean context.

    The mean context is ``ISL + OSL/2``: a decode step's time is nearly linear in it. Arrays broadcast together.

    Leaves out queueing, and requests of other ages in the same steps.
    """
    import numpy as np

    isl, osl, batch = np.broadcast_arrays(*(np.asarray(value, float) for value in (isl, osl, batch)))
    options: Any = {"sharding": sharding, "formats": formats}
    first = prefill_times(spec, machine, isl=isl, batch=batch, max_num_batched_tokens=max_num_batched_tokens, **options)
    return first + decode_times(spec, machine, batch=batch, context=isl + osl // 2, **options).times(osl - 1)


def _chunks(isl: Any, most: Any) -> Iterator[tuple[Any, Any, Any, Any]]:
    """(which prompts, their tokens, their prefix, positions sampled) of each step until all are done."""
    import numpy as np

    prefix = np.zeros(isl.shape)
    while (left := isl - prefix).max(initial=0) > 0:
        chosen = left > 0
        tokens = np.minimum(left, most)[chosen]
        yield chosen, tokens, prefix[chosen], (left <= most)[chosen].astype(float)
        prefix = prefix + np.minimum(left, most)
