"""How tokens fall on experts: the number of distinct experts that a batch touches, and the busiest rank's share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from capplan.arrays import is_number, quotient
from capplan.work.operators import Number


@dataclass(frozen=True, slots=True)
class Routing:
    """How tokens choose experts.

    Args:
        skew: s, exponent of a power law: the i-th most popular expert is chosen in proportion to ``i^-s``. 0 is
            balanced, which load-balancing losses aim at.
    """

    skew: float = 0.0


def distinct_experts(experts: Number, chance: float, tokens: Number) -> Number:
    """Expected experts, of `experts` equally popular ones, that at least one token uses: ``E'·(1 - (1 - p)^T)``.

    Args:
        experts: E', the experts that count (those on one rank).
        chance: p, the probability that a token uses a given expert: ``K/E`` for K of E experts.
        tokens: T, tokens that choose independently.

    Leaves out that neighbouring tokens choose alike.
    """
    if chance >= 1:
        return experts
    return experts * (1 - (1 - chance) ** tokens)


def skewed_distinct(chances: tuple[float, ...], tokens: Number) -> Number:
    """Expected experts with probabilities `chances` that at least one of T tokens uses: ``Σ (1 - (1 - p_i)^T)``."""
    if is_number(tokens):
        return sum(1 - (1 - chance) ** tokens for chance in chances)
    import numpy

    untouched = sum((1 - chance) ** numpy.asarray(tokens, dtype=float) for chance in chances)
    return len(chances) - untouched


@lru_cache(maxsize=256)
def popularity(experts: int, chosen: float, skew: float) -> tuple[float, ...]:
    """The probability that a token uses each expert, most popular first: ``min(1, c·i^-s)`` with ``Σ = K``.

    Args:
        experts: E.
        chosen: K, experts with weights that a token uses (a real number where some choices have none).
        skew: s of the power law.
    """
    weights = [(index + 1) ** -skew for index in range(experts)]
    certain = 0
    while certain < experts:
        scale = (chosen - certain) / sum(weights[certain:])
        if scale * weights[certain] <= 1:
            return (1.0,) * certain + tuple(scale * weight for weight in weights[certain:])
        certain += 1
    return (1.0,) * experts


@dataclass(frozen=True, slots=True)
class ExpertLoad:
    """What falls on the busiest of the expert-parallel ranks.

    Args:
        distinct: expected distinct experts on it that the step uses.
        assignments: expected token-expert pairs that it computes.
    """

    distinct: Number
    assignments: Number


def expert_load(
    routing: Routing, experts: int, choices: int, top_k: int, local: Number, ranks: Number, tokens: Number
) -> ExpertLoad:
    """The load of the busiest rank for T tokens.

    Balanced: ``T·K·(E'/C)`` assignments on E' local experts of C choices. Skewed: experts are dealt to the ranks in
    order of popularity, so that the first rank has experts 1, 1 + r, 1 + 2r, ...; arrays of ranks are not taken.

    Args:
        routing: how tokens choose.
        experts: E, experts with weights.
        choices: C, experts and identity experts together.
        top_k: K, choices of a token.
        local: E', experts on a rank.
        ranks: r, expert-parallel ranks.
        tokens: T.
    """
    if not routing.skew:
        distinct = distinct_experts(local, top_k / choices, tokens)
        share = quotient(top_k * local, choices)
        whole = isinstance(share, int)
        return ExpertLoad(distinct, tokens * share if whole else quotient(tokens * top_k * local, choices))
    chances = popularity(experts, top_k * experts / choices, routing.skew)[:: int(ranks)]
    return ExpertLoad(skewed_distinct(chances, tokens), tokens * sum(chances))
