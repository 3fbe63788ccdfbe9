"""Many loads of one server at once: the arrays behind a sweep, by the same equations as one operating point.

`load_curve` builds a `Load` whose figures are arrays, one element a workload, and `operating_point` makes a point of
arrays of it. Chunks of prompts are laid out flat, one row a step; equal steps are computed once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from capplan.serving.replica import Replica, StepParts
from capplan.serving.speculation import SpeculativeReplica
from capplan.serving.steady_state import Load, OperatingPoint, operating_point, scheduling_wait
from capplan.serving.workload import Workloads
from capplan.timing.step_sums import StepSums, step_sums
from capplan.work.ledger import Ledger
from capplan.work.medusa import medusa_ledger
from capplan.work.step import Decode, Prefill, Step, draft_ledger

Whole = npt.NDArray[np.int64]
Real = npt.NDArray[np.float64]

_PACKED = 21
"""Bits of each of three whole numbers that make one key."""


@dataclass(frozen=True, slots=True)
class ChunkRows:
    """Prompts cut into chunks, one row a chunk.

    Args:
        rows: which prompt each chunk is of.
        tokens: its new positions.
        prefix: positions before it.
    """

    rows: npt.NDArray[np.intp]
    tokens: Whole
    prefix: Whole


def operating_points(replica: Replica, workloads: Workloads) -> OperatingPoint:
    """Closed loops of many workloads; every figure of the point is an array."""
    return operating_point(load_curve(replica, workloads), replica.machine.times)


def load_curve(replica: Replica, workloads: Workloads) -> Load:
    """`capplan.serving.steady_state.load_of` for arrays of lengths and concurrencies of one length.

    Leaves out the first wave, which steady loads don't have.
    """
    settings, groups, times = replica.settings, replica.sharding.dp, replica.machine.times
    isl, osl = workloads.isl, workloads.osl
    clients: Any = workloads.concurrency / groups
    new = np.maximum(1, np.rint(isl * (1 - workloads.prefix_hit_rate))).astype(np.int64)
    running: Any = admitted_many(replica, clients, isl, osl)
    batch = np.maximum(1, np.rint(running)).astype(np.int64)
    context = np.rint(isl + osl / 2).astype(np.int64)
    together: Any = np.maximum(1, np.minimum(np.ceil(running), settings.max_num_batched_tokens // new))
    wait: Any = scheduling_wait(settings, running, cast("Any", osl), groups)
    prompts: Any = np.minimum(np.maximum(1 + running / osl * (wait + 0.5), 1.0), together)
    one, shared = _prefills(replica, new, prompts)
    alone = decode_parts(replica, batch, context)
    decode = token_parts(replica, batch, context)
    joining = one
    if times.prefill_joins_decode:
        joining = _chosen(running > 1, joined_parts(replica, new, batch, context, alone), one)
    return Load(
        workload=cast("Any", workloads),
        groups=groups,
        clients=clients,
        running=running,
        decode=decode,
        joining=joining,
        together=together,
        wait=wait,
        prompts=prompts,
        one=one,
        shared=shared,
        burst=one,
        depth=replica.spec.depth,
        eager=not replica.machine.cuda_graphs,
    )


def admitted_many(replica: Replica, clients: Real, isl: Real, osl: Real) -> Real:
    """`capplan.serving.steady_state.admitted` for arrays."""
    most: Real = np.minimum(clients, replica.settings.max_num_seqs)
    if replica.kv_tokens is not None:
        held = isl + replica.machine.times.held_output * osl
        most = np.minimum(most, np.maximum(1.0, np.floor(replica.kv_tokens / held)))
    return most


def decode_parts(replica: Replica, batch: Whole, context: Whole) -> StepParts:
    """Steps that decode one token of each of `batch` sequences."""
    first, places = _distinct(batch, context)
    steps = Step(decode=(Decode(batch[first], context[first]),))
    return _spread(_parts(replica, steps, batch[first]), places)


def token_parts(replica: Replica, batch: Whole, context: Whole) -> StepParts:
    """What one output token of each of `batch` sequences takes: a step, or a share of a round where drafts are made."""
    if isinstance(replica, SpeculativeReplica):
        return round_parts(replica, batch, context)
    return decode_parts(replica, batch, context)


def round_parts(replica: SpeculativeReplica, batch: Whole, context: Whole) -> StepParts:
    """`capplan.serving.speculation.SpeculativeReplica.decode` for arrays: the share of a round of one output token."""
    first, places = _distinct(batch, context)
    own, batch, context = replica.speculation, batch[first], context[first]
    verified = Step(decode=(Decode(batch, context + own.tokens, own.tokens + 1),))
    parts = drafting_parts(replica, batch, context) + _parts(replica, verified, batch)
    return _spread(parts * (1 / own.per_round), places)


def drafting_parts(replica: SpeculativeReplica, batch: Whole, context: Whole) -> StepParts:
    """`capplan.serving.speculation.SpeculativeReplica.drafting` for arrays."""
    own, middle = replica.speculation, context + replica.speculation.tokens // 2
    if own.draft is not None:
        return decode_parts(own.draft, batch, middle) * own.tokens
    if own.medusa_heads:
        heads = medusa_ledger(replica.spec, own.medusa_heads, batch, replica.sharding, replica.formats)
        parts, nothing = _of_ledger(replica, heads, batch), np.zeros(len(batch))
        return _arrays(parts.bodies, nothing, parts.launches, parts.bound, nothing, nothing)
    passes = draft_ledger(replica.spec, Step(decode=(Decode(batch, middle),)), replica.sharding, replica.formats)
    return _of_ledger(replica, passes, batch) * own.tokens


def prefill_parts(replica: Replica, tokens: Whole, sequences: Whole) -> StepParts:
    """`sequences` prompts of `tokens` in steps of their own, chunk after chunk; a draft model reads them as well."""
    alone, back = _distinct(tokens, sequences)
    chunks = chunk_rows(replica, tokens[alone], sequences[alone], np.zeros_like(alone))
    together = sequences[alone][chunks.rows]
    steps = Step(prefill=(Prefill(chunks.tokens, chunks.prefix, together),))
    parts = _spread(_summed(_parts(replica, steps, together), chunks.rows, len(alone)), back)
    draft = replica.speculation.draft if isinstance(replica, SpeculativeReplica) else None
    return parts if draft is None else parts + prefill_parts(draft, tokens, sequences)


def joined_parts(replica: Replica, tokens: Whole, running: Whole, context: Whole, alone: StepParts) -> StepParts:
    """What a prompt of `tokens` adds to the decode steps of `running` sequences which it joins.

    Args:
        replica: the server.
        tokens: of the prompt.
        running: sequences that decode.
        context: positions of each.
        alone: the decode steps without the prompt.
    """
    chunks = chunk_rows(replica, tokens, np.ones_like(tokens), running)
    batch = running[chunks.rows]
    steps = Step(decode=(Decode(batch, context[chunks.rows]),), prefill=(Prefill(chunks.tokens, chunks.prefix),))
    added = _parts(replica, steps, batch + 1) - _spread(alone, chunks.rows)
    return _summed(added, chunks.rows, len(tokens))


def chunk_rows(replica: Replica, tokens: Whole, sequences: Whole, taken: Whole) -> ChunkRows:
    """`capplan.serving.replica.Replica.chunks` for arrays, flat."""
    most = np.maximum(1, (replica.settings.max_num_batched_tokens - taken) // sequences)
    counts = -(-tokens // most)
    rows = np.repeat(np.arange(len(tokens)), counts)
    places = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    prefix = places * most[rows]
    return ChunkRows(rows, np.minimum(most[rows], tokens[rows] - prefix), prefix)


def _parts(replica: Replica, steps: Step, sequences: Whole) -> StepParts:
    return _of_sums(replica.sums(steps), sequences, prompts=bool(steps.prefill))


def _of_ledger(replica: Replica, work: Ledger, sequences: Whole) -> StepParts:
    return _of_sums(step_sums(work.operators, replica.machine), sequences, prompts=work.prompt_layers > 0)


def _of_sums(sums: StepSums, sequences: Whole, *, prompts: bool) -> StepParts:
    length = len(sequences)
    bodies = (0.0, sums.bodies) if prompts else (sums.bodies, 0.0)
    figures = (*bodies, sums.launches, sums.bound, sequences.astype(np.float64), 1.0)
    return _arrays(*(np.broadcast_to(figure, length) for figure in figures))


def _prefills(replica: Replica, tokens: Whole, prompts: Real) -> tuple[StepParts, StepParts]:
    """The prefill of one prompt, and of `prompts` together; between whole numbers by interpolation."""
    length = len(tokens)
    low, high = np.floor(prompts).astype(np.int64), np.ceil(prompts).astype(np.int64)
    every = prefill_parts(replica, np.tile(tokens, 3), np.concatenate([np.ones_like(low), low, high]))
    one, below, above = (_spread(every, np.arange(start, start + length)) for start in (0, length, 2 * length))
    part: Any = prompts - low
    return one, below * (1 - part) + above * part


def _distinct(*columns: Whole) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """(first place of each distinct row, which of them each row is)."""
    key = columns[0]
    for column in columns[1:]:
        key = (key << _PACKED) | column
    _, first, places = np.unique(key, return_index=True, return_inverse=True)
    return first, places


def _arrays(*figures: Any) -> StepParts:
    """Parts whose figures are arrays."""
    return StepParts(*figures)


def _figures(parts: StepParts) -> tuple[Any, ...]:
    return parts.bodies, parts.prompt_bodies, parts.launches, parts.bound, parts.sequences, parts.steps


def _spread(parts: StepParts, places: npt.NDArray[np.intp]) -> StepParts:
    return _arrays(*(figure[places] for figure in _figures(parts)))


def _summed(parts: StepParts, rows: npt.NDArray[np.intp], length: int) -> StepParts:
    if len(rows) == length:
        return parts
    return _arrays(*(np.bincount(rows, weights=figure, minlength=length) for figure in _figures(parts)))


def _chosen(condition: npt.NDArray[np.bool_], one: StepParts, other: StepParts) -> StepParts:
    pairs = zip(_figures(one), _figures(other), strict=True)
    return _arrays(*(np.where(condition, here, there) for here, there in pairs))
