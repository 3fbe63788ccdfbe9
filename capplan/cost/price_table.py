"""The tables of GPU prices: their rows as exact values, read from CSV and written back.

Money is `decimal.Decimal` in US dollars an hour; nothing here is ever a float. A date may be a day, a month, a
year or a range, and is kept as the first and the last day that it can mean.
"""

from __future__ import annotations

import csv
import datetime
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Literal

from capplan.describe.catalog import check_folders, data_folder, find_entry, folders, normalise_name
from capplan.describe.yaml_file import read_text
from capplan.errors import InvalidFileError, NotFoundError, UsageError

Commitment = Literal["on-demand", "spot", "reserved", "serverless", "assumed"]

COLUMNS = (
    "provider", "gpu", "instance", "gpus_per_instance", "region", "pricing_type", "usd_per_instance_hour",
    "usd_per_gpu_hour", "date", "date_quality", "source", "notes",
)  # fmt: skip
MOST_FILE_BYTES = 64 << 20
MOST_USD_PER_HOUR = Decimal(1_000_000)
_MAPS = ("gpu_names.csv", "providers.csv", "api_prices.csv")
_COMMITMENTS: Mapping[str, Commitment] = {
    "on-demand": "on-demand",
    "spot": "spot",
    "reserved": "reserved",
    "lowest": "reserved",
    "serverless": "serverless",
    "assumed": "assumed",
}


@dataclass(frozen=True)
class Price:
    """One price of an instance with accelerators, at one provider, on one date."""

    provider: str
    """The short name that ``--provider`` takes."""
    listed_provider: str
    gpus: tuple[str, ...]
    """Entries of the hardware catalog that it may mean: one, or several where the source does not say which."""
    listed_gpu: str
    instance: str
    gpus_per_instance: Fraction
    region: str
    commitment: Commitment
    pricing_type: str
    usd_per_instance_hour: Decimal
    usd_per_gpu_hour: Decimal
    date: str
    first_day: datetime.date
    last_day: datetime.date
    date_quality: str
    source: str
    notes: str

    @property
    def historic(self) -> bool:
        """Kept for trends; never an offer."""
        return "HISTORIC" in self.notes

    @property
    def offered(self) -> bool:
        """Whether the provider sells it so: not a trend, not a sum of parts that is sold as spot only, not a share."""
        summed = self.commitment == "on-demand" and "arithmetical" in self.notes
        return not self.historic and not summed and self.gpus_per_instance >= 1

    @property
    def exact_gpu(self) -> bool:
        """Whether the source says which accelerator it is."""
        return len(self.gpus) == 1


@dataclass(frozen=True)
class GpuName:
    """What a table's name of an accelerator means in the hardware catalog."""

    gpus: tuple[str, ...]
    reason: str


def load_prices(hardware_dirs: Sequence[Path] = ()) -> tuple[Price, ...]:
    """Every price of the tables that ship and of the user's ``prices/`` folders.

    Raises:
        NotFoundError: a folder that was given does not exist.
    """
    check_folders("hardware", hardware_dirs)
    roots = [folder / "prices" for folder in hardware_dirs if (folder / "prices").is_dir()]
    files = [
        file
        for folder in [*roots, *folders("prices")]
        for file in sorted(folder.glob("*.csv"))
        if file.name not in _MAPS
    ]
    return tuple(price for file in files for price in _read_once(file, file.stat().st_mtime_ns))


@cache
def _read_once(file: Path, _modified: int) -> tuple[Price, ...]:
    return tuple(read_prices(file))


def read_prices(file: Path) -> Iterator[Price]:
    """The prices of one CSV file.

    Raises:
        InvalidFileError: other columns, or a row with a bad number, date or name, with ``file:line``.
    """
    for line, row in read_rows(file, COLUMNS):
        yield price_from_row(row, f"{file}:{line}:1")


