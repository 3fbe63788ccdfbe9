"""MTP layers and buffers against what checkpoints hold beyond the decoder's parameters.

`params_mtp` in the truth was derived from the tensors of an MTP layer and verified against the total of the published
checkpoint; `persistent_buffers` was counted with transformers 5.24.0. `PUBLISHED` are totals of checkpoints as their
publishers' pages give them: decoder, MTP layers and buffers together.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from capplan.describe.huggingface import read_config
from capplan.describe.model import ModelSpec
from capplan.memory.tensors import embedding_tensors
from capplan.memory.weights import count_parameters

DATA = Path(__file__).parents[1] / "data"
TRUTH = DATA / "model_truth"
ROWS = [json.loads(line) for line in (TRUTH / "model_truth_dev.jsonl").read_text(encoding="utf-8").splitlines()]
DRAFTING = [row for row in ROWS if row.get("params_mtp")]
COMPUTED = {"minimax"}
"""Types whose buffers transformers computes from the configuration (tables of decays): no weights of a checkpoint."""
BUFFERED = [row for row in ROWS if row.get("persistent_buffers") and row["model_type"] not in COMPUTED]
RELEASED = {
    row["name"]: row["config"]
    for row in map(json.loads, (DATA / "released_keys.jsonl").read_text(encoding="utf-8").splitlines())
}

WITHOUT_COPIES = {"zai-org/GLM-4.6"}
"""Checkpoints without the copies of table and head that most of their family carry; no key of the file tells."""

PUBLISHED = {
    "zai-org/GLM-4.5": 358_337_791_296,
    "zai-org/GLM-4.7-Flash": 31_221_488_576,
    "stepfun-ai/Step-3.5-Flash": 199_384_301_376,
}


def read(row: dict[str, Any]) -> ModelSpec:
    data = json.loads((TRUTH / row["config_file"]).read_text(encoding="utf-8"))
    return read_config(data, where=row["config_file"], name=row["id"])


@pytest.mark.parametrize("row", DRAFTING, ids=lambda row: row["id"])
def test_mtp(row: dict[str, Any]) -> None:
    spec = read(row)
    copies = 0
    if row["id"] in WITHOUT_COPIES:
        assert any("copies" in line for line in spec.assumptions)
        copies = sum(tensor.elements for tensor in embedding_tensors(spec))
    assert count_parameters(spec).mtp - copies == row["params_mtp"]


@pytest.mark.parametrize("row", BUFFERED, ids=lambda row: row["id"])
def test_buffers(row: dict[str, Any]) -> None:
    assert count_parameters(read(row)).buffers == row["persistent_buffers"]


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_total(name: str) -> None:
    counted = count_parameters(read_config(RELEASED[name], where="config.json", name=name))
    assert counted.total + counted.mtp + counted.buffers == PUBLISHED[name]
