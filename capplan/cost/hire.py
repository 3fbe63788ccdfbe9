"""What replicas stand on: whole instances, and what those cost an hour.

    replicas on an instance  = ⌊k / g⌋         k GPUs of an instance, g of a replica
    instances of a replica   = ⌈g / k⌉         where it is larger than an instance

No replica straddles two instances that it could stand on one of.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import ceil
from pathlib import Path

from capplan.cost.price_table import Commitment, Price
from capplan.cost.prices import best_kept, check_sellers, find_prices, offered_prices, price_warnings
from capplan.describe.gpu import GpuSpec


@dataclass(frozen=True, slots=True)
class Hire:
    """Instances of one kind under replicas of one size.

    Args:
        gpus_per_replica: g.
        gpus_per_instance: k; 1 where GPUs are hired singly.
        usd_per_instance_hour: what one instance costs.
        price: the price that this is from; None: one that the user gave.
    """

    gpus_per_replica: int
    gpus_per_instance: Fraction
    usd_per_instance_hour: Fraction
    price: Price | None = None

    @classmethod
    def at(cls, usd_per_gpu_hour: Decimal | Fraction, gpus_per_replica: int) -> Hire:
        """Single GPUs at a price."""
        return cls(gpus_per_replica, Fraction(1), Fraction(usd_per_gpu_hour))

    @classmethod
    def of(cls, price: Price, gpus_per_replica: int) -> Hire:
        """Instances of a price list; one without a name is taken to come in any size."""
        if not price.instance:
            return cls(gpus_per_replica, Fraction(1), Fraction(price.usd_per_gpu_hour), price)
        return cls(gpus_per_replica, price.gpus_per_instance, Fraction(price.usd_per_instance_hour), price)

    @property
    def usd_per_gpu_hour(self) -> Fraction:
        """Dollars an hour of one GPU that is paid for."""
        return self.usd_per_instance_hour / self.gpus_per_instance

    @property
    def filling(self) -> int:
        """Replicas that fill one instance, or the instances of one replica: ``max(1, ⌊k / g⌋)``."""
        return max(1, self.gpus_per_instance // self.gpus_per_replica)

    def instances(self, replicas: int) -> int:
        """Whole instances that hold so many replicas, none of which straddles instances that it could fit in."""
        together = self.gpus_per_instance // self.gpus_per_replica
        if together:
            return ceil(Fraction(replicas) / together)
        return replicas * ceil(self.gpus_per_replica / self.gpus_per_instance)

    def gpus(self, replicas: int) -> Fraction:
        """GPUs that are paid for under so many replicas."""
        return self.instances(replicas) * self.gpus_per_instance

    def usd_per_hour(self, replicas: int) -> Fraction:
        """Dollars an hour of so many replicas."""
        return self.instances(replicas) * self.usd_per_instance_hour

    def warnings(self, gpu: str, on: datetime.date | None = None) -> tuple[str, ...]:
        """What a reader of the price must know."""
        return price_warnings(self.price, gpu, on) if self.price else ()


class HireBook:
    """Offers looked up once for each kind of device, for a search that asks again and again.

    Args:
        price: dollars a GPU-hour that stand for every table; None: the tables.
        provider: None: any.
        commitment: on-demand, spot or reserved.
        region: None: any.
        on: prices known on that day; None: today.
        hardware_dirs: further folders with a ``prices/`` folder.

    Raises:
        NotFoundError: the tables know no such provider or region, whatever the device.
    """

    def __init__(
        self,
        price: Decimal | None = None,
        provider: str | None = None,
        commitment: Commitment = "on-demand",
        region: str | None = None,
        on: datetime.date | None = None,
        hardware_dirs: Sequence[Path] = (),
    ) -> None:
        self._price, self._hardware_dirs = price, hardware_dirs
        self._provider, self._commitment, self._region, self._on = provider, commitment, region, on
        if price is None:
            check_sellers(provider, region, hardware_dirs)
        self._found: dict[str, list[Price]] = {}
        self._hires: dict[tuple[str, int, int], list[Hire]] = {}

    def hires(self, gpu: str, gpus_per_replica: int, same_host: int = 1) -> list[Hire]:
        """Every offer under replicas of a size.

        Raises:
            NotFoundError: there is none.
        """
        if self._price is not None:
            return [Hire.at(self._price, gpus_per_replica)]
        key = (gpu, gpus_per_replica, same_host)
        if key not in self._hires:
            terms = (self._provider, self._commitment, self._region, self._on)
            if gpu not in self._found:
                self._found[gpu] = find_prices(gpu, *terms, hardware_dirs=self._hardware_dirs)
            kept = best_kept(self._found[gpu], same_host, self._on)
            if not kept:
                kept = offered_prices(gpu, *terms, same_host=same_host, hardware_dirs=self._hardware_dirs)
            self._hires[key] = [Hire.of(price, gpus_per_replica) for price in kept]
        return self._hires[key]

    def cheapest(self, gpu: str, gpus_per_replica: int, replicas: int = 1, same_host: int = 1) -> Hire:
        """The cheapest whole instances for so many replicas; of equal ones the first by provider and instance.

        Raises:
            NotFoundError: there is no offer.
        """

        def rank(hire: Hire) -> tuple[Fraction, str, str]:
            price = hire.price
            return hire.usd_per_hour(replicas), price.provider if price else "", price.instance if price else ""

        return min(self.hires(gpu, gpus_per_replica, same_host), key=rank)

    def under(self, gpu: GpuSpec, gpus_per_replica: int, replicas: int = 1) -> Hire:
        """The cheapest instances under a device's replicas: on one host as much of a replica as a host holds.

        Raises:
            NotFoundError: there is no offer.
        """
        host = min(gpus_per_replica, gpu.gpus_per_node or 1)
        return self.cheapest(gpu.name, gpus_per_replica, replicas, host)


def cheapest_hire(
    gpu: str,
    gpus_per_replica: int,
    replicas: int = 1,
    provider: str | None = None,
    commitment: Commitment = "on-demand",
    region: str | None = None,
    on: datetime.date | None = None,
    *,
    same_host: int = 1,
    hardware_dirs: Sequence[Path] = (),
) -> Hire:
    """The cheapest whole instances for so many replicas.

    Args:
        gpu: a name of the hardware catalog.
        gpus_per_replica: GPUs of one replica.
        replicas: how many there will be.
        provider: None: any.
        commitment: on-demand, spot or reserved.
        region: as the provider writes it; None: any.
        on: prices known on that day; None: today.
        same_host: GPUs that an instance must have at least.
        hardware_dirs: further folders with a ``prices/`` folder.

    Raises:
        NotFoundError: no price that fits; the hint names what there is.
    """
    book = HireBook(None, provider, commitment, region, on, hardware_dirs)
    return book.cheapest(gpu, gpus_per_replica, replicas, same_host)
