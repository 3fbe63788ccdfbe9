"""Messages beyond one link domain: what stays inside it, and what crosses the network between domains.

n ranks in k = n/d domains of d exchange a vector of V bytes in two levels: as d ranks of one domain do, and each rank
with its k - 1 counterparts in the others, over its own network port::

    all-reduce                     inside: V among d      across: 2·(k - 1)/k · V/d
    all-gather, reduce-scatter     inside: V among d      across: (k - 1)/k · V/d
    all-to-all                     inside: V·d/n among d  across: V·(n - d)/n
    send                           inside: nothing        across: V

    t = t_inside + α + bytes across / (share · β)

Source: Thakur, Rabenseifner and Gropp, Optimization of Collective Communication Operations in MPICH (IJHPCA 19(1),
2005), for the two levels; α and the share are assumed, since no public table has messages between nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from capplan.describe.gpu import GpuSpec
from capplan.timing.kernel_laws.terms import Quantity
from capplan.work.operators import Message, Operator

NETWORK_BANDWIDTH = 50e9
"""B/s of one device's network port in one direction, where none is given: 400 Gbit/s (assumed)."""

NETWORK_LATENCY = 15e-6
"""Seconds that a message between nodes takes beside its bytes (assumed)."""

NETWORK_SHARE = 0.85
"""Share of a port's rate that large messages reach (assumed)."""


@dataclass(frozen=True, slots=True)
class Network:
    """What joins link domains.

    Args:
        bandwidth: β, B/s of one device in one direction.
        domain: d, ranks that one link domain joins.
        stage_ranks: ranks of one pipeline stage; stages are placed one after the other.
        kind: what it is, in words.
    """

    bandwidth: float
    domain: int
    stage_ranks: int = 1
    kind: str = "network"

    def crosses(self, operator: Operator) -> bool:
        """Whether a message leaves its domain."""
        if not isinstance(operator.shape, Message):
            return False
        if operator.shape.collective == "send":
            return (operator.stage + 1) * self.stage_ranks % self.domain == 0 or self.stage_ranks > self.domain
        return bool(operator.shape.ranks * operator.shape.apart > self.domain)

    def joined(self, message: Message) -> int:
        """Ranks of a message that lie in one domain."""
        return max(1, int(self.domain // message.apart))


def network_of(
    gpu: GpuSpec, stage_ranks: int, stages: int, bandwidth: float | None = None, nodes_of: int | None = None
) -> Network | None:
    """What the ranks of a replica need beyond one link domain; None where they all fit into one.

    Args:
        gpu: the device.
        stage_ranks: ranks of one pipeline stage.
        stages: pipeline stages.
        bandwidth: B/s of a device's network port; None: assumed.
        nodes_of: devices of one node, where that is less than a link domain or not known.
    """
    node = nodes_of or gpu.gpus_per_node
    joined = min(gpu.link.domain_size, nodes_of or gpu.link.domain_size) if gpu.link else node
    ranks = stage_ranks * stages
    if joined is None or ranks <= joined:
        return None
    if node and ranks <= node and gpu.pcie:
        return Network(gpu.pcie.per_direction, joined, stage_ranks, "PCIe")
    return Network(bandwidth or NETWORK_BANDWIDTH, joined, stage_ranks)


def inside(operator: Operator, network: Network | None) -> Operator:
    """The part of an operator's message that stays in one domain; the operator itself where it does not leave it."""
    if network is None or not network.crosses(operator):
        return operator
    message = cast("Message", operator.shape)
    joined = network.joined(message)
    if message.collective == "send" or joined == 1:
        return replace(operator, shape=Message("send", 2, 0))
    size = message.bytes
    if message.collective == "all_to_all":
        size = size * joined / message.ranks
    return replace(operator, shape=replace(message, ranks=joined, bytes=size))


def across_seconds(operator: Operator, network: Network | None) -> Quantity:
    """Seconds of the part that crosses the network: ``α + bytes / (share · β)``; 0 where none does."""
    if network is None or not network.crosses(operator):
        return 0.0
    message = cast("Message", operator.shape)
    sent = across_bytes(message, network.joined(message))
    return NETWORK_LATENCY + sent / (NETWORK_SHARE * network.bandwidth)


def across_bytes(message: Message, joined: int) -> Quantity:
    """Bytes that one rank sends beyond its domain, which joins `joined` of the message's ranks."""
    size = cast("Quantity", message.bytes)
    if message.collective == "send":
        return size
    away: Quantity = (message.ranks - joined) / message.ranks
    if message.collective == "all_to_all":
        return size * away
    return (2 if message.collective == "all_reduce" else 1) * away * size / joined
