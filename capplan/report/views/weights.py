"""How the answer about weights looks."""

from __future__ import annotations

from capplan.questions.answer import Answer
from capplan.questions.weights import WeightsResult
from capplan.report.tables import Column, Facts, Table, View
from capplan.report.units import show_bytes, show_count


def weights_view(answer: Answer[WeightsResult]) -> View:
    """Parameters and bytes, and one row a component."""
    result, inputs = answer.result, answer.inputs
    subject = inputs.get("model") or f"{show_count(result.params_total)} parameters"
    form = inputs.get("weight_dtype") or f"{inputs['bits']:g} bits"
    pairs = [
        ("parameters", f"{show_count(result.params_total)}  ({result.params_total:,})"),
        ("active a token", f"{show_count(result.params_active)}  ({result.params_active:,})"),
    ]
    if result.params_mtp:
        pairs.append(("MTP layers, apart", f"{show_count(result.params_mtp)}  ({result.params_mtp:,})"))
    pairs.append(("weights", f"{show_bytes(result.weight_bytes)}  ({result.weight_bytes:,} bytes)"))
    if inputs["tensor_parallel_size"] > 1:
        shown = f"{show_bytes(result.per_rank_bytes)}  ({result.per_rank_bytes:,} bytes)"
        pairs.append((f"largest of {inputs['tensor_parallel_size']} ranks", shown))
    pairs.append(("bits a weight", f"{result.bits_per_weight:.4g}"))
    if result.file_bytes is not None:
        pairs.append(("in the files", f"{show_bytes(result.file_bytes)}  ({result.file_bytes:,} bytes)"))
    columns = [
        Column("component", "component"),
        Column("parameters", "params", "integer"),
        Column("", "params_shown", "count"),
        Column("share", "share", "percent"),
    ]
    rows = [[name, value, value, value / result.params_total] for name, value in result.breakdown.items()]
    sections: list[Facts | Table] = [Facts(pairs)]
    if rows:
        sections.append(Table(columns, rows, title="By component"))
    if result.stored:
        stored_columns = [Column("component", "component"), Column("stored as", "format")]
        stored_columns += [Column("bytes", "bytes", "integer"), Column("", "shown", "bytes")]
        stored = [[part.component, part.format, part.bytes, part.bytes] for part in result.stored]
        sections.append(Table(stored_columns, stored, title="As stored"))
    return View(f"{subject}: {show_bytes(result.weight_bytes)} of weights ({form})", sections)
