"""Seconds of one operator on one machine: the law of its kind, or a plain estimate where none was measured.

Each kind of operator asks the machine's profile for the kernel that it is (`wanted_kernel`) with its sizes
(`kernel_shape`); what no table measured (norms, rotations, recurrences, copies) takes a launch and its bytes at a
share of the bandwidth, and says that it is assumed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from capplan.describe.profile_choice import Choice, KernelProfile, Wanted, head_group
from capplan.describe.profile_table import Kind
from capplan.errors import UnsupportedError
from capplan.identity import Same
from capplan.timing.kernel_estimates import KernelEstimate, estimate_choice
from capplan.timing.kernel_laws.terms import Quantity, larger
from capplan.timing.machine import Machine
from capplan.timing.roofline import Bound, host_rate, math_rate, operator_bound
from capplan.work.operators import AttentionShape, Gemm, GroupedGemm, Message, Operator, Transfer

Basis = Literal["fitted", "extrapolated", "assumed"]

HOST_LINK_SHARE = 0.85
"""Share of PCIe's datasheet rate that large pinned copies reach (assumed)."""

COMPUTE_SHARE = 0.6
"""Share of the peak rate of products that no table measured (assumed: what fitted kernels reach)."""

MEMORY_SHARE = 0.8
"""Share of the bandwidth of products that no table measured (assumed: what fitted kernels reach)."""

ASSUMED_SPREAD = (0.6, 1.8)
"""Interval of an assumed estimate, as factors."""

LIBRARY = "nccl"
"""Whose collectives every engine may fall back to."""

SEND_LATENCY = 5e-6
"""Seconds before the first byte of a point-to-point message arrives (assumed)."""


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """Seconds of all `count` calls of one operator.

    Args:
        operator: what is timed.
        bound: the datasheet's bound of all calls.
        limit: what the bound is set by.
        launch: seconds of all launches.
        body: seconds beside the launches.
        low: lower end of the 80 % interval of launch and body.
        high: its upper end.
        basis: what the estimate rests on.
        law: the kind of law, within which errors go together.
        notes: what was stretched or assumed.
    """

    operator: Operator
    bound: Quantity
    limit: str
    launch: Quantity
    body: Quantity
    low: Quantity
    high: Quantity
    basis: Basis
    law: str
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> Quantity:
        """Launches and bodies."""
        return self.launch + self.body


def operator_time(operator: Operator, machine: Machine) -> OperatorTime:
    """Seconds of an operator: by its law, else assumed; never under the datasheet's bound.

    Raises:
        UnsupportedError: the device lacks the units or links that the operator needs.
    """
    bound = operator_bound(operator, machine.gpu)
    found = _measured(operator, machine)
    if found is not None:
        launch = found.time.serial.get("launch", 0.0)
        total, low, high = found.total, found.low, found.high
        basis: Basis = "extrapolated" if found.extrapolated else "fitted"
        law, notes = found.fit.kind, found.extrapolated
    else:
        launch, body = _assumed(operator, machine, bound)
        total = launch + body
        low, high = total * ASSUMED_SPREAD[0], total * ASSUMED_SPREAD[1]
        basis, law, notes = "assumed", operator.kind, ()
    count = operator.count
    least = bound.seconds
    total, low, high = (larger(value, least) for value in (total, low, high))
    return OperatorTime(
        operator,
        least * count,
        bound.limit,
        launch * count,
        (total - launch) * count,
        low * count,
        high * count,
        basis,
        law,
        notes,
    )


def _measured(operator: Operator, machine: Machine) -> KernelEstimate | None:
    """The estimate of the law that the operator follows, or None where no law or no measured kernel fits.

    Engines choose among their kernels by size (of a message, of the tokens that experts have): where several kernels of
    the engine, or for a message of the library, were measured, the fastest stands.
    """
    kernels = machine.kernels
    if kernels is None or operator.kind not in _QUESTIONS:
        return None
    kind, wanted, shape = _QUESTIONS[operator.kind](operator, machine.engine)
    best: KernelEstimate | None = None
    for choice in choices(Same(kernels), kind, wanted, machine.engine):
        try:
            found = estimate_choice(kernels, kind, wanted, choice, shape)
        except UnsupportedError:
            continue
        if best is None or _first(found.total) < _first(best.total):
            best = found
    return best


@lru_cache(maxsize=4096)
def choices(key: Same[KernelProfile], kind: Kind, wanted: Wanted, engine: str) -> tuple[Choice, ...]:
    """The fits that an engine could run: the nearest one, or for messages and experts all that are equally near."""
    ranked = key.value.candidates(kind, wanted)
    if not ranked:
        return ()
    if kind == "collective":
        own = [choice for choice in ranked if choice.fit.key.engine in (engine, LIBRARY)] or list(ranked)
        return tuple(choice for choice in own if choice.substitutions == own[0].substitutions)
    if kind == "grouped_gemm":
        return tuple(choice for choice in ranked if choice.substitutions == ranked[0].substitutions)
    return ranked[:1]


Question = tuple[Kind, Wanted, dict[str, Quantity]]


def _gemm(operator: Operator, engine: str) -> Question:
    shape = operator.shape
    assert isinstance(shape, Gemm)
    wanted = Wanted(engine=engine, format=kernel_name(operator.weight_format or "bf16"))
    return "gemm", wanted, {"m": shape.m, "n": shape.n * shape.batch, "k": shape.k}


