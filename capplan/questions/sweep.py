"""Every load on every deployment: rows for a table or a file, and the front of cost and latency among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from capplan.cost.hire import HireBook
from capplan.errors import CapplanError, NotFoundError
from capplan.planner.rejections import Rejections
from capplan.planner.sweep import FIGURES, Columns, load_columns, on_front
from capplan.questions.answer import Answer
from capplan.questions.plan_formats import format_choices
from capplan.questions.plan_lookup import Lookup
from capplan.questions.plan_option import Option
from capplan.questions.plan_result import NearMiss, Rejected
from capplan.questions.plan_space import Space, devices, space_options
from capplan.questions.setting import carried_notes
from capplan.questions.setting_memory import replica_with, setting_budget
from capplan.questions.sweep_request import SweepRequest
from capplan.questions.sweep_space import asked_for
from capplan.serving.replica import Replica

DEPLOYMENT = (
    "deployment", "model", "gpu", "gpus", "engine", "tp", "pp", "dp", "ep", "weights", "weight_dtype",
    "kv_cache_dtype",
    "max_num_batched_tokens", "max_num_seqs", "kv_tokens", "weight_bytes_per_rank", "usd_per_hour",
)  # fmt: skip
"""The columns of a deployment, in order; they stand before those of a load.

`weights` is the precision, `weight_dtype` the scheme that the engine is told to make; null: as the checkpoint has it.
"""

FRONT = ("tpot_ms", "cost_per_1m_tokens")
"""What a front is of: rows of one pair of lengths that no other row of that pair beats in both."""


@dataclass(frozen=True)
class SweepDeployment:
    """A deployment of a sweep.

    Args:
        option: what it is.
        replica: the server.
        constants: the values of `DEPLOYMENT`.
    """

    option: Option
    replica: Replica
    constants: tuple[Any, ...]

    @property
    def usd_per_hour(self) -> float:
        """Dollars an hour of one replica, on instances that are full of them."""
        return float(self.constants[-1])


@dataclass(frozen=True)
class Deployments:
    """What a sweep runs on, and what fell out."""

    fitting: tuple[SweepDeployment, ...]
    rejections: Rejections


@dataclass(frozen=True)
class SweepChunk:
    """Some rows of a sweep.

    Args:
        index: which chunk.
        constants: the values of `DEPLOYMENT`, the same in every row.
        columns: those of `capplan.planner.sweep.FIGURES`.
    """

    index: int
    constants: tuple[Any, ...]
    columns: Columns

    @property
    def rows(self) -> int:
        """Rows."""
        return len(self.columns[FIGURES[0]])

    def row(self, place: int) -> dict[str, Any]:
        """One row as plain values."""
        figures = {name: self.columns[name][place].item() for name in FIGURES}
        return dict(zip(DEPLOYMENT, self.constants, strict=True)) | figures


@dataclass(frozen=True)
class Task:
    """What one chunk is of.

    Args:
        index: which chunk.
        deployment: which deployment.
        start: its first load.
        stop: one past its last.
    """

    index: int
    deployment: int
    start: int
    stop: int


Compute = Callable[[SweepRequest, Task], SweepChunk]
Scheduler = Callable[[Compute, SweepRequest, Iterable[Task]], Iterator[SweepChunk]]
"""Hands tasks to whoever computes them, and yields the chunks in order."""


@dataclass
class SweepSummary:
    """What is kept of all rows.

    Args:
        mixes: pairs of input and output lengths whose fronts are kept.
        rows: how many rows there were.
        fronts: the front of each device, by pair of lengths, in the order of `mixes`.
    """

    mixes: list[tuple[int, int]]
    rows: int = 0
    fronts: list[dict[str, list[dict[str, Any]]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.mixes = [(int(isl), int(osl)) for isl, osl in self.mixes]
        self.fronts = self.fronts or [{} for _ in self.mixes]

    def add(self, chunk: SweepChunk) -> None:
        """The rows of one more chunk."""
        self.rows += chunk.rows
        gpu = str(chunk.constants[DEPLOYMENT.index("gpu")])
        isl, osl = chunk.columns["isl"], chunk.columns["osl"]
        for mix, fronts in zip(self.mixes, self.fronts, strict=True):
            places = np.flatnonzero((isl == mix[0]) & (osl == mix[1]))
            if len(places):
                own = {name: chunk.columns[name][places] for name in FRONT}
                found = [chunk.row(int(places[place])) for place in on_front(own, FRONT)]
                fronts[gpu] = front_of([*fronts.get(gpu, ()), *found])

    def front(self, place: int) -> list[dict[str, Any]]:
        """The front of a pair of lengths over all devices."""
        return front_of([row for rows in self.fronts[place].values() for row in rows])


@dataclass(frozen=True)
class SweepFront:
    """The front of one pair of lengths.

    Args:
        isl: input tokens.
        osl: output tokens.
        rows: that no other row of these lengths beats in both TPOT and cost.
        by_gpu: the same among the rows of each device.
    """

    isl: int
    osl: int
    rows: tuple[dict[str, Any], ...]
    by_gpu: dict[str, tuple[dict[str, Any], ...]]


@dataclass(frozen=True)
class SweepResult:
    """A sweep.

    Args:
        currency: of every amount.
        deployments: that fit.
        rows: deployments times loads.
        columns: of every row, in order.
        output: the file that holds them; null: none was asked for.
        fronts: of cost and TPOT, for the middle, first and last lengths.
        rejected: deployments that fell out, and why.
    """

    currency: str
    deployments: int
    rows: int
    columns: tuple[str, ...]
    output: str | None
    fronts: tuple[SweepFront, ...]
    rejected: tuple[Rejected, ...]


def front_of(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows that no other beats in both figures of `FRONT`, by the first of them."""
    if not rows:
        return []
    columns = {name: np.array([row[name] for row in rows]) for name in FRONT}
    return sorted((rows[int(place)] for place in on_front(columns, FRONT)), key=lambda row: float(row[FRONT[0]]))


