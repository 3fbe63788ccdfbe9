"""Linear attention with a state: the gated delta rule for one token and for a prompt, and the causal convolution.

For each head a state S (Dk × Dv) in float32:

    S ← e^g·S;  u = β·(v − Sᵀk);  S ← S + k·uᵀ;  o = Sᵀq

Source: Yang et al., Gated Delta Networks (arXiv:2412.06464), equation 10.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

Tensor = Any

CHUNK = 64
"""Positions that are worked out together in a prompt."""


def delta_step(state: Tensor, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor) -> Tensor:
    """One position of every sequence: the output (b, h, Dv); the state (b, h, Dk, Dv) is changed in place.

    Args:
        state: S, float32.
        q: (b, h, Dk).
        k: (b, h, Dk).
        v: (b, h, Dv).
        log_decay: g, (b, h), not above 0.
        beta: β, (b, h).
    """
    state.mul_(log_decay.float().exp()[..., None, None])
    key, query = k.float(), q.float()
    update = beta.float()[..., None] * (v.float() - torch.einsum("bhkv,bhk->bhv", state, key))
    state.add_(key[..., None] * update[..., None, :])
    return torch.einsum("bhkv,bhk->bhv", state, query).to(v.dtype)


def delta_prompt(state: Tensor, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor) -> Tensor:
    """All positions (b, h, s, ·) of a prompt, `CHUNK` at a time; the state is changed in place.

    Within a chunk, with G_i = Σ_{j≤i} g_j, the updates u solve a triangular system:

        u_i + β_i·Σ_{j<i} e^(G_i − G_j)·(k_i·k_j)·u_j = β_i·(v_i − e^(G_i)·S₀ᵀk_i)
        o_i = e^(G_i)·S₀ᵀq_i + Σ_{j≤i} e^(G_i − G_j)·(q_i·k_j)·u_j
        S   = e^(G_c)·S₀ + Σ_j e^(G_c − G_j)·k_j·u_jᵀ

    which follows from unrolling the recurrence.
    """
    pieces = (
        _delta_chunk(state, *(part[:, :, start : start + CHUNK].float() for part in (q, k, v, log_decay, beta)))
        for start in range(0, q.shape[2], CHUNK)
    )
    return torch.cat(list(pieces), 2).to(v.dtype)


def _delta_chunk(state: Tensor, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor) -> Tensor:
    total = log_decay.cumsum(-1)
    decay = (total[..., :, None] - total[..., None, :]).tril().exp().tril()
    system = (beta[..., None] * decay * (k @ k.transpose(-1, -2))).tril(-1)
    grown = total.exp()[..., None]
    right = beta[..., None] * (v - grown * (k @ state))
    updates = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    output = grown * (q @ state) + (decay * (q @ k.transpose(-1, -2))) @ updates
    left = (total[..., -1:] - total).exp()[..., None]
    state.mul_(grown[..., -1:, :]).add_((left * k).transpose(-1, -2) @ updates)
    return output


def convolve_prompt(x: Tensor, weight: Tensor) -> Tensor:
    """A causal depthwise convolution over the positions of (b, channels, s), then silu."""
    kernel = weight.shape[-1]
    padded = functional.pad(x, (kernel - 1, 0))
    return functional.silu(functional.conv1d(padded, weight[:, None], groups=x.shape[1]))


def convolve_step(columns: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """One position (b, channels): `columns` (b, channels, kernel) are moved on in place, then weighed and summed."""
    columns.copy_(torch.cat((columns[..., 1:], x[..., None]), -1))
    return functional.silu((columns * weight).sum(-1))
