"""How the gains of speculative decoding look."""

from __future__ import annotations

from capplan.questions.answer import Answer
from capplan.questions.speculate import SpeculateResult
from capplan.report.tables import Column, Table, View


def speculate_view(answer: Answer[SpeculateResult]) -> View:
    """The textbook's table, and on hardware the gain at each batch with the batch where it turns."""
    result, inputs = answer.result, answer.inputs
    tokens = inputs["draft_tokens"]
    columns = [
        Column("acceptance", "acceptance", "quantity"),
        Column("tokens a round", "tokens_per_round", "quantity"),
        Column("while memory binds", "memory_bound_speedup", "quantity"),
        Column("once compute binds", "compute_bound_speedup", "quantity"),
    ]
    rows = [
        [row.acceptance, row.tokens_per_round, row.memory_bound_speedup, row.compute_bound_speedup]
        for row in result.rows
    ]
    title = f"{tokens} tokens drafted a round, each in {result.draft_ratio:.3g} of a step"
    if not result.batches:
        return View(title, (Table(columns, rows),))
    headline = (
        f"{inputs['model']} on {inputs['gpus']} x {inputs['gpu']} ({inputs['engine']}), {result.drafts} draft {tokens} "
        f"tokens a round at {inputs['context']:,} positions"
    )
    chances = [f"gain at {row.acceptance:g}" for row in result.rows]
    measured = [
        Column("batch", "batch", "integer"),
        Column("step ms", "step_ms", "quantity"),
        Column("draft ms", "draft_ms", "quantity"),
        Column("verify ms", "verify_ms", "quantity"),
        *(Column(name, name, "quantity") for name in chances),
    ]
    table = [[row.batch, row.step_ms, row.draft_ms, row.verify_ms, *row.gains] for row in result.batches]
    turning = [
        [row.acceptance, "never, up to 8,192" if batch is None else f"{batch:,}"]
        for row, batch in zip(result.rows, result.turning_batches, strict=True)
    ]
    turns = Table([Column("acceptance", "acceptance", "quantity"), Column("from batch", "turning_batch")], turning)
    return View(
        headline,
        (
            Table(measured, table),
            Table(turns.columns, turns.rows, "Drafting slows the server"),
            Table(columns, rows, f"Without the hardware, a drafted token in {result.draft_ratio:.3g} of a step"),
        ),
    )
