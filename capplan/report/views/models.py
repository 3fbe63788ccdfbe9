"""How the catalog of models looks."""

from __future__ import annotations

from capplan.questions.answer import Answer
from capplan.questions.models import ModelDetail, ModelList
from capplan.report.tables import Column, Facts, Table, View
from capplan.report.units import show_bytes, show_count


def model_list_view(answer: Answer[ModelList]) -> View:
    """One row a model."""
    columns = [
        Column("model", "name"),
        Column("parameters", "params_total", "count"),
        Column("active", "params_active", "count"),
        Column("layers", "layers", "integer"),
        Column("KV B/token", "bytes_per_token", "integer"),
        Column("state", "state_bytes", "bytes"),
        Column("context", "max_positions", "integer"),
        Column("Hugging Face id", "huggingface_id"),
    ]
    rows = [[getattr(model, column.name) for column in columns] for model in answer.result.models]
    return View(f"{len(rows)} models", (Table(columns, rows),))


def model_detail_view(answer: Answer[ModelDetail]) -> View:
    """The sizes, the layers in order, and one row a kind of layer."""
    detail = answer.result
    summary = detail.summary
    pairs = [
        ("parameters", f"{show_count(summary.params_total)}  ({summary.params_total:,})"),
        ("active a token", f"{show_count(summary.params_active)}  ({summary.params_active:,})"),
        ("layers", f"{summary.layers} = {detail.order}"),
        ("KV cache", f"{summary.bytes_per_token:,} bytes a token (bf16)"),
    ]
    if summary.state_bytes:
        pairs.append(("fixed state", f"{show_bytes(summary.state_bytes)} a sequence"))
    if summary.max_positions:
        pairs.append(("context", f"{summary.max_positions:,} tokens"))
    if summary.huggingface_id:
        pairs.append(("Hugging Face id", summary.huggingface_id))
    if detail.path:
        pairs.append(("file", detail.path))
    columns = [
        Column("stack", "stack"),
        Column("layers", "layers", "integer"),
        Column("block", "name"),
        Column("mixer", "mixer"),
        Column("feed-forward", "ffn"),
    ]
    rows = [[getattr(block, column.name) for column in columns] for block in detail.blocks]
    return View(summary.name, (Facts(pairs), Table(columns, rows, title="Layers")))


def model_yaml_view(answer: Answer[ModelDetail]) -> View:
    """The description itself."""
    return View(answer.result.yaml.rstrip("\n"))
