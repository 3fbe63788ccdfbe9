"""Random normal numbers for billions of weights in seconds: slices of one pool.

The pool's length is a prime, so that no two rows of a matrix that is larger than the pool hold the same numbers at
the same places, and a kernel that reads the wrong row is found out.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import torch

POOL = 16_777_259
"""Numbers in the pool: the first prime above 2^24."""


def random_normal(device: str, seed: int, shape: tuple[int, ...], dtype: Any, scale: float = 1.0) -> Any:
    """Normal numbers times `scale` as a new tensor: the pool's, from a place that the seed says."""
    pool = _pool(device, dtype if dtype in (torch.float32, torch.float16, torch.bfloat16) else torch.float32)
    count = prod(shape)
    result = torch.empty(count, device=device, dtype=pool.dtype)
    place, filled = (seed * 2_654_435_761 + 12_345) % POOL, 0
    while filled < count:
        part = pool[place : place + count - filled]
        result[filled : filled + part.numel()] = part
        place, filled = 0, filled + part.numel()
    return result.mul_(scale).view(shape).to(dtype)


@lru_cache(maxsize=8)
def _pool(device: str, dtype: Any) -> Any:
    generator = torch.Generator(device=device).manual_seed(20_26)
    return torch.randn(POOL, generator=generator, device=device).to(dtype)
