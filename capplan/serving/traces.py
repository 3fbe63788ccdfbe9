"""Traces of requests as CSV: ``arrival,isl,osl[,prefix_id,prefix_tokens]``, seconds and tokens."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from capplan.describe.files import lines_of
from capplan.errors import InvalidFileError, NotFoundError
from capplan.serving.requests import Request

REQUIRED = ("arrival", "isl", "osl")
OPTIONAL = ("prefix_id", "prefix_tokens")
MOST_REQUESTS = 10_000_000
MOST_TOKENS = 1 << 31


def read_trace(path: Path) -> list[Request]:
    """The requests of a trace, in the order of arrival.

    Columns may stand in any order; others are ignored. `arrival` is in seconds; the first request need not be at 0.
    A request with a `prefix_id` shares its first `prefix_tokens` tokens with all others of that id.

    Raises:
        NotFoundError: no such file.
        InvalidFileError: a column that is missing, or a value that is none.
    """
    requests = list(_rows(path))
    if not requests:
        raise InvalidFileError("the trace has no requests", where=str(path))
    if any(later.arrival < earlier.arrival for earlier, later in pairwise(requests)):
        requests.sort(key=lambda request: request.arrival)
    return requests


def _rows(path: Path) -> Iterator[Request]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(lines_of(file))
            _check_columns(reader.fieldnames, path)
            for row in reader:
                if reader.line_num > MOST_REQUESTS:
                    raise InvalidFileError(f"a trace may have {MOST_REQUESTS} requests", where=str(path))
                yield _request(row, f"{path}:{reader.line_num}")
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise NotFoundError(f"cannot read {path}: {error.strerror}", where="--trace") from None
    except (ValueError, csv.Error) as error:
        raise InvalidFileError(f"not a CSV file: {error}", where=str(path)) from None


def _check_columns(names: object, path: Path) -> None:
    found = [name.strip() for name in names if name] if isinstance(names, list) else []
    missing = [name for name in REQUIRED if name not in found]
    if missing:
        raise InvalidFileError(
            f"the column {missing[0]!r} is missing",
            where=f"{path}:1",
            hint=f"the first line names the columns: {','.join(REQUIRED)}[,{','.join(OPTIONAL)}]",
        )
    if "prefix_id" in found and "prefix_tokens" not in found:
        raise InvalidFileError(
            "prefix_id without prefix_tokens", where=f"{path}:1", hint="say how many tokens the prefix has"
        )


def _request(row: Mapping[str, str | None], where: str) -> Request:
    isl, osl = _tokens(row, "isl", where, least=1), _tokens(row, "osl", where, least=1)
    arrival = _number(row, "arrival", where)
    prefix = (row.get("prefix_id") or "").strip() or None
    shared = _tokens(row, "prefix_tokens", where, least=0) if prefix else 0
    if shared > isl:
        raise InvalidFileError(f"a prefix of {shared} tokens is longer than its prompt of {isl}", where=where)
    return Request(arrival, isl, osl, prefix if shared else None, shared)


def _number(row: Mapping[str, str | None], name: str, where: str) -> float:
    text = (row.get(name) or "").strip()
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1e10:
        raise InvalidFileError(f"{name} {text[:40]!r} is not a number of 0 or more", where=where)
    return value


def _tokens(row: Mapping[str, str | None], name: str, where: str, *, least: int) -> int:
    value = _number(row, name, where)
    if value != int(value) or not least <= value <= MOST_TOKENS:
        raise InvalidFileError(f"{name} {value:g} is not a whole number of tokens from {least}", where=where)
    return int(value)
