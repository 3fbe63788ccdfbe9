"""API prices: the shipped table read here on its own, and found by any name of a model."""

from __future__ import annotations

import csv
import datetime
from decimal import Decimal
from pathlib import Path

import pytest

from capplan.cost.api_prices import find_api_prices, load_api_prices, model_key

TABLE = Path(__file__).resolve().parents[2] / "hardware" / "prices" / "api_prices.csv"
ON = datetime.date(2026, 11, 29)


def test_every_row_is_read_exactly() -> None:
    with TABLE.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    prices = load_api_prices()
    assert len(prices) == len(rows) == 591
    for price, row in zip(prices, rows, strict=True):
        assert (price.provider, price.model, price.model_id, price.source) == (
            row["provider"],
            row["model"],
            row["model_id"],
            row["source"].strip(),
        )
        assert str(price.usd_per_1m_input) == row["usd_per_1m_input"]
        assert str(price.usd_per_1m_output) == row["usd_per_1m_output"]
        assert str(price.usd_per_1m_cached_input or "") == row["usd_per_1m_cached_input"]
        assert str(price.context_window or "") == row["context_window"]
    assert sum(price.dated for price in prices) == 255


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama318binstruct"),
        ("Llama-3.1-8B-Instruct", "llama318binstruct"),
        ("DeepSeek-R1 (deepseek-reasoner)", "deepseekr1"),
        ("deepseek-ai/DeepSeek-R1", "deepseekr1"),
        ("openai/gpt-oss-120b", "gptoss120b"),
    ],
)
def test_names_of_one_model_are_one(name: str, key: str) -> None:
    assert model_key(name) == key


def test_a_model_is_found_by_any_of_its_names() -> None:
    found = find_api_prices(["llama3.3-70b", "meta-llama/Llama-3.3-70B-Instruct"], on=ON)
    outputs = [price.usd_per_1m_output for price in found if price.dated]
    assert outputs == sorted(outputs)
    assert {price.model for price in found} == {"Llama-3.3-70B-Instruct"}
    every = {price.usd_per_1m_output for price in found}
    assert (min(every), max(every)) == (Decimal("0.20"), Decimal("1.20"))  # providers differ sixfold
    assert [price.dated for price in found] == sorted((price.dated for price in found), reverse=True)


def test_the_rates_behind_deepseeks_margin() -> None:
    # cache hit 0.14, cache miss 0.55, output 2.19 dollars per million tokens, February 2025
    found = find_api_prices(["deepseek-ai/DeepSeek-R1"], "deepseek", on=datetime.date(2025, 3, 1))
    assert [(p.usd_per_1m_cached_input, p.usd_per_1m_input, p.usd_per_1m_output) for p in found] == [
        (Decimal("0.14"), Decimal("0.55"), Decimal("2.19"))
    ]


def test_no_such_model_has_no_price() -> None:
    assert find_api_prices(["my/own-model"], on=ON) == []
    assert len(find_api_prices(on=ON)) == 591
