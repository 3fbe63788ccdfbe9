"""Read what people type for sizes, rates and times: ``32k``, ``24GiB``, ``1008GB/s``, ``200ms``, ``165``.

Every parser takes the text, and the flag it came from, and returns the quantity in the base unit (tokens,
bytes, B/s, seconds, FLOP/s). Counts and bytes are exact integers: the arithmetic is rational, never float.

Two conventions meet here and are kept apart on purpose:

- *tokens* count in powers of 1024, in either case: ``8k`` = ``8K`` = 8,192 and ``1M`` = 1,048,576, as context
  lengths are written. vLLM's own parser reads a lower-case ``k`` as 1,000 (``--max-model-len 32k`` is 32,000
  there), so flags printed for an engine are always plain numbers.
- *parameters* count in powers of 1000: ``7B`` = 7,000,000,000.

Source: vLLM `human_readable_int` (vllm/engine/arg_utils.py, read 2026-11-30); IEC 80000-13 for KiB ... EiB.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TypeVar

from capplan.errors import UsageError, did_you_mean

T = TypeVar("T")

_MOST_CHARACTERS = 64
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]([-+]?[0-9]{1,3}))?")

TOKEN_MULTIPLES: Mapping[str, int] = {
    "": 1,
    "k": 2**10,
    "m": 2**20,
    "g": 2**30,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
}
COUNT_MULTIPLES: Mapping[str, int] = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}

_PREFIXES = ("", "k", "m", "g", "t", "p", "e")
BYTE_MULTIPLES: Mapping[str, int] = {
    **{f"{prefix}b": 1000**power for power, prefix in enumerate(_PREFIXES)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate(_PREFIXES) if prefix},
}
BIT_RATE_MULTIPLES: Mapping[str, Fraction] = {
    f"{prefix}bit": Fraction(1000**power, 8) for power, prefix in enumerate(_PREFIXES)
}
TIME_MULTIPLES: Mapping[str, Fraction] = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "ms": Fraction(1, 10**3),
    "s": Fraction(1),
    "min": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86400),
}
FLOP_MULTIPLES: Mapping[str, int] = {
    f"{prefix}{name}": 1000**power
    for power, prefix in enumerate(_PREFIXES)
    for name in ("flops", "flop/s", "op/s", "ops")
}

MOST_TOKENS = 2**40
MOST_PARAMETERS = 10**18
MOST_BYTES = 2**60
MOST_BYTES_PER_SECOND = 10**18
MOST_SECONDS = 10**10
MOST_FLOPS = 10**21


def parse_tokens(text: str, flag: str = "", *, least: int = 1) -> int:
    """A number of tokens: ``4096``, ``32k`` (= 32,768), ``128K``, ``1M`` (= 1,048,576)."""
    return _whole(_quantity(text, TOKEN_MULTIPLES, flag, "32768, 32k or 1M"), text, flag, least, MOST_TOKENS, "tokens")


def parse_parameters(text: str, flag: str = "", *, least: int = 1) -> int:
    """A number of parameters: ``35e9``, ``7B``, ``1.5T``, ``125M`` (powers of 1000)."""
    value = _quantity(text, COUNT_MULTIPLES, flag, "35e9, 7B or 125M")
    return _whole(value, text, flag, least, MOST_PARAMETERS, "parameters")


def parse_integer(text: str, flag: str = "", *, least: int = 0, most: int = 2**40) -> int:
    """A plain whole number, such as a batch or a number of GPUs."""
    return _whole(_quantity(text, {"": 1}, flag, "a whole number"), text, flag, least, most, "")


def parse_number(text: str, flag: str = "", *, most: float = 1e9) -> float:
    """A plain decimal number from 0 on, such as a rate or a share."""
    try:
        value = float(text) if len(text) <= 20 else float("nan")
    except ValueError:
        value = float("nan")
    if not 0 <= value <= most:
        raise UsageError(f"{shown(text)} is not a number from 0 to {most:g}", where=flag)
    return value


def parse_bytes(text: str, flag: str = "", *, unit: str = "B", least: int = 0) -> int:
    """A size in bytes: ``24GiB`` (2^30), ``80GB`` (10^9); a bare number is in `unit`; parts of a byte are dropped."""
    value = _quantity(text, BYTE_MULTIPLES, flag, "24GiB or 80GB", bare=unit.lower())
    return int(_bounded(value, text, flag, least, MOST_BYTES, "bytes"))


def parse_bandwidth(text: str, flag: str = "", *, unit: str = "GB/s") -> float:
    """A data rate in B/s: ``1008GB/s``, ``3.35TB/s``, ``400Gbit/s``; a bare number is in `unit`."""
    rates: dict[str, Fraction] = {f"{name}/s": Fraction(value) for name, value in BYTE_MULTIPLES.items()}
    rates |= {f"{name}/s": value for name, value in BIT_RATE_MULTIPLES.items()}
    value = _quantity(text, rates, flag, "1008GB/s or 3.35TB/s", bare=unit.lower())
    return float(_bounded(value, text, flag, Fraction(1), MOST_BYTES_PER_SECOND, "B/s"))


def parse_seconds(text: str, flag: str = "", *, unit: str = "ms", positive: bool = True) -> float:
    """A time in seconds: ``200ms``, ``2s``, ``50us``; a bare number is in `unit` (a flag's own, mostly ms)."""
    value = _quantity(text, TIME_MULTIPLES, flag, "200ms, 2s or 50us", bare=unit.lower())
    least = TIME_MULTIPLES["ns"] / 1000 if positive else Fraction(0)
    return float(_bounded(value, text, flag, least, MOST_SECONDS, "s"))


def parse_flops(text: str, flag: str = "", *, unit: str = "TFLOPS") -> float:
    """A compute rate in FLOP/s: ``165`` (TFLOPS), ``1.98PFLOPS``, ``660TOPS``; a bare number is in `unit`."""
    value = _quantity(text, FLOP_MULTIPLES, flag, "165, 165TFLOPS or 1.98PFLOPS", bare=unit.lower())
    return float(_bounded(value, text, flag, Fraction(1), MOST_FLOPS, "FLOP/s"))


def parse_list(text: str, parse: Callable[[str, str], T], flag: str = "") -> list[T]:
    """A list with commas, each item read by `parse`: ``8k,64k``."""
    items = [item.strip() for item in text.split(",")]
    if not all(items):
        raise UsageError(f"{shown(text)} has an empty item", where=flag, hint="separate the items by single commas")
    if len(items) > 10_000:
        raise UsageError(f"the list has {len(items)} items; at most 10000 are taken", where=flag)
    return [parse(item, flag) for item in items]


def shown(text: str) -> str:
    """User text as it may stand in a message: quoted, printable, and not endless."""
    return repr(text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 3] + "...")


