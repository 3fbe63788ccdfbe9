"""Layers that keep a state of fixed size: the gated delta net and the short convolution."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from calibrate.kernels.kernel import dtype_of
from calibrate.operations.recurrence import convolve_prompt, convolve_step, delta_prompt, delta_step
from calibrate.operations.rows import rms_norm
from calibrate.stack.cache import StateCache
from calibrate.stack.linear import Linear
from calibrate.stack.rotary import Rotary
from calibrate.stack.weights import Weights
from capplan.describe.model import GatedDeltaNet, ShortConvolution

Tensor = Any


class DeltaNetLayer:
    """Gated delta rule: projections, a convolution, the recurrence, a gated norm."""

    def __init__(self, mixer: GatedDeltaNet, hidden: int, weights: Weights, rotary: Rotary) -> None:
        self.mixer = mixer
        self.device, self.dtype = weights.device, weights.dtype
        self.keys, self.values = mixer.key_heads * mixer.key_dim, mixer.value_heads * mixer.value_dim
        gate = self.values if mixer.output_gate else 0
        self.wide = Linear(weights, hidden, [2 * self.keys + self.values, gate])
        self.narrow = Linear(weights, hidden, [mixer.value_heads, mixer.value_heads])
        self.kernel = weights.matrix(2 * self.keys + self.values, mixer.conv_kernel)
        self.decay_bias, self.decay = weights.bias(mixer.value_heads), weights.bias(mixer.value_heads)
        self.norm = weights.vector(mixer.value_dim)
        self.output = Linear(weights, self.values, [hidden])

    def new_cache(self, batch: int, length: int) -> StateCache:
        """A zero state and no columns yet."""
        mixer = self.mixer
        state = torch.zeros(
            batch,
            mixer.value_heads,
            mixer.key_dim,
            mixer.value_dim,
            device=self.device,
            dtype=dtype_of(mixer.state_dtype),
        )
        columns = torch.zeros(batch, self.kernel.shape[0], mixer.conv_kernel, device=self.device, dtype=self.dtype)
        return StateCache(state, columns)

    def __call__(self, x: Tensor, cache: StateCache, start: int) -> Tensor:
        """New positions (b, t, H); a prompt begins a sequence, a single position goes on with it."""
        batch, tokens, _ = x.shape
        channels, gate = self.wide.split(x)
        beta, decay = self.narrow.split(x)
        log_decay = -self.decay.float().exp() * functional.softplus(decay.float() + self.decay_bias.float())
        mixed = self._convolved(channels.transpose(1, 2), cache, single=tokens == 1 and start > 0)
        query, key, value = self._heads(mixed)
        gates = (log_decay.transpose(1, 2), torch.sigmoid(beta.float()).transpose(1, 2))
        if tokens == 1 and start:
            one = (part[:, :, 0] for part in (query, key, value, *gates))
            result = delta_step(cache.state, *one)[:, :, None]
        else:
            result = delta_prompt(cache.state, query, key, value, *gates)
        normed = rms_norm(result.transpose(1, 2), self.norm).reshape(batch, tokens, -1)
        return self.output(normed * functional.silu(gate) if self.mixer.output_gate else normed)

    def _convolved(self, channels: Tensor, cache: StateCache, *, single: bool) -> Tensor:
        """The convolution's result (b, channels, t)."""
        if single:
            return convolve_step(cache.columns, channels[..., 0], self.kernel)[..., None]
        cache.keep_columns(channels)
        return convolve_prompt(channels, self.kernel)

    def _heads(self, mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys of unit length for every value head, and values: (b, h, t, D)."""
        mixer = self.mixer
        batch, _, tokens = mixed.shape
        query, key, value = mixed.transpose(1, 2).split([self.keys, self.keys, self.values], -1)
        times = mixer.value_heads // mixer.key_heads
        shared = [
            functional.normalize(part.view(batch, tokens, mixer.key_heads, mixer.key_dim).float(), dim=-1)
            .repeat_interleave(times, 2)
            .transpose(1, 2)
            for part in (query, key)
        ]
        values = value.reshape(batch, tokens, mixer.value_heads, mixer.value_dim).transpose(1, 2)
        return shared[0] * mixer.key_dim**-0.5, shared[1], values


class ShortConvolutionLayer:
    """C · conv(B · x)."""

    def __init__(self, mixer: ShortConvolution, hidden: int, weights: Weights, rotary: Rotary) -> None:
        self.mixer = mixer
        self.device, self.dtype = weights.device, weights.dtype
        self.inputs = Linear(weights, hidden, [hidden, hidden, hidden], [mixer.bias] * 3)
        self.kernel = weights.matrix(hidden, mixer.conv_kernel)
        self.bias = weights.bias(hidden) if mixer.bias else None
        self.output = Linear(weights, hidden, [hidden], [mixer.bias])

    def new_cache(self, batch: int, length: int) -> StateCache:
        """No columns yet."""
        shape = (batch, self.kernel.shape[0], self.mixer.conv_kernel)
        return StateCache(None, torch.zeros(shape, device=self.device, dtype=self.dtype))

    def __call__(self, x: Tensor, cache: StateCache, start: int) -> Tensor:
        """New positions (b, t, H); a prompt begins a sequence, a single position goes on with it."""
        before, after, value = self.inputs.split(x)
        channels = (before * value).transpose(1, 2)
        if x.shape[1] == 1 and start:
            mixed = convolve_step(cache.columns, channels[..., 0], self.kernel)[..., None]
        else:
            cache.keep_columns(channels)
            mixed = convolve_prompt(channels, self.kernel)
        rows = mixed.transpose(1, 2)
        return self.output(after * (rows if self.bias is None else rows + self.bias))
