"""What ``plan`` is asked, and what cannot be asked."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from capplan.errors import UsageError, did_you_mean
from capplan.planner.capacity import INTERVAL, Lengths, Limits
from capplan.planner.pools import PoolLoad
from capplan.questions.cost_request import Pricing
from capplan.questions.drafting import DraftRequest
from capplan.questions.pools import PoolsChoice

DEFAULT_ENGINES = ("vllm", "sglang", "trtllm")
"""Engines whose servers were measured."""


@dataclass(frozen=True, kw_only=True)
class Folders:
    """Where descriptions are looked for.

    Args:
        models: further folders of models.
        hardware: further folders of devices and prices.
        profiles: further folders of profiles.
        ignore_keys: keys of a ``config.json`` that are known to change no size.
        online: whether a Hugging Face id may be looked up on the hub.
    """

    models: Sequence[Path] = ()
    hardware: Sequence[Path] = ()
    profiles: Sequence[Path] = ()
    ignore_keys: Collection[str] = ()
    online: bool = False


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """What a deployment must do, and what it may be built of.

    Args:
        model: a reference as for ``--model``.
        isl: mean input tokens of a request.
        osl: mean output tokens of a request.
        request_rate: requests a second; or
        concurrency: clients that each send the next request when the last is answered.
        prefix_hit_rate: share of the input whose cache is there already.
        ttft: mean seconds to the first token, at most; None: any.
        tpot: mean seconds of each further token, at most; None: any.
        confidence: share of the predictions' interval whose bad end must keep the limits.
        gpus: devices; empty: every one of the catalog.
        engines: engines.
        weight_formats: ``checkpoint``, precisions or schemes; empty: the checkpoint's, and those published beside it.
        kv_formats: formats of the KV cache.
        token_budgets: tokens of a step.
        max_num_seqs: sequences at once; None: the engine's default.
        max_nodes: hosts of one replica, at most.
        drafting: ways to draft that are tried beside not drafting.
        pools: ways to keep prefill and decode apart that are tried beside replicas that do both.
        price_cap: dollars an hour, at most; None: any.
        pricing: where GPUs are hired.
        spare_replicas: replicas beside those that the load needs.
        top: plans that are wanted.
        folders: where descriptions are looked for.
    """

    model: str
    isl: float
    osl: float
    request_rate: float | None = None
    concurrency: float | None = None
    prefix_hit_rate: float = 0.0
    ttft: float | None = None
    tpot: float | None = None
    confidence: float = INTERVAL
    gpus: tuple[str, ...] = ()
    engines: tuple[str, ...] = DEFAULT_ENGINES
    weight_formats: tuple[str, ...] = ()
    kv_formats: tuple[str, ...] = ("auto", "fp8")
    token_budgets: tuple[int, ...] = (8192,)
    max_num_seqs: int | None = None
    max_nodes: int = 2
    drafting: tuple[DraftRequest, ...] = ()
    pools: tuple[PoolsChoice, ...] = ()
    price_cap: Decimal | None = None
    pricing: Pricing = field(default_factory=Pricing)
    spare_replicas: int = 0
    top: int = 10
    folders: Folders = field(default_factory=Folders)

    def __post_init__(self) -> None:
        if (self.request_rate is None) == (self.concurrency is None):
            raise UsageError("give either a request rate or a concurrency", where="--request-rate, --concurrency")
        for flag, value in (
            ("--isl", self.isl),
            ("--osl", self.osl),
            ("--request-rate", self.request_rate),
            ("--concurrency", self.concurrency),
            ("--ttft", self.ttft),
            ("--tpot", self.tpot),
            ("--price-cap", self.price_cap),
            ("--max-nodes", self.max_nodes),
            ("--top", self.top),
        ):
            if value is not None and value <= 0:
                raise UsageError(f"must be above 0, not {value}", where=flag)
        unknown = [name for name in self.engines if name not in DEFAULT_ENGINES]
        if unknown:
            raise UsageError(
                f"servers of {unknown[0][:40]!r} are not planned",
                where="--engine",
                hint=did_you_mean(unknown[0], DEFAULT_ENGINES) or f"one of {', '.join(DEFAULT_ENGINES)}",
            )
        if not 0 <= self.confidence < 1:
            raise UsageError(f"must be at least 0 and under 1, not {self.confidence:g}", where="--confidence")
        if any(draft.medusa_heads for draft in self.drafting):
            raise UsageError("Medusa heads are not planned", where="--medusa-heads", hint="name a --draft-model")
        if self.pools and self.osl < 2:
            raise UsageError("with one output token there is nothing to decode", where="--osl")
        if self.spare_replicas < 0:
            raise UsageError(f"must be at least 0, not {self.spare_replicas}", where="--spare-replicas")

    @property
    def lengths(self) -> Lengths:
        """The requests."""
        return Lengths(self.isl, self.osl, self.prefix_hit_rate)

    def pool_load(self, slow: tuple[float, float]) -> PoolLoad:
        """What pools must carry, with the factors of the bad end."""
        return PoolLoad(self.lengths, self.limits, slow, self.request_rate, self.concurrency)

    @property
    def limits(self) -> Limits:
        """What must be kept."""
        return Limits(self.ttft, self.tpot, self.confidence)
