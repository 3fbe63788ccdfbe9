"""One vendor's fitted constants on another vendor's device, by what micro-benchmarks reached of both.

No public table has kernels of the other vendors' devices. Their engines run kernels of the same kinds, written for
them; how far those get is taken from what the best product, the copies in memory and the all-reduces of the library
reach (``measured:`` in ``hardware/*.yaml``)::

    ec  = ec_relative · (best share of products)_device / (the same)_relative         by number format
    em  = em_relative · (share of the bandwidth)_device / (the same)_relative
    β_n = β_relative,n · (bus bandwidth of an all-reduce among n)_device / (β of the library's collective)_relative,n

No efficiency passes 1. Latencies stay the relative's: launches, tiles, the start of a message.

Leaves out: that kernels of one kind differ from one another as much as from the best; engines' own choices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from capplan.describe.gpu import GpuSpec, Link, Measured
from capplan.describe.kernel_constants import CollectiveConstants, constants_of
from capplan.describe.kernel_formats import kernel_format
from capplan.describe.profile import Profile
from capplan.describe.profile_table import KernelFit
from capplan.errors import UnsupportedError

LIBRARY = "nccl"
"""Whose collectives every engine may fall back to."""

PLAIN = "bf16"
"""Whose share stands for formats that are multiplied without being quantised."""

QUANTISED_MATH = frozenset({"fp8", "int8", "fp4"})
"""Formats with units of their own, into which activations are turned before a product."""

SINGLE_VENDOR = {"trtllm": "NVIDIA"}
"""Engines that run on one vendor's devices alone."""


@dataclass(frozen=True)
class Scaling:
    """By what a relative's constants are multiplied.

    Args:
        gpu: the device that they are carried to.
        relative: the device that was measured.
        products: the ratio of the best products' shares, by the format that is multiplied.
        memory: the ratio of the bandwidths' shares.
        library: β of the relative's library as a share of its link, by collective and ranks.
    """

    gpu: GpuSpec
    relative: str
    products: Mapping[str, float]
    memory: float
    library: Mapping[tuple[str, int], float]

    def compute(self, math: str) -> float:
        """The ratio for products in a format.

        Raises:
            UnsupportedError: the share of a format with units of its own was not measured.
        """
        found = self.products.get(math) if math in QUANTISED_MATH else self.products[PLAIN]
        if found is None:
            raise UnsupportedError(
                f"no share of its {math} rate was measured on {self.gpu.name}: there are bounds, and no prediction",
                where="--gpu",
                hint="weights in another format; `capplan roofline` gives the bounds",
            )
        return found

    def link_share(self, ranks: int) -> float:
        """Bus bandwidth among so many ranks as a share of the device's links."""
        link, measured = self.gpu.link, self.gpu.measured
        assert link is not None
        assert measured is not None
        return reached_share(link, measured, ranks) * link.among(ranks) / link.per_direction

    @property
    def has_links(self) -> bool:
        """Whether an all-reduce was measured over the device's links."""
        return bool(self.gpu.link and self.gpu.measured and self.gpu.measured.all_reduce)

    @property
    def words(self) -> str:
        """The ratios in words."""
        products = ", ".join(f"{form} x {ratio:.2f}" for form, ratio in self.products.items())
        measured = self.gpu.measured.all_reduce if self.gpu.measured else ()
        links = ", ".join(f"{one.bandwidth / 1e9:.0f} GB/s among {one.ranks}" for one in measured)
        return f"products in {products}; memory x {self.memory:.2f}" + (f"; all-reduces at {links}" if links else "")

    def fit(self, fit: KernelFit, ranks: int | None = None) -> KernelFit:
        """A fit with the constants that stand for the device.

        Args:
            fit: of the relative.
            ranks: among which a collective runs; None: as measured.

        Raises:
            UnsupportedError: as `compute`.
        """
        ratios = self._link_ratio(fit, ranks) if fit.kind == "collective" else self._ratios(fit)
        kind: Any = type(fit.constants)
        limits = constants_of(kind)
        values = {
            field.name: min(getattr(fit.constants, field.name) * ratios[field.name], limits[field.name].high)
            for field in fields(fit.constants)
            if field.name in ratios
        }
        constants: Any = replace(fit.constants, **values)
        return replace(fit, constants=constants)

    def _ratios(self, fit: KernelFit) -> dict[str, float]:
        compute = self.compute(multiplied_in(fit.key.format))
        passes = 1 / self.memory
        return {
            "compute_efficiency": compute,
            "tile_efficiency": compute,
            "memory_efficiency": self.memory,
            "requantise": passes,
            "activations": passes,
        }

    def _link_ratio(self, fit: KernelFit, ranks: int | None) -> dict[str, float]:
        key, constants = fit.key, fit.constants
        assert isinstance(constants, CollectiveConstants)
        library = self.library.get((key.collective, key.gpus), constants.link_efficiency)
        return {"link_efficiency": self.link_share(max(2, ranks or key.gpus)) / library}


def reached_share(link: Link, measured: Measured, ranks: int) -> float:
    """Bus bandwidth over what the links among n ranks send: measured, or on the line between the nearest two n."""
    points = sorted((one.ranks, one.bandwidth / link.among(one.ranks)) for one in measured.all_reduce)
    below = [point for point in points if point[0] <= ranks] or points[:1]
    above = [point for point in points if point[0] >= ranks] or points[-1:]
    (least, low), (most, high) = below[-1], above[0]
    return low if least == most else low + (high - low) * (ranks - least) / (most - least)


def multiplied_in(number_format: str) -> str:
    """The format that a kernel's format is multiplied in; attention and formats of weights alone: 16 bits."""
    try:
        return kernel_format(number_format).math if number_format else PLAIN
    except UnsupportedError:
        return PLAIN


def scaling_between(gpu: GpuSpec, relative: GpuSpec, profile: Profile) -> Scaling | None:
    """How constants of one device become another's; None where micro-benchmarks of either are not known.

    Args:
        gpu: the device that was not measured.
        relative: the device of the profile.
        profile: its constants.
    """
    ours, theirs = gpu.measured, relative.measured
    if ours is None or theirs is None or PLAIN not in ours.products or PLAIN not in theirs.products:
        return None
    both = [form for form in ours.products if form in theirs.products]
    products = {str(form): ours.products[form] / theirs.products[form] for form in both}
    library = {
        (fit.key.collective, fit.key.gpus): fit.constants.link_efficiency
        for fit in profile.fits("collective")
        if fit.key.engine == LIBRARY and isinstance(fit.constants, CollectiveConstants)
    }
    return Scaling(gpu, relative.name, products, ours.bandwidth / theirs.bandwidth, library)
