"""A layer as operators: its norms and residual sums, its mixers, its feed-forwards, and whatever else it holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from capplan.describe.model import (
    Attention,
    Block,
    CompressedAttention,
    CrossAttention,
    Dense,
    GatedDeltaNet,
    KimiDeltaAttention,
    LatentAttention,
    LightningAttention,
    Mamba,
    Mamba2,
    RecurrentGatedLru,
    ShortConvolution,
    Stack,
)
from capplan.memory.tensors import extra_tensors, norm_tensors
from capplan.work.attention import attention, cross_attention
from capplan.work.compressed import compressed_attention
from capplan.work.feed_forward import dense, mixture_of_experts
from capplan.work.latent import latent_attention
from capplan.work.operators import Operator, Rows, Traffic
from capplan.work.projections import elementwise, remaining, weights_of
from capplan.work.recurrent import (
    gated_delta_net,
    kimi_delta_attention,
    lightning_attention,
    mamba,
    mamba2,
    rg_lru,
    short_convolution,
)
from capplan.work.scope import Scope

MIXER_OPERATORS: dict[type, Callable[[Any, Scope], list[Operator]]] = {
    Attention: attention,
    LatentAttention: latent_attention,
    CrossAttention: cross_attention,
    CompressedAttention: compressed_attention,
    GatedDeltaNet: gated_delta_net,
    KimiDeltaAttention: kimi_delta_attention,
    LightningAttention: lightning_attention,
    Mamba: mamba,
    Mamba2: mamba2,
    RecurrentGatedLru: rg_lru,
    ShortConvolution: short_convolution,
}


def layer_operators(block: Block, stack: Stack, scope: Scope) -> list[Operator]:
    """Everything that one layer of this block does in one step, on one rank."""
    operators = norms_and_residuals(block, stack, scope)
    for mixer in block.mixer:
        operators += MIXER_OPERATORS[type(mixer)](mixer, scope)
    for ffn in block.ffn:
        operators += dense(ffn, scope) if isinstance(ffn, Dense) else mixture_of_experts(ffn, scope)
    return operators + remaining(scope, extra_tensors(block.tensors), scope.tokens)


def norms_and_residuals(block: Block, stack: Stack, scope: Scope) -> list[Operator]:
    """The layer's norms, each fused with a residual sum while there are sums left; sums beyond the norms alone.

    A norm reads and writes ``m·H``; fused, it also reads the branch and writes the sum. One sum a mixer and a
    feed-forward.
    """
    sums, norms = len(block.mixer) + len(block.ffn), block.norms
    fused = min(sums, norms)
    operators = []
    if fused:
        operators.append(norm(stack, scope, "norm with residual", fused, passes=2))
    if norms > fused:
        operators.append(norm(stack, scope, "norm", norms - fused, passes=1))
    for _ in range(sums - fused):
        operators.append(elementwise(scope, "residual sum", "norms", scope.tokens, stack.hidden_size, read=2))
    return operators


def norm(stack: Stack, scope: Scope, name: str, count: int, *, passes: int) -> Operator:
    """`count` norms of the hidden size, each reading and writing `passes` tensors and its own parameters."""
    elements = scope.tokens * stack.hidden_size
    return Operator(
        kind="norm",
        name=name,
        component="norms",
        shape=Rows(scope.tokens, stack.hidden_size),
        count=count,
        traffic=Traffic(
            weights=weights_of(scope, norm_tensors("norm", stack, 1)),
            activations_read=scope.activations(passes * elements),
            activations_written=scope.activations(passes * elements),
        ),
        activation_format=scope.formats.dtype,
    )
