"""Where bytes of a checkpoint come from: a local file, or a server that answers range requests.

Readers of headers ask for the few bytes that they need, and never for a weight.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Protocol

from capplan.errors import InvalidFileError, NotFoundError


class ByteSource(Protocol):
    """A file of known length whose bytes can be read from any place."""

    @property
    def name(self) -> str:
        """What to call it in an error."""

    @property
    def size(self) -> int:
        """Its length in bytes."""

    def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`; the caller has checked that they are within the file.

        Raises:
            InvalidFileError: the file ended early.
        """


class LocalFile:
    """A regular file on disk, opened for as long as it is needed.

    Raises:
        NotFoundError: there is no such file.
        InvalidFileError: it is a folder, a pipe or a device, or it can't be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # Without O_NONBLOCK, opening a pipe would wait for a writer.
            descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
            status = os.fstat(descriptor)
        except FileNotFoundError:
            raise NotFoundError(f"there is no file {path}", where=str(path)) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InvalidFileError(f"the file cannot be read: {reason}", where=str(path)) from None
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise InvalidFileError("this is not a regular file", where=str(path))
        self._size = status.st_size
        self._file = os.fdopen(descriptor, "rb", buffering=0)

    @property
    def name(self) -> str:
        """The path."""
        return str(self.path)

    @property
    def size(self) -> int:
        """Bytes of the file when it was opened."""
        return self._size

    def read(self, offset: int, length: int) -> bytes:
        """`length` bytes from `offset`."""
        parts = []
        left = length
        self._file.seek(offset)
        while left > 0:
            part = self._file.read(left)
            if not part:
                raise InvalidFileError("the file ends early: it was cut off while it was read", where=self.name)
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Give the file back."""
        self._file.close()

    def __enter__(self) -> LocalFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
