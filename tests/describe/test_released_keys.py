"""Configurations with the keys that released files carry: nothing harmless is refused, and the total is right.

`tests/data/released_keys.jsonl` holds re-typed configurations and, for each, who counted its parameters: transformers
5.24.0 on the meta device (for types without a class there, with a class of the same shapes), or the publisher.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from capplan.describe.huggingface import read_config
from capplan.errors import CapplanError, UnsupportedError
from capplan.memory.weights import count_parameters

DATA = Path(__file__).parents[1] / "data" / "released_keys.jsonl"
ROWS = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_total(row: dict[str, Any]) -> None:
    spec = read_config(row["config"], where="config.json", name=row["name"])
    assert count_parameters(spec).total == row["params_total"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
@pytest.mark.parametrize(
    "key", ["num_experts_of_tomorrow", "extra_hidden_layers", "vision_config", "output_vocab_size"]
)
def test_an_unknown_key_that_may_change_sizes_is_refused(row: dict[str, Any], key: str) -> None:
    if key in row["config"]:
        pytest.skip("the model has this key")
    value: Any = {"hidden_size": 8} if key == "vision_config" else 7
    with pytest.raises(UnsupportedError, match=key):
        read_config({**row["config"], key: value}, where="config.json", name=row["name"])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
@pytest.mark.parametrize("wrong", ["8", 0, -1, 1.5, True, None, [8], {"a": 1}, 1 << 40, float("inf")])
def test_a_wrong_value_anywhere_is_an_error_of_ours(row: dict[str, Any], wrong: Any) -> None:
    for key in row["config"]:
        if key == "model_type":
            continue
        with suppress(CapplanError):
            read_config({**row["config"], key: wrong}, where="config.json", name=row["name"])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_a_key_left_out_is_no_bug(row: dict[str, Any]) -> None:
    for key in row["config"]:
        rest = {name: value for name, value in row["config"].items() if name != key}
        with suppress(CapplanError):
            read_config(rest, where="config.json", name=row["name"])


def nested(config: dict[str, Any]) -> list[tuple[str, str]]:
    """(level, key) of every key of the nested configurations."""
    return [(level, key) for level, value in config.items() if isinstance(value, dict) for key in value]


@pytest.mark.parametrize("row", [row for row in ROWS if nested(row["config"])], ids=lambda row: row["name"])
def test_wrong_and_missing_values_of_nested_levels_are_no_bugs(row: dict[str, Any]) -> None:
    for level, key in nested(row["config"]):
        inner = row["config"][level]
        rest = {name: value for name, value in inner.items() if name != key}
        for changed in [rest, *({**inner, key: wrong} for wrong in ("8", 0, -1, 1.5, True, None, [8], {"a": 1}))]:
            with suppress(CapplanError):
                read_config({**row["config"], level: changed}, where="config.json", name=row["name"])
