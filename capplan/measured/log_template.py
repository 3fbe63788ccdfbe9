"""Templates of log lines: the engine's own words, with the figures in angle brackets.

``Available KV cache memory: <kv_pool_bytes:GiB> GiB`` reads one figure. A blank, and the place before a figure, stands
for any number of blanks or none, ``...`` for up to 400 characters. Every part of the pattern is bounded, so that no
line can make matching slow.

A number is kept as it was printed: its value in the base unit, exact, and half a unit of its last digit. Two readings
of one quantity agree when these intervals overlap.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

_NUMBER = r"-?\d{1,3}(?:,\d{3}){1,5}(?![\d,])|-?\d{1,24}(?:\.\d{1,12})?(?![\d.]*\d)"
_UNITS: dict[str, tuple[str, Fraction, int]] = {
    "bytes": ("B", Fraction(1), 0),
    "MiB": ("B", Fraction(2**20), 0),
    "GiB": ("B", Fraction(2**30), 2),
    "tokens": ("tokens", Fraction(1), 0),
    "blocks": ("blocks", Fraction(1), 0),
    "slots": ("slots", Fraction(1), 0),
    "times": ("", Fraction(1), 2),
    "share": ("", Fraction(1), 2),
}
"""Unit in a template: the base unit, its size in it, and the digits that engines round to (``8.2`` is 8.20)."""

_SIZES = {"B": 1, "KB": 2**10, "KiB": 2**10, "MB": 2**20, "MiB": 2**20, "GB": 2**30, "GiB": 2**30}
"""TensorRT-LLM writes KB, MB and GB and counts in powers of 1024."""

_WORDS = {
    "word": r"[^\s,;()'\"]{1,80}",
    "name": r"[^\n,;\"]{1,120}?",
    "path": r"[^\n]{1,500}?",
    "rest": r"[^\n]{1,200}",
    "count": r"\d{1,3}(?:,\d{3}){1,4}(?![\d,])|\d{1,15}(?!\d)",
    "ratio": r"\d{1,3}(?:\.\d{1,6})?(?![\d.]*\d)",
}
"""What stands in a hole that is no figure; counts and ratios are settings."""
_BLANKS = r"[ \t]{0,40}"
_HOLE = re.compile(r"<(\w+):(\w+)>")


@dataclass(frozen=True, slots=True)
class Printed:
    """A number as it was printed.

    Args:
        value: in the base unit.
        half_digit: half a unit of the last printed digit; 0 for a whole number of tokens, blocks or bytes.
        unit: the base unit (``B``, ``tokens``, ``blocks``, ``slots``, or none for a ratio).
    """

    value: Fraction
    half_digit: Fraction
    unit: str

    @property
    def low(self) -> Fraction:
        """The least value that would be printed so."""
        return self.value - self.half_digit

    @property
    def high(self) -> Fraction:
        """The greatest value that would be printed so."""
        return self.value + self.half_digit

    def agrees(self, value: Fraction | int) -> bool:
        """Whether `value` would have been printed with these digits."""
        return self.low <= value <= self.high

    def overlaps(self, other: Printed) -> bool:
        """Whether one value could have been printed both ways."""
        return self.low <= other.high and other.low <= self.high


@dataclass(frozen=True)
class Template:
    """One line of an engine.

    Args:
        needle: a literal part of it, looked for first.
        regex: the whole of it.
        units: the unit of each figure; figures without one are words.
    """

    needle: str
    regex: re.Pattern[str]
    units: dict[str, str]

    def read(self, text: str) -> tuple[dict[str, Printed], dict[str, str]] | None:
        """The figures and words of a line, or None when the line is another."""
        if self.needle not in text:
            return None
        match = self.regex.search(text)
        if match is None:
            return None
        groups = {name: value for name, value in match.groupdict().items() if value is not None}
        figures = {name: printed(groups[name], unit) for name, unit in self.units.items() if name in groups}
        words = {name: value.strip(" ,'") for name, value in groups.items() if name not in self.units}
        return figures, words


def template(text: str) -> Template:
    """Compile a template; its longest run of words is the needle, and must stand in the line as written."""
    runs = re.split(r"<\w+:\w+>|\.\.\.|(?<!\w) | (?!\w)", text)
    units: dict[str, str] = {}
    regex = re.compile("".join(_parts(text, units)))
    return Template(max((run.strip() for run in runs), key=len), regex, units)


def _parts(text: str, units: dict[str, str]) -> Iterator[str]:
    position = 0
    for hole in _HOLE.finditer(text):
        yield _literal(text[position : hole.start()].rstrip(" ")) + _BLANKS
        name, kind = hole.groups()
        if kind in _WORDS:
            yield f"(?P<{name}>(?:{_WORDS[kind]}))"
        else:
            units[name] = kind
            size = rf"(?:{_NUMBER})[ ]?(?:{'|'.join(_SIZES)})\b" if kind == "size" else _NUMBER
            yield f"(?P<{name}>{size})"
        position = hole.end()
    yield _literal(text[position:])


def _literal(text: str) -> str:
    pieces = re.split(r" *(\.\.\.) *", text)
    escaped = "".join(r"[^\n]{0,400}?" if piece == "..." else re.escape(piece) for piece in pieces)
    return re.sub(r"(?:\\ )+", lambda blanks: _BLANKS, escaped)


@lru_cache(maxsize=4096)
def printed(text: str, unit: str) -> Printed:
    """A printed number in the base unit.

    Args:
        text: ``1,823,372``, ``14.9888``, with unit ``size`` also ``1.33 GB``.
        unit: of the template.
    """
    if unit == "size":
        number, size = re.fullmatch(r"(.*?)[ ]?([A-Za-z]+)", text).groups()  # type: ignore[union-attr]
        return _printed(number, "B", Fraction(_SIZES[size]), 2)
    return _printed(text, *_UNITS[unit])


def _printed(text: str, base: str, size: Fraction, digits: int) -> Printed:
    plain = text.replace(",", "")
    places = max(len(plain.partition(".")[2]), digits)
    exact = base != "" and size == 1
    return Printed(Fraction(plain) * size, Fraction(0) if exact else size / (2 * 10**places), base)
