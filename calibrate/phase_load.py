"""What a model is given when its phases are measured or predicted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Load:
    """Sequences that begin together.

    Args:
        batch: sequences, all alike.
        prompt: tokens of each prompt.
        new: tokens that each sequence gets.
    """

    batch: int
    prompt: int
    new: int

    @property
    def length(self) -> int:
        """Positions cached at the end: the last new token is not fed back."""
        return self.prompt + self.new - 1

    @property
    def mean_context(self) -> int:
        """Positions that a decode step sees on average, its own included."""
        return self.prompt + self.new // 2
