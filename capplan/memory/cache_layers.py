"""What each layer asks of an engine's cache on one rank: bytes a token and a span, or a state of fixed size.

`capplan.memory.kv_cache` says what a model must keep; here is what an engine keeps for it: the rank's share of the
heads, the engine's layout of latents and scales, its dtype and length of states, layers that only draft.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import prod
from typing import Any, Literal

from capplan.arrays import ceil_div
from capplan.describe.engine import EngineRules
from capplan.describe.formats_plain import DTYPE_BYTES
from capplan.describe.model import (
    Attention,
    CompressedAttention,
    CrossAttention,
    Indexer,
    LatentAttention,
    Mamba2,
    ModelSpec,
    Stack,
)
from capplan.identity import Same
from capplan.memory.kv_format import KvFormat
from capplan.memory.recurrent_state import MIXER_STATE, StateTensor

Kind = Literal["full", "window", "chunk", "state", "cross"]
Bytes = int | Fraction

_INDEX_SCALE_GROUP = 128
"""Elements of an indexer key that share one scale. Source: DeepSeek-V3.2-Exp's reference code."""
_COMPRESSED_SCALE_BYTES = 8


@dataclass(frozen=True, slots=True)
class CacheLayer:
    """One cache that one layer keeps, on one rank.

    Args:
        layer: the layer's number in its stack; drafting layers count on behind the model's own.
        kind: ``full`` grows with the context, ``window`` and ``chunk`` up to their span, ``cross`` holds the source,
            ``state`` is of fixed size.
        token_bytes: bytes a token, keys and values together.
        value_bytes: those of the values, where they are stored apart.
        span: tokens of the window, the chunk or the source.
        state_bytes: bytes of the state of one sequence.
        convolution_bytes: those of the convolution's columns among them.
        attention: an attention layer's main cache, whose page a state may have to fit.
    """

    layer: int
    kind: Kind
    token_bytes: Bytes = 0
    value_bytes: Bytes = 0
    span: int | None = None
    state_bytes: int = 0
    convolution_bytes: int = 0
    attention: bool = True


@dataclass(frozen=True, slots=True)
class CacheRequest:
    """What the caches depend on beside the model.

    Args:
        rules: the engine.
        kv: how keys and values are stored.
        tp: ranks that share every layer.
        model_dtype: the dtype of activations.
        state_dtype: the dtype of recurrent states, where the user says it.
        draft_tokens: tokens that are drafted a step.
        source_tokens: tokens that cross-attention has room for; None: what the model's description says.
    """

    rules: EngineRules
    kv: KvFormat
    tp: int = 1
    model_dtype: str = "bf16"
    state_dtype: str | None = None
    draft_tokens: int = 0
    source_tokens: int | None = None


def cache_layers(spec: ModelSpec, request: CacheRequest) -> tuple[CacheLayer, ...]:
    """Every cache of the model's layers, and of its drafting layers when it speculates with them."""
    return _cache_layers(Same(spec), request)


@lru_cache(maxsize=256)
def _cache_layers(key: Same[ModelSpec], request: CacheRequest) -> tuple[CacheLayer, ...]:
    spec = key.value
    layers = list(_stack_layers(spec, request, 0))
    if request.draft_tokens and spec.mtp is not None:
        layers += _stack_layers(spec.mtp, request, spec.depth)
    return tuple(layers)


def _stack_layers(stack: Stack, request: CacheRequest, first: int) -> Iterator[CacheLayer]:
    by_block = {name: _block_caches(stack, name, request) for name in stack.blocks}
    for number, name in enumerate(stack.order):
        for cache in by_block[name]:
            yield replace(cache, layer=first + number)


def _block_caches(stack: Stack, name: str, request: CacheRequest) -> list[CacheLayer]:
    caches: list[CacheLayer] = []
    for mixer in stack.blocks[name].mixer:
        keeps = _MIXER_CACHES.get(type(mixer))
        if keeps is not None:
            caches += keeps(mixer, request)
        if type(mixer) in MIXER_STATE and not isinstance(mixer, CompressedAttention):
            states = MIXER_STATE[type(mixer)](mixer, stack.hidden_size)
            sizes = [(state.name, _state_bytes(state, mixer, request)) for state in states]
            columns = sum(size for part, size in sizes if part == "convolution")
            total = sum(size for _, size in sizes)
            caches.append(CacheLayer(0, "state", state_bytes=total, convolution_bytes=columns, attention=False))
    return caches


def _whole(value: Fraction) -> Bytes:
    return value.numerator if value.denominator == 1 else value


def _head_bytes(heads: int, key_dim: int, value_dim: int, request: CacheRequest) -> tuple[Bytes, Bytes]:
    """(bytes, those of values) a token on the rank that holds most: ``⌈Hkv/tp⌉ · (Dk·bk + Dv·bv + scales)``."""
    kv, held = request.kv, ceil_div(heads, request.tp)
    key = held * (key_dim * kv.key_bits / 8 + kv.scale_bytes)
    value = held * (value_dim * kv.value_bits / 8 + kv.scale_bytes)
    return _whole(key + value), _whole(value)


def _attention(mixer: Attention, request: CacheRequest) -> list[CacheLayer]:
    if mixer.cache != "own":
        return []
    token_bytes, value_bytes = _head_bytes(mixer.kv_heads, mixer.head_dim, mixer.value_dim, request)
    kind: Kind = "window" if mixer.window else "chunk" if mixer.chunk else "full"
    own = CacheLayer(0, kind, token_bytes, value_bytes, mixer.window or mixer.chunk)
    return [own, *_index_keys(mixer.indexer, request)]


