"""The datasheet's bound: no kernel is faster than its FLOPs at the peak rate, or its bytes at the full bandwidth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from capplan.describe.gpu import GpuSpec
from capplan.errors import UnsupportedError
from capplan.timing.kernel_laws.terms import Quantity, is_array, larger
from capplan.work.operators import Message, Operator

Limit = Literal["compute", "memory", "link", "host link"]

_MATH = {"fp16": ("fp16", "bf16"), "bf16": ("bf16", "fp16"), "fp32": ("tf32", "fp32"), "fp4": ("fp4",)}


@dataclass(frozen=True, slots=True)
class Bound:
    """The least seconds of one call of an operator, by what could limit it.

    Args:
        compute: ``FLOPs / P``.
        memory: ``bytes / BW``.
        link: ``message · f / link``, with f the share of the vector that crosses a rank's links.
        host: ``bytes / PCIe``.
    """

    compute: Quantity
    memory: Quantity
    link: Quantity
    host: Quantity

    @property
    def seconds(self) -> Quantity:
        """The longest of the four."""
        return larger(larger(self.compute, self.memory), larger(self.link, self.host))

    @property
    def limit(self) -> Limit:
        """Which of the four it is (of one call; for arrays, of the longest element)."""
        terms: dict[Limit, Quantity] = {
            "memory": self.memory,
            "compute": self.compute,
            "link": self.link,
            "host link": self.host,
        }
        return max(terms, key=lambda name: _peak(terms[name]))


def operator_bound(operator: Operator, gpu: GpuSpec) -> Bound:
    """The roofline of one call: ``max(FLOPs / P, bytes / BW, message / link, transfer / PCIe)``.

    P is the dense rate of the format in which the operator multiplies.

    Source: Williams, Waterman and Patterson, Roofline (CACM 52(4), 2009).
    """
    compute: Quantity = 0.0
    if not _is_zero(operator.flops):
        compute = operator.flops / math_rate(gpu, operator.activation_format)
    link: Quantity = 0.0
    if isinstance(operator.shape, Message):
        link = _crossing(operator.shape) / link_rate(gpu)
    host: Quantity = 0.0
    if not _is_zero(operator.transfer_bytes):
        host = operator.transfer_bytes / host_rate(gpu)
    return Bound(compute, operator.traffic.total / gpu.memory.bandwidth, link, host)


def math_rate(gpu: GpuSpec, number_format: str) -> float:
    """Dense FLOP/s of products in a number format; 16-bit formats stand in for one another.

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


def host_rate(gpu: GpuSpec) -> float:
    """B/s between host and device in one direction.

    Raises:
        UnsupportedError: it is not known.
    """
    if gpu.pcie:
        return gpu.pcie.per_direction
    raise UnsupportedError(f"the host link of {gpu.name} is not known", where="--gpu")


def _crossing(message: Message) -> Quantity:
    """Bytes that one rank must send: ``2(n-1)/n`` of the vector for an all-reduce, ``(n-1)/n`` for a gather or scatter."""
    share = 1 - 1 / message.ranks
    if message.collective == "all_reduce":
        return 2 * share * message.bytes
    return message.bytes if message.collective == "send" else share * message.bytes


def _peak(value: Quantity) -> float:
    return float(value.max()) if is_array(value) else float(value)  # type: ignore[union-attr]


def _is_zero(value: Quantity) -> bool:
    return not is_array(value) and value == 0
