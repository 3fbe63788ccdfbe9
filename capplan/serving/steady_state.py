"""A server under a steady load: time to first token, time per output token, throughput, and what it queues.

Per data-parallel group, with C clients, B sequences that run, mean lengths L in and O out::

    S      = one decode step of B sequences at the mean context L + O/2
    M      = what the prefill of one prompt adds to the steps of the others
    TPOT   = S + (B - 1)/O · M

A token waits for its own step, and for the prefills of the B - 1 others, each of which starts once in O tokens.

The first token waits for the scheduler to look, for the prefill step that it joins, and for those before it::

    wait   = (R - 1)/2 + H·(1 + n/2)/(1 + n)          decode steps until the scheduler takes the prompt
    nb     = clip(1 + C/O · (wait + 1/2), 1, kk)      prompts that share its prefill step, kk = budget/L at most
    P      = G(nb) + TPOT/2                           that step, and the rest of the one that runs meanwhile
    rho    = (C - 1)·G(1) / (nb·O·TPOT + C·G(1))      share of a request's time in which others are in prefill
    later  = P·(1 + rho/2) + wait·TPOT                half a prefill of others is left if there is one
    First  = G(kk)·(ns + 1)/2 + tok·L·(C·dp - 1)/2    the first wave, C prompts at once in ns = C/kk steps
    TTFT   = t0 + tok·L + kx·TPOT + w·First + (1 - w)·later

`G(k)` is the prefill of k prompts by kernel laws, floored by the host where prefill runs without graphs; R is the
receive interval; w = 1/waves weighs the first wave in the mean, in which prompts pass the one front end of all groups
one after another, tok·L each.

A lone prompt is held back for company for H steps, H = W, the batch wait, and where data-parallel groups start their
prefills together, no longer than until each has a prompt, ``O/C · (1 + 1/2 + ... + 1/dp)`` steps. Of the prompts that
wait so, the first waits all of it, and the ``n = C·dp/O · H`` that join it half of it on average.

Where lengths vary, long outputs stay longer: a sequence that runs has ``O' = E[O²]/E[O]`` of output, for O in its
context and in the pool; and the queue for prefill grows with the spread of prompts, rho·(1 + var L/L²)
(Pollaczek-Khinchine).

Beyond the pool the rest queues: C clients share B places, so that a request waits (C - B)/B service times.

Source of the forms: public serving measurements; their constants are fitted by benchmarks/serving_fit.py, and their
errors on models and GPUs left out of the fit stand in docs/serving_accuracy.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor

from capplan.describe.engine_times import EngineTimes
from capplan.errors import UsageError
from capplan.serving.replica import EngineSettings, Replica, StepParts
from capplan.serving.workload import Workload
from capplan.timing.kernel_laws.terms import larger, smaller

RESIDUAL = 0.5
"""Share of a step, or of a prefill, that is left on average when a request finds it under way."""

MOST_CLIENTS = 1 << 14
"""Clients of a group at most where nothing else limits them."""


@dataclass(frozen=True)
class ServingTerms:
    """The terms of one operating point, in seconds unless said otherwise.

    Args:
        admitted: sequences that run at once in each data-parallel group.
        decode_step: S.
        prefill_share: M, what one prompt adds to the others' steps.
        prefill: G(1), the prefill of one prompt alone.
        first_wave: the mean of the first wave.
        later: the mean of the others.
        scheduling: decode steps until the scheduler takes a prompt.
        utilisation: C·G(1) / (nb·O·TPOT), the time in prefill over the time of decoding.
        servers: prefill servers that share one queue.
        others_in_prefill: rho, the share of a request's time in which others are in prefill.
    """

    admitted: float
    decode_step: float
    prefill_share: float
    prefill: float
    first_wave: float
    later: float
    scheduling: float
    utilisation: float
    servers: int = 1
    others_in_prefill: float = 0.0


@dataclass(frozen=True)
class OperatingPoint:
    """A server under a load.

    Args:
        ttft: mean seconds to the first token.
        tpot: mean seconds of each further token.
        e2e: mean seconds of a request.
        request_rate: requests a second of the whole deployment.
        output_rate: output tokens a second.
        input_rate: input tokens a second.
        admitted_batch: requests that run at once in the whole deployment.
        queued: whether more requests wait than run.
        terms: how it comes about.
    """

    ttft: float
    tpot: float
    e2e: float
    request_rate: float
    output_rate: float
    input_rate: float
    admitted_batch: float
    queued: bool
    terms: ServingTerms


@dataclass(frozen=True)
class Load:
    """What a workload makes a replica do, before the engine's constants make seconds of it.

    A sweep (`capplan.serving.load_curve`) has arrays here, one element a workload, and so in its `OperatingPoint`.

    Args:
        workload: the load.
        groups: data-parallel groups.
        clients: C, requests that each group has at once.
        running: B, of them those that the pool admits.
        decode: one decode step of B sequences.
        joining: what the prefill of one prompt adds to the others' steps.
        together: kk, prompts that one prefill step takes at most.
        wait: decode steps until the scheduler takes a prompt.
        prompts: nb, prompts that share a prefill step.
        one: the prefill of one prompt.
        shared: the prefill of nb prompts.
        burst: the prefill of kk prompts.
        depth: layers.
        eager: whether decode runs without graphs, so that the host bounds its steps as well.
    """

    workload: Workload
    groups: int
    clients: float
    running: float
    decode: StepParts
    joining: StepParts
    together: int
    wait: float
    prompts: float
    one: StepParts
    shared: StepParts
    burst: StepParts
    depth: int
    eager: bool = False


@dataclass(frozen=True)
class ReplicaServer:
    """A replica whose steps mix prefill and decode.

    Args:
        replica: the replica.
    """

    replica: Replica

    @property
    def groups(self) -> int:
        """Its data-parallel groups."""
        return self.replica.sharding.dp

    def most_clients(self, workload: Workload) -> float:
        """Sequences that its pools admit."""
        return admitted(self.replica, MOST_CLIENTS, workload.isl, workload.residing_osl) * self.groups

    def closed_loop(self, workload: Workload) -> OperatingPoint:
        """See `closed_loop`."""
        return closed_loop(self.replica, workload)


def closed_loop(replica: Replica, workload: Workload) -> OperatingPoint:
    """The operating point of `concurrency` clients that each send the next request when the last is answered.

    Raises:
        UsageError: the workload has no concurrency.
    """
    return operating_point(load_of(replica, workload), replica.machine.times)


def load_of(replica: Replica, workload: Workload) -> Load:
    """Everything that kernel laws say of a closed loop."""
    if workload.concurrency is None:
        raise UsageError("a closed loop needs a concurrency", where="--concurrency")
    settings, groups = replica.settings, replica.sharding.dp
    clients = workload.concurrency / groups
    new = max(1, round(workload.isl * (1 - workload.prefix_hit_rate)))
    running = admitted(replica, clients, workload.isl, workload.residing_osl)
    batch = max(1, round(running))
    context = round(workload.isl + workload.residing_osl / 2)
    joins = replica.machine.times.prefill_joins_decode
    together = max(1, min(ceil(running), settings.max_num_batched_tokens // new))
    wait = scheduling_wait(settings, running, workload.osl, groups)
    prompts = min(max(1 + running / workload.osl * (wait + 0.5), 1.0), together)
    one = replica.prefill(new)
    return Load(
        workload=workload,
        groups=groups,
        clients=clients,
        running=running,
        decode=replica.decode(batch, context),
        joining=replica.joined(new, batch, context) if joins and running > 1 else one,
        together=together,
        wait=wait,
        prompts=prompts,
        one=one,
        shared=prefill_of(replica, new, prompts, one),
        burst=prefill_of(replica, new, together, one),
        depth=replica.spec.depth,
        eager=not replica.machine.cuda_graphs,
    )


def admitted(replica: Replica, clients: float, isl: float, osl: float) -> float:
    """Sequences that run at once in one data-parallel group: ``min(C, max_num_seqs, pool / (L + h·O))``.

    A pool that grows sequence by sequence holds each at half of its output on average, ``L + O/2`` tokens; an engine
    that never takes memory back reserves ``L + O`` from the start, and one may keep a share of the output free.
    """
    most = min(clients, replica.settings.max_num_seqs)
    if replica.kv_tokens is not None:
        held = isl + replica.machine.times.held_output * osl
        most = min(most, max(1.0, floor(replica.kv_tokens / held)))
    return most


def scheduling_wait(settings: EngineSettings, running: float, osl: float, groups: int) -> float:
    """Decode steps until the scheduler takes a prompt, of ``running`` sequences a group; see the module."""
    received = (settings.receive_interval - 1) / 2
    if not settings.batch_wait:
        return received
    held: float = settings.batch_wait
    if groups > 1:
        held = smaller(held, osl / running * sum(1 / group for group in range(1, groups + 1)))
    joining = running * groups / osl * held
    return received + held * (1 + joining / 2) / (1 + joining)


def prefill_of(replica: Replica, tokens: int, prompts: float, one: StepParts) -> StepParts:
    """The prefill of k prompts together; between whole numbers by interpolation."""
    low, high = floor(prompts), ceil(prompts)
    whole = {1: one}
    for number in {low, high} - {1}:
        whole[number] = replica.prefill(tokens, number)
    part = prompts - low
    return whole[low] * (1 - part) + whole[high] * part


def operating_point(load: Load, times: EngineTimes) -> OperatingPoint:
    """The figures of a load under an engine's constants; see the module for the equations."""
    workload, running = load.workload, load.running
    step, share = load.decode.seconds(times), load.joining.seconds(times)
    if load.eager:
        step = larger(step, times.prompt_host(load.depth, load.decode.launches))
    tpot = step + larger(running - 1, 0.0) / workload.osl * share
    ttft, terms = first_token(load, times, tpot, step, share)
    service = ttft + (workload.osl - 1) * tpot
    waiting = (load.clients - running) / running * service
    total = service + waiting
    rate = load.clients * load.groups / total
    return OperatingPoint(
        ttft=ttft + waiting,
        tpot=tpot,
        e2e=total,
        request_rate=rate,
        output_rate=rate * workload.osl,
        input_rate=rate * workload.isl,
        admitted_batch=running * load.groups,
        queued=load.clients > running * (1 + 1e-9),
        terms=terms,
    )


