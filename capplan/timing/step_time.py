"""Seconds of one engine step: its operators by their laws, the engine's own terms, and an interval.

    step = max(kernel_share · Σ bodies + Σ launches, bound, host) + per_sequence · B + per_step

The share is one constant for steps that only decode and another for those with prompt tokens; the host bounds what no
graph replays: every kernel of an eager engine, and the layers that prompt tokens pass.

Pipeline stages run one after the other for one batch: the step is the sum over the stages, and with as many batches
in flight as stages, one batch leaves every ``max`` over the stages.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from capplan.timing.kernel_laws.terms import Quantity, is_array, larger
from capplan.timing.machine import Machine
from capplan.timing.operator_time import OperatorTime, operator_time
from capplan.timing.roofline import StepBound, step_bound
from capplan.work.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Overhead:
    """A term of a step that is no operator.

    Args:
        name: what it is.
        seconds: how long it takes.
        source: where the figure is from.
    """

    name: str
    seconds: Quantity
    source: str


@dataclass(frozen=True, slots=True)
class StepTime:
    """One step, operator by operator.

    Args:
        operators: the timed operators.
        least: the datasheet's bound of the whole step.
        overheads: the engine's own terms.
        kernel_share: factor on the bodies in a step of this kind.
        host: seconds that the host needs to launch everything; the step takes at least as long (0 with graphs).
    """

    operators: tuple[OperatorTime, ...]
    least: StepBound
    overheads: tuple[Overhead, ...]
    kernel_share: float
    host: Quantity

    @property
    def bound(self) -> Quantity:
        """The datasheet's bound of the whole step, which is under the sum of the operators' own bounds."""
        return self.least.seconds

    @property
    def kernels(self) -> Quantity:
        """Seconds of all kernels one after the other."""
        launches = sum((time.launch for time in self.operators), start=0.0)
        bodies = sum((time.body for time in self.operators), start=0.0)
        return self.kernel_share * bodies + launches

    @property
    def seconds(self) -> Quantity:
        """Seconds of the step: no faster than the bound, nor than the host launches its kernels."""
        return larger(larger(self.kernels, self.bound), self.host) + self.overhead

    @property
    def overhead(self) -> Quantity:
        """Seconds of the engine's own terms."""
        return sum((term.seconds for term in self.overheads), start=0.0)

    @property
    def terms(self) -> tuple[Overhead, ...]:
        """Everything beside the kernels, waiting included: with `kernels` it adds up to `seconds`."""
        waiting = larger(larger(self.kernels, self.bound), self.host) - self.kernels
        if is_array(waiting) or waiting == 0:
            return self.overheads
        name = "waiting for the host's launches" if self.host > self.bound else "up to the bound"
        return (*self.overheads, Overhead(name, waiting, ""))

    @property
    def interval(self) -> tuple[Quantity, Quantity]:
        """The 80 % interval of the step.

        Operators of one law share its constants, so that their errors go together and add up; the errors of different
        laws are taken to be independent and add up as squares:
        ``high = t + sqrt(Σ_laws (Σ_operators (high - t))²)``, and ``low`` likewise, not under the bound.
        """
        above = _root_sum_square(_by_law((time.law, time.high - time.seconds) for time in self.operators))
        below = _root_sum_square(_by_law((time.law, time.seconds - time.low) for time in self.operators))
        return larger(self.seconds - below, self.bound), self.seconds + above


def step_time(ledger: Ledger, machine: Machine, *, sequences: Quantity = 1) -> StepTime:
    """Seconds of a step from its ledger.

    Args:
        ledger: its operators.
        machine: what it runs on.
        sequences: sequences that the engine schedules and samples in the step.
    """
    times = machine.times
    operators = tuple(operator_time(operator, machine) for operator in ledger.operators)
    overheads = [
        Overhead("scheduling and sampling", times.per_sequence * sequences, times.sources.get("per_sequence", "")),
    ]
    if times.per_step:
        overheads.append(Overhead("step", times.per_step, times.sources.get("per_step", "")))
    host: Quantity = 0.0
    if ledger.prompt_layers:
        host = times.prompt_host(ledger.prompt_layers, sum((one.launch for one in operators), start=0.0))
    if not machine.cuda_graphs:
        host = larger(host, times.host_launch * ledger.totals.launches)
    share = times.body_share(prompts=ledger.prompt_layers > 0)
    return StepTime(operators, step_bound(ledger.operators, machine.gpu), tuple(overheads), share, host)


def _by_law(parts: Iterable[tuple[str, Quantity]]) -> list[Quantity]:
    sums: dict[str, Quantity] = {}
    for law, part in parts:
        sums[law] = sums.get(law, 0.0) + larger(part, 0.0)
    return list(sums.values())


def _root_sum_square(parts: list[Quantity]) -> Quantity:
    total: Quantity = sum((part**2 for part in parts), start=0.0)
    root: Quantity = total**0.5
    return root
