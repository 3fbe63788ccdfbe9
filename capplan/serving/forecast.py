"""What a measured server is predicted to do: its operating point, with the 80 % interval of each time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from capplan.describe.profile_table import Spread
from capplan.errors import UnsupportedError
from capplan.serving.measured_server import MeasuredServer, replicas_of, server_replica, server_workload
from capplan.serving.open_loop import serve
from capplan.serving.replica import Replica
from capplan.serving.spread import Interval, tpot_interval, ttft_interval
from capplan.serving.steady_state import OperatingPoint, ReplicaServer


@dataclass(frozen=True)
class Forecast:
    """A prediction of one measured server.

    Args:
        point: of one replica.
        ttft: interval of the mean time to the first token, seconds.
        tpot: interval of the mean time per output token, seconds.
        replicas: equal replicas behind which the clients stand.
    """

    point: OperatingPoint
    ttft: Interval
    tpot: Interval
    replicas: int = 1

    @property
    def admitted_batch(self) -> float:
        """Requests that run at once in the whole deployment."""
        return self.point.admitted_batch * self.replicas

    @property
    def request_rate(self) -> float:
        """Requests a second of the whole deployment."""
        return self.point.request_rate * self.replicas


def forecast(server: MeasuredServer) -> Forecast:
    """The operating point of a measured server under its own load.

    Raises:
        CapplanError: what is not known, cannot run, or has no measured constants to stand for it.
    """
    replicas = replicas_of(server)
    replica = known_replica(server)
    rate = server.request_rate
    share = replace(
        server, concurrency=server.concurrency / replicas, request_rate=rate / replicas if rate is not None else None
    )
    point = serve(ReplicaServer(replica), server_workload(share))
    times, carried = replica.machine.times, carried_spread(replica)
    return Forecast(
        point, ttft_interval(point.ttft, times, carried), tpot_interval(point.tpot, times, carried), replicas
    )


def known_replica(server: MeasuredServer) -> Replica:
    """The replica of a server; rows that differ in their load alone share one, and the steps that it has worked out.

    Raises:
        CapplanError: as `forecast`.
    """
    return _replica(replace(server, isl=1.0, osl=1.0, concurrency=1.0, mean_length=1.0, waves=None, request_rate=None))


@lru_cache(maxsize=1024)
def _replica(server: MeasuredServer) -> Replica:
    replica = server_replica(server)
    if replica.machine.kernels is None:
        raise UnsupportedError(
            f"no measured profile stands for {replica.machine.gpu.name}: there are bounds, and no prediction",
            where="gpu",
        )
    return replica


def carried_spread(replica: Replica) -> Spread | None:
    """The error of constants that were carried from another GPU; None for a GPU with a profile of its own."""
    kernels = replica.machine.kernels
    return kernels.carried_error("gemm") if kernels is not None else None