def kernel_name(number_format: str) -> str:
    """The name under which kernels of a format were measured: both 16-bit formats run alike."""
    return "bf16" if number_format == "fp16" else number_format


def _grouped_gemm(operator: Operator, engine: str) -> Question:
    shape = operator.shape
    assert isinstance(shape, GroupedGemm)
    sizes: dict[str, Quantity] = {
        "tokens": shape.assignments / shape.top_k,
        "hidden": shape.hidden,
        "width": shape.intermediate,
        "top_k": shape.top_k,
        "experts": shape.experts,
        "distinct_experts": shape.distinct,
    }
    return "grouped_gemm", Wanted(engine=engine, format=kernel_name(operator.weight_format)), sizes


def _prefill(operator: Operator, engine: str) -> Question:
    shape = _attention(operator)
    tokens = shape.tokens / shape.sequences
    sizes: dict[str, Quantity] = {
        "batch": shape.sequences,
        "tokens": tokens,
        "heads": shape.heads,
        "kv_heads": shape.kv_heads,
        "prefix": shape.keys / shape.sequences - tokens,
        "window": shape.limit or 0,
    }
    wanted = Wanted(
        engine=engine,
        format=kernel_name(operator.activation_format),
        kv_format=kernel_name(operator.kv_format or operator.activation_format),
        head_dim=shape.key_dim,
        window="window" if shape.limit else "full",
    )
    return "prefill_attention", wanted, sizes


def _decode(operator: Operator, engine: str) -> Question:
    shape = _attention(operator)
    sizes: dict[str, Quantity] = {
        "batch": shape.sequences,
        "context": shape.keys / shape.sequences,
        "heads": shape.heads,
        "kv_heads": shape.kv_heads,
    }
    wanted = Wanted(
        engine=engine,
        format=kernel_name(operator.activation_format),
        kv_format=kernel_name(operator.kv_format or operator.activation_format),
        head_dim=shape.key_dim,
        heads=head_group(int(_first(shape.heads)), int(_first(shape.kv_heads))),
        window="window" if shape.limit else "full",
    )
    return "decode_attention", wanted, sizes


def _mla_prefill(operator: Operator, engine: str) -> Question:
    shape = _attention(operator)
    tokens = shape.tokens / shape.sequences
    sizes: dict[str, Quantity] = {
        "batch": shape.sequences,
        "tokens": tokens,
        "heads": shape.heads,
        "prefix": shape.keys / shape.sequences - tokens,
    }
    wanted = Wanted(engine=engine, kv_format=kernel_name(operator.kv_format or operator.activation_format), absorbed="no")
    return "mla_prefill", wanted, sizes


def _mla_decode(operator: Operator, engine: str) -> Question:
    shape = _attention(operator)
    sizes: dict[str, Quantity] = {
        "batch": shape.sequences,
        "context": shape.keys / shape.sequences,
        "heads": shape.heads,
    }
    return "mla_decode", Wanted(engine=engine, kv_format=kernel_name(operator.kv_format or operator.activation_format)), sizes


def _collective(operator: Operator, engine: str) -> Question:
    shape = operator.shape
    assert isinstance(shape, Message)
    ranks = int(_first(shape.ranks))
    wanted = Wanted(collective=shape.collective, gpus=ranks)
    return "collective", wanted, {"bytes": shape.bytes, "gpus": ranks}


_QUESTIONS: dict[str, Callable[[Operator, str], Question]] = {
    "gemm": _gemm,
    "head": _gemm,
    "absorbed_product": _gemm,
    "grouped_gemm": _grouped_gemm,
    "prefill_attention": _prefill,
    "decode_attention": _decode,
    "mla_prefill": _mla_prefill,
    "mla_decode": _mla_decode,
    "collective": _collective,
}
"""For each kind that a law may stand for: the law's kind, the kernel that is wanted, its sizes."""


def _assumed(operator: Operator, machine: Machine, bound: Bound) -> tuple[Quantity, Quantity]:
    """(launch, body) of what no table measured.

    Products: ``max(FLOPs / (0.6·P), bytes / (0.8·BW))``. Small kernels: bytes at the engine's share of the bandwidth.
    Copies and messages: bytes at the link's rate.
    """
    times, gpu = machine.times, machine.gpu
    traffic = operator.traffic.total / gpu.memory.bandwidth
    if isinstance(operator.shape, Transfer):
        return times.host_launch, operator.shape.bytes / (HOST_LINK_SHARE * host_rate(gpu))
    if isinstance(operator.shape, Message):
        return SEND_LATENCY, bound.link
    if isinstance(operator.shape, (Gemm, GroupedGemm, AttentionShape)):
        compute = operator.flops / (COMPUTE_SHARE * math_rate(gpu, operator.activation_format))
        return times.small_kernel, larger(compute, traffic / MEMORY_SHARE)
    return times.small_kernel, larger(bound.compute / COMPUTE_SHARE, traffic / times.small_kernel_bandwidth)


def _attention(operator: Operator) -> AttentionShape:
    assert isinstance(operator.shape, AttentionShape)
    return operator.shape


def _first(value: Any) -> float:
    """A number, or the first element of an array whose elements stand for one choice."""
    return float(value.flat[0]) if getattr(value, "ndim", 0) else float(value)
