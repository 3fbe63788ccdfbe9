"""A cursor over the header of a GGUF file that keeps a window of it, and skips what isn't wanted."""

from __future__ import annotations

from typing import NoReturn

from capplan.describe.byte_source import ByteSource
from capplan.errors import InvalidFileError

WINDOW_BYTES = 1 << 20
FIRST_WINDOW_BYTES = 64 << 10
MAX_HEADER_BYTES = 256 << 20
MAX_TEXTS = 1_500_000
MAX_TEXT_BYTES = 16 << 20


class GgufCursor:
    """A place in the header of a file.

    Raises:
        InvalidFileError: from every method, when the file ends early or a length is impossible.
    """

    def __init__(self, source: ByteSource) -> None:
        self.source = source
        self._window = b""
        self._start = 0
        self._at = 0
        self._texts = 0

    @property
    def position(self) -> int:
        """Bytes from the start of the file."""
        return self._start + self._at

    def refuse(self, reason: str) -> NoReturn:
        """The header can't be right."""
        raise InvalidFileError(reason, where=self.source.name)

    def take(self, length: int) -> bytes:
        """The next `length` bytes."""
        end = self._at + length
        if end > len(self._window):
            self._refill(length)
            end = length
        part = self._window[self._at : end]
        self._at = end
        return part

    def skip(self, length: int) -> None:
        """Go past `length` bytes without reading them."""
        if self._at + length <= len(self._window):
            self._at += length
            return
        self._check(length)
        self._start, self._window, self._at = self.position + length, b"", 0

    def unsigned(self, size: int) -> int:
        """An unsigned integer of `size` bytes."""
        return int.from_bytes(self.take(size), "little")

    def count(self, most: int, what: str) -> int:
        """A 64-bit count of at most `most`."""
        value = self.unsigned(8)
        if value > most:
            self.refuse(f"the header says that there are {value} {what}; at most {most} are read")
        return value

    def text(self, most: int) -> str:
        """A string of at most `most` bytes."""
        length = self.unsigned(8)
        if length > most:
            self.refuse(f"a name of {length} bytes")
        try:
            return self.take(length).decode("utf-8")
        except UnicodeDecodeError as error:
            self.refuse(f"a name is not UTF-8 text: {error.reason}")

    def text_or_skip(self, most: int) -> str | None:
        """A string, or None for one of more than `most` bytes, which is skipped."""
        length = self.unsigned(8)
        if length > MAX_TEXT_BYTES:
            self.refuse(f"a text of {length} bytes")
        if length > most:
            self.skip(length)
            return None
        return self.take(length).decode("utf-8", errors="replace")

    def skip_texts(self, count: int) -> None:
        """Go past the strings of an array, such as a vocabulary."""
        self._texts += count
        if self._texts > MAX_TEXTS:
            self.refuse(f"arrays of {self._texts} strings; at most {MAX_TEXTS} are read")
        for _ in range(count):
            # The common case by hand: a vocabulary has a quarter of a million strings.
            end = self._at + 8
            if end <= len(self._window):
                length = int.from_bytes(self._window[self._at : end], "little")
                self._at = end
            else:
                length = self.unsigned(8)
            if length > MAX_TEXT_BYTES:
                self.refuse(f"a text of {length} bytes")
            self.skip(length)

    def _check(self, length: int) -> None:
        end = self.position + length
        if end > self.source.size:
            self.refuse("the file ends within its header")
        if end > MAX_HEADER_BYTES:
            self.refuse(f"the header is longer than {MAX_HEADER_BYTES} bytes")

    def _refill(self, length: int) -> None:
        self._check(length)
        begin = self.position
        wanted = max(length, FIRST_WINDOW_BYTES if begin == 0 else WINDOW_BYTES)
        self._window = self.source.read(begin, min(wanted, self.source.size - begin))
        self._start, self._at = begin, 0
