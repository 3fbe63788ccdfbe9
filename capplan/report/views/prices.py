"""How prices look."""

from __future__ import annotations

from capplan.questions.answer import Answer
from capplan.questions.prices import ImportedPrices, PriceList, PriceRow, PriceSheet
from capplan.report.tables import Column, Facts, Section, Table, View

_OFFER = (
    Column("provider", "provider"),
    Column("GPU", "gpus"),
    Column("instance", "instance"),
    Column("GPUs", "gpus_per_instance", "number"),
    Column("region", "region"),
    Column("kind", "commitment"),
    Column("$/h", "usd_per_instance_hour", "usd"),
    Column("$/GPU-h", "usd_per_gpu_hour", "usd"),
    Column("date", "date"),
    Column("", "stale"),
)


def price_list_view(answer: Answer[PriceList]) -> View:
    """One row a GPU, provider and kind."""
    columns = [
        Column("GPU", "gpu"),
        Column("provider", "provider"),
        Column("kind", "commitment"),
        Column("from $/GPU-h", "lowest", "usd"),
        Column("to", "highest", "usd"),
        Column("offers", "offers", "integer"),
        Column("newest", "newest"),
        Column("", "stale"),
    ]
    rows = [
        [getattr(row, column.name) if column.name != "stale" else _mark(row.stale) for column in columns]
        for row in answer.result.prices
    ]
    gpus = len({row.gpu for row in answer.result.prices})
    return View(f"Prices of {gpus} GPUs, dollars an hour of one GPU", (Table(columns, rows),))


def price_sheet_view(answer: Answer[PriceSheet]) -> View:
    """Offers and history, or API prices."""
    sheet = answer.result
    if sheet.apis:
        columns = [
            Column("provider", "provider"),
            Column("model", "model"),
            Column("served in", "precision"),
            Column("$/1M input", "input", "usd"),
            Column("$/1M output", "output", "usd"),
            Column("cached", "cached_input", "usd"),
            Column("date", "date"),
        ]
        rows = [[getattr(row, column.name) for column in columns] for row in sheet.apis]
        return View(f"{sheet.name} behind an API: {len(rows)} prices", (Table(columns, rows),))
    sections: list[Section] = [_offers(sheet.offers)]
    if sheet.history:
        sections.append(Table(_offers(sheet.history).columns, _offers(sheet.history).rows, title="Before"))
    return View(f"{sheet.name}: {len(sheet.offers)} prices", sections)


def price_import_view(answer: Answer[ImportedPrices]) -> View:
    """What was read, and what was left out."""
    done = answer.result
    sections: list[Section] = [_offers(done.prices)]
    if done.skipped:
        sections.append(Facts([(row.reason, f"{row.rows:,} rows") for row in done.skipped], title="Left out"))
    written = f", written to {done.output}" if done.output else ""
    return View(f"{len(done.prices):,} prices read ({done.format}){written}", sections)


def _offers(rows: tuple[PriceRow, ...]) -> Table:
    def cell(row: PriceRow, name: str) -> object:
        if name == "gpus":
            return " or ".join(row.gpus)
        return _mark(row.stale) if name == "stale" else getattr(row, name)

    return Table(_OFFER, [[cell(row, column.name) for column in _OFFER] for row in rows])


def _mark(stale: bool) -> str:
    return "old" if stale else ""
