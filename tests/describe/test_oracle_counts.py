"""Irregular configurations against counts that transformers makes of the models it builds from them.

`tests/data/oracle_counts.jsonl` is written by `tests/oracle/count_parameters.py`: class defaults, and small
configurations that set every switch that changes a size against its default.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from capplan.describe.huggingface import read_config
from capplan.memory.sequence_memory import Lengths, sequence_memory
from capplan.memory.weights import count_parameters

DATA = Path(__file__).parents[1] / "data" / "oracle_counts.jsonl"
ROWS = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]

HEADS_OF_THEIR_OWN = {"t5/variation-3": 331 * 48}
"""Parameters that checkpoints have and transformers does not build: T5's head, which 5.24.0 ties against the file."""

READ_OTHERWISE = {
    "deepseek_v2/variation-2": "DeepSeek's own code and the engines heed moe_layer_freq; transformers' class does not",
    "minimax/variation-2": "MiniMax's own code and vLLM heed attn_type_list; transformers' class has none",
    "mpt/variation-1": "MPT's own code and vLLM heed no_bias, expansion_ratio and qk_ln; transformers' class has none",
}
"""Rows in which transformers' class passes over keys that the model's own code and engines heed."""


def active_parameters(row: dict[str, Any]) -> int:
    """The row's figure, or where experts do nothing the total without the idle ones of those that do something.

    transformers builds half of the weights of an identity expert, and its counter spreads a token over all of them.
    """
    phantom = row.get("params_identity_experts", 0)
    if not phantom:
        return int(row["params_active"])
    defaults = {"n_routed_experts": 512, "zero_expert_num": 256, "moe_topk": 12}
    experts, identity, top_k = (row["config"].get(key, defaults[key]) for key in defaults)
    routed = row["components"]["experts_routed"] - phantom
    used = top_k * experts // (experts + identity)
    return int(row["params_total"] - phantom - routed // experts * (experts - used))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_counts(row: dict[str, Any]) -> None:
    spec = read_config(row["config"], where="config.json", name=row["id"])
    parameters = count_parameters(spec)
    extra = HEADS_OF_THEIR_OWN.get(row["id"], 0)
    phantom = row.get("params_identity_experts", 0)
    got: dict[str, Any] = {"total": parameters.total, "active": parameters.active}
    want: dict[str, Any] = {"total": row["params_total"] - phantom + extra, "active": active_parameters(row) + extra}
    for length, totals in row["bytes"].items():
        tokens = int(length)
        got[length] = sequence_memory(spec, Lengths(tokens, encoder=tokens)).total_bytes
        want[length] = totals["total"]
    if row["id"] in READ_OTHERWISE:
        assert got != want, "the exception has become needless"
    else:
        assert got == want


def test_a_list_of_attention_types_says_which_layers_are_linear() -> None:
    """The list of the original files means what ``layer_types`` means: 1 is full attention."""
    numbers = [1, 0, 0, 1, 0]
    config = {"model_type": "minimax", "num_hidden_layers": 5, "attn_type_list": numbers}
    named: dict[str, Any] = {"model_type": "minimax", "num_hidden_layers": 5}
    named["layer_types"] = ["full_attention" if number else "linear_attention" for number in numbers]
    specs = [read_config(data, where="config.json", name="model") for data in (config, named)]
    assert specs[0].layers == specs[1].layers
    assert specs[0].counts == {"attention": 2, "lightning": 3}
