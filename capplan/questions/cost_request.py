"""What ``cost`` is asked, and what cannot be asked."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from capplan.cost.cost import Billing
from capplan.cost.energy import Power
from capplan.cost.hire import Hire, HireBook
from capplan.cost.load_profile import LoadProfile, flat_load
from capplan.cost.price_table import Commitment
from capplan.describe.gpu import GpuSpec
from capplan.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Pricing:
    """Where GPUs are hired.

    Args:
        price_per_gpu_hour: dollars; None: from the tables.
        provider: None: the cheapest.
        commitment: on-demand, spot or reserved.
        region: None: any.
        on: prices known on that day; None: today.
    """

    price_per_gpu_hour: Decimal | None = None
    provider: str | None = None
    commitment: Commitment = "on-demand"
    region: str | None = None
    on: datetime.date | None = None

    def book(self, hardware_dirs: Sequence[Path] = ()) -> HireBook:
        """The offers of these terms.

        Args:
            hardware_dirs: further folders with a ``prices/`` folder.

        Raises:
            NotFoundError: no such provider or region.
        """
        return HireBook(
            self.price_per_gpu_hour, self.provider, self.commitment, self.region, self.on, tuple(hardware_dirs)
        )

    def hire(self, gpu: GpuSpec | None, gpus: int, replicas: int, hardware_dirs: Sequence[Path] = ()) -> Hire:
        """What `replicas` replicas of so many GPUs stand on.

        Raises:
            UsageError: neither a price nor a GPU that has one.
            NotFoundError: no price of that GPU.
        """
        if self.price_per_gpu_hour is not None:
            return Hire.at(self.price_per_gpu_hour, gpus)
        if gpu is None:
            raise UsageError("what does a GPU cost?", where="--price-per-gpu-hour", hint="give a price, or --gpu")
        return self.book(hardware_dirs).under(gpu, gpus, replicas)

    @property
    def inputs(self) -> dict[str, Any]:
        """The terms for an answer."""
        return {
            "price_per_gpu_hour": self.price_per_gpu_hour,
            "provider": self.provider,
            "commitment": self.commitment,
            "region": self.region,
        }


@dataclass(frozen=True, kw_only=True)
class CostRequest:
    """What ``cost`` is asked beside the deployment.

    Args:
        throughput: tokens a second of one replica, instead of an estimate.
        tokens_per_request: input and output tokens of a request, where no lengths are given.
        gpus: devices of one replica, where no deployment is given.
        throughput_rule: take the rule of thumb for the throughput, or show it beside the estimate.
        parameters: parameters for the rule of thumb; None: the model's.
        requests_per_day: a flat load.
        load_profile: a load by the hour.
        billing: what is paid for; None: ``busy`` for a given throughput, ``always`` for a deployment.
        spare_replicas: replicas beside those that the load needs.
        pricing: where GPUs are hired.
        tdp_w: power limit of a device; None: the catalog's.
        power: shares of it, and the building's.
        electricity_price: dollars a kWh; None: the hire includes it.
        storage_gb: gigabytes kept.
        storage_price: dollars a gigabyte and month.
        egress_gb: gigabytes sent a month.
        egress_price: dollars a gigabyte.
        api_provider: whose API to compare with; None: all that have the model.
        api_input_price: dollars for a million input tokens, instead of the tables.
        api_output_price: dollars for a million output tokens.
    """

    throughput: float | None = None
    tokens_per_request: float | None = None
    gpus: int = 1
    throughput_rule: bool = False
    parameters: float | None = None
    requests_per_day: Fraction | None = None
    load_profile: LoadProfile | None = None
    billing: Billing | None = None
    spare_replicas: int = 0
    pricing: Pricing = field(default_factory=Pricing)
    tdp_w: float | None = None
    power: Power = field(default_factory=Power)
    electricity_price: Decimal | None = None
    storage_gb: Decimal | None = None
    storage_price: Decimal | None = None
    egress_gb: Decimal | None = None
    egress_price: Decimal | None = None
    api_provider: str | None = None
    api_input_price: Decimal | None = None
    api_output_price: Decimal | None = None

    def __post_init__(self) -> None:
        for flag, value in _positive(self):
            if value is not None and value <= 0:
                raise UsageError(f"must be above 0, not {value}", where=flag)
        for one, other, given in _pairs(self):
            if given[0] is None and given[1] is not None:
                raise UsageError(f"{other} without {one}", where=other, hint=f"give both {one} and {other}")
            if given[1] is None and given[0] is not None:
                raise UsageError(f"{one} without {other}", where=one, hint=f"give both {one} and {other}")
        if self.requests_per_day is not None and self.load_profile is not None:
            raise UsageError("give either, not both", where="--requests-per-day, --load-profile")
        if self.spare_replicas < 0:
            raise UsageError(f"must be at least 0, not {self.spare_replicas}", where="--spare-replicas")

    @property
    def load(self) -> LoadProfile | None:
        """The load; None: always full."""
        return flat_load(self.requests_per_day) if self.requests_per_day is not None else self.load_profile


def _positive(request: CostRequest) -> list[tuple[str, float | Fraction | Decimal | None]]:
    power = request.power
    return [
        ("--throughput", request.throughput),
        ("--tokens-per-request", request.tokens_per_request),
        ("--gpus", request.gpus),
        ("--params", request.parameters),
        ("--requests-per-day", request.requests_per_day),
        ("--price-per-gpu-hour", request.pricing.price_per_gpu_hour),
        ("--tdp", request.tdp_w),
        ("--tdp-share", power.tdp_share),
        ("--pue", power.pue),
        ("--electricity-price", request.electricity_price),
        ("--storage-gb", request.storage_gb),
        ("--storage-price", request.storage_price),
        ("--egress-gb", request.egress_gb),
        ("--egress-price", request.egress_price),
    ]


def _pairs(request: CostRequest) -> list[tuple[str, str, tuple[object, object]]]:
    return [
        ("--storage-gb", "--storage-price", (request.storage_gb, request.storage_price)),
        ("--egress-gb", "--egress-price", (request.egress_gb, request.egress_price)),
        ("--api-input-price", "--api-output-price", (request.api_input_price, request.api_output_price)),
    ]
