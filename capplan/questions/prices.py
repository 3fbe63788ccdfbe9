"""What does an hour of a GPU cost, and where?"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import get_args

from capplan.cost.api_prices import ApiPrice, find_api_prices
from capplan.cost.price_import import import_prices
from capplan.cost.price_table import Commitment, Price
from capplan.cost.prices import age_days, is_stale, list_prices, show_prices
from capplan.describe.files import suffix_of
from capplan.describe.model import ModelSpec
from capplan.describe.resolve import resolve_model
from capplan.describe.yaml_file import read_yaml
from capplan.errors import CapplanError, UsageError, did_you_mean
from capplan.questions.answer import Answer


@dataclass(frozen=True)
class PriceListRow:
    """A GPU at a provider, dollars an hour of one GPU.

    Args:
        gpu: its name in the catalog, or the source's own where that may mean several.
        provider: the short name that ``--provider`` takes.
        commitment: on-demand, spot, reserved or serverless.
        lowest: the cheapest offer.
        highest: the dearest.
        offers: how many there are.
        newest: date of the newest.
        age_days: its age.
        stale: whether it is older than 90 days.
    """

    gpu: str
    provider: str
    commitment: str
    lowest: Decimal
    highest: Decimal
    offers: int
    newest: str
    age_days: int
    stale: bool


@dataclass(frozen=True)
class PriceList:
    """The span of current prices."""

    currency: str
    prices: tuple[PriceListRow, ...]


@dataclass(frozen=True)
class PriceRow:
    """One price of one instance.

    Args:
        gpus: entries of the catalog that it may mean.
        gpus_per_instance: devices of the instance; a part of one where it is shared.
    """

    provider: str
    gpus: tuple[str, ...]
    instance: str
    gpus_per_instance: float
    region: str
    commitment: str
    usd_per_instance_hour: Decimal
    usd_per_gpu_hour: Decimal
    date: str
    age_days: int
    stale: bool
    source: str
    notes: str


@dataclass(frozen=True)
class ApiRow:
    """What a provider takes for a model, dollars for a million tokens."""

    provider: str
    model: str
    precision: str
    input: Decimal
    output: Decimal
    cached_input: Decimal | None
    date: str
    dated: bool
    source: str


@dataclass(frozen=True)
class PriceSheet:
    """Every price of a GPU or of a provider, or of a model behind APIs.

    Args:
        name: of what.
        offers: current prices of instances.
        history: what they were.
        apis: prices of a model's tokens.
    """

    currency: str
    name: str
    offers: tuple[PriceRow, ...]
    history: tuple[PriceRow, ...]
    apis: tuple[ApiRow, ...] = ()


@dataclass(frozen=True)
class SkippedRows:
    """Rows that an import left out, and why."""

    reason: str
    rows: int


@dataclass(frozen=True)
class ImportedPrices:
    """What an import read and wrote."""

    format: str
    prices: tuple[PriceRow, ...]
    skipped: tuple[SkippedRows, ...]
    output: str | None


def price_list(
    *,
    gpu: str | None = None,
    provider: str | None = None,
    commitment: str | None = None,
    on: datetime.date | None = None,
    hardware_dirs: Sequence[Path] = (),
) -> Answer[PriceList]:
    """The span of current prices by GPU, provider and commitment.

    Args:
        gpu: a name of the catalog; None: all.
        provider: None: all.
        commitment: on-demand, spot, reserved, serverless or assumed; None: all but assumed.
        on: prices known on that day; None: today.
        hardware_dirs: further folders with a ``prices/`` folder.
    """
    kind = commitment_named(commitment) if commitment else None
    found = list_prices(gpu, provider, kind, on, hardware_dirs)
    rows = tuple(
        PriceListRow(
            row.gpu,
            row.provider,
            row.commitment,
            row.lowest_usd_per_gpu_hour,
            row.highest_usd_per_gpu_hour,
            row.offers,
            row.newest,
            row.age_days,
            row.stale,
        )
        for row in found
    )
    stale = sum(row.stale for row in rows)
    warnings = (f"{stale} of {len(rows)} lines have no price from the last 90 days",) if stale else ()
    if not rows:
        warnings = (f"no price of such a kind was known on {_day(on)}",)
    inputs = {"gpu": gpu, "provider": provider, "commitment": commitment, "on": _day(on)}
    return Answer("prices list", inputs, PriceList("USD", rows), warnings=warnings, provenance={"prices": "measured"})


def price_show(
    name: str, *, on: datetime.date | None = None, hardware_dirs: Sequence[Path] = (), models_dirs: Sequence[Path] = ()
) -> Answer[PriceSheet]:
    """Every price of a GPU or provider, what they were, or what APIs take for a model.

    Args:
        name: of a GPU, a provider or a model.
        on: prices known on that day; None: today.
        hardware_dirs: further folders with a ``prices/`` folder.
        models_dirs: further folders of models.

    Raises:
        NotFoundError: none of the three.
    """
    apis = api_prices_of(name, on, models_dirs)
    if apis:
        sheet = PriceSheet("USD", name, (), (), tuple(map(_api_row, apis)))
    else:
        found = show_prices(name, on, hardware_dirs)
        offers, history = (tuple(_row(price, on) for price in prices) for prices in (found.offers, found.history))
        sheet = PriceSheet("USD", found.name, offers, history)
    stale = sum(row.stale for row in sheet.offers)
    warnings = (f"{stale} of {len(sheet.offers)} prices are older than 90 days",) if stale else ()
    sources = tuple(dict.fromkeys([row.source for row in sheet.offers] + [row.source for row in sheet.apis]))
    return Answer("prices show", {"name": name, "on": _day(on)}, sheet, warnings=warnings, sources=sources)


def price_import(
    file: Path, *, output: Path | None = None, provider: str | None = None, on: datetime.date | None = None
) -> Answer[ImportedPrices]:
    """Read a gpuhunt catalog or a table of prices, and write it as one that every command reads.

    Args:
        file: a gpuhunt CSV or zip, or a table with our columns.
        output: a ``.csv`` to write.
        provider: whose prices these are; None: what the file's name says.
        on: the day that the catalog is of; None: today.
    """
    done = import_prices(file, output, provider=provider, on=on)
    rows = tuple(_row(price, on) for price in done.prices)
    skipped = tuple(SkippedRows(reason, count) for reason, count in done.skipped)
    warnings = (f"{sum(row.rows for row in skipped)} rows were left out",) if skipped else ()
    inputs = {"file": file, "provider": provider, "on": _day(on)}
    result = ImportedPrices(done.format, rows, skipped, done.output)
    return Answer("prices import", inputs, result, warnings=warnings, sources=(str(file),))


def api_prices_of(model: str, on: datetime.date | None = None, models_dirs: Sequence[Path] = ()) -> list[ApiPrice]:
    """API prices of a model by any of its names; none where there is no such model."""
    names = {model}
    try:
        found = resolve_model(model, models_dirs=models_dirs)
    except CapplanError:
        return find_api_prices(names, on=on)
    names |= _names(found.spec)
    base = read_yaml(found.path).data.get("base") if suffix_of(found.path) in (".yaml", ".yml") else None
    if base is not None:
        names |= _names(resolve_model(base, models_dirs=models_dirs).spec)
    return find_api_prices(names, on=on)


def _names(spec: ModelSpec) -> set[str]:
    return {spec.name, *spec.aliases, *([spec.huggingface_id] if spec.huggingface_id else [])}


def commitment_named(name: str) -> Commitment:
    """The kind of commitment that a user means.

    Raises:
        UsageError: there is none of that name.
    """
    known: tuple[Commitment, ...] = get_args(Commitment)
    for kind in known:
        if name == kind:
            return kind
    hint = did_you_mean(name, known) or f"one of {', '.join(known)}"
    raise UsageError(f"{name[:40]!r} is not a kind of price", where="--commitment", hint=hint)


def _day(on: datetime.date | None) -> str:
    return (on or datetime.date.today()).isoformat()


def _row(price: Price, on: datetime.date | None) -> PriceRow:
    return PriceRow(
        price.provider,
        price.gpus,
        price.instance,
        float(price.gpus_per_instance),
        price.region,
        price.pricing_type,
        price.usd_per_instance_hour,
        price.usd_per_gpu_hour,
        price.date,
        age_days(price, on),
        is_stale(price, on),
        price.source,
        price.notes,
    )


def _api_row(price: ApiPrice) -> ApiRow:
    return ApiRow(
        price.provider,
        price.model,
        price.precision_served,
        price.usd_per_1m_input,
        price.usd_per_1m_output,
        price.usd_per_1m_cached_input,
        price.date,
        price.dated,
        price.source,
    )
