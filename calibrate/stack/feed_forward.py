"""Feed-forwards of a layer: dense, and mixtures of experts with shared ones."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from calibrate.operations.experts import mixture
from calibrate.operations.rows import choose_experts, gated_activation
from calibrate.stack.linear import Linear
from calibrate.stack.weights import Weights
from capplan.describe.model import Dense, MixtureOfExperts

Tensor = Any


def cannot_run(ffn: Dense | MixtureOfExperts) -> str:
    """What of a description has no counterpart here, or nothing."""
    if isinstance(ffn, Dense):
        return ""
    features = {
        "identity experts": ffn.identity_experts > 0,
        "latent experts": ffn.latent_size is not None,
        "biases of experts": ffn.expert_bias,
        "experts without a gate": not ffn.gated,
    }
    return next((name for name, there in features.items() if there), "")


class DenseLayer:
    """Up (and gate), activation, down."""

    def __init__(self, ffn: Dense, hidden: int, weights: Weights) -> None:
        self.gated = ffn.gated
        parts = ("gate", "up") if ffn.gated else ("up",)
        rows = [ffn.intermediate_size] * len(parts)
        self.inputs = Linear(weights, hidden, rows, [part in ffn.bias for part in parts])
        self.output = Linear(weights, ffn.intermediate_size, [hidden], ["down" in ffn.bias])

    def __call__(self, x: Tensor) -> Tensor:
        """The result for every row."""
        inner = self.inputs(x)
        return self.output(gated_activation(inner) if self.gated else functional.gelu(inner))


class MixtureLayer:
    """Router, routed experts, shared experts."""

    def __init__(self, ffn: MixtureOfExperts, hidden: int, weights: Weights) -> None:
        self.ffn = ffn
        self.router = Linear(weights, hidden, [ffn.experts], [ffn.router_bias])
        self.correction = (
            torch.zeros(ffn.experts, device=weights.device, dtype=torch.float32) if ffn.correction_bias else None
        )
        self.first = weights.matrix(ffn.experts, 2 * ffn.intermediate_size, hidden)
        self.second = weights.matrix(ffn.experts, hidden, ffn.intermediate_size)
        self.shared, self.shared_gate = None, None
        if ffn.shared:
            wide = Dense(intermediate_size=ffn.shared.intermediate_size, bias=ffn.shared.bias)
            self.shared = DenseLayer(wide, hidden, weights)
            self.shared_gate = Linear(weights, hidden, [1]) if ffn.shared.gate else None

    def __call__(self, x: Tensor) -> Tensor:
        """The result for every row."""
        rows = x.reshape(-1, x.shape[-1])
        logits = self.router(rows)
        experts, shares = choose_experts(
            logits if self.correction is None else logits + self.correction, self.ffn.top_k
        )
        result = mixture(rows, experts, shares, self.first, self.second)
        if self.shared is not None:
            other = self.shared(rows)
            result = result + (other if self.shared_gate is None else torch.sigmoid(self.shared_gate(rows)) * other)
        return result.view_as(x)
