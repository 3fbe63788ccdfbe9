"""Latent attention (MLA) as a layer: expanded heads for a prompt, absorbed projections for a token."""

from __future__ import annotations

from typing import Any

import torch

from calibrate.operations.attention import causal_attention, latent_decode_attention
from calibrate.operations.rows import gate_output, rms_norm, rotate
from calibrate.stack.cache import LatentCache
from calibrate.stack.linear import Linear
from calibrate.stack.rotary import Rotary
from calibrate.stack.weights import Weights
from capplan.describe.model import LatentAttention

Tensor = Any


def cannot_run(mixer: LatentAttention) -> str:
    """What of a description has no counterpart here, or nothing."""
    features = {
        "an indexer": mixer.indexer is not None,
        "a shared cache": mixer.cache != "own",
        "values wider than keys": mixer.v_head_dim > mixer.qk_head_dim,
    }
    return next((name for name, there in features.items() if there), "")


class LatentLayer:
    """Queries of full or low rank; one latent and one rotary key a token in the cache."""

    def __init__(self, mixer: LatentAttention, hidden: int, weights: Weights, rotary: Rotary) -> None:
        self.mixer = mixer
        self.device, self.dtype = weights.device, weights.dtype
        heads, latent = mixer.heads, mixer.kv_lora_rank
        queries = heads * mixer.qk_head_dim
        self.gate_rows = heads * mixer.v_head_dim if mixer.output_gate == "full" else 0
        first = mixer.q_lora_rank or queries
        biased = ["q_a" in mixer.bias if mixer.q_lora_rank else "q" in mixer.bias, "kv_a" in mixer.bias, False]
        self.inputs = Linear(weights, hidden, [first, mixer.latent_dim, self.gate_rows], biased)
        self.query_norm = weights.vector(first) if mixer.q_lora_rank else None
        self.queries = Linear(weights, first, [queries]) if mixer.q_lora_rank else None
        self.latent_norm = weights.vector(latent)
        self.expand = weights.matrix(heads, mixer.qk_nope_head_dim + mixer.v_head_dim, latent)
        self.output = Linear(weights, heads * mixer.v_head_dim, [hidden], ["o" in mixer.bias])
        self.rotary = rotary.of(mixer.qk_rope_head_dim)

    def new_cache(self, batch: int, length: int) -> LatentCache:
        """An empty cache for `batch` sequences of at most `length` positions."""
        return LatentCache(batch, self.mixer.latent_dim, length, self.device, self.dtype)

    def __call__(self, x: Tensor, cache: LatentCache, start: int) -> Tensor:
        """New positions (b, t, H) after `start` cached ones; a single one is a decode."""
        tokens = x.shape[1]
        plain, turned, latents, gate = self._projected(x, start)
        cache.write(latents, start)
        attend = self._absorbed if tokens == 1 and start else self._expanded
        result = attend(plain, turned, cache.seen(start + tokens))
        return self.output(gate_output(result, gate) if self.gate_rows else result)

    def _projected(self, x: Tensor, start: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries without and with rotation (b, t, h, ·), latents with their rotary key (b, t, c + r), gate."""
        mixer = self.mixer
        batch, tokens, _ = x.shape
        first, both, gate = self.inputs.split(x)
        query = first if self.queries is None else self.queries(rms_norm(first, self.query_norm))
        heads = query.view(batch, tokens, mixer.heads, mixer.qk_head_dim)
        plain, turned = heads.split([mixer.qk_nope_head_dim, mixer.qk_rope_head_dim], -1)
        latent, key = both.split([mixer.kv_lora_rank, mixer.qk_rope_head_dim], -1)
        if self.rotary is not None:
            together = rotate(torch.cat((turned, key[:, :, None]), 2), *self.rotary.at(start, tokens))
            turned, key = together[:, :, :-1], together[:, :, -1]
        return plain, turned, torch.cat((rms_norm(latent, self.latent_norm), key), -1), gate

    def _expanded(self, plain: Tensor, turned: Tensor, seen: Tensor) -> Tensor:
        """Attention with the keys and values of every head: (b, t, h·Dv)."""
        mixer = self.mixer
        batch, tokens = plain.shape[:2]
        latent, key = seen.split([mixer.kv_lora_rank, mixer.qk_rope_head_dim], -1)
        expanded = torch.matmul(latent, self.expand.flatten(0, 1).T).view(batch, seen.shape[1], mixer.heads, -1)
        plain_keys, values = expanded.split([mixer.qk_nope_head_dim, mixer.v_head_dim], -1)
        shared = key[:, :, None].expand(-1, -1, mixer.heads, -1)
        q = torch.cat((plain, turned), -1).transpose(1, 2)
        k = torch.cat((plain_keys, shared), -1).transpose(1, 2)
        result = causal_attention(q, k, values.transpose(1, 2))
        return result.transpose(1, 2).reshape(batch, tokens, -1)

    def _absorbed(self, plain: Tensor, turned: Tensor, seen: Tensor) -> Tensor:
        """Attention with the latents themselves: (b, 1, h·Dv)."""
        mixer = self.mixer
        into, out_of = self.expand.split([mixer.qk_nope_head_dim, mixer.v_head_dim], 1)
        inner = torch.matmul(plain[:, 0].transpose(0, 1), into).transpose(0, 1)
        query = torch.cat((inner, turned[:, 0]), -1)
        scale = mixer.qk_head_dim**-0.5
        result = latent_decode_attention(query, seen, mixer.kv_lora_rank, scale)
        values = torch.matmul(result.transpose(0, 1), out_of.transpose(1, 2)).transpose(0, 1)
        return values.reshape(plain.shape[0], 1, -1)
