"""The operators of one step on one rank, and their sums by kind, component, name or stage."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from capplan.work.operators import NO_TRAFFIC, Number, Operator, Traffic, Transfer

Grouping = Literal["kind", "component", "name", "stage"]


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over operators, each times its count.

    Args:
        launches: operators.
        flops: FLOPs.
        traffic: bytes between memory and processors, by cause.
        message_bytes: bytes of messages, as `capplan.work.operators.Message` counts them.
        transfer_bytes: bytes between host and device.
    """

    launches: Number = 0
    flops: Number = 0
    traffic: Traffic = NO_TRAFFIC
    message_bytes: Number = 0
    transfer_bytes: Number = 0

    @property
    def arithmetic_intensity(self) -> Number:
        """FLOPs for each byte of memory traffic."""
        return self.flops / self.traffic.total


def totals(operators: Iterable[Operator]) -> Totals:
    """The sums over some operators."""
    result = Totals()
    for operator in operators:
        count = operator.count
        result = Totals(
            result.launches + count,
            result.flops + operator.flops * count,
            result.traffic + operator.traffic.times(count),
            result.message_bytes + operator.message_bytes * count,
            result.transfer_bytes + operator.transfer_bytes * count,
        )
    return result


@dataclass(frozen=True, slots=True)
class Ledger:
    """Everything that one rank of each pipeline stage does in one step, from embedding to sampling.

    With several stages this is the way of one batch through all of them: each stage's operators run on its own ranks.

    Args:
        operators: in the order in which they run.
        prompt_layers: layers that prompt tokens pass; 0: the step only decodes.
    """

    operators: tuple[Operator, ...]
    prompt_layers: int = 0

    @property
    def totals(self) -> Totals:
        """The sums over all operators."""
        return totals(self.operators)

    def by(self, grouping: Grouping) -> dict[str, Totals]:
        """The sums of each group, in the order of first appearance; they add up to the totals."""
        groups: dict[str, list[Operator]] = {}
        for operator in self.operators:
            groups.setdefault(str(getattr(operator, grouping)), []).append(operator)
        return {name: totals(members) for name, members in groups.items()}

    def stage(self, stage: int) -> Ledger:
        """The operators of one pipeline stage."""
        return replace(self, operators=tuple(operator for operator in self.operators if operator.stage == stage))

    def of_kind(self, *kinds: str) -> tuple[Operator, ...]:
        """The operators of some kinds."""
        return tuple(operator for operator in self.operators if operator.kind in kinds)

    def with_host_weights(self, components: Collection[str]) -> Ledger:
        """The same step where the weights of some components lie in host memory: each is preceded by its transfer.

        For routed experts these are the expected distinct experts that the step touches.

        Leaves out a cache of recently used weights on the device.
        """
        operators: list[Operator] = []
        for operator in self.operators:
            size = operator.traffic.weights
            if operator.component in components and not (isinstance(size, int) and size == 0):
                operators.append(host_transfer(operator.name, size, operator))
            operators.append(operator)
        return replace(self, operators=tuple(operators))


def host_transfer(name: str, size: Number, before: Operator) -> Operator:
    """Weights of one operator on their way from host memory to the device."""
    return replace(
        before,
        kind="host_transfer",
        name=f"{name} from host memory",
        shape=Transfer(size, "to_device"),
        flops=0,
        traffic=NO_TRAFFIC,
        kv_format="",
    )
