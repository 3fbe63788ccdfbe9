"""Tables of angles for rotary embedding, shared by the layers of a stack."""

from __future__ import annotations

from typing import Any

from calibrate.operations.rows import rotary_table

Tensor = Any


class Angles:
    """Cosines and sines for one rotated width."""

    def __init__(self, positions: int, width: int, device: str, dtype: Any) -> None:
        self.cosine, self.sine = rotary_table(positions, width, device, dtype)

    def at(self, start: int, tokens: int) -> tuple[Tensor, Tensor]:
        """Those of `tokens` positions from `start` on."""
        return self.cosine[start : start + tokens], self.sine[start : start + tokens]


class Rotary:
    """The tables of a stack, one for each width."""

    def __init__(self, positions: int, device: str, dtype: Any) -> None:
        self._place = (positions, device, dtype)
        self._known: dict[int, Angles] = {}

    def of(self, width: int) -> Angles | None:
        """The table of a width; none for no rotation."""
        if width and width not in self._known:
            positions, device, dtype = self._place
            self._known[width] = Angles(positions, width, device, dtype)
        return self._known.get(width)
