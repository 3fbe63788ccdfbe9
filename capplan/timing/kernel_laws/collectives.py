"""Collectives: the same message exchanged between n GPUs, by latency and bandwidth (α–β)."""

from __future__ import annotations

from typing import Literal

from capplan.describe.kernel_constants import CollectiveConstants, LinearCollectiveConstants
from capplan.timing.kernel_laws.terms import KernelTime, Quantity, smaller

Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]


def bus_share(collective: Collective, gpus: Quantity) -> Quantity:
    """Bytes that cross one GPU's link for a byte of the message.

    f = 2·(n − 1)/n for an all-reduce, which scatters sums and gathers them; (n − 1)/n for the others.

    Args:
        collective: which one.
        gpus: n.

    Source: NCCL tests, "Performance reported by NCCL tests" (bus bandwidth).
    """
    share = (gpus - 1) / gpus
    return 2 * share if collective == "all_reduce" else share


def collective_time(
    message: Quantity,
    gpus: Quantity,
    collective: Collective,
    *,
    link_bandwidth: float,
    constants: CollectiveConstants,
) -> KernelTime:
    """Seconds of one collective.

    t = [α^p + (bytes·f / β)^p]^(1/p), β = efficiency · link bandwidth

    p = 1 is the usual sum; NCCL on NVLink has p near 0.6, since its protocols change with the size and each change
    loses something between the two ends.

    Args:
        message: bytes of the whole vector (all-reduce, reduce-scatter) or of the whole result (all-gather).
        gpus: n; with 1 there is no message and no time.
        collective: which one; sets f.
        link_bandwidth: B/s of one GPU's links in one direction, by the datasheet.
        constants: α, β over the link's bandwidth, p.

    Leaves out: contention with other traffic, more than one level of network.

    Source: fitted to public kernel tables (aiconfigurator-core 0.12.0); docs/kernel_accuracy.md. α–β: Hockney 1994,
    Parallel Computing 20(3), 389-398, doi:10.1016/S0167-8191(06)80021-9.
    """
    transfer = message * bus_share(collective, gpus) / (constants.link_efficiency * link_bandwidth)
    return _latency_and_transfer(constants.latency, transfer, gpus, constants.exponent)


def linear_collective_time(
    message: Quantity,
    gpus: Quantity,
    collective: Collective,
    *,
    link_bandwidth: float,
    constants: LinearCollectiveConstants,
) -> KernelTime:
    """Seconds of one collective by the plain α–β law: t = α + bytes·f/β; see `collective_time`."""
    transfer = message * bus_share(collective, gpus) / (constants.link_efficiency * link_bandwidth)
    return _latency_and_transfer(constants.latency, transfer, gpus, exponent=1.0)


def _latency_and_transfer(latency: float, transfer: Quantity, gpus: Quantity, exponent: float) -> KernelTime:
    """Both terms; a group of one has neither."""
    several: Quantity = smaller(gpus - 1, 1)
    return KernelTime(serial={}, overlapping={"latency": latency * several, "transfer": transfer}, exponent=exponent)