def first_token(load: Load, times: EngineTimes, tpot: float, step: float, share: float) -> tuple[float, ServingTerms]:
    """TTFT of a request that need not queue for memory, with its terms; see the module."""
    workload, running = load.workload, load.running
    one = prefill_seconds(load, load.one, times)
    front = times.per_input_token * workload.isl
    waves = running / load.together
    ahead = larger(running * load.groups - 1, 0.0) / 2
    burst = prefill_seconds(load, load.burst, times) * (waves + 1) / 2 + front * ahead
    decode = load.prompts * workload.osl * tpot
    others = larger(running - 1, 0.0) * one / (decode + running * one)
    own = prefill_seconds(load, load.shared, times) + RESIDUAL * tpot
    later = own * (1 + RESIDUAL * others * (1 + workload.isl_variation)) + load.wait * tpot
    weight = 1 / workload.waves if workload.waves else 0.0
    ttft = times.around_prefill(workload.isl, tpot) + weight * burst + (1 - weight) * later
    busy = running * one / decode
    terms = ServingTerms(running, step, share, one, burst, later, load.wait, busy, others_in_prefill=others)
    return ttft, terms


def prefill_seconds(load: Load, parts: StepParts, times: EngineTimes) -> float:
    """Seconds of prefill steps: by kernel laws, floored by what the host takes."""
    return larger(parts.seconds(times), times.prompt_host(parts.steps * load.depth, parts.launches))
