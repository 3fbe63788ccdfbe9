"""How many query-key pairs does attention compute, with a KV cache and without?"""

from __future__ import annotations

from dataclasses import dataclass

from capplan.errors import UsageError
from capplan.questions.answer import Answer, Explained
from capplan.work.attention_pairs import AttentionPairs
from capplan.work.attention_pairs import attention_pairs as count_pairs

MOST_NEW = 100_000


@dataclass(frozen=True)
class PairsResult:
    """Query-key pairs of one head of one layer.

    Args:
        cached_pairs: the prompt's pairs and what each further position adds when keys and values are kept.
        recomputed_pairs: the same when the whole prefix is computed again for each position.
        prompt_pairs: pairs of the prompt alone.
        ratio: recomputed over cached.
    """

    cached_pairs: int
    recomputed_pairs: int
    prompt_pairs: int
    ratio: float


def attention_pairs(*, prompt: int, new: int, window: int | None = None) -> Answer[PairsResult]:
    """Pairs of a prompt of n positions and m further ones: ``n(n+1)/2 + m·n + m(m+1)/2`` with the cache.

    Args:
        prompt: n, positions of the prompt.
        new: m, positions processed after it.
        window: the most keys that a query sees; None: all.
    """
    for flag, value, least, most in (
        ("--prompt", prompt, 1, 1 << 40),
        ("--new", new, 0, MOST_NEW),
        ("--window", 1 if window is None else window, 1, 1 << 40),
    ):
        if not least <= value <= most:
            raise UsageError(f"must be between {least} and {most}, not {value}", where=flag)
    pairs = count_pairs(prompt, new, window=window)
    return Answer(
        command="attention-pairs",
        inputs={"prompt": prompt, "new": new, "window": window},
        result=PairsResult(
            pairs.cached_total, pairs.recomputed_total, pairs.prompt, pairs.recomputed_total / pairs.cached_total
        ),
        explanation=_explain(pairs, window),
        assumptions=("one head of one layer; dependences, not FLOPs or time",),
        provenance=dict.fromkeys(("cached_pairs", "recomputed_pairs", "prompt_pairs"), "exact"),
    )


def _explain(pairs: AttentionPairs, window: int | None) -> tuple[Explained, ...]:
    prompt = "n(n+1)/2" if window is None else "Σ min(i, w)"
    cached = "n(n+1)/2 + Σ (n + j)" if window is None else "Σ min(i, w)"
    again = "Σ (n + j)(n + j + 1)/2" if window is None else "Σ_j Σ_i min(i, w)"
    return (
        Explained("prompt", prompt, "", pairs.prompt, "pairs"),
        Explained("with the cache", cached, _sum(pairs.prompt, pairs.with_cache), pairs.cached_total, "pairs"),
        Explained("without", again, _sum(pairs.prompt, pairs.without_cache), pairs.recomputed_total, "pairs"),
    )


def _sum(first: int, terms: tuple[int, ...]) -> str:
    shown = [str(value) for value in (first, *terms[:6])]
    return " + ".join([*shown, "..."] if len(terms) > 6 else shown)
