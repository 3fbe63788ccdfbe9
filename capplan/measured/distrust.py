"""Which rows of the public kernel tables are not to be fitted, each rule with its reason.

A rule looks at one row and at where it was measured. The first rule that applies takes the row out and counts it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

LEAST_SIDE = 256
"""Least side of a weight matrix that a model's layer has after sharding."""


class Where(NamedTuple):
    """Where a table was measured: the tables' name of the GPU, and the engine."""

    gpu: str
    engine: str


@dataclass(frozen=True)
class Rule:
    """Why a row is left out.

    Args:
        name: short, for the count of what was left out.
        reason: what is wrong with such rows.
        applies: whether the row, measured there, is one of them.
    """

    name: str
    reason: str
    applies: Callable[[Any, Where], bool]


NOT_A_TIME = Rule(
    "not_a_time",
    "The latency is missing, zero, negative or not finite: the run failed.",
    lambda row, where: not 0 < row.seconds < float("inf"),
)

UNKNOWN_FORMAT = Rule(
    "unknown_format",
    "The table names a number format that capplan does not know, so that its bytes and its peak are unknown.",
    lambda row, where: row.format == "",
)

UNKNOWN_CACHE_FORMAT = Rule(
    "unknown_cache_format",
    "The table names a format of the KV cache whose bytes capplan does not know.",
    lambda row, where: row.kv_format == "",
)

SMALL_SIDE = Rule(
    "small_side",
    f"A side below {LEAST_SIDE} is none of a model's layer: such products are launch time, and would bend the fit.",
    lambda row, where: min(row.n, row.k) < LEAST_SIDE,
)

HOST_LAUNCH = Rule(
    "host_launch",
    "vLLM's block-scaled fp8 products never take less than 70 to 390 µs, however small: the collector timed the "
    "host's launch, which CUDA graphs hide in service.",
    lambda row, where: where.engine == "vllm" and row.format == "fp8_block",
)

ABOVE_BANDWIDTH = Rule(
    "above_bandwidth",
    "TensorRT-LLM's grouped-query decode on the A100 reads its cache faster than the card's memory can.",
    lambda row, where: where == Where("a100_sxm", "trtllm") and row.heads > row.kv_heads,
)

CACHED_PREFIX = Rule(
    "cached_prefix",
    "The tables have no systematic rows with a cached prefix: the few there are would be fitted by nobody's eye.",
    lambda row, where: row.prefix != 0,
)

DECODE_KERNEL = Rule(
    "decode_kernel",
    "A prompt of one token that vLLM hands to its decode kernel is no prefill, and one length fits no law.",
    lambda row, where: "decode" in row.kernel,
)

EXPERT_PARALLEL = Rule(
    "expert_parallel",
    "With expert parallelism the collectors of vLLM and SGLang do not divide the tokens by the ranks, so that the "
    "work of a row is not known; left out for every engine, so that engines are fitted alike.",
    lambda row, where: row.expert_parallel != 1,
)

NO_GATE = Rule(
    "no_gate",
    "Experts without a gate have two matrices where the law counts three.",
    lambda row, where: "nongated" in row.kernel,
)

RULES: dict[str, tuple[Rule, ...]] = {
    "gemm": (NOT_A_TIME, UNKNOWN_FORMAT, SMALL_SIDE, HOST_LAUNCH),
    "grouped_gemm": (NOT_A_TIME, UNKNOWN_FORMAT, EXPERT_PARALLEL, NO_GATE),
    "prefill_attention": (NOT_A_TIME, UNKNOWN_FORMAT, UNKNOWN_CACHE_FORMAT, CACHED_PREFIX, DECODE_KERNEL),
    "decode_attention": (NOT_A_TIME, UNKNOWN_FORMAT, UNKNOWN_CACHE_FORMAT, ABOVE_BANDWIDTH),
    "mla_prefill": (NOT_A_TIME, UNKNOWN_CACHE_FORMAT, CACHED_PREFIX),
    "mla_decode": (NOT_A_TIME, UNKNOWN_CACHE_FORMAT),
    "collective": (NOT_A_TIME,),
}
"""The rules of each kind of table, in the order in which they are asked."""
