"""How well the products of an engine run that no table measured: data in ``engine_products.yaml``, with its source."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from capplan.describe.parts import Part, hydrated
from capplan.describe.yaml_file import read_yaml

_FILE = Path(__file__).parent / "engine_products.yaml"


@dataclass(frozen=True, kw_only=True)
class EngineProducts(Part):
    """The shares of one engine; see `capplan.timing.engine_products`."""

    compute: float
    """Of the device's 16-bit rate with 16-bit sums, for weights in 16 bits."""
    quantised_compute: float
    """Of the same, for weights that are turned into integers."""
    bytes_per_cycle: float
    """Bytes that one multiprocessor loads in a cycle at most, where few rows are multiplied."""
    source: str


@lru_cache(maxsize=1)
def _all_products() -> dict[str, EngineProducts]:
    return {name: hydrated(EngineProducts, fields) for name, fields in read_yaml(_FILE).data["engines"].items()}


def engine_products(engine: str) -> EngineProducts | None:
    """The shares of an engine; None for one whose kernels were measured, or of which nothing is known."""
    return _all_products().get(engine)
