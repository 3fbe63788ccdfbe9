"""What a step runs on: the device, the measured constants that stand for it, and the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from capplan.describe.engine_products import EngineProducts, engine_products
from capplan.describe.engine_times import EngineTimes, engine_times
from capplan.describe.gpu import GpuSpec
from capplan.describe.profile_choice import KernelProfile, profile_for
from capplan.timing.network import Network


@dataclass(frozen=True)
class Machine:
    """One device under one engine.

    Args:
        gpu: its datasheet figures.
        kernels: the fitted constants that stand for it; None: none do, and only bounds can be given.
        engine: whose kernels run, where several were measured.
        times: the engine's own terms of a step.
        cuda_graphs: whether steps of decode are replayed as graphs; without them the host launches every kernel.
        network: what joins the link domains that the ranks lie in; None: one domain holds them all.
        products: how well the engine's products run where no kernel of its own was measured; None: as others' do.
    """

    gpu: GpuSpec
    kernels: KernelProfile | None
    engine: str = "vllm"
    times: EngineTimes = field(default_factory=EngineTimes)
    cuda_graphs: bool = True
    network: Network | None = None
    products: EngineProducts | None = None

    @property
    def memory_ratio(self) -> float:
        """By what shares of the bandwidth that other devices reach are multiplied here; 1 but on another vendor's."""
        return self.kernels.memory_ratio if self.kernels else 1.0

    @property
    def small_kernel_share(self) -> float:
        """Share of the memory bandwidth that small kernels reach."""
        return self.times.small_kernel_bandwidth * self.memory_ratio

    def compute_ratio(self, math: str) -> float:
        """By what shares of the dense rate of a format are multiplied here.

        Raises:
            UnsupportedError: nothing measured on another vendor's device stands for the format.
        """
        return self.kernels.compute_ratio(math) if self.kernels else 1.0


def machine_for(
    gpu: GpuSpec,
    engine: str = "vllm",
    *,
    cuda_graphs: bool = True,
    network: Network | None = None,
    profile_dirs: Sequence[Path] = (),
) -> Machine:
    """The device with the profile that stands for it, and the engine with its terms: the profile's own, if any."""
    kernels = profile_for(gpu, profile_dirs)
    measured = kernels.profile.engine_times.get(engine) if kernels and not kernels.carried else None
    times = measured or engine_times(engine)
    return Machine(gpu, kernels, engine, times, cuda_graphs, network, engine_products(engine))
