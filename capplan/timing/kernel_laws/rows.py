"""Kernels beside the products and attention: rows of activations, and recurrences over a state."""

from __future__ import annotations

from capplan.describe.kernel_constants import RecurrenceConstants, RowsConstants
from capplan.timing.kernel_laws.terms import KernelTime, Quantity, Rates, rounded_up

CHUNK = 64
"""Positions that kernels of linear attention work out together in a prompt.

Source: Yang et al., Gated Linear Attention (arXiv:2312.06635), section 4, and the kernels that follow it."""


def rows_time(moved: Quantity, *, bandwidth: float, constants: RowsConstants) -> KernelTime:
    """Seconds of a norm, a rotation, an activation function, a cache write, a look-up or a draw.

    t = t0 + bytes / (em·BW)

    Args:
        moved: bytes read and written, as the ledger counts them.
        bandwidth: BW.
        constants: em, t0.

    Leaves out: arithmetic, which em absorbs; that small rows stay in the cache, likewise.
    """
    return KernelTime(
        serial={"launch": constants.launch, "memory": moved / (constants.memory_efficiency * bandwidth)},
        overlapping={},
        exponent=1.0,
    )


def recurrence_time(
    tokens: Quantity, flops: Quantity, moved: Quantity, *, constants: RecurrenceConstants, rates: Rates
) -> KernelTime:
    """Seconds of a recurrence over the positions of several sequences, a state a head.

    t = t0 + tc·⌈s/64⌉ + F/(ec·P) + B/(em·BW)

    Chunks of 64 positions follow one another, whatever the number of sequences and heads.

    Args:
        tokens: s, new positions of one sequence.
        flops: F, of all sequences, by the recurrence itself.
        moved: B, bytes of states, inputs and outputs.
        constants: ec, em, t0, tc.
        rates: P, BW.

    Leaves out: the further FLOPs of working in chunks, which ec absorbs.
    """
    return KernelTime(
        serial={
            "launch": constants.launch,
            "chunks": constants.chunk * rounded_up(tokens, CHUNK) / CHUNK,
            "compute": flops / (constants.compute_efficiency * rates.flops),
            "memory": moved / (constants.memory_efficiency * rates.bandwidth),
        },
        overlapping={},
        exponent=1.0,
    )
