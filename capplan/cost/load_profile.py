"""How many requests come in each hour: a flat rate, hours with rates, or a trace of arrivals."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from capplan.describe.files import lines_of, suffix_of
from capplan.describe.quantities import shown
from capplan.errors import InvalidFileError, NotFoundError, UsageError

HOURS = 24
SECONDS_PER_HOUR = 3600
MOST_RATE = Fraction(10**9)
MOST_ARRIVALS = 10_000_000
_SPAN = re.compile(r"([0-9]{1,2})-([0-9]{1,2}):([0-9]{1,12}(?:\.[0-9]{1,12})?)")


@dataclass(frozen=True)
class LoadProfile:
    """Requests a second, hour by hour, over a period that repeats."""

    rates: tuple[Fraction, ...]

    @property
    def mean(self) -> Fraction:
        """``Σ λ_h / hours``, requests a second."""
        return sum(self.rates, Fraction(0)) / len(self.rates)

    @property
    def peak(self) -> Fraction:
        """``max λ_h``, requests a second."""
        return max(self.rates)

    @property
    def requests_per_day(self) -> Fraction:
        """``86400 · mean``."""
        return self.mean * HOURS * SECONDS_PER_HOUR


def flat_load(requests_per_day: Fraction) -> LoadProfile:
    """The same rate at all hours."""
    return LoadProfile((requests_per_day / (HOURS * SECONDS_PER_HOUR),))


def parse_load(text: str, flag: str = "--load-profile") -> LoadProfile:
    """``8-20:5,20-8:0.5``: hours of the day with requests a second; a span may go over midnight.

    The name of a ``.csv`` file is read as a trace of arrivals; see `read_load`.

    Raises:
        UsageError: not hours with rates, or an hour that is named twice.
    """
    if suffix_of(text) == ".csv":
        return read_load(Path(text))
    rates: dict[int, Fraction] = {}
    for item in text.split(","):
        match = _SPAN.fullmatch(item.strip())
        if match is None or not (first := int(match[1])) < HOURS or not 0 < (last := int(match[2])) <= HOURS:
            raise UsageError(
                f"{shown(item)} is not hours of the day with a rate",
                where=flag,
                hint="write 8-20:5,20-8:0.5 (hours, requests a second), or the name of a .csv with arrivals",
            )
        hours = [hour % HOURS for hour in range(first, last if last > first else last + HOURS)]
        twice = [hour for hour in hours if hour in rates]
        if twice:
            raise UsageError(f"hour {twice[0]} has two rates", where=flag)
        rates |= dict.fromkeys(hours, Fraction(match[3]))
    if not any(rates.values()):
        raise UsageError("no hour has any requests", where=flag)
    return LoadProfile(tuple(rates.get(hour, Fraction(0)) for hour in range(HOURS)))


def read_load(path: Path) -> LoadProfile:
    """A trace as a profile: requests in each of its hours over 3600 s; the last hour counts whole.

    The file has a header with a column ``arrival`` in seconds. Whole days are kept apart hour by hour; a shorter trace
    is taken to repeat.

    Raises:
        NotFoundError: no such file.
        InvalidFileError: no such column, or a value that is no time.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return load_of_arrivals(_arrivals(csv.DictReader(lines_of(file)), path))
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise NotFoundError(f"cannot read {path}: {error.strerror}", where="--load-profile") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidFileError(f"not a CSV file: {error}", where=str(path)) from None
    except ValueError as error:
        raise InvalidFileError(str(error), where=str(path)) from None


def load_of_arrivals(arrivals: Iterable[float]) -> LoadProfile:
    """Requests in each hour over 3600 s, from the hour of the first arrival to that of the last.

    Raises:
        ValueError: there are none.
    """
    counts = Counter(int(arrival // SECONDS_PER_HOUR) for arrival in arrivals)
    if not counts:
        raise ValueError("the trace has no requests")
    hours = range(min(counts), max(counts) + 1)
    return LoadProfile(tuple(Fraction(counts[hour], SECONDS_PER_HOUR) for hour in hours))


def _arrivals(reader: csv.DictReader[str], path: Path) -> Iterable[float]:
    if "arrival" not in (reader.fieldnames or ()):
        raise InvalidFileError("the column 'arrival' is missing", where=f"{path}:1", hint="seconds from any start")
    for row in reader:
        text = (row["arrival"] or "").strip()
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value < 1e10:
            raise InvalidFileError(f"{text[:40]!r} is not a time in seconds", where=f"{path}:{reader.line_num}")
        if reader.line_num > MOST_ARRIVALS:
            raise InvalidFileError(f"a trace may have {MOST_ARRIVALS} requests", where=str(path))
        yield value
