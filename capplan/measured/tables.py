"""Tables of measured servers as CSV: one row a configuration, or one row a metric.

A wide table has its metrics as columns, named as in `capplan.measured.measured_run` (``ttft_ms``, ``mean_tpot_ms``,
``output_throughput``); they may be missing or empty, as in a table of configurations to predict. A long table has the
columns ``metric``, ``value`` and ``unit``. A mapping file (`capplan.measured.table_mapping`) reads other headings.

What some sources mean by their metric: figures for one GPU are made the deployment's; a ``ttft`` without a statistic
stays without one; NVIDIA's NIM pages measure with genai-perf, whose inter-token latency is the mean over a request,
so it is TPOT.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

from capplan.errors import InvalidFileError, did_you_mean
from capplan.measured.csv_records import csv_records
from capplan.measured.measured_run import shown
from capplan.measured.metric_names import EXAMPLES, KNOWN, Metric, is_metric, table_metric, unit_factor
from capplan.measured.table_columns import COLUMNS, FIELDS, LONG, Cell, number_cell
from capplan.measured.table_mapping import TableMapping

MOST_COLUMNS = 1000
_NEAR = 0.85
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class TableRow(NamedTuple):
    """What one row of a table says; a text that the table does not give is empty, a number None."""

    line: int
    model: str
    gpu: str
    engine: str
    isl: float
    osl: float
    concurrency: float
    metrics: Mapping[str, float]
    labels: Mapping[str, str] = _NOTHING
    """Cells of columns that capplan has no name for."""
    id: str = ""
    model_path: str = ""
    engine_version: str = ""
    precision: str = ""
    kv_format: str = ""
    mean_length: float = 1.0
    """Mean length of inputs and outputs as a share of `isl` and `osl`."""
    gpus: int | None = None
    tp: int | None = None
    attention_dp: int | None = None
    moe_tp: int | None = None
    expert_parallel: int | None = None
    max_num_batched_tokens: int | None = None
    chunked_prefill: bool | None = None
    scheduler_recv_interval: int | None = None
    batch_wait_steps: int | None = None
    regime: str = ""
    quality: str = ""
    source: str = ""
    date: str = ""
    notes: str = ""


@dataclass(frozen=True)
class _Reading:
    """One column of the file: where it stands, and what is made of its cells.

    Args:
        index: of the cell.
        heading: in the file.
        name: of the field, the metric or the label.
        read: from the cell's text.
        required: whether the cell may not be empty.
        names: the table's names to ours.
        factor: of a number.
    """

    index: int
    heading: str
    name: str
    read: Callable[[str], Cell]
    required: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    factor: float = 1.0


@dataclass(frozen=True)
class _Layout:
    """The columns of a file, each by what it is."""

    fields: tuple[_Reading, ...]
    metrics: tuple[_Reading, ...]
    long: Mapping[str, _Reading]
    labels: tuple[_Reading, ...]
    constants: Mapping[str, Cell]
    width: int


def read_table(path: Path, mapping: TableMapping | None = None) -> Iterator[TableRow]:
    """The rows of a table, one by one.

    Args:
        path: of a CSV file, separated by commas, semicolons or tabs.
        mapping: what the table calls the columns that capplan reads.

    Raises:
        NotFoundError: no such file.
        InvalidFileError: a column that is missing or stands twice, or a cell that is none, with line and column.
    """
    mapping = mapping or TableMapping()
    records = csv_records(path)
    line, header = next(records, (1, []))
    layout = _Header(path, line, [heading.strip() for heading in header], mapping).layout()
    seen: dict[str, int] = {}
    empty = True
    for line, cells in records:
        empty = False
        row = _Record(path, line, cells, mapping).row(layout)
        if row.id and seen.setdefault(row.id, line) != line:
            message = f"the id {shown(row.id)} stands on line {seen[row.id]} already"
            raise InvalidFileError(message, where=f"{path}:{line}")
        yield row
    if empty:
        raise InvalidFileError("the table has no rows", where=str(path))


@dataclass(frozen=True)
class _Header:
    """The first line of a table."""

    path: Path
    line: int
    headings: list[str]
    mapping: TableMapping

    def fail(self, message: str, hint: str = "", where: str = "") -> NoReturn:
        raise InvalidFileError(message, where=where or f"{self.path}:{self.line}", hint=hint)

    def layout(self) -> _Layout:
        self.check_headings()
        fields = tuple(reading for name in FIELDS if (reading := self.reading(name)) is not None)
        long = {name: reading for name in LONG if (reading := self.reading(name)) is not None}
        metrics = tuple(self.metrics())
        if long and metrics:
            self.fail(f"a table has the column {metrics[0].heading!r}, or one metric a row, not both")
        if long and (missing := [name for name in LONG if name not in long]):
            self.fail(f"a table with one metric a row has a column {missing[0]!r}", self.hint())
        constants = self.constants(fields)
        self.check_required(fields, constants)
        self.check_mapping({reading.name for reading in (*fields, *metrics, *long.values())}, bool(long))
        used = {reading.index for reading in (*fields, *metrics, *long.values())}
        labels = tuple(self.labels(used))
        return _Layout(fields, metrics, long, labels, constants, len(self.headings))

    def check_headings(self) -> None:
        if not any(self.headings):
            self.fail("the table has no header", self.hint())
        if len(self.headings) > MOST_COLUMNS:
            self.fail(f"the table has more than {MOST_COLUMNS} columns")
        for index, heading in enumerate(self.headings):
            if heading and self.headings.index(heading) != index:
                self.fail(f"the column {shown(heading)} stands twice")
        for name, heading in self.mapping.columns.items():
            if heading not in self.headings:
                hint = did_you_mean(heading[:80], [known[:80] for known in self.headings])
                message = f"{self.path} has no column {shown(heading)}"
                self.fail(message, hint, where=self.mapping.places.get(name, ""))

    def reading(self, name: str) -> _Reading | None:
        """The column of a field, or of one of the columns of a long table."""
        column = FIELDS.get(name)
        headings = self.headings_of(name)
        found = [heading for heading in headings if heading in self.headings]
        if len(found) > 1:
            self.fail(f"the columns {found[0]!r} and {found[1]!r} mean the same", self.hint())
        if not found:
            return None
        read = column.read if column else number_cell if name == "value" else str
        return self.column(found[0], name, read, column.required if column else True)

    def headings_of(self, name: str) -> tuple[str, ...]:
        if name in self.mapping.columns:
            return (self.mapping.columns[name],)
        taken = set(self.mapping.columns.values()) | self.mapping.ignore
        column = FIELDS.get(name)
        return tuple(heading for heading in (column.headings if column else (name,)) if heading not in taken)

    def column(self, heading: str, name: str, read: Callable[[str], Cell], required: bool) -> _Reading:
        factor = self.mapping.factors.get(name, 1.0)
        names = self.mapping.values.get(name, _NOTHING)
        return _Reading(self.headings.index(heading), heading, name, read, required, names, factor)

    def metrics(self) -> Iterator[_Reading]:
        mapped = {heading: name for name, heading in self.mapping.columns.items()}
        for heading in self.headings:
            name = mapped.get(heading, "" if heading in self.mapping.columns else heading)
            if is_metric(name) and heading not in self.mapping.ignore:
                yield self.column(heading, name, number_cell, required=False)

    def constants(self, fields: tuple[_Reading, ...]) -> dict[str, Cell]:
        for reading in fields:
            if reading.name in self.mapping.constants:
                self.fail(f"{reading.name} has a constant, but also the column {reading.heading!r}")
        return {name: FIELDS[name].read(cell) for name, cell in self.mapping.constants.items()}

    def check_required(self, fields: tuple[_Reading, ...], constants: Mapping[str, Cell]) -> None:
        present = {reading.name for reading in fields} | constants.keys()
        for column in COLUMNS:
            if column.required and column.field not in present:
                near = [heading[:80] for heading in self.headings if heading]
                hint = "; ".join(part for part in (did_you_mean(column.field, near), self.hint()) if part)
                self.fail(f"the table has no column {' or '.join(map(repr, column.headings))}", hint)

    def check_mapping(self, present: set[str], long: bool) -> None:
        """Nothing of the mapping may be passed over."""
        if self.mapping.metrics and not long:
            self.fail("the mapping names metrics, but the table has no column 'metric'")
        for name in (*self.mapping.factors, *self.mapping.per_gpu, *self.mapping.values):
            if name not in present and not (long and is_metric(name)):
                self.fail(f"the mapping speaks of {name}, but the table has no such column")

    def labels(self, used: set[int]) -> Iterator[_Reading]:
        """What is left, unless it looks like a column that was misspelt."""
        known = [name for column in COLUMNS for name in column.headings if name not in self.headings]
        known += [name for name in KNOWN if name not in self.headings]
        for index, heading in enumerate(self.headings):
            if index in used or not heading or heading in self.mapping.ignore:
                continue
            plain = re.sub(r"[^a-z0-9]+", "_", heading[:80].lower())
            near = difflib.get_close_matches(plain, known, n=1, cutoff=_NEAR)
            if near:
                self.fail(f"unknown column {shown(heading)}", f"did you mean {near[0]}? {self.hint()}")
            yield _Reading(index, heading, heading, str)

    @staticmethod
    def hint() -> str:
        return "a mapping file says what a table calls its columns"


@dataclass(frozen=True)
class _Record:
    """One row of the file."""

    path: Path
    line: int
    cells: list[str]
    mapping: TableMapping

    def fail(self, message: str, heading: str = "", hint: str = "") -> NoReturn:
        where = f"{self.path}:{self.line}: {heading[:80]}" if heading else f"{self.path}:{self.line}"
        raise InvalidFileError(message, where=where, hint=hint)

    def row(self, layout: _Layout) -> TableRow:
        if len(self.cells) != layout.width:
            self.fail(f"the row has {len(self.cells)} cells, the header {layout.width}")
        values: dict[str, Any] = dict(layout.constants)
        for reading in layout.fields:
            value = self.value(reading)
            if value is not None:
                values[reading.name] = value
        metrics = {}
        for reading in layout.metrics:
            figure = self.value(reading)
            if figure is not None:
                metrics[reading.name] = self.whole(figure, reading.name in self.mapping.per_gpu, reading, values)
        if layout.long:
            metrics = self.long_metric(layout.long, values)
        labels = {reading.name: text for reading in layout.labels if (text := self.cells[reading.index].strip())}
        if not values["isl"] and not values["osl"]:
            self.fail("a request has tokens in or out")
        return TableRow(line=self.line, metrics=metrics, labels=labels, **values)

    def value(self, reading: _Reading) -> Any:
        text = self.cells[reading.index].strip()
        if not text:
            if reading.required:
                self.fail("the cell is empty", reading.heading)
            return None
        try:
            value = reading.read(reading.names.get(text, text))
        except ValueError as error:
            self.fail(str(error), reading.heading, _decimal_comma(text))
        return value if reading.factor == 1 or isinstance(value, (str, bool)) else value * reading.factor

    def whole(self, figure: float, per_gpu: bool, reading: _Reading, values: Mapping[str, Any]) -> float:
        """A figure of the whole deployment."""
        if not per_gpu:
            return figure
        if values.get("gpus") is None:
            self.fail("a figure for one GPU needs the number of GPUs", reading.heading)
        return float(figure * values["gpus"])

    def long_metric(self, columns: Mapping[str, _Reading], values: Mapping[str, Any]) -> dict[str, float]:
        theirs, unit = self.value(columns["metric"]), self.value(columns["unit"])
        ours = self.mapping.metrics.get(theirs)
        try:
            metric = table_metric(theirs) if ours is None else Metric(ours)
        except ValueError:
            self.fail(f"{shown(theirs)} is no metric", columns["metric"].heading, f"such as {EXAMPLES}")
        try:
            factor, per_gpu = unit_factor(metric, unit)
        except ValueError as error:
            self.fail(str(error), columns["unit"].heading)
        name = metric.name
        if "_itl_" in f"_{name}" and str(values["engine"]).upper().startswith("NIM"):
            name = name.replace("itl", "tpot")
        per_gpu = per_gpu or name in self.mapping.per_gpu
        figure = self.value(columns["value"]) * factor * self.mapping.factors.get(name, 1.0)
        return {name: self.whole(figure, per_gpu, columns["value"], values)}


def _decimal_comma(text: str) -> str:
    return "a decimal point, not a comma" if re.fullmatch(r"\d{1,12},\d{1,9}", text) else ""
