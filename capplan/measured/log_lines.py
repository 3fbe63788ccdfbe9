"""The lines of a text file: numbered from 1, without colours, each at most so long, read as a stream."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from capplan.errors import InvalidFileError, NotFoundError

MOST_FILE_BYTES = 1 << 28
MOST_LINE_BYTES = 1 << 15

_ESCAPE = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line: its number, and its text without colours and without the line's end."""

    number: int
    text: str


def read_lines(path: Path) -> Iterator[LogLine]:
    """The lines of a file; of a longer line the first 32 KiB.

    Raises:
        NotFoundError: no such file.
        InvalidFileError: not a file that can be read, not text, or larger than 256 MiB.
    """
    try:
        if path.stat().st_size > MOST_FILE_BYTES:
            raise InvalidFileError(f"the file is larger than {MOST_FILE_BYTES >> 20} MiB", where=str(path))
        with path.open("rb") as file:
            number = 0
            while chunk := file.readline(MOST_LINE_BYTES):
                number += 1
                if b"\x00" in chunk:
                    raise InvalidFileError("this is no text file: it holds a NUL byte", where=f"{path}:{number}")
                yield LogLine(number, _clean(chunk))
                while not chunk.endswith(b"\n") and (chunk := file.readline(MOST_LINE_BYTES)):
                    pass
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {path}", where=str(path)) from None
    except IsADirectoryError:
        raise InvalidFileError("this is a folder, not a file", where=str(path)) from None
    except (OSError, ValueError) as error:
        raise InvalidFileError(f"the file cannot be read: {error}", where=str(path)) from None


def _clean(raw: bytes) -> str:
    return _ESCAPE.sub("", raw.decode("utf-8", "replace")).rstrip("\r\n")
