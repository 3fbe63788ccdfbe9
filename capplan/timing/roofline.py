"""The datasheet's bound: no kernel is faster than its FLOPs at the peak rate, or its bytes at the full bandwidth.

One operator alone must move everything that it reads and writes (`operator_bound`); a whole step need not: activations
may stay on the chip from one kernel to the next, and messages may hide behind arithmetic. `step_bound` is the least
that a step can take, and is under the sum of its operators' bounds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, cast

from capplan.describe.gpu import GpuSpec
from capplan.errors import UnsupportedError
from capplan.timing.kernel_laws.terms import Quantity, is_array, larger, smaller
from capplan.work.operators import Message, Operator

Limit = Literal["compute", "memory", "link", "host link"]

_MATH = {
    "fp16": ("fp16", "bf16"),
    "bf16": ("bf16", "fp16"),
    "fp32": ("tf32", "fp32", "bf16", "fp16"),
    "fp4": ("fp4",),
}
"""Whose rate stands for a format's: 16-bit formats for one another, and for fp32 where no sheet prints its own."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The least seconds of some work, by what could limit it.

    Args:
        compute: ``FLOPs / P``.
        memory: ``bytes / BW``.
        link: ``message · f / link``, with f the share of the vector that crosses a rank's links.
        host: ``bytes / PCIe``.
    """

    compute: Quantity = 0.0
    memory: Quantity = 0.0
    link: Quantity = 0.0
    host: Quantity = 0.0

    @property
    def seconds(self) -> Quantity:
        """The longest of the four."""
        return larger(larger(self.compute, self.memory), larger(self.link, self.host))

    @property
    def limit(self) -> Limit:
        """Which of the four it is (for arrays, of the longest element)."""
        terms: dict[Limit, Quantity] = {
            "memory": self.memory,
            "compute": self.compute,
            "link": self.link,
            "host link": self.host,
        }
        return max(terms, key=lambda name: _peak(terms[name]))

    def __add__(self, other: Bound) -> Bound:
        return Bound(
            self.compute + other.compute,
            self.memory + other.memory,
            self.link + other.link,
            self.host + other.host,
        )

    def times(self, count: Quantity) -> Bound:
        """The bound of `count` equal pieces of work."""
        return Bound(self.compute * count, self.memory * count, self.link * count, self.host * count)


def operator_bound(operator: Operator, gpu: GpuSpec) -> Bound:
    """The roofline of one call: ``max(FLOPs / P, bytes / BW, message / link, transfer / PCIe)``.

    P is the dense rate of the format in which the operator multiplies.

    Leaves out messages and transfers over a link that the device's description lacks.
    Source: Williams, Waterman and Patterson, Roofline (CACM 52(4), 2009).
    """
    return _bound(operator, gpu, operator.traffic.total)


def required_bound(operator: Operator, gpu: GpuSpec) -> Bound:
    """As `operator_bound`, with only those bytes that cannot stay on the chip: weights, KV cache and states."""
    traffic = operator.traffic
    return _bound(operator, gpu, traffic.weights + traffic.kv + traffic.state)


@dataclass(frozen=True, slots=True)
class StepBound:
    """The least seconds of one step.

    Args:
        stages: the sums over the operators of each pipeline stage, whose limits may overlap with one another.
    """

    stages: tuple[Bound, ...]

    @property
    def seconds(self) -> Quantity:
        """``Σ_stages max(compute, memory, link, host)``: a batch passes through one stage after the other."""
        return sum((stage.seconds for stage in self.stages), start=0.0)

    @property
    def whole(self) -> Bound:
        """The four sums over all stages."""
        return sum(self.stages, start=Bound())


def step_bound(operators: Iterable[Operator], gpu: GpuSpec) -> StepBound:
    """The least that a step takes, by the sums over its operators.

    ``max(Σ FLOPs / P, Σ (weights + KV + state) / BW, Σ messages / link, Σ transfers / PCIe)`` for each pipeline stage.
    Activations may stay on the chip, and messages may overlap with everything else.
    """
    stages: dict[int, Bound] = {}
    for operator in operators:
        bound = required_bound(operator, gpu).times(operator.count)
        stages[operator.stage] = stages.get(operator.stage, Bound()) + bound
    return StepBound(tuple(stages.values()))


def ridge_point(gpu: GpuSpec, number_format: str) -> float:
    """FLOPs for each byte at which a kernel turns from memory-bound to compute-bound: ``P / BW``.

    Raises:
        UnsupportedError: the device has no units for the format.
    """
    return math_rate(gpu, number_format) / gpu.memory.bandwidth


def math_rate(gpu: GpuSpec, number_format: str) -> float:
    """Dense FLOP/s of products in a number format.

    Raises:
        UnsupportedError: the device has no units for the format.
    """
    for name in _MATH.get(number_format, (number_format,)):
        rate = gpu.dense_rate(name)
        if rate is not None:
            return rate
    raise UnsupportedError(f"{gpu.name} has no rate for {number_format or 'this format'}", where="--gpu")


def link_rate(gpu: GpuSpec) -> float:
    """B/s that one device sends over its scale-up links, or over PCIe where it has none.

    Raises:
        UnsupportedError: neither is known.
    """
    if gpu.link:
        return gpu.link.per_direction
    return host_rate(gpu)


def message_rate(gpu: GpuSpec, message: Message) -> Quantity:
    """B/s that one device sends of a message: without a switch it reaches as many of its links as it has peers.

    Raises:
        UnsupportedError: as `link_rate`.
    """
    if gpu.link is None or gpu.link.per_peer is None:
        return link_rate(gpu)
    peers = 1 if message.collective == "send" else larger(message.ranks - 1, 1)
    return smaller(gpu.link.per_direction, peers * gpu.link.per_peer)


def host_rate(gpu: GpuSpec) -> float:
    """B/s between host and device in one direction.

    Raises:
        UnsupportedError: it is not known.
    """
    if gpu.pcie:
        return gpu.pcie.per_direction
    raise UnsupportedError(
        f"the links of {gpu.name} are not known",
        where="--gpu",
        hint="describe the device and its links in a YAML file",
    )


def knows_links(gpu: GpuSpec) -> bool:
    """Whether the device's description has a link that messages can take."""
    return gpu.link is not None or gpu.pcie is not None


def _bound(operator: Operator, gpu: GpuSpec, moved: Quantity) -> Bound:
    compute: Quantity = 0.0
    if not _is_zero(operator.flops):
        compute = operator.flops / math_rate(gpu, operator.activation_format)
    link: Quantity = 0.0
    if isinstance(operator.shape, Message) and knows_links(gpu):
        link = sent_bytes(operator.shape) / message_rate(gpu, operator.shape)
    host: Quantity = 0.0
    if gpu.pcie and not _is_zero(operator.transfer_bytes):
        host = operator.transfer_bytes / host_rate(gpu)
    return Bound(compute, moved / gpu.memory.bandwidth, link, host)


def sent_bytes(message: Message) -> Quantity:
    """Bytes that one rank must send: ``2(n-1)/n`` of the vector for an all-reduce, ``(n-1)/n`` for the others."""
    if message.collective == "send":
        return cast("Quantity", message.bytes)
    share = 1 - 1 / message.ranks
    return cast("Quantity", (2 if message.collective == "all_reduce" else 1) * share * message.bytes)


def _peak(value: Quantity) -> float:
    return float(value.max()) if is_array(value) else float(value)  # type: ignore[union-attr]


def _is_zero(value: Quantity) -> bool:
    return not is_array(value) and value == 0
