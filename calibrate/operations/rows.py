"""Kernels over rows of activations: norms, rotary embedding, activation functions, sampling."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

Tensor = Any

EPSILON = 1e-6
ROTARY_BASE = 10000.0


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """RMS norm, x / rms(x) · weight, over the last axis."""
    return functional.rms_norm(x, (x.shape[-1],), weight, EPSILON)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """(x − mean) / deviation · weight + bias over the last axis."""
    return functional.layer_norm(x, (x.shape[-1],), weight, bias, EPSILON)


def norm_with_residual(x: Tensor, branch: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of the residual and a branch, and its norm."""
    total = x + branch
    return total, rms_norm(total, weight)


def heads_norm(x: Tensor, weight: Tensor) -> Tensor:
    """An RMS norm of each head (.., h, D) with one weight (h, D): that of queries and keys side by side."""
    return functional.rms_norm(x, (x.shape[-1],), None, EPSILON) * weight


def rotary_table(positions: int, width: int, device: str, dtype: Any) -> tuple[Tensor, Tensor]:
    """Cosines and sines (positions, width) of the angles i·10000^(−2j/width), each twice."""
    frequency = ROTARY_BASE ** (-torch.arange(0, width, 2, device=device, dtype=torch.float64) / width)
    angle = torch.outer(torch.arange(positions, device=device, dtype=torch.float64), frequency)
    both = torch.cat((angle, angle), -1)
    return both.cos().to(dtype), both.sin().to(dtype)


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary embedding of heads (.., s, h, D): the first `width` elements of each turned, the rest as they are.

    Source: Su et al., RoFormer (arXiv:2104.09864), equation 34, in halves.
    """
    width = cosine.shape[-1]
    turned, rest = (x, None) if x.shape[-1] == width else (x[..., :width], x[..., width:])
    first, second = turned.chunk(2, -1)
    result = turned * cosine[:, None] + torch.cat((-second, first), -1) * sine[:, None]
    return result if rest is None else torch.cat((result, rest), -1)


def gated_activation(gate_up: Tensor) -> Tensor:
    """silu(gate) · up of the two halves of the last axis."""
    gate, up = gate_up.chunk(2, -1)
    return functional.silu(gate) * up


def gate_output(x: Tensor, gate: Tensor) -> Tensor:
    """Product x · sigmoid(gate)."""
    return x * torch.sigmoid(gate)


def choose_experts(logits: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """The K most probable experts of each token and their weights, which sum to one: (T, K) each."""
    weights, experts = torch.topk(torch.softmax(logits, -1, dtype=torch.float32), top_k, -1)
    return experts, weights / weights.sum(-1, keepdim=True)


def sample(logits: Tensor, noise: Tensor) -> Tensor:
    """One token a row, drawn with the probabilities of its logits: the largest logit + Gumbel noise.

    Source: Gumbel (1954); Maddison et al., A* Sampling (arXiv:1411.0030), section 2.
    """
    probabilities = torch.softmax(logits, -1, dtype=torch.float32)
    return torch.argmax(torch.log(probabilities) + noise, -1)
