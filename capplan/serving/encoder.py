"""Models that encode and do not generate: embedding and reranking in requests and tokens a second.

Each request is one prefill without a cache. With C clients of requests of L tokens, ``k = min(C, ⌊budget/L⌋)`` of them
share a step (at least one) that takes G(k), and one that arrives waits for the steps before its own::

    latency    = t0 + tok·L + ⌈C/k⌉ · G(k)
    throughput = C / latency requests a second

Source: as `capplan.serving.steady_state`, without decode.

Leaves out: padding to the longest of a step (engines of today pack their batches), the pooling and scoring of what comes
out, and tokens that do not fill the budget when lengths vary.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from capplan.errors import UsageError
from capplan.serving.batch_run import prefill_seconds
from capplan.serving.replica import Replica
from capplan.serving.spread import Interval, ttft_interval
from capplan.serving.workload import Workload
from capplan.work.step import is_encoder


@dataclass(frozen=True)
class EncoderPoint:
    """An encoder under a load.

    Args:
        latency: mean seconds of a request.
        latency_interval: its 80 % interval.
        step: seconds of a full step.
        together: k, requests of a step.
        request_rate: requests a second of the whole deployment.
        request_interval: its 80 % interval.
        token_rate: tokens a second.
        concurrency: requests in the system.
    """

    latency: float
    latency_interval: Interval
    step: float
    together: int
    request_rate: float
    request_interval: Interval
    token_rate: float
    concurrency: float


def encodes(replica: Replica) -> bool:
    """Whether the model encodes only: it keeps no cache, so that it has no TPOT."""
    return is_encoder(replica.spec)


def encoder_point(replica: Replica, workload: Workload) -> EncoderPoint:
    """Requests and tokens a second of a model that encodes, in a closed loop or at a request rate.

    A model that could generate is asked for its prefill alone: what an embedding model on a decoder's body does.

    Raises:
        UsageError: a request rate that the server cannot do.
    """
    length = max(1, round(workload.isl))
    if workload.request_rate is None:
        assert workload.concurrency is not None
        return _point(replica, length, workload.concurrency)
    most = _point(replica, length, _full(replica, length) * replica.sharding.dp)
    if workload.request_rate >= most.request_rate:
        raise UsageError(
            f"the server encodes {most.request_rate:.3g} requests a second at most: at {workload.request_rate:g} its "
            "queue grows without end",
            where="--request-rate",
            hint=f"a rate under {most.request_rate:.3g}",
        )
    return _point(replica, length, _clients_at(replica, length, workload.request_rate))


def _point(replica: Replica, length: int, clients: float) -> EncoderPoint:
    times, groups = replica.machine.times, replica.sharding.dp
    each = clients / groups
    together = max(1, min(ceil(each), _full(replica, length)))
    step = prefill_seconds(replica, together, length)
    latency = times.first_token + times.per_input_token * length + max(1.0, ceil(each / together)) * step
    kernels = replica.machine.kernels
    spread = ttft_interval(latency, times, kernels.carried_error("gemm") if kernels is not None else None)
    rate = clients / latency
    return EncoderPoint(
        latency=latency,
        latency_interval=spread,
        step=step,
        together=together,
        request_rate=rate,
        request_interval=spread.inverse(rate * latency),
        token_rate=rate * length,
        concurrency=clients,
    )


def _full(replica: Replica, length: int) -> int:
    """Requests that fill a step's budget, of those that may run at once."""
    return max(1, min(replica.settings.max_num_seqs, replica.settings.max_num_batched_tokens // length))


def _clients_at(replica: Replica, length: int, rate: float) -> float:
    """The clients whose closed loop has this throughput (Little's law), by bisection over whole clients of a group."""
    groups = replica.sharding.dp
    low, high = 0, _full(replica, length)
    while high - low > 1:
        middle = (low + high) // 2
        if _point(replica, length, middle * groups).request_rate < rate:
            low = middle
        else:
            high = middle
    return float(high * groups)
