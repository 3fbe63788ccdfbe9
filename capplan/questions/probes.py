"""Measurements of the user's own server: a few points that correct the level of every prediction of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from capplan.describe.files import suffix_of
from capplan.errors import InvalidFileError
from capplan.measured.bench_results import read_bench_results
from capplan.measured.csv_records import csv_records
from capplan.measured.table_mapping import TableMapping
from capplan.measured.tables import read_table
from capplan.serving.open_loop import Server
from capplan.serving.probe import Probe
from capplan.serving.workload import Workload


@dataclass(frozen=True)
class MeasuredPoint:
    """One measured load.

    Args:
        where: file and line, or place.
        workload: the load.
        ttft: mean seconds to the first token; None: not measured.
        tpot: mean seconds a token; None: not measured.
    """

    where: str
    workload: Workload
    ttft: float | None
    tpot: float | None


def read_points(path: Path) -> list[MeasuredPoint]:
    """Points of a table (``isl,osl,concurrency,ttft_ms,tpot_ms``) or of a benchmark tool's result file.

    Raises:
        NotFoundError: no such file.
        InvalidFileError: it has no measured time, or a cell that is none.
    """
    found = list(_table_points(path) if suffix_of(path) == ".csv" else _tool_points(path))
    points = [point for point in found if point.ttft is not None or point.tpot is not None]
    if not points:
        raise InvalidFileError(
            "no TTFT and no TPOT stands in it",
            where=str(path),
            hint="a table with the columns isl, osl, concurrency, ttft_ms and tpot_ms, or a benchmark's result file",
        )
    return points


def probes_of(server: Server, points: list[MeasuredPoint]) -> list[Probe]:
    """Measured over predicted at each point."""
    found = []
    for point in points:
        predicted = server.closed_loop(point.workload)
        load = point.workload
        found.append(
            Probe(
                load.isl,
                load.osl,
                load.concurrency or 1.0,
                None if point.tpot is None else point.tpot / predicted.tpot,
                None if point.ttft is None else point.ttft / predicted.ttft,
            )
        )
    return found


def _table_points(path: Path) -> Iterator[MeasuredPoint]:
    named = {"model": "own", "gpu": "own", "engine": "own"}
    _, header = next(csv_records(path), (1, []))
    heads = {heading.strip().lower() for heading in header}
    absent = {name: value for name, value in named.items() if not heads & _HEADINGS[name]}
    for row in read_table(path, TableMapping(constants=absent)):
        load = Workload(row.isl * row.mean_length, row.osl * row.mean_length, row.concurrency)
        yield MeasuredPoint(f"{path}:{row.line}", load, *_times(row.metrics))


_HEADINGS = {
    "model": {"model", "model_path"},
    "gpu": {"gpu", "system"},
    "engine": {"engine", "backend"},
}


def _tool_points(path: Path) -> Iterator[MeasuredPoint]:
    for run in read_bench_results(path):
        if run.isl and run.osl and run.concurrency:
            yield MeasuredPoint(run.where, Workload(run.isl, run.osl, run.concurrency), *_times(run.metrics))


def _times(metrics: Mapping[str, float]) -> tuple[float | None, float | None]:
    """Mean TTFT and TPOT in seconds; a time without a statistic is taken for a mean."""
    found = []
    for name in ("ttft", "tpot"):
        value = metrics.get(f"mean_{name}_ms", metrics.get(f"{name}_ms"))
        found.append(value / 1e3 if value and value > 0 else None)
    return found[0], found[1]
