"""What linear attention, state-space layers and convolutions keep: a state of fixed size a sequence.

Each mixer names its state tensors with their shapes and dtypes. A convolution keeps ``kernel`` columns of its
channels (an engine may keep ``kernel - 1``); recurrent states have the dtype in which the model's reference code
keeps them, whatever the KV cache's dtype is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

from capplan.arrays import ceil_div
from capplan.describe.formats_plain import DTYPE_BYTES
from capplan.describe.model import (
    Block,
    CompressedAttention,
    GatedDeltaNet,
    KimiDeltaAttention,
    LightningAttention,
    Mamba,
    Mamba2,
    RecurrentGatedLru,
    ShortConvolution,
)

CONVOLUTION_DTYPE = "bf16"
"""Convolution states are activations, kept in the 16-bit dtype of the model."""


@dataclass(frozen=True, slots=True)
class StateTensor:
    """One state tensor of a layer, for one sequence.

    Args:
        name: what it is.
        shape: its shape.
        dtype: its dtype, which a KV dtype does not change.
        split: equal pieces that tensor parallelism divides (heads, channels); None: every rank keeps all.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    split: int | None = None

    @property
    def bytes(self) -> int:
        """``prod(shape) · b``."""
        return prod(self.shape) * DTYPE_BYTES[self.dtype]

    def rank_bytes(self, tp: int) -> int:
        """Bytes on one of `tp` ranks."""
        if self.split is None:
            return self.bytes
        return int(self.bytes // self.split * ceil_div(self.split, tp))


def convolution(channels: int, kernel: int, split: int | None = None) -> StateTensor:
    """The last `kernel` inputs of a causal convolution over `channels`."""
    return StateTensor("convolution", (channels, kernel), CONVOLUTION_DTYPE, split or channels)


def gated_delta_net(mixer: GatedDeltaNet) -> list[StateTensor]:
    """A matrix ``Dk x Dv`` a value head, and the convolution over q, k and v.

    Source: Yang et al., Gated Delta Networks (arXiv:2412.06464).
    """
    channels = 2 * mixer.key_heads * mixer.key_dim + mixer.value_heads * mixer.value_dim
    shape = (mixer.value_heads, mixer.key_dim, mixer.value_dim)
    return [
        convolution(channels, mixer.conv_kernel, mixer.key_heads),
        StateTensor("recurrent", shape, mixer.state_dtype, mixer.value_heads),
    ]


def kimi_delta_attention(mixer: KimiDeltaAttention) -> list[StateTensor]:
    """A matrix ``D x D`` a head, and the convolutions over q, k and v.

    Source: Kimi Linear (arXiv:2510.26692), section 3.
    """
    width = mixer.heads * mixer.head_dim
    shape = (mixer.heads, mixer.head_dim, mixer.head_dim)
    return [
        convolution(3 * width, mixer.conv_kernel, mixer.heads),
        StateTensor("recurrent", shape, mixer.state_dtype, mixer.heads),
    ]


def lightning_attention(mixer: LightningAttention) -> list[StateTensor]:
    """A matrix ``D x D`` a head.

    Source: MiniMax-01 (arXiv:2501.08313), section 2.2.
    """
    shape = (mixer.heads, mixer.head_dim, mixer.head_dim)
    return [StateTensor("recurrent", shape, mixer.state_dtype, mixer.heads)]


def mamba(mixer: Mamba) -> list[StateTensor]:
    """A vector of `state` a channel, and the convolution over the channels.

    Source: Gu and Dao, Mamba (arXiv:2312.00752), section 3.
    """
    return [
        convolution(mixer.inner, mixer.conv_kernel),
        StateTensor("recurrent", (mixer.inner, mixer.state), mixer.state_dtype, mixer.inner),
    ]


def mamba2(mixer: Mamba2) -> list[StateTensor]:
    """A matrix ``head_dim x state`` a head, and the convolution over x, B and C.

    Source: Dao and Gu, Mamba-2 (arXiv:2405.21060), section 7.
    """
    shape = (mixer.heads, mixer.head_dim, mixer.state)
    return [
        convolution(mixer.conv_channels, mixer.conv_kernel),
        StateTensor("recurrent", shape, mixer.state_dtype, mixer.heads),
    ]


def rg_lru(mixer: RecurrentGatedLru) -> list[StateTensor]:
    """One value a channel, and the last ``kernel - 1`` inputs of the convolution (its module keeps one slot less).

    Source: De et al., Griffin (arXiv:2402.19427), section 2.4.
    """
    return [
        convolution(mixer.width, mixer.conv_kernel - 1),
        StateTensor("recurrent", (mixer.width,), mixer.state_dtype, mixer.width),
    ]


def compressed_attention(mixer: CompressedAttention) -> list[StateTensor]:
    """The last group of an overlapping compressor: its entries and their float32 gates, for keys and for the indexer.

    Source: transformers 5.24.0, models/deepseek_v4 (cache classes).
    """
    if not (mixer.rate and mixer.overlap):
        return []
    widths = [mixer.head_dim] + ([mixer.indexer.head_dim] if mixer.indexer else [])
    return [
        StateTensor(name, (mixer.rate, width), dtype)
        for width in widths
        for name, dtype in (("overlap entries", CONVOLUTION_DTYPE), ("overlap gates", "fp32"))
    ]


MIXER_STATE: dict[type, Callable[[Any, int], list[StateTensor]]] = {
    GatedDeltaNet: lambda mixer, hidden: gated_delta_net(mixer),
    KimiDeltaAttention: lambda mixer, hidden: kimi_delta_attention(mixer),
    LightningAttention: lambda mixer, hidden: lightning_attention(mixer),
    Mamba: lambda mixer, hidden: mamba(mixer),
    Mamba2: lambda mixer, hidden: mamba2(mixer),
    RecurrentGatedLru: lambda mixer, hidden: rg_lru(mixer),
    CompressedAttention: lambda mixer, hidden: compressed_attention(mixer),
    ShortConvolution: lambda mixer, hidden: [convolution(hidden, mixer.conv_kernel)],
}


def state_tensors(block: Block, hidden: int) -> list[StateTensor]:
    """Every state tensor of one layer of this block, for one sequence."""
    return [
        state
        for mixer in block.mixer
        if type(mixer) in MIXER_STATE
        for state in MIXER_STATE[type(mixer)](mixer, hidden)
    ]
