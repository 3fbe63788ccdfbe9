"""One replica of a model on an engine: how long its steps take, and what its KV pool admits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from capplan.describe.engine_times import EngineTimes
from capplan.describe.model import ModelSpec
from capplan.timing.kernel_laws.terms import larger
from capplan.timing.machine import Machine
from capplan.timing.step_sums import StepSums, step_sums
from capplan.work.formats import Formats
from capplan.work.sharding import Sharding
from capplan.work.step import Decode, Prefill, Step, ledger

MOST_CHUNKS = 64
"""Chunks of a prompt that are worked out one by one."""


@dataclass(frozen=True)
class EngineSettings:
    """The settings of a server that shape its steps.

    Args:
        max_num_batched_tokens: the most tokens of one step.
        max_num_seqs: the most sequences that run at once, in each data-parallel group.
        chunked_prefill: whether prompts join decode steps; else they have steps of their own.
        receive_interval: decode steps between two looks at the queue.
        batch_wait: steps that a lone prompt is held back for company.
    """

    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 1024
    chunked_prefill: bool = True
    receive_interval: int = 1
    batch_wait: int = 0


@dataclass(frozen=True, slots=True)
class StepParts:
    """What one or more steps are made of, before an engine's own constants make seconds of it.

    A sweep (`capplan.serving.load_curve`) has arrays here, one element a step.

    Args:
        bodies: seconds of the kernels' bodies in steps that only decode, measured alone.
        prompt_bodies: the same of steps with prompt tokens.
        launches: seconds of their launches.
        bound: the datasheet's bound.
        sequences: sequences scheduled and sampled.
        steps: steps.
    """

    bodies: float = 0.0
    prompt_bodies: float = 0.0
    launches: float = 0.0
    bound: float = 0.0
    sequences: float = 0.0
    steps: float = 0.0

    @classmethod
    def of(cls, sums: StepSums, sequences: float, *, prompts: bool) -> StepParts:
        """The parts of one step, with prompt tokens or without."""
        bodies, launches, bound = float(sums.bodies), float(sums.launches), float(sums.bound)
        return cls(0.0 if prompts else bodies, bodies if prompts else 0.0, launches, bound, sequences, 1.0)

    def __add__(self, other: StepParts) -> StepParts:
        return StepParts(
            self.bodies + other.bodies,
            self.prompt_bodies + other.prompt_bodies,
            self.launches + other.launches,
            self.bound + other.bound,
            self.sequences + other.sequences,
            self.steps + other.steps,
        )

    def __sub__(self, other: StepParts) -> StepParts:
        return self + other * -1.0

    def __mul__(self, factor: float) -> StepParts:
        return StepParts(
            self.bodies * factor,
            self.prompt_bodies * factor,
            self.launches * factor,
            self.bound * factor,
            self.sequences * factor,
            self.steps * factor,
        )

    def seconds(self, times: EngineTimes) -> float:
        """``max(Σ share · bodies + launches, bound) + per_sequence · sequences + per_step · steps``."""
        decoding = times.body_share(prompts=False) * self.bodies
        kernels = decoding + times.body_share(prompts=True) * self.prompt_bodies + self.launches
        return larger(kernels, self.bound) + times.per_sequence * self.sequences + times.per_step * self.steps


@dataclass(frozen=True)
class Replica:
    """A model on its ranks.

    Args:
        spec: the model.
        machine: the device of every rank, with the engine.
        sharding: the parallel sizes.
        formats: number formats of weights, activations and cache.
        settings: the server's settings.
        kv_tokens: tokens that the KV pool of one data-parallel group holds; None: as many as are wanted.
        summed_by: works steps out instead; a search has one that remembers what many servers have in common.
    """

    spec: ModelSpec
    machine: Machine
    sharding: Sharding = field(default_factory=Sharding)
    formats: Formats | None = None
    settings: EngineSettings = field(default_factory=EngineSettings)
    kv_tokens: float | None = None
    summed_by: Callable[[Replica, Step], StepSums] | None = field(default=None, compare=False, repr=False)
    _known: dict[tuple[Step, float], StepParts] = field(default_factory=dict, compare=False, repr=False)

    def step(self, step: Step, sequences: float) -> StepParts:
        """One step in which `sequences` sequences are scheduled."""
        key = (step, sequences)
        if key not in self._known:
            self._known[key] = StepParts.of(self.sums(step), sequences, prompts=bool(step.prefill))
        return self._known[key]

    def sums(self, step: Step) -> StepSums:
        """What a step, or each of many, is made of."""
        if self.summed_by is not None:
            return self.summed_by(self, step)
        return step_sums(ledger(self.spec, step, self.sharding, self.formats).operators, self.machine)

    def decode_step(self, sequences: int, context: int) -> StepParts:
        """A step that decodes one token of each of `sequences` sequences with `context` positions."""
        return self.step(Step(decode=(Decode(sequences, context),)), sequences)

    def decode(self, sequences: int, context: int) -> StepParts:
        """What one output token of each of `sequences` sequences takes: a step, unless the server drafts."""
        return self.decode_step(sequences, context)

    def prefill(self, tokens: int, sequences: int = 1) -> StepParts:
        """`sequences` prompts of `tokens` in steps of their own, chunk after chunk of the token budget."""
        return over_chunks(
            self.chunks(tokens, sequences),
            lambda chunk, prefix: self.step(Step(prefill=(Prefill(chunk, prefix, sequences),)), sequences),
        )

    def joined(self, tokens: int, running: int, context: int) -> StepParts:
        """What a prompt of `tokens` adds to the decode steps of `running` sequences which it joins."""
        alone = self.decode_step(running, context)

        def added(chunk: int, prefix: int) -> StepParts:
            step = Step(decode=(Decode(running, context),), prefill=(Prefill(chunk, prefix),))
            return self.step(step, running + 1) - alone

        return over_chunks(self.chunks(tokens, 1, taken=running), added)

    def chunks(self, tokens: int, sequences: int, taken: int = 0) -> list[tuple[int, int]]:
        """(tokens, prefix) of each chunk of a prompt under the token budget, of which `taken` tokens are decoded."""
        most = max(1, (self.settings.max_num_batched_tokens - taken) // sequences)
        return [(min(most, tokens - start), start) for start in range(0, tokens, most)]


def over_chunks(chunks: list[tuple[int, int]], parts: Callable[[int, int], StepParts]) -> StepParts:
    """The sum over a prompt's chunks; of very many, over some, and linear in the prefix between those.

    Between the chunks a and b it adds ``Σ_{k=a+1..b} = (b - a)·(f_a + f_b)/2 + (f_b - f_a)/2``.
    """
    if len(chunks) <= MOST_CHUNKS:
        return sum((parts(*chunk) for chunk in chunks), StepParts())
    full = chunks[:-1]
    places = [round(part * (len(full) - 1) / (MOST_CHUNKS // 2)) for part in range(MOST_CHUNKS // 2 + 1)]
    found = [parts(*full[place]) for place in places]
    total = parts(*chunks[-1]) + found[0]
    for (first, start), (last, end) in pairwise(zip(places, found, strict=True)):
        total = total + (start + end) * ((last - first) / 2) + (end - start) * 0.5
    return total
