"""How an engine batches requests, by version: data in ``schedulers/*.yaml``, one file an engine.

A file lists changes in the order of versions, like the memory rules of `capplan.describe.engine`, whose versions and
release dates count here too. What a rule means for a request is worked out in `capplan.serving.scheduler`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from capplan.describe.engine import engine_names, engine_rules, version_key
from capplan.describe.parts import Part, Whole, hydrated
from capplan.describe.yaml_file import read_yaml

Count = Annotated[int, Whole(0)]
Size = Annotated[int, Whole(1)]
Policy = Literal["static", "prefill_first", "decode_first"]
Admission = Literal["chunk", "prompt", "output_share", "whole"]
Preemption = Literal["recompute", "swap", "none"]
Victim = Literal["newest", "fewest_outputs"]

_FOLDER = Path(__file__).parent / "schedulers"


@dataclass(frozen=True, kw_only=True)
class GraphRange(Part):
    """Batch sizes of captured CUDA graphs: `start`, ``start + step``, ... up to `stop` and no further."""

    start: Size
    stop: Size
    step: Size = 1

    def __post_init__(self) -> None:
        if self.stop < self.start:
            raise ValueError(f"graphs from {self.start} to {self.stop}: the range is empty")


@dataclass(frozen=True, kw_only=True)
class GraphTier(Part):
    """The largest captured batch on devices of at least `least_gib`."""

    least_gib: Count
    few_ranks: Size
    """With fewer than four tensor-parallel ranks."""
    many_ranks: Size


@dataclass(frozen=True, kw_only=True)
class OutputShare(Part):
    """What a running request is assumed to write yet, as a share of its remaining output.

    It starts at `first`, falls to ``first · least`` over `steps` decode steps, and is set anew when a request had to
    be retracted: ``(outputs so far + headroom · requests) / outputs allowed``.
    """

    first: float = 0.7
    least: float = 0.14
    steps: Size = 600
    clip: Size = 4096
    """Tokens of remaining output that count at most."""
    headroom: Size = 20


@dataclass(frozen=True, kw_only=True)
class BatchingRules(Part):
    """The scheduler of one engine at one version, with its defaults."""

    policy: Policy
    """``static``: a batch starts and ends together. ``prefill_first``: waiting prompts run in steps of their own before
    decode goes on. ``decode_first``: every step decodes all running sequences and fills up with prompts."""
    chunked_prefill: bool = False
    """A prompt may be divided over steps."""
    chunked_policy: Policy | None = None
    """The policy once a user switches chunked prefill on; None: the same."""
    admission: Admission
    """What must be free for a waiting request: blocks for its next ``chunk``; for its ``prompt``; for the prompt, its
    output and a share of the running requests' outputs (``output_share``); for prompt and output of all (``whole``)."""
    watermark: float = 0.0
    """Share of the blocks that admission leaves free."""
    output_share: OutputShare | None = None
    preemption: Preemption
    """What happens to a running request when blocks run out: its cache is dropped and computed again, moved to host
    memory and back, or it cannot happen."""
    victim: Victim = "newest"
    """Which request gives way: the one admitted last, or the one that has written least."""
    steps_ahead: Count = 0
    """Steps that are planned before the one before them has ended (asynchronous or overlapped scheduling): a request
    that arrives, or a place that becomes free, during one step is seen when the next but one is planned."""
    step_tokens: Size | None = None
    """Tokens that one iteration may schedule, where that is not the deployment's ``max_num_batched_tokens``."""
    stream_interval: Size = 1
    """Tokens between two messages to a client; the first token is sent at once."""
    receive_interval: Size = 1
    """Decode steps between two looks at the queue of arrivals."""
    batch_wait_steps: Count = 0
    """Steps for which a prompt is held back while too few tokens wait to fill a step."""
    batch_wait_share: float = 0.0
    """Share of a step's tokens that ends the wait."""
    prefix_caching: bool = False
    """Cached prefixes are looked up by default."""
    pad_prompts: bool = False
    """Prompts of a batch are padded to the longest."""
    eager: bool = False
    """The host launches every kernel: nothing is captured or compiled into a graph."""
    graph_ranges: tuple[GraphRange, ...] = ()
    """Batch sizes of captured graphs; empty: any."""
    graph_padding: bool = True
    """A batch between two sizes runs as the larger one; False: without a graph."""
    graph_largest: Size | None = None
    """The largest captured batch, at most."""
    graph_largest_over_seqs: Size | None = None
    """The largest captured batch over the most sequences at once, at most."""
    graph_tiers: tuple[GraphTier, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Change(Part):
    """What an engine does from a version on."""

    since: str
    rules: dict[str, Any]
    sources: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SchedulerFile(Part):
    """One file of ``schedulers/``."""

    schema: Literal[1] = 1
    name: str
    read: str
    """When the engine's sources were read."""
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class Batching:
    """An engine's scheduler at a version.

    Args:
        engine: the engine.
        version: the version whose rules these are.
        rules: the rules.
        sources: the engine's source file behind each rule.
    """

    engine: str
    version: str
    rules: BatchingRules
    sources: dict[str, str]


def batching_rules(engine: str, version: str | None = None) -> Batching:
    """How an engine batches at a version: a number, a date, or None for the latest that is described.

    Raises:
        UsageError: no such engine, or not a version.
    """
    found = engine_rules(engine, version)
    merged: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for change in _read(engine).changes:
        if version_key(change.since) <= version_key(found.version):
            merged |= change.rules
            sources |= change.sources
    return Batching(engine, found.version, hydrated(BatchingRules, merged), sources)


def graph_sizes(
    rules: BatchingRules, *, max_num_seqs: int, device_bytes: int | None = None, ranks: int = 1
) -> tuple[int, ...]:
    """Batch sizes for which an engine captures graphs, the smallest first.

    ``{start + i·step} ∩ [1, largest]``, with the largest from the device, from ``k · max_num_seqs``, or a constant.

    Args:
        rules: the scheduler.
        max_num_seqs: the most sequences at once.
        device_bytes: the device's memory; None: not known, the first tier counts.
        ranks: tensor-parallel ranks.
    """
    limits = [limit for limit in (rules.graph_largest, _tier(rules, device_bytes, ranks)) if limit is not None]
    if rules.graph_largest_over_seqs is not None:
        limits.append(rules.graph_largest_over_seqs * max_num_seqs)
    largest = min(limits, default=max((part.stop for part in rules.graph_ranges), default=0))
    sizes = {size for part in rules.graph_ranges for size in range(part.start, part.stop + 1, part.step)}
    return tuple(sorted(size for size in sizes if size <= largest))


def _tier(rules: BatchingRules, device_bytes: int | None, ranks: int) -> int | None:
    for tier in rules.graph_tiers:
        if device_bytes is None or device_bytes >= tier.least_gib * 2**30:
            return tier.few_ranks if ranks < 4 else tier.many_ranks
    return None


@lru_cache(maxsize=8)
def _read(engine: str) -> SchedulerFile:
    return hydrated(SchedulerFile, read_yaml(_FOLDER / f"{engine}.yaml").data)


def check_scheduler_files() -> None:
    """Raise unless every engine's scheduler makes whole rules at every version, each rule with its source.

    Raises:
        ValueError: what is wrong.
    """
    known = {entry.name for entry in fields(BatchingRules)}
    for engine in engine_names():
        file = _read(engine)
        for change in file.changes:
            unknown = (set(change.rules) | set(change.sources)) - known
            if unknown:
                raise ValueError(f"{engine}: {min(unknown)!r} is not a rule")
            unsourced = set(change.rules) - set(change.sources)
            if unsourced:
                raise ValueError(f"{engine} {change.since}: {min(unsourced)!r} has no source")
            batching_rules(engine, change.since)
        keys = [version_key(change.since) for change in file.changes]
        if keys != sorted(keys):
            raise ValueError(f"{engine}: the changes are not in the order of versions")
