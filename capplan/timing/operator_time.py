"""Seconds of one operator on one machine: the law of its kind, or a plain estimate where none was measured.

Each kind of operator asks the machine's profile for the kernel that it is, with its sizes
(`capplan.timing.wanted_kernels`); what no table measured (norms, rotations, recurrences, copies) takes a launch and its
bytes at a share of the bandwidth, and says that it is assumed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from capplan.describe.profile_choice import Choice, KernelProfile, Wanted
from capplan.describe.profile_scaling import LIBRARY, PLAIN, QUANTISED_MATH
from capplan.describe.profile_table import KernelFit, Kind
from capplan.errors import UnsupportedError
from capplan.identity import Same
from capplan.timing.engine_products import PRODUCTS, engine_product
from capplan.timing.kernel_estimates import KernelEstimate, choice_time, estimate_choice, faster, faster_time
from capplan.timing.kernel_laws.terms import KernelTime, Quantity, is_array, larger
from capplan.timing.machine import Machine
from capplan.timing.network import across_seconds, inside
from capplan.timing.roofline import (
    Bound,
    host_rate,
    knows_links,
    link_rate,
    math_rate,
    operator_bound,
    required_bound,
)
from capplan.timing.wanted_kernels import wanted_kernel
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
        estimate: one call by its law, term by term; None where none was measured.
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
    estimate: KernelEstimate | None = None

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
    basis: Basis
    law: str = operator.kind
    near = inside(operator, machine.network)
    found = _measured(near, machine)
    launch, total = _call(near, machine, (found.time, found.fit) if found else None, bound)
    total = total + across_seconds(operator, machine.network)
    if found is not None:
        low, high = total * (found.low / found.total), total * (found.high / found.total)
        law, basis = found.fit.kind, "extrapolated" if found.extrapolated else "fitted"
        notes = found.extrapolated
    else:
        low, high = total * ASSUMED_SPREAD[0], total * ASSUMED_SPREAD[1]
        basis, notes = "assumed", ()
    if near is not operator:
        low, high = total * ASSUMED_SPREAD[0], total * ASSUMED_SPREAD[1]
        basis, notes = "assumed", (*notes, "the way between link domains is assumed")
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
        found,
    )


@dataclass(frozen=True, slots=True)
class OperatorParts:
    """What a sum over many steps takes of an operator: all its calls, without an interval.

    Args:
        launch: seconds of all launches.
        body: seconds beside the launches.
        required: the bound by those bytes that cannot stay on the chip.
    """

    launch: Quantity
    body: Quantity
    required: Bound


def operator_parts(operator: Operator, machine: Machine) -> OperatorParts:
    """The launches and bodies of `operator_time`, and what `capplan.timing.roofline.step_bound` sums.

    Steps repeat each other's operators (a product depends on the tokens alone, attention on the contexts): those of
    plain numbers are remembered.

    Raises:
        UnsupportedError: as `operator_time`.
    """
    return _parts(operator, machine) if holds_arrays(operator) else _known_parts(operator, Same(machine))


def holds_arrays(operator: Operator) -> bool:
    """Whether an operator stands for those of many steps, with an array for a size."""
    figures = (operator.count, operator.flops, operator.traffic.total, operator.message_bytes, operator.transfer_bytes)
    return any(map(is_array, figures))


@lru_cache(maxsize=1 << 16)
def _known_parts(operator: Operator, machine: Same[Machine]) -> OperatorParts:
    return _parts(operator, machine.value)


def _parts(operator: Operator, machine: Machine) -> OperatorParts:
    bound = operator_bound(operator, machine.gpu)
    near = inside(operator, machine.network)
    launch, total = _call(near, machine, _quickest(near, machine), bound)
    total = total + across_seconds(operator, machine.network)
    body = larger(total, bound.seconds) - launch
    count = operator.count
    return OperatorParts(launch * count, body * count, required_bound(operator, machine.gpu).times(count))


def _call(
    operator: Operator, machine: Machine, found: tuple[KernelTime, KernelFit] | None, bound: Bound
) -> tuple[Quantity, Quantity]:
    """(launch, total) of one call: by its law as the step runs it, else assumed."""
    if found is None:
        launch, body = _assumed(operator, machine, bound)
        return launch, launch + body
    if operator.kind == "gemm" and operator.activation_format in QUANTISED_MATH:
        return _in_step(operator, machine, *found)
    return found[0].serial.get("launch", 0.0), found[0].total


def _in_step(operator: Operator, machine: Machine, time: KernelTime, fit: KernelFit) -> tuple[Quantity, Quantity]:
    """(launch, total) of a product with quantised activations inside a replayed step.

    Measured alone, its launch is that of several kernels started by the host. Inside a graph it launches as the 16-bit
    product does; quantising the activations is a small kernel of its own, ``3·m·k`` bytes, unless the engine fuses it
    into the kernel before.
    """
    shape, times = operator.shape, machine.times
    assert isinstance(shape, Gemm)
    assert machine.kernels is not None
    plain = choices(Same(machine.kernels), "gemm", Wanted(engine=machine.engine, format="bf16"), machine.engine)
    constants: Any = plain[0].fit.constants if plain else fit.constants
    serial = time.serial
    launch: Quantity = min(constants.launch, serial["launch"])
    body = time.total - serial["launch"] - serial.get("requantise", 0.0)
    if not times.fuses_quantising:
        launch = launch + times.small_kernel
        body = body + 3 * shape.m * shape.k / (machine.small_kernel_share * machine.gpu.memory.bandwidth)
    return launch, launch + body


def _measured(operator: Operator, machine: Machine) -> KernelEstimate | None:
    """The estimate of the law that the operator follows, or None where no law or no measured kernel fits.

    Engines choose among their kernels by size (of a message, of the tokens that experts have): where several kernels of
    the engine, or for a message of the library, were measured, the fastest stands.
    """
    kernels = machine.kernels
    question = wanted_kernel(operator, machine.engine)
    if kernels is None or question is None:
        return None
    kind, wanted, shape = question
    best: KernelEstimate | None = None
    for choice in _own_choices(operator, machine, choices(Same(kernels), kind, wanted, machine.engine)):
        try:
            found = estimate_choice(kernels, kind, wanted, choice, shape)
        except UnsupportedError:
            continue
        best = found if best is None else faster(best, found)
    return best


def _quickest(operator: Operator, machine: Machine) -> tuple[KernelTime, KernelFit] | None:
    """The time of `_measured` alone, and whose constants it has."""
    kernels = machine.kernels
    question = wanted_kernel(operator, machine.engine)
    if kernels is None or question is None:
        return None
    kind, wanted, shape = question
    times: list[tuple[KernelTime, KernelFit]] = []
    for choice in _own_choices(operator, machine, choices(Same(kernels), kind, wanted, machine.engine)):
        try:
            times.append((choice_time(kernels, kind, wanted, choice, shape), choice.fit))
        except UnsupportedError:
            continue
    if len(times) > 1 and any(is_array(time.total) for time, _ in times):
        return faster_time([time for time, _ in times]), times[0][1]
    return min(times, key=lambda found: found[0].total, default=None)


def _own_choices(operator: Operator, machine: Machine, found: tuple[Choice, ...]) -> tuple[Choice, ...]:
    """Without other engines' products, where the engine's own are known not to run like them."""
    if machine.products is None or operator.kind not in PRODUCTS:
        return found
    return tuple(choice for choice in found if choice.fit.key.engine == machine.engine)


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


def _assumed(operator: Operator, machine: Machine, bound: Bound) -> tuple[Quantity, Quantity]:
    """(launch, body) of what no table measured.

    Products: ``max(FLOPs / (0.6·P), bytes / (0.8·BW))``. Small kernels: bytes at the engine's share of the bandwidth.
    Copies and messages: bytes at the link's rate. On another vendor's device shares are scaled as the constants are.
    """
    times, gpu = machine.times, machine.gpu
    traffic = operator.traffic.total / gpu.memory.bandwidth
    if isinstance(operator.shape, Transfer):
        return times.host_launch, operator.shape.bytes / (HOST_LINK_SHARE * host_rate(gpu))
    if isinstance(operator.shape, Message):
        return SEND_LATENCY, bound.link if knows_links(gpu) else link_rate(gpu)
    if machine.products is not None and operator.kind in PRODUCTS:
        launch, body = engine_product(operator, gpu, machine.products, times)
        return launch, body / min(machine.memory_ratio, machine.compute_ratio(PLAIN))
    share = COMPUTE_SHARE * machine.compute_ratio(operator.activation_format)
    if isinstance(operator.shape, (Gemm, GroupedGemm, AttentionShape)):
        compute = operator.flops / (share * math_rate(gpu, operator.activation_format))
        return times.small_kernel, larger(compute, traffic / (MEMORY_SHARE * machine.memory_ratio))
    launch = 0.0 if operator.name in times.fused else times.small_kernel
    return launch, larger(bound.compute / share, traffic / machine.small_kernel_share)
