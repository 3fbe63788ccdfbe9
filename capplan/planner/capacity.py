"""How much load one replica takes within limits: the most clients, found on a ladder and then between its rungs.

Limits hold at the bad end of the interval that the confidence asks for. For a confidence c the interval of measured
servers, which holds 80 % of them, is taken to be log-normal and widened by ``z((1 + c)/2) / z(0.9)``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from capplan.serving.load_curve import admitted_many, operating_points
from capplan.serving.replica import Replica
from capplan.serving.spread import tpot_interval, ttft_interval
from capplan.serving.workload import Workloads
from capplan.timing.machine import Machine

Real = npt.NDArray[np.float64]

LADDER: npt.NDArray[np.int64] = np.array(
    [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096]
)
"""Clients of a group that are tried first: the same of every server, so that their steps have much in common."""

RUNGS = 16
"""Loads that are tried between two of them."""

MOST_SEQUENCES = 1 << 20
"""Sequences at once where nothing limits them."""

INTERVAL = 0.8
"""What share of measured servers the interval of a prediction holds."""


@dataclass(frozen=True)
class Lengths:
    """Requests of one kind.

    Args:
        isl: mean input tokens.
        osl: mean output tokens.
        hit: share of the input whose cache is there already.
    """

    isl: float
    osl: float
    hit: float = 0.0


@dataclass(frozen=True)
class Limits:
    """What a deployment must keep.

    Args:
        ttft: mean seconds to the first token, at most; None: any.
        tpot: mean seconds of each further token, at most; None: any.
        confidence: share of the interval whose bad end must keep them; 0: the prediction itself.
    """

    ttft: float | None = None
    tpot: float | None = None
    confidence: float = INTERVAL

    @property
    def widening(self) -> float:
        """``z((1 + c)/2) / z(0.9)``: exponent of the interval's factors."""
        normal = NormalDist()
        return normal.inv_cdf((1 + self.confidence) / 2) / normal.inv_cdf((1 + INTERVAL) / 2)


@dataclass(frozen=True)
class Rungs:
    """One replica under several loads; every field but the first has one element a load.

    Args:
        groups: data-parallel groups.
        clients: requests at once in each group.
        rate: requests a second of the replica.
        sure_rate: requests a second at the bad end.
        ttft: mean seconds to the first token.
        tpot: mean seconds a token.
        holds: whether the limits are kept at the bad end, and nothing queues.
        late: what is not kept: 1 TTFT, 2 TPOT, 4 queueing; their sum.
    """

    groups: int
    clients: npt.NDArray[np.int64]
    rate: Real
    sure_rate: Real
    ttft: Real
    tpot: Real
    holds: npt.NDArray[np.bool_]
    late: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Capacity:
    """What is known of the most load that keeps the limits.

    Args:
        rungs: the loads that were worked out.
        best: the last of them that holds; None: none does.
        above: clients of a group from which on nothing holds.
    """

    rungs: Rungs
    best: int | None
    above: int

    @property
    def clients(self) -> int:
        """The most clients of a group that are known to be served in time."""
        return int(self.rungs.clients[self.best]) if self.best is not None else 0

    @property
    def exact(self) -> bool:
        """Whether no load in between was left out."""
        return self.above - self.clients <= 1

    @property
    def sure_rate(self) -> float:
        """Requests a second that are served in time even at the bad end."""
        return float(self.rungs.sure_rate[self.best]) if self.best is not None else 0.0

    @property
    def most_rate(self) -> float:
        """What `sure_rate` cannot exceed once the gap is looked at, if it grows with the clients."""
        if self.best is None or self.exact:
            return self.sure_rate
        return float(self.rungs.sure_rate[self.best + 1])


