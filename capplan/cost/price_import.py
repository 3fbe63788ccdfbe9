"""Read prices from a file of the user's: a gpuhunt catalog (CSV or ``catalog.zip``), or a table of our own columns.

gpuhunt writes one CSV per provider, named after it; a row is an instance in a location, its price is dollars an hour
of the whole instance, and rows without a GPU are there too. Older catalogs lack `gpu_vendor`, `flags`, `cpu_arch` and
`provider_data`, which are not needed here.

Source: gpuhunt catalog format, v1 to v3 (github.com/dstackai/gpuhunt, gpuhunt/_internal/storage.py, read 2026-11-30).
"""

from __future__ import annotations

import csv
import datetime
import io
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from capplan.cost.price_table import (
    COLUMNS,
    MOST_FILE_BYTES,
    Price,
    gpu_names,
    price_from_row,
    price_to_row,
    read_prices,
)
from capplan.describe.files import put_whole, suffix_of, writing
from capplan.describe.yaml_file import read_text
from capplan.errors import InvalidFileError, NotFoundError, UsageError

GPUHUNT_COLUMNS = ("instance_name", "location", "price", "gpu_count", "gpu_name", "gpu_memory", "spot")
_CENT = Decimal("0.000001")


@dataclass(frozen=True)
class PriceImport:
    """What an import read, and why it left rows out."""

    file: str
    format: str
    prices: tuple[Price, ...]
    skipped: tuple[tuple[str, int], ...]
    """Reasons with the number of rows, the most frequent first."""
    output: str | None = None


def import_prices(
    file: Path,
    output: Path | None = None,
    *,
    provider: str | None = None,
    on: datetime.date | None = None,
) -> PriceImport:
    """Read a price file and, with `output`, write it as a table that `load_prices` reads.

    Args:
        file: a gpuhunt CSV or zip, or a CSV with the columns of ``gpu_prices.csv``.
        output: a ``.csv`` to write, such as ``hardware/prices/mine.csv`` in a folder of ``$CAPPLAN_PATH``.
        provider: whose prices these are; None: what the file's name says.
        on: the day that the catalog is of; None: today.

    Raises:
        NotFoundError: no such file.
        InvalidFileError: neither format, or nothing in it could be used.
        UsageError: the output is no ``.csv`` or cannot be written.
    """
    day = on or datetime.date.today()
    skipped: Counter[str] = Counter()
    texts = list(_texts(file))
    kind = "gpuhunt"
    if len(texts) == 1 and _header(texts[0][1]) == set(COLUMNS):
        kind, prices = "capplan", tuple(read_prices(file))
    else:
        prices = tuple(
            price for name, text in texts for price in _gpuhunt(name, text, provider or Path(name).stem, day, skipped)
        )
    if not prices:
        reasons = "; ".join(f"{reason} ({count})" for reason, count in skipped.most_common(3)) or "it holds no rows"
        raise InvalidFileError(f"no price could be read: {reasons}", where=str(file))
    if output is not None:
        write_prices(prices, output)
    return PriceImport(str(file), kind, prices, tuple(skipped.most_common()), str(output) if output else None)


def write_prices(prices: tuple[Price, ...], output: Path) -> None:
    """Write a price table; the same prices give the same bytes."""
    if suffix_of(output) != ".csv":
        raise UsageError(f"{output.name!r} is not the name of a .csv file", where="--output")
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(price_to_row(price) for price in prices)
    with writing(output, "--output"):
        output.parent.mkdir(parents=True, exist_ok=True)
        put_whole(output, text.getvalue())


def _texts(file: Path) -> Iterator[tuple[str, str]]:
    """Name and text of every CSV in the file."""
    if suffix_of(file) != ".zip":
        yield file.name, read_text(file, MOST_FILE_BYTES)
        return
    try:
        with zipfile.ZipFile(file) as archive:
            for member in archive.infolist():
                if suffix_of(member.filename) == ".csv":
                    yield Path(member.filename).name, _unpack(archive, member, file)
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {file}", where=str(file)) from None
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise InvalidFileError(f"the archive cannot be read: {error}", where=str(file)) from None


