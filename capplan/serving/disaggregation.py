"""Prefill and decode on pools of their own: what each sustains, what moving the caches takes, which ratio balances.

P replicas prefill, D decode. Nothing interrupts a decode step, so that with b sequences on each decode replica::

    S      = one decode step of b sequences at context L + O/2
    λ      = D·b / ((O - 1)·S)                                requests a second (Little's law in the decode pool)
    wait   = M/D/P queue at λ·(C - 1)/C                       a client does not wait for itself
    TTFT   = t0 + tok·L + kx·S + wait + G + X                 X = bytes of a prompt's cache on a rank / bandwidth
    E2E    = TTFT + (O - 1)·S
    C      = λ · E2E

b is found so that the clients add up to C; where the prefill pool or the decode pool is full before that, the other
clients wait in front of it. The first token reaches the client from the decode pool, after the cache: vLLM makes it
there, SGLang and TensorRT-LLM send it along. Both pools work alike where ``P/G = D·b/((O - 1)·S)``: for each decode
replica ``G·b/((O - 1)·S)`` prefill replicas.

Source: the equations of `capplan.serving.steady_state`, the queue of `capplan.serving.queueing`; the idea: Zhong et
al., DistServe (arXiv:2401.09670), section 3.

Leaves out: transfers that overlap with prefill layer by layer, and transfers that wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import floor

from capplan.describe.engine_times import EngineTimes
from capplan.errors import UsageError
from capplan.serving.queueing import mean_wait
from capplan.serving.replica import Replica
from capplan.serving.steady_state import OperatingPoint, ServingTerms, admitted, load_of, prefill_seconds
from capplan.serving.workload import Workload

MOST_REPLICAS = 4096

FULL = 0.9999
"""Share of the time in which a pool works that counts as all of it."""


@dataclass(frozen=True)
class Pools:
    """A disaggregated deployment; every replica is alike.

    Args:
        replica: one replica.
        prefill: P, replicas that prefill.
        decode: D, replicas that decode.
        transfer: X, seconds to move the cache of one prompt.
    """

    replica: Replica
    prefill: int
    decode: int
    transfer: float

    def __post_init__(self) -> None:
        for value in (self.prefill, self.decode):
            if not 1 <= value <= MOST_REPLICAS:
                raise UsageError(f"each pool has 1 to {MOST_REPLICAS} replicas, not {value}", where="--disaggregate")

    @property
    def groups(self) -> int:
        """Data-parallel groups that decode."""
        return self.decode * self.replica.sharding.dp

    @property
    def prefill_groups(self) -> int:
        """Data-parallel groups that prefill."""
        return self.prefill * self.replica.sharding.dp

    def most_clients(self, workload: Workload) -> float:
        """Sequences that the decode pool holds, and a queue in front of the prefill pool that keeps it busy."""
        return self._most(workload) * self.groups + 64 * self.prefill_groups

    def closed_loop(self, workload: Workload) -> OperatingPoint:
        """The operating point of `concurrency` clients.

        Raises:
            UsageError: the workload has no concurrency.
        """
        clients = workload.concurrency
        if clients is None:
            raise UsageError("a closed loop needs a concurrency", where="--concurrency")
        if workload.osl < 2:
            raise UsageError("with one output token there is nothing to decode", where="--osl")
        most = self._most(workload)
        prefill = self.prefill_time(workload)
        fed = self._rising(
            lambda running: self._rate(workload, running) * prefill < FULL * self.prefill_groups, 1e-9, most
        )
        full = self._point(workload, prefill, fed, clients)
        if self._clients(full) > clients:
            running = self._rising(
                lambda running: self._clients(self._point(workload, prefill, running, clients)) < clients, 1e-9, fed
            )
            return self._point(workload, prefill, running, clients)
        total = clients / full.request_rate
        waiting = total - full.e2e
        return replace(full, ttft=full.ttft + waiting, e2e=total, queued=fed == most and waiting > 1e-6 * total)

    @staticmethod
    def _rising(holds: Callable[[float], bool], low: float, high: float) -> float:
        """Where a condition that holds from `low` on ends, or `high`."""
        if holds(high):
            return high
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if holds(middle) else (low, middle)
        return low

    @staticmethod
    def _clients(point: OperatingPoint) -> float:
        """``λ · E2E``."""
        return point.request_rate * point.e2e

    def _rate(self, workload: Workload, running: float) -> float:
        """``λ = D·b / ((O - 1)·S)``."""
        return self.groups * running / ((workload.osl - 1) * self._step(workload, running))

    def prefill_time(self, workload: Workload) -> float:
        """G, seconds of one prompt on one data-parallel group of a prefill replica."""
        load = load_of(self.replica, replace(workload, concurrency=float(self.replica.sharding.dp), request_rate=None))
        return prefill_seconds(load, load.one, self.replica.machine.times)

    def balance(self, workload: Workload, running: float) -> float:
        """Prefill replicas for each decode replica that keep both pools equally busy at b sequences a group."""
        return self.prefill_time(workload) * running / ((workload.osl - 1) * self._step(workload, running))

    def _most(self, workload: Workload) -> float:
        return admitted(self.replica, float("inf"), workload.isl, workload.residing_osl)

    def _step(self, workload: Workload, running: float) -> float:
        """S at b sequences, between whole batches by interpolation; below one the step of one."""
        context = round(workload.isl + workload.residing_osl / 2)
        lower = max(1, floor(running))
        times = self.replica.machine.times
        first = self.replica.decode(lower, context).seconds(times)
        if running <= lower:
            return first
        return first + (running - lower) * (self.replica.decode(lower + 1, context).seconds(times) - first)

    def _point(self, workload: Workload, prefill: float, running: float, clients: float) -> OperatingPoint:
        """The point at which b sequences run on each group that decodes, among so many clients."""
        step, servers = self._step(workload, running), self.prefill_groups
        return flow(
            workload,
            self.replica.machine.times,
            Flow(prefill, step, running, self.transfer, servers, self.groups),
            clients,
        )


@dataclass(frozen=True, slots=True)
class Flow:
    """What requests meet on their way through two pools.

    Args:
        prefill: G, seconds of one prompt on one group of the prefill pool.
        step: S, seconds of a decode step.
        running: b, sequences on each group that decodes.
        transfer: X, seconds to move the cache of one prompt.
        servers: groups that prefill.
        groups: groups that decode.
    """

    prefill: float
    step: float
    running: float
    transfer: float
    servers: int
    groups: int

    def rate(self, osl: float) -> float:
        """``λ = D·b / ((O - 1)·S)``, requests a second."""
        return self.groups * self.running / ((osl - 1) * self.step)


def flow(workload: Workload, times: EngineTimes, pools: Flow, clients: float) -> OperatingPoint:
    """The operating point of a flow of requests; see the module for the equations.

    Args:
        workload: lengths of the requests.
        times: of the engine.
        pools: what the requests meet.
        clients: C, of whom none waits for itself.
    """
    further, rate = workload.osl - 1, pools.rate(workload.osl)
    wait = _wait(workload, pools, rate, clients)
    ttft = _first(workload, times, pools) + wait
    busy = rate * pools.prefill / pools.servers
    return OperatingPoint(
        ttft=ttft,
        tpot=pools.step,
        e2e=ttft + further * pools.step,
        request_rate=rate,
        output_rate=rate * workload.osl,
        input_rate=rate * workload.isl,
        admitted_batch=min(pools.running * pools.groups + pools.servers * busy, clients),
        queued=False,
        terms=ServingTerms(
            pools.running, pools.step, 0.0, pools.prefill, 0.0, wait + pools.prefill, 0.0, busy, pools.servers
        ),
    )


def open_flow(workload: Workload, times: EngineTimes, pools: Flow) -> OperatingPoint:
    """`flow` among as many clients as its rate makes: ``C = λ · E2E(C)``, from below.

    E2E grows with C, so that clients that are put in again and again come to the least number that fits. Where the
    prefill pool cannot keep up, times are infinite.
    """
    rate = pools.rate(workload.osl)
    served = _first(workload, times, pools) + (workload.osl - 1) * pools.step
    clients, found = 0.0, max(1.0, rate * served)
    while clients * (1 + 1e-6) < found < float("inf"):
        clients = found
        found = max(1.0, rate * (served + _wait(workload, pools, rate, clients)))
    return flow(workload, times, pools, found)


def _wait(workload: Workload, pools: Flow, rate: float, clients: float) -> float:
    """Seconds in front of the prefill pool: a queue of the other clients' requests."""
    others = rate * (1 - 1 / clients) if clients > 1 else 0.0
    return mean_wait(others, pools.prefill, pools.servers, service_scv=workload.isl_variation)


def _first(workload: Workload, times: EngineTimes, pools: Flow) -> float:
    """Seconds to a first token that waits for nobody."""
    return times.around_prefill(workload.isl, pools.step) + pools.prefill + pools.transfer
