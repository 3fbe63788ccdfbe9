"""Matrix multiplication: one weight matrix (GEMM), and one for every expert that has tokens (grouped GEMM)."""

from __future__ import annotations

from capplan.describe.kernel_constants import GemmConstants, GroupedGemmConstants, SparseGemmConstants
from capplan.timing.kernel_laws.terms import KernelTime, Quantity, Rates, saturating

HALF_DEPTH = 3000
"""k at which half of the depth latency is paid; fitted once over all tables."""

OUTPUT_BYTES = 2
"""Results are written in 16 bits."""


def gemm_flops(m: Quantity, n: Quantity, k: Quantity) -> Quantity:
    """FLOPs of an (m × k) by (k × n) product: 2·m·n·k."""
    return 2.0 * m * n * k


def gemm_bytes(m: Quantity, n: Quantity, k: Quantity, weight_bytes: float, activation_bytes: float) -> Quantity:
    """Bytes that an (m × k) by (k × n) product moves at least: wb·n·k + ab·m·k + 2·m·n."""
    return weight_bytes * n * k + activation_bytes * m * k + OUTPUT_BYTES * m * n


def gemm_time(
    m: Quantity,
    n: Quantity,
    k: Quantity,
    *,
    weight_bytes: float,
    activation_bytes: float,
    constants: GemmConstants,
    rates: Rates,
) -> KernelTime:
    """Seconds of multiplying m rows of activations with an (n × k) weight matrix.

    t = t0 + tk·k/(k + 3000) + cq·3·m·k/BW + [(2·m·n·k / (ec·P))³ + (bytes / (em·BW))³]^(1/3)

    bytes = wb·n·k + ab·m·k + 2·m·n. The cube lets the shorter of arithmetic and memory hide behind the longer; a
    device's profile may have another exponent, down to 1 where they follow one another, as on a CPU. tk is the latency
    of the reduction's depth; cq·3·m·k is reading 16-bit activations and writing 8-bit ones.

    Args:
        m: rows of activations: tokens.
        n: output features.
        k: input features.
        weight_bytes: wb, bytes of a stored weight.
        activation_bytes: ab, bytes of an activation as the multiplication reads it.
        constants: ec, em, t0, tk, cq.
        rates: P, BW, and the exponent.

    Leaves out: wave and tile quantisation (a single tile size made it worse), the L2 cache, a bias.

    Source: fitted to public kernel tables (aiconfigurator-core 0.12.0); docs/kernel_accuracy.md.
    """
    moved = gemm_bytes(m, n, k, weight_bytes, activation_bytes)
    return KernelTime(
        serial={
            "launch": constants.launch,
            "depth": constants.depth * saturating(k, HALF_DEPTH),
            "requantise": constants.requantise * 3 * m * k / rates.bandwidth,
        },
        overlapping={
            "compute": gemm_flops(m, n, k) / (constants.compute_efficiency * rates.flops),
            "memory": moved / (constants.memory_efficiency * rates.bandwidth),
        },
        exponent=rates.overlap,
    )


def gemm_time_from_few_points(
    m: Quantity,
    n: Quantity,
    k: Quantity,
    *,
    weight_bytes: float,
    activation_bytes: float,
    constants: SparseGemmConstants,
    rates: Rates,
) -> KernelTime:
    """Seconds of a GEMM by three constants, for when a few dozen measured points must do.

    t = t0 + max(2·m·n·k / (ec·P), (wb·n·k + ab·m·k + 2·m·n) / (em·BW))

    Symbols and sources as in `gemm_time`. Leaves out: the depth of the reduction, quantising the activations.
    """
    moved = gemm_bytes(m, n, k, weight_bytes, activation_bytes)
    return KernelTime(
        serial={"launch": constants.launch},
        overlapping={
            "compute": gemm_flops(m, n, k) / (constants.compute_efficiency * rates.flops),
            "memory": moved / (constants.memory_efficiency * rates.bandwidth),
        },
        exponent=float("inf"),
    )


def expected_distinct_experts(tokens: Quantity, experts: Quantity, top_k: Quantity) -> Quantity:
    """Experts that at least one of the tokens chose, when every token chooses `top_k` at random.

    D = E·(1 − (1 − K/E)^T)

    Args:
        tokens: T.
        experts: E.
        top_k: K.

    Leaves out: preferences of the router, by which fewer experts are touched. With E/ep local experts of ep ranks
    the expected number on one rank is D/ep.

    Source: the probability that T independent draws all miss one expert.
    """
    return experts * (1 - (1 - top_k / experts) ** tokens)


def grouped_gemm_time(
    tokens: Quantity,
    hidden: Quantity,
    intermediate: Quantity,
    top_k: Quantity,
    distinct_experts: Quantity,
    *,
    tensor_parallel: Quantity = 1,
    weight_bytes: float,
    constants: GroupedGemmConstants,
    rates: Rates,
) -> KernelTime:
    """Seconds of the gated feed-forward of a mixture of experts: gate, up and down products of every chosen expert.

    t = t0 + ca·A/BW + te·D + 6·T·K·H·I/(tp·ec·P) + D·3·H·I·wb/(tp·em·BW)

    A = 4·T·H + T·K·(6·I/tp + 4·H) bytes of activations: tokens in and out, each copy's intermediate and hidden
    rows. A sum, not a maximum: experts with few tokens read while those with many multiply.

    Args:
        tokens: T, of all sequences together.
        hidden: H, model width.
        intermediate: I, width of one expert before sharding.
        top_k: K, experts a token.
        distinct_experts: D, local experts that have at least one token; see `expected_distinct_experts`.
        tensor_parallel: tp, ranks that share each expert's width.
        weight_bytes: wb, bytes of a stored weight, scales included.
        constants: ec, em, t0, ca, te.
        rates: P, BW.

    Leaves out: the router and the shared experts (GEMMs of their own), the skew of the load but for D, experts
    without a gate.

    Source: fitted to public kernel tables (aiconfigurator-core 0.12.0); docs/kernel_accuracy.md.
    """
    width = intermediate / tensor_parallel
    copies = tokens * top_k
    activations = 4.0 * tokens * hidden + copies * (6.0 * width + 4.0 * hidden)
    flops = 6.0 * copies * hidden * width
    weights = distinct_experts * 3.0 * hidden * width * weight_bytes
    return KernelTime(
        serial={
            "launch": constants.launch,
            "activations": constants.activations * activations / rates.bandwidth,
            "experts": constants.expert * distinct_experts,
            "compute": flops / (constants.compute_efficiency * rates.flops),
            "weights": weights / (constants.memory_efficiency * rates.bandwidth),
        },
        overlapping={},
        exponent=1.0,
    )
