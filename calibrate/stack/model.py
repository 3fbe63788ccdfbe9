"""A whole decoder from its description: embedding, layers, final norm, head, sampling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from calibrate.operations.rows import sample
from calibrate.stack import attention, feed_forward, latent
from calibrate.stack.attention import AttentionLayer
from calibrate.stack.feed_forward import DenseLayer, MixtureLayer
from calibrate.stack.latent import LatentLayer
from calibrate.stack.norm import Norm
from calibrate.stack.recurrent import DeltaNetLayer, ShortConvolutionLayer
from calibrate.stack.rotary import Rotary
from calibrate.stack.weights import Weights
from capplan.describe.model import (
    Attention,
    Block,
    Dense,
    GatedDeltaNet,
    LatentAttention,
    ModelSpec,
    ShortConvolution,
)
from capplan.errors import UnsupportedError

Tensor = Any

_MIXERS: dict[type, Callable[..., Any]] = {
    Attention: AttentionLayer,
    LatentAttention: LatentLayer,
    GatedDeltaNet: DeltaNetLayer,
    ShortConvolution: ShortConvolutionLayer,
}
_CHECKS: dict[type, Callable[[Any], str]] = {Attention: attention.cannot_run, LatentAttention: latent.cannot_run}

PARALLEL, PRE_NORM, SANDWICH = 1, 2, 4
"""Norms of a layer: one before mixer and feed-forward side by side; one before each; one before and after each."""


def why_not(spec: ModelSpec) -> str:
    """Why a model cannot be built here; empty when it can."""
    embedding = spec.embedding
    features = {
        "an encoder": spec.encoder is not None,
        "a second embedding for every layer": spec.per_layer_embedding is not None,
        "an embedding narrower than its layers": embedding.size not in (None, spec.hidden_size),
        "token types": embedding.token_types > 0,
        "no head": not embedding.head,
        "further tensors beside its layers": bool(spec.tensors),
    }
    for name, there in features.items():
        if there:
            return name
    return next((reason for block in spec.blocks.values() if (reason := _why_not_block(block))), "")


def _why_not_block(block: Block) -> str:
    if len(block.mixer) != 1 or len(block.ffn) != 1:
        return "layers of more or less than one mixer and one feed-forward"
    mixer, ffn = block.mixer[0], block.ffn[0]
    if type(mixer) not in _MIXERS:
        return f"a {mixer.kind.replace('_', ' ')} mixer"
    if block.norms not in (PARALLEL, PRE_NORM, SANDWICH):
        return f"{block.norms} norms a layer"
    if block.tensors:
        return "further tensors in its layers"
    check = _CHECKS.get(type(mixer))
    return (check(mixer) if check else "") or feed_forward.cannot_run(ffn)


class Layer:
    """Norms, a mixer, a feed-forward, two sums."""

    def __init__(self, block: Block, spec: ModelSpec, weights: Weights, rotary: Rotary) -> None:
        hidden = spec.hidden_size
        mixer, ffn = block.mixer[0], block.ffn[0]
        self.mixer = _MIXERS[type(mixer)](mixer, hidden, weights, rotary)
        self.ffn = DenseLayer(ffn, hidden, weights) if isinstance(ffn, Dense) else MixtureLayer(ffn, hidden, weights)
        self.norms = [Norm(weights, spec.norm, hidden) for _ in range(block.norms)]

    def __call__(self, x: Tensor, cache: Any, start: int) -> Tensor:
        """New positions (b, t, H) after `start` cached ones."""
        norms = self.norms
        if len(norms) == PARALLEL:
            inside = norms[0](x)
            return x + self.mixer(inside, cache, start) + self.ffn(inside)
        if len(norms) == SANDWICH:
            x = x + norms[1](self.mixer(norms[0](x), cache, start))
            return x + norms[3](self.ffn(norms[2](x)))
        x = x + self.mixer(norms[0](x), cache, start)
        return x + self.ffn(norms[1](x))


class Model:
    """A decoder with random weights.

    Args:
        spec: what it is.
        weights: makes its parameters.
        positions: the longest context that it will have.

    Raises:
        UnsupportedError: the description has something that is not built here; it is named.
    """

    def __init__(self, spec: ModelSpec, weights: Weights, positions: int) -> None:
        if reason := why_not(spec):
            raise UnsupportedError(f"{spec.name} has {reason}, which cannot be run here", where="--model")
        self.spec, self.weights = spec, weights
        embedding, hidden = spec.embedding, spec.hidden_size
        rotary = Rotary(positions, weights.device, weights.dtype)
        self.table = weights.table(embedding.vocab_size + embedding.extra_rows, hidden)
        self.places = weights.table(embedding.positions, hidden) if embedding.positions else None
        self.first_norms = [Norm(weights, spec.norm, hidden) for _ in range(embedding.norms)]
        self.layers = [Layer(spec.blocks[name], spec, weights, rotary) for name in spec.order]
        self.last_norms = [Norm(weights, spec.norm, hidden) for _ in range(spec.final_norms)]
        self.head = (
            self.table[: embedding.vocab_size] if embedding.tied else weights.matrix(embedding.vocab_size, hidden)
        )
        self.head_bias = weights.bias(embedding.vocab_size) if embedding.head_bias else None

    def new_caches(self, batch: int, length: int) -> list[Any]:
        """Empty caches of every layer for `batch` sequences of at most `length` positions."""
        return [layer.mixer.new_cache(batch, length) for layer in self.layers]

    def logits(self, tokens: Tensor, caches: list[Any], start: int) -> Tensor:
        """The logits (b, V) of the last of the new positions (b, t) after `start` cached ones."""
        x = functional.embedding(tokens, self.table)
        if self.places is not None:
            x = x + self.places[start : start + tokens.shape[1]]
        for norm in self.first_norms:
            x = norm(x)
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, cache, start)
        x = x[:, -1]
        for norm in self.last_norms:
            x = norm(x)
        return functional.linear(x, self.head, self.head_bias)

    def next_tokens(self, tokens: Tensor, caches: list[Any], start: int, noise: Tensor) -> Tensor:
        """One step: the sampled next token (b, 1) of every sequence."""
        return sample(self.logits(tokens, caches, start), noise)[:, None]


def cache_bytes(caches: list[Any]) -> int:
    """Bytes of everything that the caches keep."""
    return sum(tensor.numel() * tensor.element_size() for cache in caches for tensor in cache.tensors)


def gumbel_noise(batch: int, vocabulary: int, device: str) -> Tensor:
    """−ln(−ln(u)) of uniform u: what turns the largest into a draw."""
    uniform = torch.rand(batch, vocabulary, device=device).clamp(1e-6, 1 - 1e-6)
    return -torch.log(-torch.log(uniform))
