"""Memory that a step needs beside weights and caches: activations, logits, adapters, an encoder's working set.

PyTorch frees a layer's intermediates as soon as they are used, so that the peak is that of the widest layer, or of the
sampler, whichever is larger:

    peak = max( T · b · (3·H + widest layer), R · V · s )

T tokens of a step, H hidden size, b bytes of an activation, R sequences, V vocabulary, s bytes that the sampler needs
for one logit. An engine measures this by a trial run; the interval says how far its figure has been seen from this.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from capplan.arrays import ceil_div
from capplan.describe.formats_plain import DTYPE_BYTES
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
    MixtureOfExperts,
    ModelSpec,
    RecurrentGatedLru,
    Stack,
)
from capplan.memory.tensors import block_tensors

PEAK_LOW, PEAK_HIGH = Fraction(3, 5), Fraction(8, 5)
"""The trial run's peak over the formula's. Source: start-up logs of Llama-3.1-8B (20,000 and 29,000 tokens a step) and
Llama-3.3-70B (8,192), where it is within 5 %; wider for kernels with workspaces of their own."""
PATCHES_PER_TOKEN = 4
"""Patches that a vision tower merges into one token. Source: Qwen2-VL (arXiv:2409.12191), section 2.1."""


@dataclass(frozen=True, slots=True)
class Peak:
    """An estimated peak with its interval, in bytes.

    Args:
        bytes: the estimate.
        low: the least that has been seen.
        high: the most.
        formula: how it comes about, in numbers.
    """

    bytes: int
    low: int
    high: int
    formula: str


def activation_peak(
    spec: ModelSpec, *, tokens: int, sequences: int, tp: int, moe_tp: int, dtype: str, logit_bytes: int
) -> Peak:
    """The larger of the widest layer's working set and the sampler's.

    Args:
        spec: the model.
        tokens: T, tokens of one step.
        sequences: R, sequences that are sampled for at once.
        tp: ranks that share a layer.
        moe_tp: ranks that share one expert by width.
        dtype: the dtype of activations.
        logit_bytes: s, bytes that the sampler needs for one logit.
    """
    item = max(2, DTYPE_BYTES[dtype])
    hidden = spec.hidden_size
    widest = max(layer_width(block, tp, moe_tp, hidden) for block in spec.blocks.values())
    layer = tokens * item * (3 * hidden + widest)
    rows = min(sequences, tokens) if spec.embedding.head else 0
    sampler = rows * spec.embedding.vocab_size * logit_bytes
    if sampler > layer:
        formula = f"R·V·s = {rows} · {spec.embedding.vocab_size} · {logit_bytes} (the sampler)"
    else:
        formula = f"T·b·(3·H + widest) = {tokens} · {item} · (3 · {hidden} + {widest}) (the widest layer)"
    return _interval(max(layer, sampler), formula)


def _interval(size: int, formula: str) -> Peak:
    return Peak(size, int(size * PEAK_LOW), int(size * PEAK_HIGH), formula)


def layer_width(block: Block, tp: int, moe_tp: int, hidden: int) -> int:
    """Elements a token of the widest of a layer's mixers and feed-forwards on one rank."""
    mixers = [_mixer_width(mixer, tp) for mixer in block.mixer]
    ffns = [
        _dense_width(ffn, tp) if isinstance(ffn, Dense) else _expert_width(ffn, tp, moe_tp, hidden) for ffn in block.ffn
    ]
    return max([*mixers, *ffns], default=0)


def _dense_width(ffn: Dense, tp: int) -> int:
    """Gate and up side by side, and their product: ``3·I/tp`` where gated, else ``2·I/tp``."""
    return (3 if ffn.gated else 2) * int(ceil_div(ffn.intermediate_size, tp))


def _expert_width(ffn: MixtureOfExperts, tp: int, moe_tp: int, hidden: int) -> int:
    """``k·(3·I/tp + H)``: a token's copies for each of its experts, and the shared experts' share."""
    width = int(ceil_div(ffn.intermediate_size, moe_tp))
    routed = ffn.top_k * ((3 if ffn.gated else 2) * width + (ffn.latent_size or hidden))
    shared = 3 * int(ceil_div(ffn.shared.intermediate_size, tp)) if ffn.shared else 0
    return routed + shared


