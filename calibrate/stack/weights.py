"""Random weights, and how many there are: an independent count of what a description says a model holds."""

from __future__ import annotations

from math import prod
from typing import Any

import torch

from calibrate.kernels.kernel import dtype_of
from calibrate.random_numbers import random_normal

Tensor = Any


class Weights:
    """Makes a model's parameters one after the other and keeps count.

    Args:
        device: torch's name of the device.
        format: number format of the weights and activations.
        seed: of the random numbers.
    """

    def __init__(self, device: str, format: str = "bf16", seed: int = 0) -> None:
        self.device = device
        self.format = format
        self.elements = 0
        self.bytes = 0
        self._seed = seed

    @property
    def dtype(self) -> Any:
        """The torch dtype of the weights."""
        return dtype_of(self.format)

    def matrix(self, *shape: int) -> Tensor:
        """A linear map's weight (.., rows, columns), scaled to keep the size of what it multiplies."""
        return self._counted(random_normal(self.device, self._next_seed(), shape, self.dtype, shape[-1] ** -0.5))

    def vector(self, *shape: int) -> Tensor:
        """A norm's scale or the like: about one."""
        return self._counted(1 + random_normal(self.device, self._next_seed(), shape, self.dtype, 0.1))

    def bias(self, *shape: int) -> Tensor:
        """A bias: about zero."""
        return self._counted(random_normal(self.device, self._next_seed(), shape, self.dtype, 0.1))

    def table(self, rows: int, columns: int) -> Tensor:
        """An embedding table."""
        return self._counted(random_normal(self.device, self._next_seed(), (rows, columns), self.dtype))

    def _counted(self, tensor: Tensor) -> Tensor:
        self.elements += prod(tensor.shape)
        self.bytes += tensor.numel() * tensor.element_size()
        return tensor

    def _next_seed(self) -> int:
        self._seed += 1
        return self._seed


def empty(device: str, dtype: Any, *shape: int) -> Tensor:
    """A buffer that will be written before it is read: filled with NaN, so that reading it unwritten shows."""
    return torch.full(shape, torch.nan, device=device, dtype=dtype)
