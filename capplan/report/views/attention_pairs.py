"""How the answer about query-key pairs looks."""

from __future__ import annotations

from capplan.questions.answer import Answer
from capplan.questions.attention_pairs import PairsResult
from capplan.report.tables import Facts, View


def pairs_view(answer: Answer[PairsResult]) -> View:
    """Both totals, with the sums that make them."""
    result, inputs = answer.result, answer.inputs
    sums = {line.name: line.numbers for line in answer.explanation}
    pairs = [
        ("with the KV cache", f"{sums['with the cache']} = {result.cached_pairs:,}"),
        ("without", f"{sums['without']} = {result.recomputed_pairs:,}"),
        ("ratio", f"{result.ratio:.2f}"),
    ]
    headline = f"{inputs['prompt']:,} prompt positions, {inputs['new']:,} new ones: query-key pairs of one head"
    return View(headline, (Facts(pairs),))
