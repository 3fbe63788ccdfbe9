"""Random numbers that are the same on every Python: uniform ones from the Mersenne twister, the rest made from them.

The standard library promises the sequence of `random.Random.random` for a seed, and of nothing else; the
distributions here are therefore written out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

TURN = 2 * math.pi


class RandomSource:
    """Independent streams of uniform numbers for one seed.

    Args:
        seed: any whole number.
        stream: which stream; streams of different names have nothing to do with each other, so that one kind of draw
            (lengths) stays the same when another (arrivals) is changed.
    """

    def __init__(self, seed: int, stream: str = "") -> None:
        mixed = seed
        for letter in stream:
            mixed = (mixed * 1_000_003 + ord(letter)) % (1 << 64)
        self.uniform: Callable[[], float] = Random(mixed).random

    def whole(self, least: int, most: int) -> int:
        """A whole number from `least` to `most`, all equally likely."""
        return least + int(self.uniform() * (most - least + 1))

    def exponential(self, mean: float) -> float:
        """``-mean · ln(1 - U)``."""
        return -mean * math.log1p(-self.uniform())

    def normal(self) -> float:
        """A standard normal number.

        Source: Box and Muller, A note on the generation of random normal deviates (Ann. Math. Stat. 29(2), 1958).
        """
        radius = math.sqrt(-2.0 * math.log1p(-self.uniform()))
        return radius * math.cos(TURN * self.uniform())

    def gamma(self, shape: float, mean: float) -> float:
        """A gamma number of a shape and a mean; its variance is ``mean² / shape``.

        Source: Marsaglia and Tsang, A simple method for generating gamma variables (ACM TOMS 26(3), 2000).
        """
        boost = 1.0
        k = shape
        if k < 1:
            boost = (1.0 - self.uniform()) ** (1.0 / k)
            k += 1
        d = k - 1 / 3
        c = 1 / math.sqrt(9 * d)
        while True:
            x = self.normal()
            v = (1 + c * x) ** 3
            if v > 0 and math.log1p(-self.uniform()) < x * x / 2 + d - d * v + d * math.log(v):
                return d * v * boost * mean / shape
