"""How many experts the collectors of the public MoE tables gave tokens to.

The tables say how the tokens were spread: ``balanced`` walks over the experts in turn; ``power_law_<α>`` draws each
expert's load from a power law and then rounds, caps and fills up. The number of experts with tokens decides what is
read, so that the fit has to know it.

Source: the collectors' own description of their inputs (aiconfigurator, collector/helper.py, ``balanced_logits`` and
``power_law_logits_v3``): densities x^−α on [1, 0.8·T], or on [0.01, 2] when T·K ≤ E; a load is at most T; what
rounding leaves over goes to the emptiest experts, what it adds is taken from the fullest.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from capplan.errors import UnsupportedError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

DRAWS = 32
"""Draws that the expected number is averaged over: its error is below one expert."""


@lru_cache(maxsize=65536)
def distinct_experts(tokens: int, experts: int, top_k: int, routing: str) -> float:
    """Experts that have at least one token, on average over the collector's draws.

    Args:
        tokens: T.
        experts: E.
        top_k: K.
        routing: ``balanced`` or ``power_law_<α>``.

    Raises:
        UnsupportedError: the tables have a way of routing that is not known here.
    """
    import numpy as np

    if routing == "balanced":
        return float(min(experts, tokens * top_k))
    if not routing.startswith("power_law_"):
        raise UnsupportedError(f"the routing {routing!r} of a kernel table is not known")
    alpha = float(routing.removeprefix("power_law_"))
    random = np.random.default_rng(0)
    counts = (skewed_loads(tokens, experts, top_k, alpha, random) for _ in range(DRAWS))
    return float(np.mean([np.count_nonzero(count) for count in counts]))


def skewed_loads(
    tokens: int, experts: int, top_k: int, alpha: float, random: np.random.Generator
) -> npt.NDArray[np.int64]:
    """One draw of the tokens that each expert gets: whole numbers of at most T that sum up to T·K."""
    import numpy as np

    low, high = (1.0, 0.8 * tokens) if tokens * top_k > experts else (0.01, 2.0)
    uniform = random.random(experts)
    draws = low * (high / low) ** uniform if alpha == 1 else _inverse_power(uniform, low, high, 1 - alpha)
    total = tokens * top_k
    loads = np.minimum(np.round(draws / draws.sum() * total).astype(np.int64), tokens)
    missing = total - int(loads.sum())
    while missing:
        level = int(loads.min()) if missing > 0 else int(loads.max())
        chosen = np.flatnonzero(loads == level)[: abs(missing)]
        loads[chosen] += int(math.copysign(1, missing))
        missing -= int(math.copysign(len(chosen), missing))
    return cast("npt.NDArray[np.int64]", loads)


def _inverse_power(
    uniform: npt.NDArray[np.float64], low: float, high: float, exponent: float
) -> npt.NDArray[np.float64]:
    """Quantiles of a density x^(exponent − 1) on [low, high]."""
    spread = high**exponent - low**exponent
    return cast("npt.NDArray[np.float64]", (spread * uniform + low**exponent) ** (1 / exponent))
