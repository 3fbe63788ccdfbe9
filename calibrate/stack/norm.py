"""The norms of a stack: RMS or layer norm, with or without a bias, or none."""

from __future__ import annotations

from typing import Any

from calibrate.operations.rows import layer_norm, rms_norm
from calibrate.stack.weights import Weights
from capplan.describe.model import Norm as NormKind

Tensor = Any


class Norm:
    """One norm of a width."""

    def __init__(self, weights: Weights, kind: NormKind, width: int) -> None:
        self.kind = kind
        self.weight = None if kind == "none" else weights.vector(width)
        self.bias = weights.bias(width) if kind == "layer" else None

    def __call__(self, x: Tensor) -> Tensor:
        """The normed rows."""
        if self.kind == "none":
            return x
        return rms_norm(x, self.weight) if self.kind == "rms" else layer_norm(x, self.weight, self.bias)