def _latent(mixer: LatentAttention, request: CacheRequest) -> list[CacheLayer]:
    """The latent, whole on every rank; or keys and values of all heads, as engines kept them before MLA kernels."""
    rules, kv = request.rules, request.kv
    if mixer.cache != "own":
        return []
    if rules.latent_cache == "expanded":
        multiple = rules.expanded_head_multiple
        key = ceil_div(mixer.qk_head_dim, multiple) * multiple
        value = ceil_div(mixer.v_head_dim, multiple) * multiple
        return [CacheLayer(0, "full", *_head_bytes(mixer.heads, key, value, request))]
    token_bytes = _whole(mixer.latent_dim * kv.key_bits / 8)
    if mixer.indexer and kv.eight_bit and rules.sparse_latent_bytes is not None:
        token_bytes = rules.sparse_latent_bytes
    return [CacheLayer(0, "full", token_bytes), *_index_keys(mixer.indexer, request)]


def _index_keys(indexer: Indexer | None, request: CacheRequest, rate: int = 1) -> list[CacheLayer]:
    """One key a token (or compressed entry), in 8 bits with scales where the engine has that layout."""
    if indexer is None or not indexer.own:
        return []
    scale = request.rules.sparse_index_scale_bytes
    entry = (
        Fraction(indexer.head_dim + scale * ceil_div(indexer.head_dim, _INDEX_SCALE_GROUP))
        if scale
        else indexer.head_dim * request.kv.key_bits / 8
    )
    return [CacheLayer(0, "full", _whole(entry / rate), attention=False)]


def _cross(mixer: CrossAttention, request: CacheRequest) -> list[CacheLayer]:
    fixed = mixer.source if isinstance(mixer.source, int) else None
    span = max(fixed or 0, request.source_tokens or 0)
    return [CacheLayer(0, "cross", *_head_bytes(mixer.kv_heads, mixer.head_dim, mixer.head_dim, request), span)]


def _compressed(mixer: CompressedAttention, request: CacheRequest) -> list[CacheLayer]:
    """DeepSeek-V4: a window of raw entries, one entry for each `rate` tokens, and the indexer's keys for those.

    K and V are one vector. In 8 bits its rotary part stays in 16, with scales beside it.
    """
    kv, dim = request.kv, mixer.head_dim
    entry = dim * kv.key_bits / 8
    if kv.eight_bit:
        entry = Fraction(dim + mixer.rotary_dim + _COMPRESSED_SCALE_BYTES)
    caches = [CacheLayer(0, "window", _whole(entry), span=mixer.window)]
    if mixer.rate:
        caches.append(CacheLayer(0, "full", _whole(entry / mixer.rate), attention=False))
        caches += _index_keys(mixer.indexer, request, mixer.rate)
    return caches


_MIXER_CACHES: dict[type, Callable[[Any, CacheRequest], list[CacheLayer]]] = {
    Attention: _attention,
    LatentAttention: _latent,
    CrossAttention: _cross,
    CompressedAttention: _compressed,
}


def _state_bytes(state: StateTensor, mixer: Any, request: CacheRequest) -> int:
    """Bytes of one state tensor on one rank, in the engine's dtype and with its columns of the convolution.

    While drafting, a convolution also keeps the columns of the drafted tokens, so that they can be taken back.
    """
    rules = request.rules
    shape = state.shape
    if state.name == "convolution":
        drafted = request.draft_tokens if rules.pool == "groups" else 0
        kept = max(0, mixer.conv_kernel - rules.convolution_columns_dropped)
        if isinstance(mixer, Mamba2):
            channels = _mamba2_channels(mixer, request.tp)
            return channels * (int(kept) + drafted) * _convolution_item(request)
        shape = (shape[0], kept + drafted)
        item = _convolution_item(request)
    else:
        item = DTYPE_BYTES[_recurrent_dtype(mixer, request)]
    total = prod(shape) * item
    return total if state.split is None else int(total // state.split * ceil_div(state.split, request.tp))


def _convolution_item(request: CacheRequest) -> int:
    """Bytes of one element of a convolution's columns."""
    dtype = request.rules.convolution_dtype
    return DTYPE_BYTES[request.model_dtype if dtype == "model" else dtype]


def _mamba2_channels(mixer: Mamba2, tp: int) -> int:
    """Channels of the convolution on one rank: its heads' x, and B and C of its groups, of which it has one at least.

    Source: vLLM, vllm/model_executor/layers/mamba/mamba_utils.py (extra_groups_for_head_shards).
    """
    return int(ceil_div(mixer.inner, tp) + 2 * ceil_div(mixer.groups, tp) * mixer.state)


def _recurrent_dtype(mixer: Any, request: CacheRequest) -> str:
    """The user's word, the release's, or the engine's rule; delta rules with a decay a channel (KDA) stay fp32."""
    declared = request.state_dtype or getattr(mixer, "engine_state_dtype", None)
    if declared:
        return str(declared)
    if request.rules.state_dtype == "reference":
        return str(mixer.state_dtype)
    always_fp32 = mixer.kind == "kimi_delta_attention" or request.rules.state_dtype == "fp32"
    return "fp32" if always_fp32 else request.model_dtype
