"""How many replicas must prefill, and how many decode, for a load within limits.

Two figures of one replica carry everything: G, one prompt's prefill, and S(b), a decode step of b sequences. They are
worked out once, at many batches; every pair of pools is then arithmetic (`capplan.serving.disaggregation.flow`).

Limits hold at the bad end of the interval that the confidence asks for: a rate is served with all that makes up a first
token, G too, longer by one factor, and steps by the other; clients, whose rate falls as times grow, are served as
predicted, and those times held with the factors. A load of λ wants at least

    D ≥ λ·(O - 1)·S(b)/b      groups that decode, at the largest b that keeps to TPOT and whose caches fit
    P > λ·G                   groups that prefill

which is where the search for a pair begins. It ends with the fewest replicas, and of equal pairs with the one that
could carry most: both of its pools are about as busy.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

from capplan.describe.engine_times import EngineTimes
from capplan.planner.bounds import BATCHES, Bound
from capplan.planner.capacity import Lengths, Limits, most_clients
from capplan.serving.disaggregation import FULL, MOST_REPLICAS, Flow, Pools, open_flow
from capplan.serving.load_curve import decode_parts
from capplan.serving.replica import Replica
from capplan.serving.steady_state import OperatingPoint
from capplan.serving.workload import Workload

STEPS: npt.NDArray[np.int64] = np.unique(np.geomspace(1, 4096, 60).round().astype(np.int64))
"""Batches at which a decode step is worked out; between two of them it is taken to be linear."""

HALVINGS = 26
"""How often an interval is halved in which something ends."""

SCANNED = 4
"""Sizes of a prefill pool that are tried one after the other, before it is looked whether any is enough."""

OVERSIZED = 4
"""Pools of more than so many times the least are not tried: where nothing queues, more of them gain nothing."""

AS_PREDICTED = (1.0, 1.0)

_BATCHES = [float(batch) for batch in STEPS]


@dataclass(frozen=True)
class PoolLoad:
    """What pools are asked: a request rate, or clients.

    Args:
        lengths: of the requests.
        limits: what must be kept.
        slow: factors of a first token and of steps at the bad end; `AS_PREDICTED`: none.
        rate: requests a second.
        clients: requests at once.
    """

    lengths: Lengths
    limits: Limits
    slow: tuple[float, float]
    rate: float | None = None
    clients: float | None = None

    @property
    def factors(self) -> tuple[float, float]:
        """By how much times are taken to be longer: clients are served as predicted, and their times held then."""
        return self.slow if self.clients is None else AS_PREDICTED

    @property
    def kept(self) -> tuple[float, float]:
        """The most seconds of TTFT and of TPOT, of times that are as long as `factors` make them."""
        limits = (self.limits.ttft, self.limits.tpot)
        most = (float("inf") if limit is None else limit for limit in limits)
        first, token = (
            limit * factor / slow for limit, factor, slow in zip(most, self.factors, self.slow, strict=True)
        )
        return first, token

    @property
    def least_rate(self) -> float:
        """Requests a second that pools which carry it within limits have at least."""
        if self.rate is not None:
            return self.rate
        first, token = self.kept
        return (self.clients or 1.0) / (first + (self.lengths.osl - 1) * token)

    def units(self, point: OperatingPoint) -> float:
        """How many pairs of pools in that state carry it."""
        if self.rate is not None:
            return self.rate / point.request_rate
        return (self.clients or 1.0) / (point.request_rate * point.e2e)

    def sure_rate(self, point: OperatingPoint) -> float:
        """Requests a second of pools in that state at the bad end: its clients over how long each then takes."""
        first, token = (slow / factor for slow, factor in zip(self.slow, self.factors, strict=True))
        return point.request_rate * point.e2e / (point.ttft * first + (self.lengths.osl - 1) * point.tpot * token)


@dataclass(frozen=True)
class Pair:
    """Pools that carry a load.

    Args:
        prefill: replicas of a unit that prefill.
        decode: replicas of a unit that decode.
        units: equal pairs of pools.
        transfer: seconds to move a prompt's cache.
        capacity: one unit at the most that it carries within limits.
        sure_rate: requests a second that all units serve in time even at the bad end.
    """

    prefill: int
    decode: int
    units: int
    transfer: float
    capacity: OperatingPoint
    sure_rate: float

    @property
    def replicas(self) -> int:
        """All of them."""
        return self.units * (self.prefill + self.decode)


@dataclass(frozen=True)
class PoolReplica:
    """One replica as either pool has it.

    Args:
        replica: the server.
        load: what pools of it are asked.
    """

    replica: Replica
    load: PoolLoad

    @property
    def as_predicted(self) -> PoolReplica:
        """The same without an interval."""
        return replace(self, load=replace(self.load, slow=AS_PREDICTED))

    @cached_property
    def workload(self) -> Workload:
        """The lengths, for one client."""
        lengths = self.load.lengths
        return Workload(lengths.isl, lengths.osl, 1.0, prefix_hit_rate=lengths.hit)

    @cached_property
    def times(self) -> EngineTimes:
        """The engine's constants of a first token, as much slower."""
        times, (first, token) = self.replica.machine.times, self.load.factors
        return replace(
            times,
            first_token=times.first_token * first,
            per_input_token=times.per_input_token * first,
            first_token_steps=times.first_token_steps * first / token,
        )

    @cached_property
    def prefill(self) -> float:
        """G, seconds."""
        return Pools(self.replica, 1, 1, 0.0).prefill_time(self.workload) * self.load.factors[0]

    @cached_property
    def steps(self) -> list[float]:
        """S at `STEPS`, seconds."""
        context = np.full(len(STEPS), round(self.workload.isl + self.workload.osl / 2))
        parts: Any = decode_parts(self.replica, STEPS, context)
        return [float(value) * self.load.factors[1] for value in parts.seconds(self.replica.machine.times)]

    @cached_property
    def most_running(self) -> float:
        """The largest b whose caches fit and whose step keeps to TPOT; 0: none does."""
        most = min(float(most_clients(self.replica, self.load.lengths)), _BATCHES[-1])
        return _last(self._fast, most) if self._fast(0.0) else 0.0

    def _fast(self, running: float) -> bool:
        return self.step(running) <= self.load.kept[1]

    def step(self, running: float) -> float:
        """S at b sequences; below one the step of one."""
        place = min(bisect_right(_BATCHES, running), len(_BATCHES) - 1)
        if not place:
            return self.steps[0]
        low, high = _BATCHES[place - 1], _BATCHES[place]
        part = (running - low) / (high - low)
        return self.steps[place - 1] * (1 - part) + self.steps[place] * part

    def point(self, prefill: int, decode: int, transfer: float, running: float) -> OperatingPoint:
        """Pools of so many replicas with b sequences on each group that decodes."""
        groups, first = self.replica.sharding.dp, self.load.factors[0]
        state = Flow(self.prefill, self.step(running), running, transfer * first, prefill * groups, decode * groups)
        return open_flow(self.workload, self.times, state)

    def holds(self, point: OperatingPoint) -> bool:
        """Whether a first token keeps to its limit, and the prefill pool keeps up."""
        return point.ttft <= self.load.kept[0] and point.terms.utilisation <= FULL

    def alone(self, transfer: float) -> OperatingPoint:
        """A request that meets no other."""
        return self.point(1, 1, transfer, 1e-9)

    def capacity(self, prefill: int, decode: int, transfer: float) -> OperatingPoint:
        """The most that pools of so many replicas carry within limits, if they carry anything."""
        running = _last(lambda b: self.holds(self.point(prefill, decode, transfer, b)), self.most_running)
        return self.point(prefill, decode, transfer, running)

    def under(self, pair: Pair) -> OperatingPoint:
        """One unit of a pair under its share of the load."""

        def light(running: float) -> bool:
            return self.load.units(self.point(pair.prefill, pair.decode, pair.transfer, running)) >= pair.units

        running = _last(light, self.most_running)
        return self.point(pair.prefill, pair.decode, pair.transfer, running)

    @property
    def least(self) -> tuple[int, int]:
        """Replicas of either pool, at least; see the module."""
        batches = [*(batch for batch in _BATCHES if batch < self.most_running), self.most_running]
        fastest = max(batch / self.step(batch) for batch in batches) / (self.workload.osl - 1)
        return _replicas(self.load.least_rate, self.prefill, fastest, self.replica.sharding.dp)


