"""Files as users name them: what kind a name says they are, and what becomes of those that cannot be."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from capplan.errors import UsageError

MOST_LINE = 1 << 20
"""Characters of a line of a table."""


def suffix_of(name: str | Path) -> str:
    """The end of a file's name that says of which kind it is, in small letters: ``.csv`` of ``ROWS.CSV``."""
    return os.path.splitext(name)[1].lower()


def is_folder(path: Path) -> bool:
    """Whether there is such a folder; a name that no file system takes is none."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def lines_of(file: TextIO, most: int = MOST_LINE) -> Iterator[str]:
    """The lines of a file, which may not be longer than `most` characters: devices and pipes have no end.

    Raises:
        ValueError: a line is longer.
    """
    while line := file.readline(most + 1):
        if len(line) > most:
            raise ValueError(f"a line is longer than {most} characters")
        yield line


def part_of(path: Path) -> Path:
    """Where a file lies until it is whole: beside its place, so that one step puts it there."""
    return path.with_name(f".{path.name}.{os.getpid()}.part")


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Where to write what is to lie under a name only once all of it is on disk; what was there stays until then.

    What is no plain file, a device, a pipe or a link, is written to as it is, and never replaced by a file.

    Raises:
        OSError: it cannot be written.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        yield path
        return
    part = part_of(path)
    try:
        yield part
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def put_whole(path: Path, text: str) -> None:
    """Write a text under its name, `whole`.

    Raises:
        OSError: it cannot be written.
    """
    with whole(path) as place:
        place.write_text(text, encoding="utf-8")


@contextmanager
def writing(path: str | Path, flag: str) -> Iterator[None]:
    """What is done within writes a file; where that cannot be, it is told as the mistake of an option.

    Args:
        path: the file.
        flag: the option that named it.

    Raises:
        UsageError: the file cannot be written, or has a name that no file system takes.
    """
    shown = str(path)[:200].encode("utf-8", "backslashreplace").decode()
    try:
        if b"\0" in os.fsencode(path):
            raise UsageError(f"cannot write {shown!r}: the name has a null character", where=flag)
        yield
    except UnicodeEncodeError:
        raise UsageError(f"cannot write {shown!r}: the name is no text", where=flag) from None
    except OSError as error:
        raise UsageError(f"cannot write {shown}: {error.strerror or error}", where=flag) from None
