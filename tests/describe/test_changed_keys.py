"""One key changed at a time: a key that changes a size is never passed over in silence.

`tests/data/oracle_perturbations.jsonl` is written by `tests/oracle/perturb_keys.py`: for every type a small
configuration, and the sizes that transformers makes of it when one key is changed, null or absent. A reader makes the
same sizes, or refuses the key.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from capplan.describe.huggingface import read_config
from capplan.errors import InvalidFileError, UnsupportedError
from capplan.memory.sequence_memory import Lengths, sequence_memory
from capplan.memory.weights import count_parameters

DATA = Path(__file__).parents[1] / "data" / "oracle_perturbations.jsonl"
ROWS = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
LENGTH = 48
ABSENT = "(absent)"

READ_OTHERWISE = {
    (
        "llama4",
        "tie_word_embeddings",
    ): "the outer level ties where the text level says nothing; transformers ignores it",
    ("step3p7", "text_config.tie_word_embeddings"): "either level ties; transformers ignores the inner one",
    ("stablelm", "num_attention_heads"): "a quarter of 4 dimensions is one: transformers' rotation makes two of it",
}
"""Keys whose value transformers' class passes over or breaks on, and the model's own code and engines don't."""

WITHOUT_AN_ORACLE = {"mpt": "transformers' class has none of no_bias, expansion_ratio, qk_ln and learned positions"}


def changed(config: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    *outer, key = path.split(".")
    copied = copy.deepcopy(config)
    level = copied
    for name in outer:
        level = level.setdefault(name, {})
    if value == ABSENT:
        level.pop(key, None)
    else:
        level[key] = value
    return copied


def sizes(config: dict[str, Any]) -> list[int] | None:
    """Parameters, active parameters and cache bytes; None where the reader refuses."""
    try:
        spec = read_config(config, where="config.json", name="changed")
    except (InvalidFileError, UnsupportedError):
        return None
    parameters = count_parameters(spec)
    return [parameters.total, parameters.active, sequence_memory(spec, Lengths(LENGTH, encoder=LENGTH)).total_bytes]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["model_type"])
def test_a_changed_key_changes_the_sizes_or_is_refused(row: dict[str, Any]) -> None:
    model_type = row["model_type"]
    if model_type in WITHOUT_AN_ORACLE:
        pytest.skip(WITHOUT_AN_ORACLE[model_type])
    config = {"model_type": model_type, **row["config"]}
    assert sizes(config) == row["sizes"]
    wrong = []
    for path, value, want in row["changes"]:
        got = sizes(changed(config, path, value))
        if got not in (None, want or row["sizes"]) and (model_type, path) not in READ_OTHERWISE:
            wrong.append((path, value, got, want or row["sizes"]))
    assert wrong == []


def test_few_changes_are_refused() -> None:
    """Refusing is allowed and must stay the exception: of the changes that transformers builds, one in twenty."""
    changes = [(row, path, value) for row in ROWS for path, value, _ in row["changes"]]
    refused = [
        path
        for row, path, value in changes
        if sizes(changed({"model_type": row["model_type"], **row["config"]}, path, value)) is None
    ]
    assert len(refused) < len(changes) / 20
