"""Softmax attention as a layer: projections, norms on heads, rotary embedding, cache, attention, output."""

from __future__ import annotations

from typing import Any

import torch

from calibrate.kernels.decode_attention import STACKS_BACKEND
from calibrate.operations.attention import causal_attention, decode_attention
from calibrate.operations.rows import gate_output, heads_norm, rms_norm, rotate
from calibrate.stack.cache import KeyValueCache
from calibrate.stack.linear import Linear
from calibrate.stack.rotary import Rotary
from calibrate.stack.weights import Weights
from capplan.describe.model import Attention

Tensor = Any


def cannot_run(mixer: Attention) -> str:
    """What of a description has no counterpart here, or nothing."""
    features = {
        "chunked attention": mixer.chunk is not None,
        "attention sinks": mixer.sinks,
        "a shared cache": mixer.cache != "own" or not mixer.kv_projection,
        "bidirectional attention": not mixer.causal,
        "an indexer": mixer.indexer is not None,
        "queries of low rank": mixer.q_lora_rank is not None,
        "biases of norms on heads": mixer.qk_norm_bias,
        "values wider than keys": mixer.value_dim > mixer.head_dim,
    }
    return next((name for name, there in features.items() if there), "")


class AttentionLayer:
    """MHA, GQA or MQA, full or within a window."""

    def __init__(self, mixer: Attention, hidden: int, weights: Weights, rotary: Rotary) -> None:
        self.mixer = mixer
        self.device, self.dtype = weights.device, weights.dtype
        heads, kv_heads, dim = mixer.heads, mixer.kv_heads, mixer.head_dim
        gate = {"none": 0, "head": heads, "full": heads * mixer.value_dim}[mixer.output_gate]
        rows = [heads * dim, kv_heads * dim, 0 if mixer.value_is_key else kv_heads * mixer.value_dim, gate]
        biased = [part in mixer.bias for part in ("q", "k", "v")] + [False]
        self.inputs = Linear(weights, hidden, rows, biased)
        self.output = Linear(weights, heads * mixer.value_dim, [hidden], ["o" in mixer.bias])
        self.rotary = rotary.of(dim if mixer.rotary_dim is None else mixer.rotary_dim)
        self._make_norms(weights)
        self.backend = STACKS_BACKEND[torch.device(self.device).type]

    def _make_norms(self, weights: Weights) -> None:
        """A norm of queries and keys: one weight each, laid out a head each where heads share it."""
        mixer, self.norm = self.mixer, None
        if mixer.qk_norm == "head":
            query, key = weights.vector(mixer.head_dim), weights.vector(mixer.head_dim)
            self.norm = torch.cat((query.expand(mixer.heads, -1), key.expand(mixer.kv_heads, -1)))
        elif mixer.qk_norm == "full":
            self.norm = (weights.vector(mixer.heads * mixer.head_dim), weights.vector(mixer.kv_heads * mixer.head_dim))

    def new_cache(self, batch: int, length: int) -> KeyValueCache:
        """An empty cache for `batch` sequences of at most `length` positions."""
        mixer = self.mixer
        return KeyValueCache(
            batch,
            mixer.kv_heads,
            mixer.head_dim,
            mixer.value_dim,
            length,
            mixer.window or 0,
            self.device,
            self.dtype,
        )

    def __call__(self, x: Tensor, cache: KeyValueCache, start: int) -> Tensor:
        """New positions (b, t, H) after `start` cached ones; a single one is a decode."""
        batch, tokens, _ = x.shape
        query, key, value, gate = self._heads(x, start)
        if tokens == 1 and start:
            cache.write(key, value, start)
            seen = decode_attention(query, *cache.seen(start + 1), backend=self.backend)
        else:
            old_keys, old_values = cache.before(start)
            keys = torch.cat((old_keys, key), 2) if start else key
            values = torch.cat((old_values, value), 2) if start else value
            seen = causal_attention(query, keys, values, window=self.mixer.window or 0)
            cache.write(key, value, start)
        result = seen.transpose(1, 2).reshape(batch, tokens, -1)
        return self.output(self._gated(result, gate))

    def _heads(self, x: Tensor, start: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries, keys and values (b, heads, t, D), and the gate."""
        mixer = self.mixer
        batch, tokens, _ = x.shape
        query_rows, key_rows, value_rows, gate_rows = self.inputs.rows
        turned, value, gate = self.inputs(x).split([query_rows + key_rows, value_rows, gate_rows], -1)
        if mixer.qk_norm == "full" and self.norm is not None:
            parts = zip(turned.split([query_rows, key_rows], -1), self.norm, strict=True)
            turned = torch.cat([rms_norm(part, weight) for part, weight in parts], -1)
        heads = turned.view(batch, tokens, mixer.heads + mixer.kv_heads, mixer.head_dim)
        if mixer.qk_norm == "head":
            heads = heads_norm(heads, self.norm)
        unturned_keys = heads[:, :, mixer.heads :]
        if self.rotary is not None:
            heads = rotate(heads, *self.rotary.at(start, tokens))
        query, key = heads.transpose(1, 2).split([mixer.heads, mixer.kv_heads], 1)
        values = (
            unturned_keys if mixer.value_is_key else value.view(batch, tokens, mixer.kv_heads, mixer.value_dim)
        ).transpose(1, 2)
        return query, key, values, gate

    def _gated(self, result: Tensor, gate: Tensor) -> Tensor:
        if self.mixer.output_gate == "full":
            return gate_output(result, gate)
        if self.mixer.output_gate == "head":
            wide = gate.repeat_interleave(self.mixer.value_dim, -1)
            return gate_output(result, wide)
        return result
