"""The records of a CSV file one by one, each with its line, however large the file is."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from capplan.errors import InvalidFileError, NotFoundError

MOST_BYTES = 1 << 30
MOST_LINE = 1 << 17
_DELIMITERS = ",;\t"


def csv_records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The records that are not empty, each with the line that it begins on; the first is the header.

    Lines before the header that begin with ``#`` are comments. Cells are separated by whichever of comma, semicolon and
    tab is commonest in the header.

    Raises:
        NotFoundError: no such file.
        InvalidFileError: not UTF-8, too large, or no CSV, with the line.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InvalidFileError(f"the file is larger than {MOST_BYTES >> 20} MiB", where=str(path))
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from _records(file, path)
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {path}", where=str(path)) from None
    except (OSError, ValueError) as error:
        if isinstance(error, UnicodeDecodeError):
            raise InvalidFileError(f"the file is not UTF-8 text: {error.reason}", where=str(path)) from None
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidFileError(f"the file cannot be read: {reason}", where=str(path)) from None


def _records(file: TextIO, path: Path) -> Iterator[tuple[int, list[str]]]:
    lines = _lines(file, path)
    before = 0
    header = ""
    for header in lines:
        if header.strip() and not header.startswith("#"):
            break
        before += 1
    delimiter = max(_DELIMITERS, key=header.count)
    reader = csv.reader(_and_then(header, lines), delimiter=delimiter, strict=True)
    begins = before + 1
    try:
        for cells in reader:
            if cells:
                yield begins, cells
            begins = before + reader.line_num + 1
    except csv.Error as error:
        raise InvalidFileError(f"this is no row of CSV: {error}", where=f"{path}:{begins}") from None


def _and_then(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest


def _lines(file: TextIO, path: Path) -> Iterator[str]:
    number = 0
    while line := file.readline(MOST_LINE + 1):
        number += 1
        if len(line) > MOST_LINE:
            raise InvalidFileError(f"the line has more than {MOST_LINE} characters", where=f"{path}:{number}")
        yield line
