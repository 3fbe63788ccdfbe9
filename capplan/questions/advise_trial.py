"""What the checklist of inference optimisation tries: a deployment, changes of it, and two estimates side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from capplan.cost.hire import Hire, HireBook
from capplan.describe.model import ModelSpec
from capplan.questions.cost_request import Pricing
from capplan.questions.estimate import EstimateResult, LoadRequest, estimate_of
from capplan.questions.setting import Setting, SettingOptions, resolve_setting

if TYPE_CHECKING:
    from capplan.describe.gpu import GpuSpec

Metric = Literal["throughput", "tpot", "ttft", "memory"]
State = Literal["possible", "in place", "not possible"]


@dataclass(frozen=True)
class Offers:
    """What an hour of the present device costs, and of others.

    Args:
        present: terms under which the present device is hired.
        others: the same for devices that take its place: a price that was given is the present one's alone.
    """

    present: HireBook
    others: HireBook

    @classmethod
    def of(cls, pricing: Pricing, hardware_dirs: Sequence[Path] = ()) -> Offers:
        """The offers of some terms.

        Raises:
            NotFoundError: no such provider or region.
        """
        tables = replace(pricing, price_per_gpu_hour=None)
        return cls(pricing.book(hardware_dirs), tables.book(hardware_dirs))

    def instead(self, other: GpuSpec, present: GpuSpec, gpus: int) -> tuple[Hire, Hire]:
        """What a replica of so many devices stands on instead, and what it stands on now.

        Raises:
            NotFoundError: one of them has no price.
        """
        return self.others.under(other, gpus), self.present.under(present, gpus)


@dataclass(frozen=True)
class Deployed:
    """A deployment and a load, and what to try on them.

    Args:
        model: as it was named.
        gpu: as it was named.
        load: what clients ask.
        options: the rest of the deployment.
        setting: all of it, resolved.
        now: the estimate as it is.
        acceptance: chance that a drafted token is accepted.
        draft_model: what would draft; None: the model's MTP layers, or Medusa heads.
        cached: share of the input that a prefix cache would find.
        offers: what devices cost.
    """

    model: str | ModelSpec
    gpu: str | GpuSpec | None
    load: LoadRequest
    options: SettingOptions
    setting: Setting
    now: EstimateResult
    acceptance: float
    draft_model: str | None
    cached: float
    offers: Offers

    def changed(self, model: str | ModelSpec | None = None, gpu: str | None = None, **options: Any) -> EstimateResult:
        """The estimate of a changed deployment under the same load."""
        merged: SettingOptions = {**self.options, **options}  # type: ignore[typeddict-item]
        return estimate_of(resolve_setting(model or self.model, gpu or self.gpu, **merged), self.load).result


@dataclass(frozen=True)
class Item:
    """What the checklist says of one item, and how it is tried.

    Args:
        item: what it is.
        category: its group.
        claim: what introductions promise.
        metric: what it is meant to improve.
        tried: tries it on a deployment.
    """

    item: str
    category: str
    claim: str
    metric: Metric
    tried: Callable[[Deployed], Trial]


@dataclass(frozen=True)
class Trial:
    """Better and worse of two deployments, one of which is the present one.

    Args:
        state: whether the better one is the present one.
        better: with the item; None: only `gain` is known.
        worse: without it.
        change: the flags.
        remark: what was assumed.
        gain: in the item's metric, where no estimate of both exists.
        dearer: dollars an hour with the item for each without it; None: not known.
    """

    state: State
    better: EstimateResult | None = None
    worse: EstimateResult | None = None
    change: str = ""
    remark: str = ""
    gain: float | None = None
    dearer: float | None = 1.0
