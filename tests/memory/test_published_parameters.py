"""Catalog entries that were written from published sizes make exactly the parameters that the hub shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from capplan.describe.resolve import resolve_model
from capplan.memory.weights import count_parameters

ROWS = json.loads((Path(__file__).parents[1] / "data" / "published_parameters.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["huggingface_id"])
def test_sizes_make_the_published_parameters(row: dict[str, Any]) -> None:
    assert count_parameters(resolve_model(row["huggingface_id"]).spec).total == row["parameters"]
