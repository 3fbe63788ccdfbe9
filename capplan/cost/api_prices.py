"""What open models cost behind an API, in dollars per million tokens: the other side of a break-even."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import cache

from capplan.cost.price_table import date_range, money, read_rows
from capplan.describe.catalog import data_folder, normalise_name

_COLUMNS = (
    "provider", "model", "model_id", "precision_served", "usd_per_1m_input", "usd_per_1m_output",
    "usd_per_1m_cached_input", "context_window", "date", "date_quality", "source", "notes",
)  # fmt: skip


@dataclass(frozen=True)
class ApiPrice:
    """One price list entry of one provider."""

    provider: str
    model: str
    model_id: str
    precision_served: str
    usd_per_1m_input: Decimal
    usd_per_1m_output: Decimal
    usd_per_1m_cached_input: Decimal | None
    context_window: int | None
    date: str
    first_day: datetime.date
    last_day: datetime.date
    date_quality: str
    source: str
    notes: str

    @property
    def dated(self) -> bool:
        """Whether more than the year is known of its age."""
        return (self.last_day - self.first_day).days < 31


@cache
def load_api_prices() -> tuple[ApiPrice, ...]:
    """Every API price that ships."""
    file = data_folder("prices") / "api_prices.csv"
    return tuple(_api_price(row, f"{file}:{line}:1") for line, row in read_rows(file, _COLUMNS))


def find_api_prices(
    models: Iterable[str] | None = None, provider: str | None = None, on: datetime.date | None = None
) -> list[ApiPrice]:
    """Prices of a model by any of its names, dated ones first, then by the price of output.

    Args:
        models: names of one model (its catalog name, aliases and Hugging Face id); None: any.
        provider: None: any.
        on: prices known on that day; None: today.
    """
    day = on or datetime.date.today()
    wanted = {model_key(name) for name in models} if models is not None else None
    chosen = [
        price
        for price in load_api_prices()
        if (wanted is None or wanted & {model_key(price.model), model_key(price.model_id)})
        and (provider is None or normalise_name(price.provider) == normalise_name(provider))
        and price.first_day <= day
    ]
    return sorted(chosen, key=lambda p: (not p.dated, p.usd_per_1m_output, p.usd_per_1m_input, p.provider, p.model_id))


def model_key(name: str) -> str:
    """A model's name without organisation, case and punctuation: ``meta-llama/Llama-3.1-8B`` is ``llama318b``."""
    return re.sub(r"[^a-z0-9]", "", re.sub(r"\(.*\)", "", name.lower()).rpartition("/")[2])


def _api_price(row: dict[str, str], where: str) -> ApiPrice:
    first_day, last_day = date_range(row["date"], where)
    cached, window = row["usd_per_1m_cached_input"], row["context_window"]
    return ApiPrice(
        provider=row["provider"],
        model=row["model"],
        model_id=row["model_id"],
        precision_served=row["precision_served"],
        usd_per_1m_input=money(row["usd_per_1m_input"], where),
        usd_per_1m_output=money(row["usd_per_1m_output"], where),
        usd_per_1m_cached_input=money(cached, where) if cached else None,
        context_window=int(window) if window.isdigit() else None,
        date=row["date"],
        first_day=first_day,
        last_day=last_day,
        date_quality=row["date_quality"],
        source=row["source"],
        notes=row["notes"],
    )
