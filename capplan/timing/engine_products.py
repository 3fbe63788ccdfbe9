"""Products of an engine whose kernels no table measured: shares of the datasheet that its own benchmarks show.

    t    = max(FLOPs / (e · P16), bytes / min(0.85 · BW, b · S · f))
    P16  = int8 rate / 2                      the 16-bit rate with 16-bit sums, in which such engines multiply
    P16 · 0.62 on Hopper and later data-centre devices, whose full rate only kernels of their own reach

b bytes a cycle are what one of S multiprocessors at f cycles a second keeps in flight when few rows are multiplied.
Weights in integers cost one more small kernel, which turns the activations into integers as well.

Source: shares in ``engine_products.yaml``; 0.62: Luo et al., Benchmarking and Dissecting the Nvidia Hopper GPU
Architecture (arXiv:2402.13499), mma against wgmma.

Leaves out: tiles that small sizes leave empty; attention without a kernel of its own, which writes its scores.
"""

from __future__ import annotations

from capplan.describe.engine_products import EngineProducts
from capplan.describe.engine_times import EngineTimes
from capplan.describe.gpu import GpuSpec
from capplan.timing.kernel_laws.terms import Quantity, larger
from capplan.timing.roofline import math_rate
from capplan.work.operators import Operator

PLAIN = frozenset({"fp16", "bf16", "fp32", ""})
"""Formats whose weights are multiplied as they are."""

MEMORY_SHARE = 0.85
"""Share of the bandwidth that these products reach where the multiprocessors do not bind."""

WITHOUT_WARPGROUPS = 0.62
"""Rate of a warp's own matrix instructions over that of a warp group's, on devices that have both."""

PRODUCTS = frozenset({"gemm", "head", "absorbed_product", "grouped_gemm"})
"""Kinds of operators that these laws are of."""


def engine_product(
    operator: Operator, gpu: GpuSpec, products: EngineProducts, times: EngineTimes
) -> tuple[Quantity, Quantity]:
    """(launch, body) of one product."""
    quantised = operator.weight_format not in PLAIN
    share = products.quantised_compute if quantised else products.compute
    compute = operator.flops / (share * half_rate(gpu))
    memory = operator.traffic.total / load_rate(gpu, products)
    return times.small_kernel * (2 if quantised else 1), larger(compute, memory)


def half_rate(gpu: GpuSpec) -> float:
    """FLOP/s of 16-bit products with 16-bit sums, by instructions that every device has."""
    integers = gpu.dense_rate("int8")
    rate = integers / 2 if integers is not None else math_rate(gpu, "fp16")
    warpgroups = (gpu.compute_capability or "").split(".")[0] in ("9", "10")
    return rate * (WITHOUT_WARPGROUPS if warpgroups else 1.0)


def load_rate(gpu: GpuSpec, products: EngineProducts) -> float:
    """B/s that products with few rows load: by the memory, or by what the multiprocessors keep in flight."""
    reached = MEMORY_SHARE * gpu.memory.bandwidth
    if not gpu.compute_units or not gpu.boost_mhz:
        return reached
    return min(reached, products.bytes_per_cycle * gpu.compute_units * gpu.boost_mhz * 1e6)
