"""The routed experts of a mixture: tokens sorted by expert, two grouped products, results added up again."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch.nn import functional

from calibrate.operations.rows import gated_activation

Tensor = Any


def has_grouped_product() -> bool:
    """Whether this torch multiplies groups of rows with a matrix each in one call."""
    return hasattr(functional, "grouped_mm")


def grouped_product(rows: Tensor, matrices: Tensor, ends: Tensor) -> Tensor:
    """rows[ends[e−1]:ends[e]] · matrices[e]ᵀ for every expert e.

    Args:
        rows: (A, K), sorted by expert.
        matrices: (E, N, K).
        ends: (E), int32, the row after each expert's last.
    """
    if has_grouped_product() and rows.dtype == torch.bfloat16:
        return functional.grouped_mm(rows, matrices.transpose(1, 2), offs=ends)
    bounds = [0, *ends.tolist()]
    parts = [
        functional.linear(rows[start:end], matrices[expert])
        for expert, (start, end) in enumerate(pairwise(bounds))
        if end > start
    ]
    return torch.cat(parts) if parts else rows.new_empty((0, matrices.shape[1]))


def tokens_of_each(chosen: Tensor, experts: int) -> Tensor:
    """How often each expert was chosen; unlike ``bincount`` it does not make the host wait, which no graph allows."""
    return torch.zeros(experts, dtype=chosen.dtype, device=chosen.device).scatter_add_(
        0, chosen, torch.ones_like(chosen)
    )


def mixture(x: Tensor, experts: Tensor, weights: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    """The weighted sum of the chosen experts' outputs: Σ_k w_k · down_e(silu(gate_e·x) · up_e·x).

    Args:
        x: (T, H).
        experts: (T, K), which experts.
        weights: (T, K), how much of each.
        gate_up: (E, 2·I, H), gate and up one above the other.
        down: (E, H, I).
    """
    tokens, top_k = experts.shape
    order = experts.reshape(-1).argsort()
    ends = tokens_of_each(experts.reshape(-1), gate_up.shape[0]).cumsum(0).to(torch.int32)
    inner = grouped_product(x[order // top_k], gate_up, ends)
    outer = grouped_product(gated_activation(inner), down, ends)
    back = torch.empty_like(outer).index_copy_(0, order, outer)
    return (back.view(tokens, top_k, -1) * weights.to(x.dtype)[..., None]).sum(1)


def exact_mixture(x: Tensor, experts: Tensor, weights: Tensor, gate_up: Tensor, down: Tensor, row: int) -> Tensor:
    """One token's output by the definition, in float64."""
    token = x[row].double()
    total = torch.zeros_like(token)
    for expert, weight in zip(experts[row].tolist(), weights[row].double(), strict=True):
        gate, up = (gate_up[expert].double() @ token).chunk(2)
        total += weight * (down[expert].double() @ (functional.silu(gate) * up))
    return total
