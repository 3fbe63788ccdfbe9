"""What a question about disaggregated serving names: the two pools, and what moves a cache from one to the other."""

from __future__ import annotations

import re
from dataclasses import dataclass

from capplan.errors import UsageError
from capplan.memory.sequence_memory import Lengths, sequence_memory
from capplan.questions.setting import Setting
from capplan.serving.disaggregation import Pools
from capplan.serving.replica import Replica
from capplan.timing.roofline import knows_links, link_rate

NETWORK = 50e9
"""B/s a GPU sends over a network of 400 Gbit/s, where the pools lie in different link domains and nothing else is said.
"""


AUTO = "auto"
"""Pools whose sizes follow from the load."""


@dataclass(frozen=True)
class PoolsRequest:
    """A disaggregated deployment.

    Args:
        prefill: replicas that prefill.
        decode: replicas that decode.
        transfer_bandwidth: B/s that each GPU sends its share of a cache at; None: over its links where one domain holds
            both pools, else over a network of 400 Gbit/s a GPU.
    """

    prefill: int
    decode: int
    transfer_bandwidth: float | None = None


def parse_pools(text: str, flag: str = "--disaggregate") -> tuple[int, int]:
    """``2P4D``: two replicas that prefill, four that decode.

    Raises:
        UsageError: anything else.
    """
    found = re.fullmatch(r"(\d{1,6})[pP]:?(\d{1,6})[dD]", text.strip())
    if found is None:
        raise UsageError(f"{text[:40]!r} names no two pools", where=flag, hint="write 2P4D: 2 prefill, 4 decode")
    return int(found[1]), int(found[2])


@dataclass(frozen=True)
class PoolsChoice:
    """Pools that a plan may be made of.

    Args:
        prefill: replicas that prefill in each unit; 0: as many as the load needs, in one unit.
        decode: replicas that decode; likewise.
        transfer_bandwidth: as in `PoolsRequest`.
    """

    prefill: int = 0
    decode: int = 0
    transfer_bandwidth: float | None = None

    @property
    def given(self) -> bool:
        """Whether the sizes are."""
        return self.prefill > 0

    @property
    def sizes(self) -> tuple[int, int]:
        """Replicas of either pool of a unit, at least."""
        return max(1, self.prefill), max(1, self.decode)

    @property
    def replicas(self) -> int:
        """Replicas of a unit, at least."""
        return sum(self.sizes)

    @property
    def label(self) -> str:
        """As a user writes it."""
        return pools_label(self.prefill, self.decode) if self.given else AUTO


def pools_label(prefill: int, decode: int) -> str:
    """``2P4D``, as `parse_pools` reads it."""
    return f"{prefill}P{decode}D"


def parse_choices(text: str, bandwidth: float | None = None, flag: str = "--disaggregate") -> tuple[PoolsChoice, ...]:
    """``none``, ``auto``, ``2P4D``, or several of them; ``none`` names no pools.

    Raises:
        UsageError: anything else, or a pool without replicas.
    """
    found = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        if word == "none":
            continue
        sizes = (0, 0) if word == AUTO else parse_pools(word, flag)
        if word != AUTO and not all(sizes):
            raise UsageError(f"{word!r} has a pool without replicas", where=flag, hint="such as 1P2D")
        found.append(PoolsChoice(*sizes, bandwidth))
    return tuple(dict.fromkeys(found))


def resolve_pools(setting: Setting, replica: Replica, request: PoolsRequest, isl: float) -> tuple[Pools, str]:
    """The pools with the seconds that a prompt's cache takes to move, and what was taken for granted about the way."""
    rate, note = way_between(setting, request.prefill + request.decode, request.transfer_bandwidth)
    return Pools(replica, request.prefill, request.decode, moved_bytes(setting, isl) / rate), note


def moved_bytes(setting: Setting, isl: float) -> float:
    """Bytes of a prompt's cache on each rank, which ranks send side by side."""
    cache = sequence_memory(setting.spec, Lengths(round(isl)), kv_dtype=setting.formats.kv_name)
    return cache.rank_bytes(setting.sharding.tp) / setting.sharding.pp


def way_between(setting: Setting, replicas: int, bandwidth: float | None = None) -> tuple[float, str]:
    """B/s of each GPU between the pools of so many replicas, and what was taken for granted."""
    gpus, link = setting.gpus * replicas, setting.gpu.link
    if bandwidth is not None:
        return bandwidth, "caches move at the bandwidth given"
    if link is not None and gpus <= link.domain_size and knows_links(setting.gpu):
        return link_rate(setting.gpu), f"both pools lie in one {link.kind} domain, over which caches move"
    return NETWORK, "caches move over a network of 400 Gbit/s a GPU (50 GB/s)"