def _replicas(rate: float, prefill: float, fastest: float, groups: int) -> tuple[int, int]:
    """Replicas of either pool for a rate: ``⌈λ·G / dp⌉`` and ``⌈λ / (rate of a group · dp)⌉``, one of each at least."""
    return max(1, ceil(rate * prefill / groups)), max(1, ceil(rate / fastest / groups))


@dataclass(frozen=True)
class LeastPools:
    """What the roofline says of pools, at the bad end.

    Args:
        replicas: of either pool, at least; None: none are enough.
        first_token: seconds to a first token that waits for nobody and whose cache is there at once, at least.
        token: seconds of a lone request's tokens, at least.
    """

    replicas: tuple[int, int] | None
    first_token: float
    token: float


def least_pools(bound: Bound, load: PoolLoad, times: EngineTimes, groups: int, most: int) -> LeastPools:
    """Replicas of either pool, at least, by the roofline.

    Args:
        bound: of one group.
        load: what is asked.
        times: of the engine.
        groups: data-parallel groups of a replica.
        most: sequences that may run at once.
    """
    lengths, (first, token), (late, slow) = load.lengths, load.factors, load.kept
    first_token = times.around_prefill(lengths.isl, float(bound.step[0])) + bound.prefill
    steps = bound.step * token
    replicas = None
    fits = (most >= BATCHES) & (steps <= slow)
    if fits.any() and first_token * first <= late:
        ahead = np.append(BATCHES[1:], BATCHES[-1])
        fastest = float((ahead / steps)[fits].max()) / (lengths.osl - 1)
        replicas = _replicas(load.least_rate, bound.prefill * first, fastest, groups)
    return LeastPools(replicas, first_token * load.slow[0], float(bound.step[0]) * load.slow[1])


