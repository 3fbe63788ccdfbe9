"""JSON files of strangers: one document, one a line, or one after the other; each with the line that it begins at."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from capplan.describe.yaml_file import read_text
from capplan.errors import InvalidFileError
from capplan.measured.measured_run import count, figure, shown

_BLANKS = re.compile(r"[ \t\r\n]*")
MOST_BYTES = 64 << 20
MOST_DOCUMENTS = 100_000


@dataclass(frozen=True, slots=True)
class JsonDocument:
    """A document, and where it begins."""

    data: Any
    where: str


@dataclass(frozen=True, slots=True)
class Table:
    """A JSON object inside of a document, that knows its place.

    Args:
        data: the object.
        document: where the document begins.
        keys: the keys that lead here, with dots.
    """

    data: Mapping[str, Any]
    document: str
    keys: str = ""

    @property
    def where(self) -> str:
        """The place of the object."""
        return f"{self.document}: {self.keys}" if self.keys else self.document

    def place(self, key: str) -> str:
        """The place of one of its values."""
        return f"{self.document}: {self._below(key)}"

    def _below(self, key: str) -> str:
        return f"{self.keys}.{key[:60]}" if self.keys else key[:60]

    def get(self, key: str) -> Any:
        """A value, or None."""
        return self.data.get(key)

    def table(self, key: str) -> Table:
        """An object inside; an empty one where there is none.

        Raises:
            InvalidFileError: the value is something else.
        """
        value = self.data.get(key)
        return Table({}, self.document, self._below(key)) if value is None else self._inner(value, key)

    def tables(self, key: str) -> list[Table]:
        """The objects of a list inside.

        Raises:
            InvalidFileError: the value is no list of objects.
        """
        value = self.data.get(key)
        if not isinstance(value, list):
            raise InvalidFileError(f"expected a list, found {shown(value)}", where=self.place(key))
        return [self._inner(item, f"{key}[{index}]") for index, item in enumerate(value)]

    def _inner(self, value: Any, key: str) -> Table:
        if not isinstance(value, dict):
            raise InvalidFileError(f"expected an object, found {shown(value)}", where=self.place(key))
        return Table(value, self.document, self._below(key))

    def text(self, key: str) -> str | None:
        """A string, or None.

        Raises:
            InvalidFileError: the value is something else.
        """
        value = self.data.get(key)
        if value is None or isinstance(value, str):
            return value
        raise InvalidFileError(f"expected a text, found {shown(value)}", where=self.place(key))

    def figure(self, key: str) -> float | None:
        """A measured number, or None."""
        return figure(self.data.get(key), self.place(key))

    def count(self, key: str) -> int | None:
        """A whole number, or None."""
        return count(self.data.get(key), self.place(key))


def as_table(document: JsonDocument) -> Table:
    """A document that must be an object."""
    if not isinstance(document.data, dict):
        raise InvalidFileError(f"expected an object, found {shown(document.data)}", where=document.where)
    return Table(document.data, document.where)


def read_documents(path: Path) -> list[JsonDocument]:
    """Every document of a file.

    Raises:
        NotFoundError: no such file.
        InvalidFileError: not JSON, nothing in it, too large, or keys that stand twice.
    """
    return list(parse_documents(read_text(path, MOST_BYTES), str(path)))


def parse_documents(text: str, where: str) -> Iterator[JsonDocument]:
    """Every document of a text."""
    decoder = json.JSONDecoder(object_pairs_hook=_once)
    position = _skip(text, 0)
    line, counted = 1, 0
    for number in range(MOST_DOCUMENTS + 1):
        line += text.count("\n", counted, position)
        counted = position
        if position == len(text):
            if number == 0:
                raise InvalidFileError("the file is empty", where=where)
            return
        try:
            data, end = decoder.raw_decode(text, position)
        except _TwiceError as error:
            raise InvalidFileError(f"the key {shown(error.key)} stands twice", where=f"{where}:{line}") from None
        except json.JSONDecodeError as error:
            raise InvalidFileError(
                f"this is not JSON: {error.msg.lower()}", where=f"{where}:{error.lineno}:{error.colno}"
            ) from None
        except (RecursionError, MemoryError):
            _refuse("the JSON is nested too deeply", where, line)
        except ValueError as error:
            _refuse(f"this is not JSON: {str(error)[:80]}", where, line)
        yield JsonDocument(data, f"{where}:{line}")
        position = _skip(text, end)
    raise InvalidFileError(f"the file holds more than {MOST_DOCUMENTS} documents", where=where)


def _refuse(message: str, where: str, line: int) -> NoReturn:
    raise InvalidFileError(message, where=f"{where}:{line}")


class _TwiceError(Exception):
    """A key that stands twice in an object."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _TwiceError(key)
            seen.add(key)
    return data


def _skip(text: str, position: int) -> int:
    blanks = _BLANKS.match(text, position)
    return blanks.end() if blanks else position
