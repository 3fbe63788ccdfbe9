"""A linear layer of the stack: one matrix for all projections that share an input, and a bias where some have one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

from calibrate.stack.weights import Weights

Tensor = Any


class Linear:
    """Several projections of one input as one product.

    Args:
        weights: makes the parameters.
        columns: width of the input.
        rows: width of each projection.
        biased: which of them have a bias; where any has, the others' is 0 and not counted.
    """

    def __init__(
        self, weights: Weights, columns: int, rows: Sequence[int], biased: Sequence[bool] | None = None
    ) -> None:
        self.rows = list(rows)
        self.weight = weights.matrix(sum(rows), columns)
        self.bias: Tensor | None = None
        if biased is not None and any(biased):
            parts = [
                weights.bias(size) if has else torch.zeros(size, device=weights.device, dtype=weights.dtype)
                for size, has in zip(rows, biased, strict=True)
            ]
            self.bias = torch.cat(parts)

    def __call__(self, x: Tensor) -> Tensor:
        """The projections side by side."""
        return functional.linear(x, self.weight, self.bias)

    def split(self, x: Tensor) -> Sequence[Tensor]:
        """The projections one by one."""
        found: Sequence[Tensor] = self(x).split(self.rows, -1)
        return found