def _quantity(
    text: str, multiples: Mapping[str, int] | Mapping[str, Fraction], flag: str, examples: str, bare: str = ""
) -> Fraction:
    """``number x multiple(unit)`` as an exact rational."""
    stripped = text.strip()
    match = _NUMBER.match(stripped) if len(stripped) <= _MOST_CHARACTERS else None
    if match is None:
        raise UsageError(f"{shown(text)} is not a quantity{_why(stripped)}", where=flag, hint=f"write {examples}")
    unit = stripped[match.end() :].strip()
    _refuse_bits(unit, text, flag)
    multiple = multiples.get(unit.lower() if unit else bare)
    if multiple is None:
        known = [name for name in multiples if name]
        hint = did_you_mean(unit, known) or f"write {examples}"
        raise UsageError(f"{shown(text)} has an unknown unit {shown(unit)}", where=flag, hint=hint)
    return Fraction(match.group(1)) * Fraction(10) ** int(match.group(2) or 0) * multiple


def _why(text: str) -> str:
    if text.startswith("-"):
        return ": it must not be negative"
    if text.lower().lstrip("+").startswith(("nan", "inf")):
        return ": it must be a finite number"
    return ""


def _refuse_bits(unit: str, text: str, flag: str) -> None:
    """``Gb`` means gigabits to a network engineer and gigabytes to everyone else, so it is never guessed."""
    if re.match(r"[KMGTPE]i?b(/s)?\Z", unit):
        hint = f"write {unit.replace('b', 'B')} for bytes" + (
            f" or {unit.replace('b', 'bit')} for bits" if "/" in unit else ""
        )
        raise UsageError(f"{shown(text)}: {unit} could be bits or bytes", where=flag, hint=hint)


def _bounded(value: Fraction, text: str, flag: str, least: int | Fraction, most: int | Fraction, unit: str) -> Fraction:
    suffix = f" {unit}" if unit else ""
    if value < least:
        raise UsageError(f"{shown(text)} is too small: at least {_plain(least)}{suffix}", where=flag)
    if value > most:
        raise UsageError(f"{shown(text)} is too large: at most {_plain(most)}{suffix}", where=flag)
    return value


def _whole(value: Fraction, text: str, flag: str, least: int, most: int, unit: str) -> int:
    bounded = _bounded(value, text, flag, least, most, unit)
    if bounded.denominator != 1:
        raise UsageError(f"{shown(text)} is not a whole number{f' of {unit}' if unit else ''}", where=flag)
    return bounded.numerator


def _plain(value: int | Fraction) -> str:
    return str(value) if isinstance(value, int) or value.denominator == 1 else f"{float(value):g}"