def read_rows(file: Path, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Rows of a CSV file that has at least these columns, each with its line."""
    reader = csv.DictReader(io.StringIO(read_text(file, MOST_FILE_BYTES), newline=""), strict=True)
    try:
        missing = [name for name in columns if name not in (reader.fieldnames or ())]
        if missing:
            raise InvalidFileError(f"the column {missing[0]!r} is missing", where=f"{file}:1:1")
        for row in reader:
            if None in row or None in row.values():
                raise InvalidFileError(
                    "the row has not as many cells as the header", where=f"{file}:{reader.line_num}:1"
                )
            yield reader.line_num, {key: value.strip() for key, value in row.items()}
    except csv.Error as error:
        raise InvalidFileError(f"this is not valid CSV: {error}", where=f"{file}:{reader.line_num}:1") from None


def price_from_row(row: Mapping[str, str], where: str) -> Price:
    """One row of a price table as a `Price`."""
    first_day, last_day = date_range(row["date"], where)
    return Price(
        provider=provider_id(row["provider"]),
        listed_provider=row["provider"],
        gpus=gpus_of(row["gpu"]),
        listed_gpu=row["gpu"],
        instance=row["instance"],
        gpus_per_instance=_gpus(row["gpus_per_instance"], where),
        region=row["region"],
        commitment=commitment_of(row["pricing_type"], where),
        pricing_type=row["pricing_type"],
        usd_per_instance_hour=money(row["usd_per_instance_hour"], where),
        usd_per_gpu_hour=money(row["usd_per_gpu_hour"], where),
        date=row["date"],
        first_day=first_day,
        last_day=last_day,
        date_quality=row["date_quality"],
        source=row["source"],
        notes=row["notes"],
    )


def price_to_row(price: Price) -> dict[str, str]:
    """A `Price` as a row of a price table."""
    gpus = price.gpus_per_instance
    return {
        "provider": price.listed_provider,
        "gpu": price.listed_gpu,
        "instance": price.instance,
        "gpus_per_instance": str(gpus.numerator) if gpus.denominator == 1 else str(float(gpus)),
        "region": price.region,
        "pricing_type": price.pricing_type,
        "usd_per_instance_hour": str(price.usd_per_instance_hour),
        "usd_per_gpu_hour": str(price.usd_per_gpu_hour),
        "date": price.date,
        "date_quality": price.date_quality,
        "source": price.source,
        "notes": price.notes,
    }


@cache
def gpus_of(listed_name: str) -> tuple[str, ...]:
    """The catalog entries that a table's name means: by the committed map, else as a name of the catalog's own."""
    known = gpu_names().get(listed_name)
    if known is not None:
        return known.gpus
    try:
        return (find_entry("hardware", listed_name).stem,)
    except (NotFoundError, UsageError):
        return (normalise_name(listed_name),)


@cache
def gpu_names() -> dict[str, GpuName]:
    """Every name of an accelerator that the shipped tables and gpuhunt use."""
    rows = read_rows(data_folder("prices") / "gpu_names.csv", ("listed_name", "gpus", "reason"))
    return {row["listed_name"]: GpuName(tuple(row["gpus"].split()), row["reason"]) for _, row in rows}


@cache
def _providers() -> dict[str, str]:
    rows = read_rows(data_folder("prices") / "providers.csv", ("listed_name", "provider"))
    return {row["listed_name"]: row["provider"] for _, row in rows}


def provider_id(name: str) -> str:
    """The short name of a provider: the committed one, else its name in lower case with hyphens."""
    known = _providers()
    return known.get(name) or known.get(f"gpuhunt {name}") or re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def commitment_of(pricing_type: str, where: str) -> Commitment:
    """The kind of commitment of a table's pricing type: ``reserved 1y (CUD)`` is ``reserved``."""
    for prefix, commitment in _COMMITMENTS.items():
        if pricing_type.lower().startswith(prefix):
            return commitment
    kinds = ", ".join(dict.fromkeys(_COMMITMENTS.values()))
    raise InvalidFileError(f"the pricing type {pricing_type[:40]!r} is not one of {kinds}", where=where)


def money(text: str, where: str) -> Decimal:
    """An exact amount of dollars above 0."""
    try:
        amount = Decimal(text)
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or not 0 < amount <= MOST_USD_PER_HOUR or amount.as_tuple().exponent < -12:  # type: ignore[operator]
        raise InvalidFileError(f"{text[:40]!r} is not a price in dollars", where=where)
    return amount


def date_range(text: str, where: str) -> tuple[datetime.date, datetime.date]:
    """The first and the last day that a date can mean: ``2026-09-25``, ``2026-09``, ``2026``, ``2025-11..2026-08``.

    In ``older catalog version (2025)`` it is the year that counts.
    """
    spans = [_span(part) for part in re.findall(r"[0-9]{4}(?:-[0-9]{2}(?:-[0-9]{2})?)?", text)]
    known = [span for span in spans if span]
    if not known or len(known) != len(spans) or len(spans) > 2:
        raise InvalidFileError(f"{text[:40]!r} is not a date such as 2026-09-25 or 2026-09", where=where)
    return known[0][0], known[-1][1]


def _span(text: str) -> tuple[datetime.date, datetime.date] | None:
    year, month, day = (*map(int, text.split("-")), 0, 0)[:3]
    try:
        first = datetime.date(year, month or 1, day or 1)
        if day:
            return first, first
        after = datetime.date(year + (month in (0, 12)), month % 12 + 1 if month else 1, 1)
        return first, after - datetime.timedelta(days=1)
    except ValueError:
        return None


def _gpus(text: str, where: str) -> Fraction:
    """GPUs of an instance: a whole number, or a part such as 1/6 that the table writes as 0.1666..."""
    if not re.fullmatch(r"[0-9]{1,5}(\.[0-9]{1,20})?", text) or not (gpus := Fraction(text).limit_denominator(64)):
        raise InvalidFileError(f"{text[:40]!r} is not a number of GPUs", where=where)
    return gpus
