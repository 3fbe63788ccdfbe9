"""What ``sweep`` is asked."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, fields
from typing import Any

from capplan import __version__
from capplan.errors import UsageError
from capplan.planner.sweep import LoadGrid
from capplan.questions.cost_request import Pricing
from capplan.questions.plan_request import DEFAULT_ENGINES, Folders

MOST_LOADS = 100_000_000


@dataclass(frozen=True, kw_only=True)
class SweepRequest:
    """Every combination of these.

    Args:
        model: a reference as for ``--model``.
        isl: input tokens.
        osl: output tokens.
        concurrency: clients.
        prefix_hit_rate: share of the input whose cache is there already.
        gpus: devices; empty: every one of the catalog.
        engines: engines.
        tensor_parallel: ranks that share every layer; empty: all that the model and the links allow.
        pipeline_parallel: stages; empty: likewise.
        data_parallel: groups that share attention's sequences; empty: likewise.
        expert_parallel: whether experts are divided by number; None: both ways.
        weight_formats: as for `capplan.questions.plan_request.PlanRequest`.
        kv_formats: formats of the cache.
        token_budgets: tokens of a step.
        max_num_seqs: sequences at once; None: the engine's default.
        max_nodes: hosts of one replica, at most.
        pricing: where GPUs are hired.
        folders: where descriptions are looked for.
    """

    model: str
    isl: tuple[int, ...]
    osl: tuple[int, ...]
    concurrency: tuple[int, ...]
    prefix_hit_rate: float = 0.0
    gpus: tuple[str, ...] = ()
    engines: tuple[str, ...] = ("vllm",)
    tensor_parallel: tuple[int, ...] = ()
    pipeline_parallel: tuple[int, ...] = ()
    data_parallel: tuple[int, ...] = ()
    expert_parallel: bool | None = None
    weight_formats: tuple[str, ...] = ()
    kv_formats: tuple[str, ...] = ("auto",)
    token_budgets: tuple[int, ...] = (8192,)
    max_num_seqs: int | None = None
    max_nodes: int = 1
    pricing: Pricing = field(default_factory=Pricing)
    folders: Folders = field(default_factory=Folders)

    def __post_init__(self) -> None:
        for flag, values in (("--isl", self.isl), ("--osl", self.osl), ("--concurrency", self.concurrency)):
            if not values:
                raise UsageError("which values?", where=flag, hint="a list 1,8,64 or a range 1:512")
            if min(values) < 1:
                raise UsageError(f"must be at least 1, not {min(values)}", where=flag)
        if self.grid.size > MOST_LOADS:
            raise UsageError(f"the axes make {self.grid.size} loads; at most {MOST_LOADS} are swept", where="sweep")
        if not 0 <= self.prefix_hit_rate < 1:
            raise UsageError(f"must be at least 0 and under 1, not {self.prefix_hit_rate:g}", where="--prefix-hit-rate")
        unknown = [name for name in self.engines if name not in DEFAULT_ENGINES]
        if unknown:
            raise UsageError(f"{unknown[0][:40]!r} is not swept", where="--engine", hint=", ".join(DEFAULT_ENGINES))

    @property
    def grid(self) -> LoadGrid:
        """The loads of each deployment."""
        return LoadGrid(self.isl, self.osl, self.concurrency)

    @property
    def fingerprint(self) -> str:
        """The same for the same sweep of the same version, so that one that was cut off is known again."""
        text = repr((__version__, [(entry.name, getattr(self, entry.name)) for entry in fields(self)]))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def inputs(self) -> dict[str, Any]:
        """The request for an answer."""
        plain = {
            entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name not in ("folders", "pricing")
        }
        return plain | self.pricing.inputs
