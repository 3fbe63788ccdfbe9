"""A mapping file: what a stranger's table calls the columns, metrics and names that capplan reads.

It is YAML::

    schema: 1
    columns: {model: Checkpoint, concurrency: Clients, mean_ttft_ms: "Mean TTFT (s)"}   # ours: the table's heading
    constants: {engine: vllm, osl: 128}        # for every row, where the table has no such column
    factors: {mean_ttft_ms: 1000}              # the table's figure times this is ours
    per_gpu: [output_throughput]               # figures of one GPU's share
    values: {gpu: {"NVIDIA H100": h100-sxm-80gb}}   # the table's name: ours
    metrics: {"TTFT (avg)": mean_ttft_ms}      # of the column `metric`, where each row has one
    ignore: [Remarks]                          # headings that are none of these, however near they look
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capplan.errors import InvalidFileError, did_you_mean
from capplan.measured.measured_run import shown
from capplan.measured.metric_names import KNOWN, is_metric
from capplan.measured.table_columns import FIELDS, LONG, SCALED_FIELDS, TEXT_FIELDS

if TYPE_CHECKING:
    from capplan.describe.yaml_file import Document

_KEYS = ("schema", "columns", "constants", "factors", "per_gpu", "values", "metrics", "ignore")


@dataclass(frozen=True)
class TableMapping:
    """What a mapping file says; each part by the names here.

    Args:
        columns: field or metric: heading.
        constants: field: cell.
        factors: field or metric: factor.
        per_gpu: metrics.
        values: field: the table's name: the name here.
        metrics: the table's name: metric.
        ignore: headings.
        places: where each column of `columns` stands in the file.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, str] = field(default_factory=dict)
    factors: Mapping[str, float] = field(default_factory=dict)
    per_gpu: frozenset[str] = frozenset()
    values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    metrics: Mapping[str, str] = field(default_factory=dict)
    ignore: frozenset[str] = frozenset()
    places: Mapping[str, str] = field(default_factory=dict)


def read_mapping(path: Path) -> TableMapping:
    """Read a mapping file.

    Raises:
        NotFoundError: no such file.
        InvalidFileError: not YAML, an unknown key or field, or a value of another kind.
    """
    from capplan.describe.yaml_file import read_yaml

    reader = _Reader(read_yaml(path))
    reader.check_keys()
    columns = reader.columns()
    return TableMapping(
        columns=columns,
        constants=reader.constants(),
        factors=reader.factors(),
        per_gpu=frozenset(reader.listed("per_gpu", _known_metric)),
        values=reader.values(),
        metrics=reader.metrics(),
        ignore=frozenset(reader.listed("ignore")),
        places={name: reader.document.where(("columns", name)) for name in columns},
    )


class _Reader:
    """Takes the parts of a mapping file, and says where one is wrong."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def error(self, message: str, *key: str | int, hint: str = "") -> InvalidFileError:
        return InvalidFileError(message, where=self.document.where(key), hint=hint)

    def check_keys(self) -> None:
        for key in self.document.data:
            if key not in _KEYS:
                raise self.error(f"unknown key {key!r}", key, hint=did_you_mean(key, _KEYS))
        schema = self.document.data.get("schema")
        if schema != 1 or isinstance(schema, bool):
            raise self.error("a mapping file says schema: 1", "schema")

    def table(self, *key: str) -> dict[str, Any]:
        value: Any = self.document.data
        for part in key:
            value = value.get(part, {})
        if not isinstance(value, dict):
            raise self.error(f"{'.'.join(key)} must be a mapping", *key)
        return value

    def columns(self) -> dict[str, str]:
        given: dict[str, str] = {}
        for name, heading in self.table("columns").items():
            _known_field(self, name, "columns", name)
            if not isinstance(heading, str) or not heading:
                raise self.error(f"{name} must be a heading, found {shown(heading)}", "columns", name)
            if heading in given:
                raise self.error(f"{shown(heading)} is {given[heading]} already", "columns", name)
            given[heading] = name
        return self.table("columns")

    def constants(self) -> dict[str, str]:
        cells = {}
        for name, value in self.table("constants").items():
            if name not in FIELDS:
                raise self.error(f"{name!r} is no column", "constants", name, hint=did_you_mean(name, FIELDS))
            if not isinstance(value, (str, int, float)):
                raise self.error(f"{name} must be one value, found {shown(value)}", "constants", name)
            cells[name] = str(value)
            try:
                FIELDS[name].read(cells[name])
            except ValueError as error:
                raise self.error(f"{name}: {error}", "constants", name) from None
        return cells

    def factors(self) -> dict[str, float]:
        for name, value in self.table("factors").items():
            _known_field(self, name, "factors", name)
            if name not in SCALED_FIELDS and not is_metric(name):
                raise self.error(f"{name} can't be multiplied", "factors", name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1e-12 <= value <= 1e12:
                raise self.error(f"{name} must be a factor from 1e-12 to 1e12, found {shown(value)}", "factors", name)
        return {name: float(value) for name, value in self.table("factors").items()}

    def listed(self, part: str, check: Any = None) -> list[str]:
        names = self.document.data.get(part, [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise self.error(f"{part} must be a list of texts", part)
        for index, name in enumerate(names):
            if check is not None:
                check(self, name, part, index)
        return names

    def values(self) -> dict[str, dict[str, str]]:
        for name in self.table("values"):
            if name not in TEXT_FIELDS:
                raise self.error(
                    f"{name!r} is no column of names", "values", name, hint=did_you_mean(name, TEXT_FIELDS)
                )
            for theirs, ours in self.table("values", name).items():
                if not isinstance(ours, str):
                    raise self.error(f"{theirs} must be given a text, found {shown(ours)}", "values", name, theirs)
        return self.table("values")

    def metrics(self) -> dict[str, str]:
        for theirs, ours in self.table("metrics").items():
            _known_metric(self, ours, "metrics", theirs)
        return self.table("metrics")


def _known_field(reader: _Reader, name: str, *key: str | int) -> None:
    if name not in FIELDS and name not in LONG and not is_metric(name):
        raise reader.error(
            f"{name!r} is no column and no metric", *key, hint=did_you_mean(name, [*FIELDS, *LONG, *KNOWN])
        )


def _known_metric(reader: _Reader, name: Any, *key: str | int) -> None:
    if not isinstance(name, str) or not is_metric(name):
        hint = did_you_mean(name, KNOWN) if isinstance(name, str) else ""
        raise reader.error(f"{shown(name)} is no metric", *key, hint=hint)
