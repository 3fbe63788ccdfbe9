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


def resolve_pools(setting: Setting, replica: Replica, request: PoolsRequest, isl: float) -> tuple[Pools, str]:
    """The pools with the seconds that a prompt's cache takes to move, and what was taken for granted about the way."""
    gpus, link = setting.gpus * (request.prefill + request.decode), setting.gpu.link
    if request.transfer_bandwidth is not None:
        rate, note = request.transfer_bandwidth, "caches move at the bandwidth given"
    elif link is not None and gpus <= link.domain_size and knows_links(setting.gpu):
        rate, note = link_rate(setting.gpu), f"both pools lie in one {link.kind} domain, over which caches move"
    else:
        rate, note = NETWORK, "caches move over a network of 400 Gbit/s a GPU (50 GB/s)"
    cache = sequence_memory(setting.spec, Lengths(round(isl)), kv_dtype=setting.formats.kv_name)
    moved = cache.rank_bytes(setting.sharding.tp) / setting.sharding.pp
    return Pools(replica, request.prefill, request.decode, moved / rate), note