def rungs_at(replica: Replica, lengths: Lengths, limits: Limits, clients: npt.NDArray[np.int64]) -> Rungs:
    """One replica under several loads; where they are more than it runs at once, the rest queues, and nothing holds."""
    groups, most = replica.sharding.dp, most_clients(replica, lengths)
    roomy = replace(replica, settings=replace(replica.settings, max_num_seqs=MOST_SEQUENCES), kv_tokens=None)
    count = len(clients)
    isl, osl = np.full(count, lengths.isl), np.full(count, lengths.osl)
    workloads = Workloads(isl, osl, (clients * groups).astype(np.float64), lengths.hit)
    point: Any = operating_points(roomy, workloads)
    slow_first, slow_token = slowdown(replica.machine, limits.widening)
    bad = point.ttft * slow_first + (lengths.osl - 1) * point.tpot * slow_token
    late = np.where(clients > most, 4, 0)
    if limits.ttft is not None:
        late = late + np.where(point.ttft * slow_first > limits.ttft, 1, 0)
    if limits.tpot is not None:
        late = late + np.where(point.tpot * slow_token > limits.tpot, 2, 0)
    return Rungs(groups, clients, point.request_rate, clients * groups / bad, point.ttft, point.tpot, late == 0, late)


def most_clients(replica: Replica, lengths: Lengths) -> int:
    """Clients of a group that run at once at most."""
    many = np.array([float(MOST_SEQUENCES)])
    return int(admitted_many(replica, many, np.array([lengths.isl]), np.array([lengths.osl]))[0])


def find_capacity(replica: Replica, lengths: Lengths, limits: Limits) -> Capacity:
    """A first look, at the rungs of `LADDER`."""
    return _capacity(rungs_at(replica, lengths, limits, LADDER), most_clients(replica, lengths) + 1)


def narrowed(capacity: Capacity, replica: Replica, lengths: Lengths, limits: Limits) -> Capacity:
    """A closer look between the last load that holds and the first that does not."""
    low, high = capacity.clients, capacity.above
    ladder = np.unique(np.linspace(low, high, min(RUNGS, high - low + 1)).round().astype(np.int64))
    return _capacity(rungs_at(replica, lengths, limits, ladder), high)


def exact_capacity(replica: Replica, lengths: Lengths, limits: Limits) -> Capacity:
    """The most clients that are served in time, to the client."""
    capacity = find_capacity(replica, lengths, limits)
    while capacity.best is not None and not capacity.exact:
        capacity = narrowed(capacity, replica, lengths, limits)
    return capacity


def slowdown(machine: Machine, widening: float) -> tuple[float, float]:
    """Factors of TTFT and of TPOT at the interval's bad end."""
    carried = machine.kernels.carried_error("gemm") if machine.kernels is not None else None
    first, token = (interval(1.0, machine.times, carried).high for interval in (ttft_interval, tpot_interval))
    return first**widening, token**widening


def _capacity(rungs: Rungs, above: int) -> Capacity:
    holding = np.flatnonzero(rungs.holds)
    if not len(holding):
        return Capacity(rungs, None, int(rungs.clients[0]))
    best = int(holding[-1])
    if best + 1 < len(rungs.clients):
        above = min(above, int(rungs.clients[best + 1]))
    return Capacity(rungs, best, above)


def serving_at(replica: Replica, lengths: Lengths, limits: Limits, rate: float, capacity: Capacity) -> Rungs:
    """The least load at which the replica serves `rate` requests a second: one rung.

    Args:
        replica: the server.
        lengths: of its requests.
        limits: what it must keep.
        rate: requests a second of the replica.
        capacity: of the replica, which is enough.
    """
    rungs, best = capacity.rungs, capacity.best
    assert best is not None
    enough = np.flatnonzero(rungs.rate[: best + 1] >= rate)
    last = int(enough[0]) if len(enough) else best
    low = int(rungs.clients[last - 1]) + 1 if last else 1
    high = int(rungs.clients[last])
    while True:
        ladder = np.unique(np.linspace(low, high, min(RUNGS, high - low + 1)).round().astype(np.int64))
        found = rungs_at(replica, lengths, limits, ladder)
        enough = np.flatnonzero(found.rate >= rate)
        place = int(enough[0]) if len(enough) else len(ladder) - 1
        low = int(ladder[place - 1]) + 1 if place else int(ladder[place])
        high = int(ladder[place])
        if low >= high:
            return _only(found, place)


def _only(rungs: Rungs, place: int) -> Rungs:
    one = slice(place, place + 1)
    return Rungs(
        rungs.groups,
        rungs.clients[one],
        rungs.rate[one],
        rungs.sure_rate[one],
        rungs.ttft[one],
        rungs.tpot[one],
        rungs.holds[one],
        rungs.late[one],
    )