def _unpack(archive: zipfile.ZipFile, member: zipfile.ZipInfo, file: Path) -> str:
    """The text of one member, which may not claim less than it holds, nor hold more than a table does."""
    with archive.open(member) as packed:
        data = packed.read(MOST_FILE_BYTES + 1)
    if len(data) > MOST_FILE_BYTES:
        raise InvalidFileError(f"{member.filename} is larger than {MOST_FILE_BYTES} bytes", where=str(file))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidFileError(f"{member.filename} is not UTF-8 text: {error.reason}", where=str(file)) from None


def _header(text: str) -> set[str]:
    return set(next(csv.reader(text.splitlines()[:1]), []))


def _gpuhunt(name: str, text: str, provider: str, day: datetime.date, skipped: Counter[str]) -> Iterator[Price]:
    """The prices of one gpuhunt CSV; rows that mean nothing here are counted by reason."""
    reader = csv.DictReader(io.StringIO(text, newline=""))
    missing = [column for column in GPUHUNT_COLUMNS if column not in (reader.fieldnames or ())]
    if missing:
        raise InvalidFileError(
            f"neither a gpuhunt catalog nor a price table: the column {missing[0]!r} is missing", where=f"{name}:1:1"
        )
    try:
        for row in reader:
            reason = _unusable(row)
            if reason:
                skipped[reason] += 1
                continue
            try:
                yield price_from_row(_own_row(row, provider, day), f"{name}:{reader.line_num}:1")
            except InvalidFileError as error:
                skipped[error.message] += 1
    except csv.Error as error:
        raise InvalidFileError(f"this is not valid CSV: {error}", where=f"{name}:{reader.line_num}:1") from None


def _unusable(row: Mapping[str, str | None]) -> str:
    """Why a row has no price of a GPU, or an empty text."""
    count, price = row.get("gpu_count") or "", row.get("price") or ""
    if any(row.get(column) is None for column in GPUHUNT_COLUMNS):
        return "the row is cut short"
    if count in ("", "0"):
        return "no GPU"
    if not re.fullmatch(r"[0-9]{1,4}", count):
        return "gpu_count is not a number"
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,30})?(e-[0-9]{1,2})?", price):
        return "price is not a number"
    if (row.get("spot") or "").lower() not in ("true", "false"):
        return "spot is neither True nor False"
    return ""


def _own_row(row: Mapping[str, str | None], provider: str, day: datetime.date) -> dict[str, str]:
    """A gpuhunt row in the columns of our tables."""
    cells = {
        key: (value or "").strip() for key, value in row.items() if isinstance(key, str) and not isinstance(value, list)
    }
    memory = re.sub(r"\.0*$", "", cells["gpu_memory"])
    listed = f"gpuhunt {cells['gpu_name']} {memory}GB"
    known = gpu_names().get(listed)
    if known is None:
        raise InvalidFileError(f"{listed.removeprefix('gpuhunt ')[:40]} is not in the hardware catalog")
    price = Decimal(cells["price"])
    return {
        "provider": provider,
        "gpu": listed,
        "instance": cells["instance_name"],
        "gpus_per_instance": cells["gpu_count"],
        "region": cells["location"],
        "pricing_type": "spot" if cells["spot"].lower() == "true" else "on-demand",
        "usd_per_instance_hour": str(price.quantize(_CENT).normalize()) if price else "0",
        "usd_per_gpu_hour": str((price / int(cells["gpu_count"])).quantize(_CENT).normalize()) if price else "0",
        "date": day.isoformat(),
        "date_quality": "day of the imported catalog",
        "source": "gpuhunt catalog",
        "notes": known.reason,
    }
