"""FLOPs of a step against torch's own counter in transformers' models, frozen in `tests/data/flop_counts.json`.

Compared exactly: matrix products, attention (all pairs of the rectangle, as eager attention computes it), routed
experts, convolutions. Left out, since transformers computes something else there:

- recurrences: its fallback for linear attention and state-space layers works on tiles of 64 to 256 padded positions;
- attention where its batched products stand under the same module name as those of a recurrence (MiniMax, Nemotron-H);
- a causal convolution is computed for ``kernel - 1`` padded positions more, Whisper's first one at its input's rate.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from capplan.describe.huggingface import read_config
from capplan.describe.model import ModelSpec
from capplan.work.ledger import Ledger
from capplan.work.step import Prefill, Step, ledger

DATA = Path(__file__).parents[1] / "data"
ROWS = json.loads((DATA / "flop_counts.json").read_text(encoding="utf-8"))

RECURRENT = re.compile(r"\.(mamba|linear_attn|mixer)$")
ATTENTION_KINDS = ("prefill_attention", "decode_attention", "mla_prefill", "mla_decode")
MERGED = ("minimax", "nemotron_h")
"""Model types whose softmax attention and recurrence share a module name."""
TRANSFORMERS_PADS = ("falcon_h1", "falcon_mamba", "jamba", "nemotron_h", "granitemoehybrid", "qwen3_next", "qwen3_5",
                     "lfm2", "recurrent_gemma")  # fmt: skip
"""Model types whose convolution pads on both sides and cuts the end off."""


def spec_of(name: str) -> ModelSpec:
    path = DATA / "model_truth" / "configs" / f"{name}.json"
    data = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"model_type": name}
    return read_config(data, where=name, name=name)


def category(path: str, operator: str) -> str:
    if path.endswith(".experts"):
        return "experts"
    if operator == "aten.convolution":
        return "convolution"
    if operator in ("aten.mm", "aten.addmm") or path.endswith(".rg_lru"):
        return "products"
    return "recurrence" if RECURRENT.search(path) else "attention"


def oracle(row: dict[str, Any]) -> Counter[str]:
    sums: Counter[str] = Counter()
    for path, operators in row["flops"].items():
        for operator, flops in operators.items():
            sums[category(path, operator)] += flops
    return sums


def counted(book: Ledger) -> Counter[str]:
    sums: Counter[str] = Counter()
    for operator in book.operators:
        flops = operator.flops * operator.count
        if operator.name == "convolution" or re.fullmatch(r"conv\d", operator.name):
            sums["convolution"] += flops
        elif operator.kind in ("gemm", "head"):
            sums["products"] += flops
        elif operator.kind in ATTENTION_KINDS:
            sums["attention"] += flops
        elif operator.kind == "grouped_gemm":
            sums["experts"] += flops
    return sums


def convolution_as_transformers_computes(spec: ModelSpec, row: dict[str, Any], book: Ledger) -> int:
    total = 0
    for operator in book.operators:
        flops = operator.flops * operator.count
        if operator.name == "conv1":
            flops *= 2
        elif operator.name == "convolution" and spec.model_type in TRANSFORMERS_PADS:
            kernels = {m.conv_kernel for b in spec.blocks.values() for m in b.mixer if hasattr(m, "conv_kernel")}
            (kernel,) = kernels
            flops = flops // row["tokens"] * (row["tokens"] + kernel - 1)
        elif not (operator.name == "convolution" or re.fullmatch(r"conv\d", operator.name)):
            flops = 0
        total += flops
    return int(total)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['config']}-{row['prefix']}+{row['tokens']}")
def test_flops(row: dict[str, Any]) -> None:
    spec = spec_of(row["config"])
    chunk = Prefill(row["tokens"], prefix=row["prefix"], sampled=row["tokens"], source=row["source"])
    book = ledger(spec, Step(prefill=(chunk,)), attention="naive")
    want, got = oracle(row), counted(book)
    assert got["products"] == want["products"]
    assert got["experts"] == want["experts"]
    assert convolution_as_transformers_computes(spec, row, book) == want["convolution"]
    if spec.model_type not in MERGED:
        assert got["attention"] == want["attention"]


def test_enough_architectures() -> None:
    assert len({spec_of(row["config"]).model_type for row in ROWS}) >= 25
