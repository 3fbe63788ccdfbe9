"""A batch that starts together and ends together: benchmarks without a server, and engines that batch statically.

    P    = prefill of B prompts, chunk after chunk of the token budget
    S    = one decode step of B sequences at the mean context d + L + O/2
    time = P + (O - 1)·S

B sequences of which the memory holds fewer run in rounds, one after the other. There is no front end: no request is
scheduled, no token sent, so that the engine's ``per_sequence`` is left out of every step.

Leaves out: places that become free when short outputs end before long ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil

from capplan.identity import Same
from capplan.serving.replica import Replica
from capplan.timing.step_time import step_time
from capplan.work.step import Decode, Prefill, Step, ledger

SUBMITTED = 4
"""Chunks of a prompt that are submitted at once: 2,048 tokens in chunks of 512 (llama.cpp, n_batch and n_ubatch)."""


@dataclass(frozen=True)
class BatchRun:
    """What a batch takes.

    Args:
        batch: sequences of one round.
        rounds: rounds.
        isl: input tokens of each.
        osl: output tokens of each.
        prefill: P, seconds until all prompts of a round are read.
        decode_step: S, seconds of a step.
    """

    batch: int
    rounds: float
    isl: int
    osl: int
    prefill: float
    decode_step: float

    @property
    def seconds(self) -> float:
        """Of one round: ``P + (O - 1)·S``."""
        return self.prefill + max(0, self.osl - 1) * self.decode_step

    @property
    def request_rate(self) -> float:
        """Requests a second."""
        return self.batch / self.seconds


def batch_run(replica: Replica, batch: int, isl: int, osl: int, depth: int = 0) -> BatchRun:
    """A batch on a replica.

    Args:
        replica: the model on its ranks.
        batch: B, sequences of one data-parallel group.
        isl: L, input tokens of each; 0: no prompt.
        osl: O, output tokens of each; 0: none.
        depth: d, positions that are cached before.
    """
    held = depth + isl + osl
    together = batch
    if replica.kv_tokens is not None and held:
        together = min(batch, max(1, int(replica.kv_tokens // held)))
    prefill = prefill_seconds(replica, together, isl, depth) if isl else 0.0
    step = decode_seconds(replica, together, depth + isl + max(1, osl // 2)) if osl > 1 else 0.0
    return BatchRun(together, ceil(batch / together), isl, osl, prefill, step)


def prefill_seconds(replica: Replica, batch: int, isl: int, depth: int = 0) -> float:
    """Seconds of the prefill of B prompts, each step no faster than its host.

    Stages of a pipeline work at different chunks of one submission at once: ``(n + pp - 1) / (n·pp)`` of the time for n
    chunks, `SUBMITTED` at most.
    """
    times, stages = replica.machine.times, replica.sharding.pp
    chunks = replica.chunks(isl, batch)
    total = 0.0
    for tokens, prefix in chunks:
        step = Step(prefill=(Prefill(tokens, depth + prefix, batch),))
        launches = replica.step(step, batch).launches
        total += max(times.prompt_host(replica.spec.depth, launches), step_seconds(replica, step, batch))
    together = min(len(chunks), SUBMITTED)
    return total * (together + stages - 1) / (together * stages)


def decode_seconds(replica: Replica, batch: int, context: int) -> float:
    """Seconds of one decode step of B sequences with `context` positions each."""
    seconds, times = step_seconds(replica, Step(decode=(Decode(batch, context),)), batch), replica.machine.times
    if times.graph_context is None or context <= times.graph_context:
        return seconds
    return max(seconds, times.eager_layer * replica.spec.depth + times.per_step)


def step_seconds(replica: Replica, step: Step, sequences: int) -> float:
    """Seconds of one step; without graphs no faster than the host launches its kernels."""
    if replica.machine.cuda_graphs:
        return replica.step(step, sequences).seconds(replace(replica.machine.times, per_sequence=0.0))
    return _eager_seconds(Same(replica), step, sequences)


@lru_cache(maxsize=4096)
def _eager_seconds(key: Same[Replica], step: Step, sequences: int) -> float:
    replica = key.value
    work = ledger(replica.spec, step, replica.sharding, replica.formats)
    return float(step_time(work, replica.machine, sequences=0).seconds)
