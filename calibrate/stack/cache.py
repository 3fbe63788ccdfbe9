"""What a layer keeps between steps, as real tensors whose `nbytes` can be held against the formulas."""

from __future__ import annotations

from typing import Any

import torch

from calibrate.stack.weights import empty

Tensor = Any


class KeyValueCache:
    """Keys and values (b, hk, L, D) of a layer; with a window, a ring of the last `window` positions.

    Args:
        batch: sequences.
        kv_heads: KV heads.
        key_dim: elements of a key.
        value_dim: elements of a value.
        length: positions that a sequence will have at most.
        window: 0, or the positions that are kept.
        device: torch's name of the device.
        dtype: of keys and values.
    """

    def __init__(
        self, batch: int, kv_heads: int, key_dim: int, value_dim: int, length: int, window: int, device: str, dtype: Any
    ) -> None:
        self.window = window
        self.size = min(length, window) if window else length
        self.keys = empty(device, dtype, batch, kv_heads, self.size, key_dim)
        self.values = empty(device, dtype, batch, kv_heads, self.size, value_dim)

    @property
    def tensors(self) -> list[Tensor]:
        """What is kept."""
        return [self.keys, self.values]

    def write(self, keys: Tensor, values: Tensor, start: int) -> None:
        """Keep new positions (b, hk, t, D) from `start` on; of more than a window the last."""
        kept = min(keys.shape[2], self.size)
        first = start + keys.shape[2] - kept
        for cache, new in ((self.keys, keys), (self.values, values)):
            self._put(cache, new[:, :, new.shape[2] - kept :], first % self.size)

    def _put(self, cache: Tensor, new: Tensor, place: int) -> None:
        """Copy from a place on, around the end of the ring."""
        before_end = min(new.shape[2], self.size - place)
        cache[:, :, place : place + before_end] = new[:, :, :before_end]
        if before_end < new.shape[2]:
            cache[:, :, : new.shape[2] - before_end] = new[:, :, before_end:]

    def seen(self, length: int) -> tuple[Tensor, Tensor]:
        """Keys and values that a query after `length` positions sees, in any order."""
        kept = min(length, self.size)
        return self.keys[:, :, :kept], self.values[:, :, :kept]

    def before(self, start: int) -> tuple[Tensor, Tensor]:
        """What is kept of the positions before `start`, in their order."""
        kept = min(start, self.size)
        if start <= self.size:
            return self.keys[:, :, :kept], self.values[:, :, :kept]
        order = torch.arange(start - kept, start, device=self.keys.device) % self.size
        return self.keys.index_select(2, order), self.values.index_select(2, order)


class LatentCache:
    """Latents and rotary keys (b, L, c + r) of a layer of latent attention."""

    def __init__(self, batch: int, width: int, length: int, device: str, dtype: Any) -> None:
        self.latents = empty(device, dtype, batch, length, width)

    @property
    def tensors(self) -> list[Tensor]:
        """What is kept."""
        return [self.latents]

    def write(self, latents: Tensor, start: int) -> None:
        """Keep new positions (b, t, c + r) from `start` on."""
        self.latents[:, start : start + latents.shape[1]] = latents

    def seen(self, length: int) -> Tensor:
        """The first `length` positions."""
        return self.latents[:, :length]


class StateCache:
    """A recurrent state in its own dtype, and the last columns of a convolution's input."""

    def __init__(self, state: Tensor | None, columns: Tensor) -> None:
        self.state = state
        self.columns = columns

    @property
    def tensors(self) -> list[Tensor]:
        """What is kept."""
        return [self.columns] if self.state is None else [self.columns, self.state]

    def keep_columns(self, channels: Tensor) -> None:
        """Keep the last inputs of a prompt (b, channels, t); missing ones are 0."""
        kernel = self.columns.shape[-1]
        kept = channels[..., -kernel:]
        self.columns.zero_()
        self.columns[..., kernel - kept.shape[-1] :] = kept


class NoCache:
    """A layer that keeps nothing."""

    @property
    def tensors(self) -> list[Tensor]:
        """Nothing."""
        return []