def fixed_pair(kind: PoolReplica, sizes: tuple[int, int], transfer: float) -> Pair | None:
    """Equal pairs of pools of given sizes; None: they serve nothing in time."""
    if not kind.most_running:
        return None
    capacity = kind.capacity(*sizes, transfer)
    if not kind.holds(capacity):
        return None
    units = ceil(kind.load.units(capacity))
    return Pair(*sizes, units, transfer, capacity, units * kind.load.sure_rate(capacity))


def fewest_pair(kind: PoolReplica, transfer: Callable[[int], float]) -> Pair | None:
    """The pair of pools with the fewest replicas that carries a load; None: there is none.

    Args:
        kind: what both pools are made of.
        transfer: seconds to move a prompt's cache, by the replicas of both pools; never less for more of them.
    """
    if not kind.most_running:
        return None
    prefill, decode = kind.least
    best: Pair | None = None
    for number in range(decode, min(OVERSIZED * (decode + 1), MOST_REPLICAS) + 1):
        widest = OVERSIZED * (prefill + 1) if best is None else best.replicas - number
        if widest < prefill:
            break
        found = _with_decode(kind, number, (prefill, min(widest, MOST_REPLICAS)), transfer)
        if found is not None and (best is None or _order(kind, found) < _order(kind, best)):
            best = found
        if best is None and not kind.holds(kind.alone(transfer(number + prefill))):
            break
    return best


def _order(kind: PoolReplica, pair: Pair) -> tuple[int, float]:
    """Fewer replicas come first, of as many the pair that could carry more."""
    return pair.replicas, kind.load.units(pair.capacity)


def _with_decode(
    kind: PoolReplica, decode: int, sizes: tuple[int, int], transfer: Callable[[int], float]
) -> Pair | None:
    """The smallest prefill pool beside so many replicas that decode; the larger the pool, the more it carries."""
    low, high = sizes

    def enough(prefill: int) -> Pair | None:
        moving = transfer(prefill + decode)
        capacity = kind.capacity(prefill, decode, moving)
        carries = kind.holds(capacity) and kind.load.units(capacity) <= 1
        return Pair(prefill, decode, 1, moving, capacity, kind.load.sure_rate(capacity)) if carries else None

    for prefill in range(low, min(high, low + SCANNED - 1) + 1):
        found = enough(prefill)
        if found is not None:
            return found
    low += SCANNED
    best = enough(high) if low <= high else None
    while best is not None and low < high:
        middle = (low + high) // 2
        found = enough(middle)
        best, low, high = (found, low, middle) if found is not None else (best, middle + 1, high)
    return best


def _last(holds: Callable[[float], bool], most: float) -> float:
    """The end, up to `most`, of what holds from the smallest load on, by halving; just above 0 where nothing does."""
    if holds(most):
        return most
    low, high = 0.0, most
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low or high
