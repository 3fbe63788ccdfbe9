"""Requests that arrive at a rate: the concurrency that they make, the rate at which the server breaks, and the tails.

Little's law ties the two loops together: at rate λ the mean number of requests in the system is ``λ · E2E``, so that an
open loop runs at the concurrency whose closed loop has that throughput. That holds of any `Server`.
"""

from __future__ import annotations

from dataclasses import replace
from math import exp, log
from typing import Protocol

from capplan.errors import UsageError
from capplan.serving.queueing import erlang_c
from capplan.serving.steady_state import MOST_CLIENTS, OperatingPoint
from capplan.serving.workload import Workload


class Server(Protocol):
    """Whatever has an operating point at a number of clients."""

    @property
    def groups(self) -> int:
        """Data-parallel groups that decode, of all replicas."""

    def most_clients(self, workload: Workload) -> float:
        """Clients at which its throughput counts as the most it has."""

    def closed_loop(self, workload: Workload) -> OperatingPoint:
        """The operating point of `concurrency` clients."""


def saturation(server: Server, workload: Workload) -> float:
    """Requests a second that the server cannot exceed: the throughput of as many clients as it admits."""
    most = server.most_clients(replace(workload, concurrency=1.0, request_rate=None))
    return server.closed_loop(replace(workload, concurrency=most, request_rate=None)).request_rate


def open_loop(server: Server, workload: Workload) -> OperatingPoint:
    """The operating point at a request rate: the closed loop with the same throughput, found by bisection.

    Raises:
        UsageError: no request rate, or one at or beyond what the server can do.
    """
    rate = workload.request_rate
    if rate is None:
        raise UsageError("an open loop needs a request rate", where="--request-rate")
    most = saturation(server, workload)
    if rate >= most:
        raise UsageError(
            f"the server serves {most:.3g} requests a second at most: at {rate:g} its queue grows without end",
            where="--request-rate",
            hint=f"a rate under {most:.3g}, or {int(rate / most) + 1} replicas",
        )
    low, high = 1e-3, float(MOST_CLIENTS * server.groups)
    for _ in range(60):
        middle = (low * high) ** 0.5
        point = server.closed_loop(replace(workload, concurrency=middle, request_rate=None))
        low, high = (middle, high) if point.request_rate < rate else (low, middle)
        if high / low < 1.002:
            break
    return server.closed_loop(replace(workload, concurrency=high, request_rate=None))


def serve(server: Server, workload: Workload) -> OperatingPoint:
    """The operating point of a closed loop or an open one, as the workload says."""
    return server.closed_loop(workload) if workload.concurrency is not None else open_loop(server, workload)


def ttft_percentile(point: OperatingPoint, share: float) -> float:
    """The TTFT that a share of Poisson arrivals stay under: the mean without waiting, and an M/D/1 queue for prefill.

    With service time P, c servers of one queue, utilisation ρ and the share C of arrivals that wait (Erlang's; ρ for
    one server) the wait has mean ``C·P / (2c(1 - ρ))`` and a tail of about ``P(W > t) = C · exp(-2c(1 - ρ)t / P)``.

    Leaves out the spread of lengths and of decode steps; `capplan simulate` has both.

    Source: Kleinrock, Queueing Systems 1 (1975), section 5.11; heavy-traffic tail of M/G/1.
    """
    waiting, scale = _prefill_queue(point)
    base = point.ttft - waiting * scale
    return base if waiting <= 1 - share else base + scale * log(waiting / (1 - share))


def share_within(point: OperatingPoint, ttft: float) -> float:
    """The share of Poisson arrivals whose first token comes within `ttft` seconds; the inverse of `ttft_percentile`."""
    waiting, scale = _prefill_queue(point)
    base = point.ttft - waiting * scale
    return 1 - waiting * exp(-(ttft - base) / scale) if ttft >= base else 0.0


def _prefill_queue(point: OperatingPoint) -> tuple[float, float]:
    """(share of requests that wait for prefill, seconds by which their waits fall off); see `ttft_percentile`."""
    terms = point.terms
    busy = min(terms.utilisation, 0.999)
    return erlang_c(terms.servers, terms.servers * busy), terms.prefill / (2 * terms.servers * (1 - busy))


def breaking_rate(server: Server, workload: Workload, *, ttft: float | None, tpot: float | None) -> float:
    """The greatest request rate at which mean TTFT and TPOT keep to both limits; 0 when not even one request does.

    Args:
        server: the server.
        workload: the lengths.
        ttft: the most seconds to the first token; None: any.
        tpot: the most seconds a token; None: any.
    """

    def holds(clients: float) -> OperatingPoint | None:
        point = server.closed_loop(replace(workload, concurrency=clients, request_rate=None, waves=None))
        late = (ttft is not None and point.ttft > ttft) or (tpot is not None and point.tpot > tpot)
        return None if late or point.queued else point

    groups = float(server.groups)
    best = holds(groups)
    if best is None:
        return 0.0
    low, high = groups, groups * 2
    while high <= MOST_CLIENTS * groups:
        point = holds(high)
        if point is None:
            break
        best, low, high = point, high, high * 2
    for _ in range(12):
        middle = (low + high) / 2
        point = holds(middle)
        if point is None:
            high = middle
        else:
            best, low = point, middle
    return best.request_rate
