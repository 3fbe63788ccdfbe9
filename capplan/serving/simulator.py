"""A server iteration by iteration: arrivals, the scheduler's steps, how long each takes, and what clients see of it.

The step's duration comes from a clock; everything else is counted. Time passes as

    now ← now + clock(decoding sequences, their context, prompt chunks) + moved blocks · seconds a block

Where an engine plans steps ahead, a step is planned while the one before it runs: it knows neither the requests that
have come since that one began, nor the places that become free with it.

Leaves out: what a client's network adds; stop tokens (every output has its length); steps of drafted tokens.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

from capplan.serving.requests import Arrivals
from capplan.serving.scheduler import Scheduler, SchedulerConfig
from capplan.serving.sequences import CacheModel, ServedSequence
from capplan.serving.service_metrics import Log, Objectives, Timeline, TimelinePoint
from capplan.serving.step_plan import StepPlan

PROGRESS_EVERY = 1000
"""Finished requests between two reports of progress."""


class StepClock(Protocol):
    """How long a step takes.

    Attributes:
        prompt_host: seconds that the host takes over a step's prompts at least. It works ahead while other requests
            run, so that the prompts' first tokens wait for it and the others' tokens do not.
    """

    prompt_host: float

    def seconds(self, decode: int, context: int, chunks: Sequence[tuple[int, int]]) -> float:
        """Seconds of one step.

        Args:
            decode: sequences that decode one token each.
            context: their positions in the cache after the step, all together.
            chunks: (tokens, positions cached before) of each prompt or piece of one.
        """


@dataclass(frozen=True, slots=True)
class SimulatorConfig:
    """A server as the simulator needs it.

    Args:
        scheduler: the scheduler's settings.
        cache: the pool of blocks.
        steps_ahead: 1: a step is planned while the one before it runs; 0: when that has ended.
        receive_interval: decode steps between two looks at the queue of arrivals.
        stream_interval: tokens between two messages to a client.
        front_end: seconds that a request takes to reach the scheduler.
        front_end_token: seconds more for each token of its prompt, one request after another.
        delivery_steps: decode steps that pass between a token and its arrival at the client.
        swap_block: seconds to move one block between host and device.
        warmup: requests at the start that don't count in the distributions.
        objectives: what a good request keeps.
    """

    scheduler: SchedulerConfig
    cache: CacheModel
    steps_ahead: int = 0
    receive_interval: int = 1
    stream_interval: int = 1
    front_end: float = 0.0
    front_end_token: float = 0.0
    delivery_steps: float = 0.0
    swap_block: float = 0.0
    warmup: int = 0
    objectives: Objectives = field(default_factory=Objectives)


@dataclass(frozen=True)
class Simulation:
    """What happened.

    Args:
        log: the requests' times.
        timeline: the server over time.
        duration: seconds from the first arrival until the last token is with its client.
        finished: requests that got all their tokens.
        rejected: requests that the server can never serve.
        steps: steps in all.
        decode_steps: steps that decoded.
        prompt_tokens: tokens of the prompts of finished requests.
        output_tokens: tokens of their outputs.
        computed_tokens: prompt tokens computed, recomputed ones included.
        busy: seconds in steps.
        mean_running: requests that run, over the busy time.
        mean_used_blocks: blocks in use, over the busy time.
        peak_used_blocks: blocks in use at most.
        peak_running: requests that ran at once, at most.
        preemptions: how often a request had to give way.
        recomputed_tokens: positions that were computed again for it.
        hit_rate: cached tokens over tokens of all admitted prompts.
        evictions: cached blocks that were given up.
    """

    log: Log
    timeline: tuple[TimelinePoint, ...]
    duration: float
    finished: int
    rejected: int
    steps: int
    decode_steps: int
    prompt_tokens: int
    output_tokens: int
    computed_tokens: int
    busy: float
    mean_running: float
    mean_used_blocks: float
    peak_used_blocks: int
    peak_running: int
    preemptions: int
    recomputed_tokens: int
    hit_rate: float
    evictions: int


def simulate(
    arrivals: Arrivals,
    clock: StepClock,
    config: SimulatorConfig,
    progress: Callable[[int, int], None] | None = None,
) -> Simulation:
    """Serve all requests.

    Args:
        arrivals: where they come from.
        clock: how long steps take.
        config: the server.
        progress: called with (finished requests, all requests) from time to time.
    """
    return _Run(arrivals, clock, config, progress).run()


class _Run:
    """One simulation under way."""

    def __init__(
        self,
        arrivals: Arrivals,
        clock: StepClock,
        config: SimulatorConfig,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self.arrivals, self.clock, self.config, self.progress = arrivals, clock, config, progress
        self.scheduler = Scheduler(config.scheduler, config.cache)
        self.log, self.timeline = Log(config.objectives), Timeline()
        self.now, self.begun = 0.0, -1.0
        self.front_end_free = 0.0
        self.taken = self.rejected = self.finished = 0
        self.steps = self.prompt_tokens = self.output_tokens = self.computed = self.emitted = 0
        self.busy = self.running_time = self.block_time = 0.0
        self.peak_blocks = self.peak_running = 0
        self.decode_time = self.delivery = self.answered = 0.0
        self.since_look = 0
        self.fresh: dict[ServedSequence, None] = {}
        self.stamps = array("d", [0.0])
        self.arrived: ServedSequence | None = None
        self.ready = 0.0

    def run(self) -> Simulation:
        """All requests, to the last token."""
        scheduler, ahead = self.scheduler, self.config.steps_ahead
        seen = 0.0
        ended: Sequence[ServedSequence] = ()
        while True:
            if not ahead:
                seen = self.now
                scheduler.release(ended)
                ended = ()
            self._look(seen)
            plan = scheduler.plan()
            if ahead:
                scheduler.release(ended)
                ended = ()
            if plan is None:
                self._look(self.now, idle=True)
                plan = scheduler.plan()
            if plan is None:
                if scheduler.waiting or scheduler.swapped:
                    raise RuntimeError("the scheduler has requests and no step for them")
                if not self._wait():
                    return self._result()
                seen = self.now
                continue
            seen = self.now
            ended = self._step(plan)

    def _wait(self) -> bool:
        """Let time pass until the next request is there; whether there will be one."""
        self._fetch()
        if self.arrived is None:
            return False
        self.now = max(self.now, self.ready)
        return True

    def _fetch(self) -> None:
        """Take the next request out of the arrivals, and note when it will have passed the front end."""
        if self.arrived is not None:
            return
        time = self.arrivals.next_arrival()
        if time is None:
            return
        request, config = self.arrivals.take(), self.config
        if self.begun < 0:
            self.begun = time
        self.ready = max(self.ready, time + config.front_end) + config.front_end_token * request.isl
        self.arrived = ServedSequence(self.taken, request, request.isl)
        self.taken += 1

    def _look(self, until: float, *, idle: bool = False) -> None:
        """Let the scheduler see the requests that were ready by then, if it looks."""
        if self.config.receive_interval > 1 and not idle:
            if 0 < self.since_look < self.config.receive_interval:
                return
            self.since_look = 0
        while True:
            self._fetch()
            if self.arrived is None or self.ready > until:
                return
            sequence, self.arrived = self.arrived, None
            if self.scheduler.fits(sequence):
                self.scheduler.waiting.append(sequence)
            else:
                self.rejected += 1
                self.arrivals.finished(self.ready)

    def _step(self, plan: StepPlan) -> list[ServedSequence]:
        """Run one step and book what came of it; returns the requests that it ended."""
        scheduler, log = self.scheduler, self.log
        chunks = [(chunk.tokens, chunk.prefix) for chunk in plan.chunks]
        seconds = self.clock.seconds(plan.decode, plan.context, chunks)
        if plan.moved_blocks:
            seconds += plan.moved_blocks * self.config.swap_block
        start, late = self.now, 0.0
        if chunks and seconds < self.clock.prompt_host:
            late = self.clock.prompt_host - seconds
            if len(scheduler.running) <= len(chunks):
                seconds, late = seconds + late, 0.0
        now = self.now = start + seconds
        for sequence in plan.preempted:
            self._gave_way(sequence)
        for chunk in plan.chunks:
            self.computed += chunk.tokens
            if chunk.sequence.scheduled < 0:
                chunk.sequence.scheduled = start
        self._count(seconds, plan)
        if plan.decode:
            self._decoded(plan.decode, now)
            if not plan.chunks:
                self.delivery = self.config.delivery_steps * seconds
        self.since_look = self.since_look + 1 if plan.decode and not plan.chunks else 0
        prompted, ended = scheduler.complete(plan)
        for sequence in prompted:
            if sequence.first_token < 0:
                sequence.first_token = now + late
            elif self.config.stream_interval == 1:
                log.gap(now - sequence.last_token, 1)
            sequence.last_token = now
            self.emitted += 1
            if self.config.stream_interval > 1:
                sequence.runs.append((now, scheduler.decoding.steps))
            elif sequence.joined >= 0:
                self.fresh[sequence] = None
        for sequence in ended:
            self._end(sequence, now)
        if now >= self.timeline.due:
            self.timeline.add(self._point())
        return ended

    def _point(self) -> TimelinePoint:
        scheduler = self.scheduler
        waiting = len(scheduler.waiting) + len(scheduler.swapped)
        return TimelinePoint(self.now, len(scheduler.running), waiting, scheduler.blocks.used, self.emitted)

    def _count(self, seconds: float, plan: StepPlan) -> None:
        """Add a step to the means over time and to the peaks."""
        used, running = self.scheduler.blocks.used, len(self.scheduler.running)
        self.steps += 1
        self.busy += seconds
        self.block_time += used * seconds
        self.running_time += running * seconds
        if used > self.peak_blocks:
            self.peak_blocks = used
        if running > self.peak_running:
            self.peak_running = running

    def _decoded(self, decode: int, now: float) -> None:
        """One token more for each decoding sequence: since the last decode step, or since its prompt was complete."""
        tokens = decode - self.scheduler.padding
        self.emitted += tokens
        if self.config.stream_interval > 1:
            self.stamps.append(now)
            return
        steady = tokens - len(self.fresh)
        if self.fresh:
            for sequence in self.fresh:
                self.log.gap(now - sequence.last_token, 1)
            self.fresh.clear()
        if steady:
            self.log.gap(now - self.decode_time, steady)
        self.decode_time = now

    def _gave_way(self, sequence: ServedSequence) -> None:
        """Note the time of a preempted sequence's latest token, if it has one."""
        if len(sequence.runs) > len(sequence.lefts):
            sequence.lefts.append(self.scheduler.decoding.steps)
        if sequence in self.fresh:
            del self.fresh[sequence]
        elif sequence.first_token >= 0:
            sequence.last_token = max(sequence.last_token, self.decode_time)

    def _end(self, sequence: ServedSequence, now: float) -> None:
        """A request has its last token."""
        request = sequence.request
        self.finished += 1
        self.prompt_tokens += request.isl
        self.output_tokens += request.osl
        self.fresh.pop(sequence, None)
        if self.config.stream_interval > 1:
            self._messages(sequence)
        if sequence.index >= self.config.warmup:
            self.log.request(
                request.arrival,
                request.isl,
                request.osl,
                sequence.cached,
                sequence.scheduled,
                sequence.first_token + self.delivery,
                max(now, sequence.first_token) + self.delivery,
            )
        self.answered = max(self.answered, now + self.delivery)
        self.arrivals.finished(now + self.delivery)
        if self.progress is not None and self.finished % PROGRESS_EVERY == 0:
            self.progress(self.finished, self.arrivals.count)

    def _messages(self, sequence: ServedSequence) -> None:
        """Gaps between messages of several tokens: the first token alone, then every n-th, then the rest."""
        times: list[float] = []
        lefts = [*sequence.lefts, self.scheduler.decoding.steps]
        for (start, joined), left in zip(sequence.runs, lefts, strict=True):
            times += [start, *self.stamps[joined + 1 : left + 1]]
        sent = times[:: self.config.stream_interval]
        if (len(times) - 1) % self.config.stream_interval:
            sent.append(times[-1])
        for before, after in pairwise(sent):
            self.log.gap(after - before, 1)

    def _result(self) -> Simulation:
        scheduler, busy = self.scheduler, self.busy or 1.0
        if self.progress is not None:
            self.progress(self.finished, self.arrivals.count)
        return Simulation(
            log=self.log,
            timeline=(*self.timeline.points, self._point()),
            duration=max(self.answered, self.now) - max(self.begun, 0.0),
            finished=self.finished,
            rejected=self.rejected,
            steps=self.steps,
            decode_steps=scheduler.decoding.steps,
            prompt_tokens=self.prompt_tokens,
            output_tokens=self.output_tokens,
            computed_tokens=self.computed,
            busy=self.busy,
            mean_running=self.running_time / busy,
            mean_used_blocks=self.block_time / busy,
            peak_used_blocks=self.peak_blocks,
            peak_running=self.peak_running,
            preemptions=scheduler.preemptions,
            recomputed_tokens=scheduler.recomputed_tokens,
            hit_rate=scheduler.blocks.prefixes.hit_rate,
            evictions=scheduler.blocks.prefixes.evictions,
        )
