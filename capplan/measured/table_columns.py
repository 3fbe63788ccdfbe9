"""The columns that a measured table may have, and how their cells are read."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from capplan.measured.measured_run import shown

MOST = 1e12
MOST_TEXT = 1000
_SWITCHES = {"0": False, "1": True, "false": False, "true": True}

Cell = str | float | int | bool


@dataclass(frozen=True)
class Column:
    """A column of measured tables.

    Args:
        field: its name in a row that was read.
        read: from a cell's text; raises ValueError.
        headings: as tables head it, its own name first.
        required: whether every row has it.
    """

    field: str
    read: Callable[[str], Cell]
    headings: tuple[str, ...]
    required: bool = False


def text_cell(cell: str) -> str:
    """A short text."""
    if len(cell) > MOST_TEXT:
        raise ValueError(f"the text has more than {MOST_TEXT} characters")
    return cell


def number_cell(cell: str) -> float:
    """A measured number: finite, not negative, in plain digits."""
    try:
        number = float(cell) if cell.isascii() and "_" not in cell else math.nan
    except ValueError:
        number = math.nan
    if math.isnan(number) or number == math.inf:
        raise ValueError(f"expected a number, found {shown(cell)}")
    if not 0 <= number <= MOST:
        raise ValueError(f"expected a number from 0 to {MOST:g}, found {shown(cell)}")
    return abs(number)


def _positive(cell: str) -> float:
    number = number_cell(cell)
    if number == 0:
        raise ValueError("expected a number above 0, found 0")
    return number


def _whole(cell: str, least: int = 1) -> int:
    number = number_cell(cell)
    if number != int(number) or number < least:
        raise ValueError(f"expected a whole number of at least {least}, found {shown(cell)}")
    return int(number)


def _whole_or_none(cell: str) -> int:
    return _whole(cell, 0)


def _share(cell: str) -> float:
    number = number_cell(cell)
    if not 0 < number <= 1:
        raise ValueError(f"expected a share above 0, at most 1, found {shown(cell)}")
    return number


def _switch(cell: str) -> bool:
    known = _SWITCHES.get(cell.lower())
    if known is None:
        raise ValueError(f"expected 0 or 1, found {shown(cell)}")
    return known


COLUMNS = (
    Column("model", text_cell, ("model",), required=True),
    Column("gpu", text_cell, ("gpu", "system"), required=True),
    Column("engine", text_cell, ("engine", "backend"), required=True),
    Column("isl", number_cell, ("isl",), required=True),
    Column("osl", number_cell, ("osl",), required=True),
    Column("concurrency", _positive, ("concurrency", "batch_or_concurrency"), required=True),
    Column("id", text_cell, ("id",)),
    Column("model_path", text_cell, ("model_path",)),
    Column("engine_version", text_cell, ("engine_version", "backend_version", "version")),
    Column("precision", text_cell, ("precision",)),
    Column("kv_format", text_cell, ("kv_format", "kv_dtype")),
    Column("mean_length", _share, ("mean_length", "mean_len_factor")),
    Column("gpus", _whole, ("gpus", "n_gpus")),
    Column("tp", _whole, ("tp",)),
    Column("attention_dp", _whole, ("attention_dp", "attn_dp")),
    Column("moe_tp", _whole, ("moe_tp",)),
    Column("expert_parallel", _whole, ("expert_parallel", "moe_ep")),
    Column("max_num_batched_tokens", _whole, ("max_num_batched_tokens",)),
    Column("chunked_prefill", _switch, ("chunked_prefill",)),
    Column("scheduler_recv_interval", _whole, ("scheduler_recv_interval",)),
    Column("batch_wait_steps", _whole_or_none, ("batch_wait_steps",)),
    Column("regime", text_cell, ("regime", "ttft_regime")),
    Column("quality", text_cell, ("quality",)),
    Column("source", text_cell, ("source",)),
    Column("date", text_cell, ("date",)),
    Column("notes", text_cell, ("notes",)),
)
"""Every column but those of metrics; what else a table has is kept as a label."""

FIELDS = {column.field: column for column in COLUMNS}

SCALED_FIELDS = ("isl", "osl", "concurrency", "value")
"""The columns beside metrics whose figures a mapping file may multiply."""

TEXT_FIELDS = tuple(column.field for column in COLUMNS if column.read is text_cell)

LONG = ("metric", "value", "unit")
"""The columns of a table with one metric a row."""