def _mixer_width(mixer: object, tp: int) -> int:
    """Queries, keys, values and the output of the heads on one rank; projections of recurrent mixers alike."""
    if isinstance(mixer, (Attention, CrossAttention)):
        value = mixer.value_dim if isinstance(mixer, Attention) else mixer.head_dim
        heads, kv_heads = int(ceil_div(mixer.heads, tp)), int(ceil_div(mixer.kv_heads, tp))
        return heads * (mixer.head_dim + value) + kv_heads * (mixer.head_dim + value)
    if isinstance(mixer, LatentAttention):
        heads = int(ceil_div(mixer.heads, tp))
        return heads * (2 * mixer.qk_head_dim + 2 * mixer.v_head_dim) + mixer.latent_dim + (mixer.q_lora_rank or 0)
    if isinstance(mixer, CompressedAttention):
        return int(ceil_div(mixer.heads, tp)) * 2 * mixer.head_dim + mixer.q_lora_rank
    return int(ceil_div(3 * _inner_width(mixer), tp))


def _inner_width(mixer: object) -> int:
    """Channels of a recurrent mixer."""
    if isinstance(mixer, GatedDeltaNet):
        return 2 * mixer.key_heads * mixer.key_dim + 2 * mixer.value_heads * mixer.value_dim
    if isinstance(mixer, (KimiDeltaAttention, LightningAttention)):
        return 4 * mixer.heads * mixer.head_dim
    if isinstance(mixer, Mamba):
        return 2 * mixer.inner
    if isinstance(mixer, Mamba2):
        return mixer.inner + mixer.conv_channels
    return 2 * mixer.width if isinstance(mixer, RecurrentGatedLru) else 0


def encoder_peak(stack: Stack, *, tokens: int, tp: int, dtype: str) -> Peak:
    """The working set of a tower that encodes `tokens` tokens' worth of images or sound at once.

    A vision tower has `PATCHES_PER_TOKEN` patches a token of the decoder; an encoder of text or sound one position.
    """
    item = max(2, DTYPE_BYTES[dtype])
    hidden = stack.hidden_size
    widest = max((layer_width(block, tp, tp, hidden) for block in stack.blocks.values()), default=0)
    size = tokens * item * (3 * hidden + widest)
    return Peak(size, size // 3, 2 * size, f"T·b·(3·H + widest) = {tokens} · {item} · (3 · {hidden} + {widest})")


def adapter_bytes(spec: ModelSpec, layers: range, *, rank: int, adapters: int, tp: int, dtype: str) -> int:
    """Bytes of the slots for LoRA adapters on one rank of a stage: ``n · Σ_maps r·(K + N)·b``.

    Column-parallel maps hold A whole and their share of B, row-parallel ones the other way round. Routed experts, the
    tables and the head have no adapters.

    Source: Hu et al., LoRA (arXiv:2106.09685); vLLM, vllm/lora/layers (stacked adapter weights).
    """
    here = [spec.order[layer] for layer in layers]
    elements = 0
    for name in set(here):
        for tensor in block_tensors(spec.blocks[name], spec):
            if not tensor.linear or tensor.component in ("router", "experts_routed", "indexer", "other"):
                continue
            rows, columns = tensor.shape
            if tensor.split is not None and tensor.split.axis == 0:
                rows = int(ceil_div(rows, tp))
            elif tensor.split is not None:
                columns = int(ceil_div(columns, tp))
            elements += here.count(name) * tensor.count * rank * (rows + columns)
    return adapters * elements * max(2, DTYPE_BYTES[dtype])


def medusa_bytes(spec: ModelSpec, *, heads: int, tp: int, dtype: str) -> int:
    """Bytes of Medusa heads on one rank: ``n · (H² + H + H·V/tp) · b``, a residual block and a head each.

    Source: Cai et al., Medusa (arXiv:2401.10774), section 2.1.1.
    """
    hidden = spec.hidden_size
    one = hidden * hidden + hidden + hidden * int(ceil_div(spec.embedding.vocab_size, tp))
    return heads * one * max(2, DTYPE_BYTES[dtype])
