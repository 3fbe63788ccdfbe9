"""A cursor over JSON text that builds nothing it isn't asked for.

Headers and indexes of checkpoints are large and come from strangers: what `json.loads` would build out of nested empty
lists can be thirty times the text. The cursor takes what the format allows, one value at a time, and refuses the rest.
"""

from __future__ import annotations

import re
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import NoReturn

from capplan.errors import InvalidFileError

MAX_DEPTH = 20
MAX_DIGITS = 20
MAX_SKIPPED = 200_000

_BLANKS = frozenset(" \t\n\r")
_SPACE = re.compile(r"[ \t\n\r]*")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)(?![0-9.eE])")
_PLAIN_PAIR = re.compile(r'[ \t\n\r]*"([^"\\\x00-\x1f]*)"[ \t\n\r]*:[ \t\n\r]*"([^"\\\x00-\x1f]*)"')
_SCALAR = re.compile(r"(?:-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null)(?![0-9A-Za-z.])")


class JsonCursor:
    """A place in a JSON text.

    Args:
        text: the whole text.
        where: the file, for errors.
    """

    def __init__(self, text: str, where: str) -> None:
        self.text = text
        self.where = where
        self.at = 0
        self._skipped = 0

    def refuse(self, expected: str) -> NoReturn:
        """The text isn't what the format says."""
        found = self.text[self.at : self.at + 20]
        raise InvalidFileError(
            f"expected {expected} at character {self.at}, found {found!r}" if found else f"{expected} is missing",
            where=self.where,
        )

    def peek(self) -> str:
        """The next character that isn't a blank, or "" at the end."""
        following = self.text[self.at : self.at + 1]
        if following not in _BLANKS:
            return following
        match = _SPACE.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.text[self.at : self.at + 1]

    def take(self, character: str) -> None:
        """Go past `character`."""
        if self.peek() != character:
            self.refuse(f"{character!r}")
        self.at += 1

    def more(self, close: str, *, first: bool) -> bool:
        """Whether an array or object has a further item; goes past the comma before it, or past the closing bracket."""
        following = self.peek()
        if following == close:
            self.at += 1
            return False
        if not first:
            self.take(",")
            if self.peek() == close:
                self.refuse("a value")
        return True

    def string(self) -> str:
        """A string."""
        if self.peek() != '"':
            self.refuse("a string")
        try:
            value, self.at = scanstring(self.text, self.at + 1, True)
        except ValueError:
            self.refuse("a closed string")
        return str(value)

    def integer(self) -> int:
        """A whole number of at most 20 digits."""
        self.peek()
        match = _INTEGER.match(self.text, self.at)
        if match is None or match.end() - self.at > MAX_DIGITS:
            self.refuse("a whole number")
        self.at = match.end()
        return int(match.group())

    def integers(self, most: int) -> tuple[int, ...]:
        """An array of at most `most` whole numbers."""
        self.take("[")
        values: list[int] = []
        while self.more("]", first=not values):
            if len(values) == most:
                self.refuse(f"at most {most} numbers")
            values.append(self.integer())
        return tuple(values)

    def pair_of_plain_strings(self) -> tuple[str, str] | None:
        """A key and a string without escapes, at once; None where the next item is anything else."""
        match = _PLAIN_PAIR.match(self.text, self.at)
        if match is None:
            return None
        self.at = match.end()
        return match[1], match[2]

    def skip(self) -> None:
        """Go past one value of any kind."""
        closing: list[str] = []
        while True:
            self._skipped += 1
            if self._skipped > MAX_SKIPPED:
                self.refuse(f"at most {MAX_SKIPPED} values that are not asked for")
            following = self.peek()
            if following in ("{", "[") and following:
                if len(closing) >= MAX_DEPTH:
                    self.refuse(f"at most {MAX_DEPTH} nested values")
                self.at += 1
                closing.append("}" if following == "{" else "]")
                if self.peek() != closing[-1]:
                    self._key(closing)
                    continue
            elif following == '"':
                self.string()
            else:
                match = _SCALAR.match(self.text, self.at)
                if match is None:
                    self.refuse("a value")
                self.at = match.end()
            while closing:
                if not self.more(closing[-1], first=False):
                    closing.pop()
                    continue
                self._key(closing)
                break
            else:
                return

    def _key(self, closing: list[str]) -> None:
        if closing[-1] == "}":
            self.string()
            self.take(":")

    def end(self) -> None:
        """Nothing but blanks may follow."""
        if self.peek():
            self.refuse("the end of the text")