@lru_cache(maxsize=4)
def deployments(request: SweepRequest) -> Deployments:
    """Everything that the sweep runs on; each process looks it up once.

    Raises:
        CapplanError: no such model, device, format or provider.
    """
    folders, rejections = request.folders, Rejections()
    book = request.pricing.book(folders.hardware)
    formats = format_choices(request.model, request.weight_formats, folders)
    space = Space(
        devices(request.gpus, folders),
        tuple(formats),
        request.engines,
        request.kv_formats,
        request.token_budgets,
        request.max_nodes,
    )
    lookup = Lookup(_lengths(request), folders)
    found: list[SweepDeployment] = []
    for option in asked_for(space_options(space, rejections), request, rejections):
        deployment = _deployment(option, request, lookup, book, rejections, len(found))
        if deployment is not None:
            found.append(deployment)
    return Deployments(tuple(found), rejections)


def tasks(request: SweepRequest, first: int = 0) -> Iterator[Task]:
    """The chunks of a sweep from the one numbered `first`, in order."""
    blocks = request.grid.block_count
    for index in range(first, chunk_count(request)):
        yield Task(index, index // blocks, *request.grid.block(index % blocks))


def chunk_count(request: SweepRequest) -> int:
    """Chunks of a sweep."""
    return len(deployments(request).fitting) * request.grid.block_count


def compute_chunk(request: SweepRequest, task: Task) -> SweepChunk:
    """The rows of one chunk; needs nothing but the request and the task, so that any process can do it."""
    deployment = deployments(request).fitting[task.deployment]
    loads = request.grid.loads(task.start, task.stop, request.prefix_hit_rate)
    columns = load_columns(deployment.replica, loads, deployment.option.shape.gpus, deployment.usd_per_hour)
    return SweepChunk(task.index, deployment.constants, columns)


def one_after_the_other(compute: Compute, request: SweepRequest, work: Iterable[Task]) -> Iterator[SweepChunk]:
    """The scheduler of a single process."""
    for task in work:
        yield compute(request, task)


def sweep_chunks(
    request: SweepRequest, first: int = 0, scheduler: Scheduler = one_after_the_other
) -> Iterator[SweepChunk]:
    """The chunks of a sweep in order, from the one numbered `first`."""
    return scheduler(compute_chunk, request, tasks(request, first))


def sweep(request: SweepRequest, *, scheduler: Scheduler = one_after_the_other) -> Answer[SweepResult]:
    """A sweep whose rows nobody keeps: its front.

    Args:
        request: every axis.
        scheduler: who computes the chunks.

    Raises:
        CapplanError: something that does not exist.
    """
    summary = SweepSummary(request.grid.mixes)
    for chunk in sweep_chunks(request, scheduler=scheduler):
        summary.add(chunk)
    return sweep_answer(request, summary, None)


def sweep_answer(request: SweepRequest, summary: SweepSummary, output: str | None) -> Answer[SweepResult]:
    """The answer of a sweep whose rows went somewhere."""
    found = deployments(request)
    rejected = tuple(
        Rejected(
            reason,
            count,
            tuple(NearMiss(miss.option, miss.detail, miss.gap) for miss in found.rejections.nearest[reason]),
        )
        for reason, count in found.rejections.counts.most_common()
    )
    warnings = () if found.fitting else (_nothing(found.rejections),)
    machines = [deployment.replica.machine for deployment in found.fitting]
    carried = carried_notes(machines)
    fronts = tuple(
        SweepFront(
            isl, osl, tuple(summary.front(place)), {gpu: tuple(rows) for gpu, rows in summary.fronts[place].items()}
        )
        for place, (isl, osl) in enumerate(summary.mixes)
    )
    return Answer(
        command="sweep",
        inputs=request.inputs,
        result=SweepResult(
            "USD",
            len(found.fitting),
            summary.rows,
            (*DEPLOYMENT, *FIGURES),
            output,
            fronts,
            rejected,
        ),
        assumptions=(
            f"every deployment is told --max-model-len {request.grid.longest}, the longest request of the sweep",
            "a replica's share of an instance is what it costs",
            *carried,
        ),
        warnings=warnings,
        provenance=dict.fromkeys(
            (f"fronts.rows.{name}" for name in ("ttft_ms", "tpot_ms", "cost_per_1m_tokens")),
            "extrapolated" if carried else "fitted",
        ),
    )


def _nothing(rejections: Rejections) -> str:
    """That there are no rows, and why."""
    reasons = "; ".join(f"{reason} ({count})" for reason, count in rejections.counts.most_common())
    return f"no deployment that was asked for can be: {reasons or 'there is no device'}"


def _lengths(request: SweepRequest) -> Any:
    from capplan.planner.capacity import Lengths

    return Lengths(float(max(request.isl)), float(max(request.osl)), request.prefix_hit_rate)


def _deployment(
    option: Option, request: SweepRequest, lookup: Lookup, book: HireBook, rejections: Rejections, number: int
) -> SweepDeployment | None:
    """One deployment; None where it cannot be."""
    gpu, shape = option.gpu, option.shape
    if lookup.machine(gpu, option.engine).kernels is None:
        rejections.add("no measured profile", option.label)
        return None
    try:
        hire = book.under(gpu, shape.gpus)
        setting = lookup.setting(option)
        budget = setting_budget(setting, request.grid.longest, request.max_num_seqs)
    except NotFoundError as error:
        rejections.add("no price", option.label, error.message)
        return None
    except CapplanError as error:
        rejections.add("cannot be run", option.label, error.message)
        return None
    if not budget.fits:
        worst = max(budget.shortages, key=lambda shortage: shortage.bytes)
        rejections.add("does not fit", option.label, worst.reason, worst.bytes)
        return None
    replica = replica_with(setting, budget)
    constants = (
        number,
        option.format.reference,
        gpu.name,
        shape.gpus,
        option.engine,
        shape.tp,
        shape.pp,
        shape.dp,
        shape.ep,
        option.format.label,
        option.format.weight_dtype,
        option.kv,
        replica.settings.max_num_batched_tokens,
        replica.settings.max_num_seqs,
        budget.capacity.capacity_tokens * shape.dp,
        budget.binding.weight_bytes,
        float(hire.usd_per_gpu_hour * shape.gpus),
    )
    return SweepDeployment(option, replica, constants)
