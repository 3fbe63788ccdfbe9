"""Messages between ranks: what tensor, expert, data, context and pipeline parallelism make a step send.

A collective over one rank is no operator; where a sweep passes an array of sizes its count is 0 there.
"""

from __future__ import annotations

from capplan.arrays import is_number, present
from capplan.work.operators import Collective, Message, Number, Operator
from capplan.work.scope import Scope


def collective(
    name: str, kind: Collective, ranks: Number, size: Number, count: Number = 1, *, apart: Number = 1
) -> list[Operator]:
    """One message of `size` bytes among `ranks` ranks, or nothing among one."""
    if is_number(ranks) and ranks <= 1:
        return []
    if is_number(count) and count == 0:
        return []
    times = count if is_number(ranks) else count * present(ranks - 1)
    return [Operator("collective", name, "communication", Message(kind, ranks, size, apart), count=times)]


def all_reduce(scope: Scope, name: str, elements: Number) -> list[Operator]:
    """The sum of what the tensor-parallel ranks each have a part of, after a row-parallel product.

    Source: Shoeybi et al., Megatron-LM (arXiv:1909.08053), section 3.
    """
    size = scope.activations(elements)
    return collective(f"all-reduce after {name}", "all_reduce", scope.sharding.tp, size)


def experts_in(scope: Scope, tokens: Number, top_k: int, width: int) -> list[Operator]:
    """Tokens on their way to experts on other data-parallel ranks.

    All-gather: every group's tokens to all groups, ``dp·T·H`` elements. All-to-all: each token once to each of its K
    experts, ``T·K·H`` elements out of a rank. Without data parallelism every rank has all tokens already.
    """
    sharding = scope.sharding
    if sharding.dp == 1:
        return []
    if sharding.expert_exchange == "all_to_all":
        size = scope.activations(tokens * top_k * width)
        return collective("dispatch to experts", "all_to_all", sharding.ep, size)
    size = scope.activations(sharding.dp * tokens * width)
    return collective("gather tokens for experts", "all_gather", sharding.dp, size, apart=sharding.tp)


def experts_out(scope: Scope, tokens: Number, top_k: int, width: int) -> list[Operator]:
    """Experts' outputs on their way back, and the sum over the ranks that share a token.

    With data parallelism a reduce-scatter (or the all-to-all backwards), then the all-reduce over `tp`; without, the
    all-reduce alone adds up what every rank's experts gave.
    """
    sharding = scope.sharding
    if sharding.dp > 1 and sharding.expert_exchange == "all_to_all":
        size = scope.activations(tokens * top_k * width)
        return collective("combine from experts", "all_to_all", sharding.ep, size)
    messages: list[Operator] = []
    if sharding.dp > 1:
        size = scope.activations(sharding.dp * tokens * width)
        messages = collective("scatter experts' sums", "reduce_scatter", sharding.dp, size, apart=sharding.tp)
    return messages + all_reduce(scope, "experts", tokens * width)


def context_parallel_in(scope: Scope, tokens: Number, heads: Number, head_dim: int) -> list[Operator]:
    """The queries of all ranks that share one cache by position, ``cp·T·h·D`` elements, gathered on each."""
    cp = scope.sharding.cp
    return collective("gather queries", "all_gather", cp, scope.activations(cp * tokens * heads * head_dim))


def context_parallel_out(scope: Scope, tokens: Number, heads: Number, value_dim: int) -> list[Operator]:
    """Partial outputs back to the rank of their heads, with an fp32 log-sum-exp a query and head from every rank.

    Source: vLLM, attention/ops/common.py (``cp_lse_ag_out_rs``).
    """
    cp = scope.sharding.cp
    rows = cp * tokens * heads
    return [
        *collective("gather log-sum-exp", "all_gather", cp, cp * rows * 4),
        *collective("scatter partial outputs", "reduce_scatter", cp, scope.activations(rows * value_dim)),
    ]
