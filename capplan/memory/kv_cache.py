"""What attention keeps between steps: one rule a cached tensor, one function a mixer.

A `CacheRule` says how many elements one entry has and how many entries a context of S tokens leaves. All KV
arithmetic of capplan is the sum over rules of

    bytes = B · entries(S) · elements · b

with B sequences and b bytes an element. This is the architectural figure: what the model must keep, not what an
engine reserves for it (blocks, padding, slots), which `capplan.memory.paging` counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from capplan.arrays import ceil_div, minimum
from capplan.describe.model import (
    Attention,
    Block,
    CompressedAttention,
    CrossAttention,
    Indexer,
    LatentAttention,
)

LengthOf = Literal["context", "encoder", "images"]

KV_DTYPE_BYTES: dict[str, int] = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}
"""Bytes of one cached element."""


@dataclass(frozen=True, slots=True)
class CacheRule:
    """One tensor that a layer caches.

    Args:
        name: what is cached.
        elements: elements of one entry, on all ranks together.
        formula: how `elements` comes about, in the field's symbols.
        length_of: which length counts: the context S, the encoder's input, or the image tokens.
        limit: the most tokens that are kept (a window); None: all.
        rate: tokens that share one entry (compression).
        remainder: the tokens that wait for the rest of their group count, one entry each, instead of whole groups.
        fixed: entries whatever the length (a fixed number of frames); overrides `length_of`.
        split: equal pieces that tensor parallelism divides (KV heads); None: every rank keeps all.
    """

    name: str
    elements: int
    formula: str
    length_of: LengthOf = "context"
    limit: int | None = None
    rate: int = 1
    remainder: bool = False
    fixed: int | None = None
    split: int | None = None

    def entries(self, length: Any) -> Any:
        """Entries that `length` tokens leave: ``floor(min(S, limit) / rate)``, or what is over; broadcasts."""
        if self.fixed is not None:
            return self.fixed
        kept = length if self.limit is None else minimum(length, self.limit)
        return kept % self.rate if self.remainder else kept // self.rate

    def growth(self, length: int) -> Fraction:
        """Entries that one more token adds at this length, on average over a compression group."""
        grows = self.fixed is None and self.length_of == "context" and (self.limit is None or length < self.limit)
        grows = grows and not self.remainder
        return Fraction(1, self.rate) if grows else Fraction(0)

    def entries_formula(self) -> str:
        """How the number of entries comes about, in symbols."""
        if self.fixed is not None:
            return str(self.fixed)
        symbol = {"context": "S", "encoder": "S_enc", "images": "S_img"}[self.length_of]
        kept = symbol if self.limit is None else f"min({symbol}, {self.limit})"
        if self.remainder:
            return f"{kept} mod {self.rate}"
        return kept if self.rate == 1 else f"⌊{kept}/{self.rate}⌋"

    def rank_elements(self, tp: int) -> int:
        """Elements of one entry on one of `tp` ranks: ``elements · ceil(split / tp) / split``."""
        if self.split is None:
            return self.elements
        return int(self.elements // self.split * ceil_div(self.split, tp))


def attention(mixer: Attention) -> list[CacheRule]:
    """Full, sliding-window and chunked attention: ``hk · (D + Dv)`` elements a token.

    With D = Dv this is the textbook's ``2·Hkv·D``. A window of W keeps ``min(S, W)`` tokens and a chunk of C at most
    C. A layer that reads another layer's cache, and an encoder layer, keep nothing.

    Source: Ainslie et al., GQA (arXiv:2305.13245); Beltagy et al., Longformer (arXiv:2004.05150) for windows.
    """
    if mixer.cache != "own":
        return []
    elements = mixer.kv_heads * (mixer.head_dim + mixer.value_dim)
    same = mixer.head_dim == mixer.value_dim
    formula = (
        f"2·Hkv·D = 2·{mixer.kv_heads}·{mixer.head_dim}"
        if same
        else f"Hkv·(Dk + Dv) = {mixer.kv_heads}·({mixer.head_dim} + {mixer.value_dim})"
    )
    limit = mixer.window or mixer.chunk
    rules = [CacheRule("keys and values", elements, formula, limit=limit, split=mixer.kv_heads)]
    if mixer.indexer:
        rules += index_keys(mixer.indexer)
    return rules


def index_keys(part: Indexer, rate: int = 1) -> list[CacheRule]:
    """The keys of a sparse-attention scorer: ``Di`` elements a token, whole on every rank.

    Source: DeepSeek-V3.2-Exp report (2025), section 2.1.
    """
    if not part.own:
        return []
    return [CacheRule("indexer keys", part.head_dim, f"Di = {part.head_dim}", rate=rate)]


def latent_attention(mixer: LatentAttention) -> list[CacheRule]:
    """MLA: one latent and one rotary key a token, ``c_kv + d_rope`` elements, whole on every rank.

    Source: DeepSeek-V2 (arXiv:2405.04434), section 2.1 and table 1.
    """
    if mixer.cache != "own":
        return []
    formula = f"kv_lora_rank + qk_rope_head_dim = {mixer.kv_lora_rank} + {mixer.qk_rope_head_dim}"
    rules = [CacheRule("latent and rotary key", mixer.latent_dim, formula)]
    if mixer.indexer:
        rules += index_keys(mixer.indexer)
    return rules


def cross_attention(mixer: CrossAttention) -> list[CacheRule]:
    """Keys and values of the source, computed once a request: ``2·hk·D`` elements a source token.

    Source: Vaswani et al. (arXiv:1706.03762), section 3.2.3.
    """
    elements = 2 * mixer.kv_heads * mixer.head_dim
    formula = f"2·Hkv·D = 2·{mixer.kv_heads}·{mixer.head_dim}"
    if isinstance(mixer.source, int):
        return [CacheRule("cross keys and values", elements, formula, fixed=mixer.source, split=mixer.kv_heads)]
    return [CacheRule("cross keys and values", elements, formula, length_of=mixer.source, split=mixer.kv_heads)]


def compressed_attention(mixer: CompressedAttention) -> list[CacheRule]:
    """DeepSeek-V4: the last W - 1 raw tokens (K and V both stored) and one entry of D a group of `rate` tokens.

    What transformers' own cache keeps, with K and V of the window stored apart although they are equal. Tokens whose
    group is not full yet wait as projections, an entry and a gate each, of twice the width where groups overlap.

    Source: transformers 5.24.0, models/deepseek_v4 (cache classes).
    """
    dim = mixer.head_dim
    rules = [CacheRule("window keys and values", 2 * dim, f"2·D = 2·{dim}", limit=mixer.window - 1)]
    if mixer.rate:
        rules.append(CacheRule("compressed entries", dim, f"D = {dim}", rate=mixer.rate))
        rules.append(waiting_tokens("entries", dim, mixer.rate, mixer.overlap))
        if mixer.indexer:
            rules += index_keys(mixer.indexer, rate=mixer.rate)
            rules.append(waiting_tokens("indexer keys", mixer.indexer.head_dim, mixer.rate, mixer.overlap))
    return rules


def waiting_tokens(name: str, dim: int, rate: int, overlap: bool) -> CacheRule:
    """Tokens that wait for their compression group to fill: ``2·D`` elements each, or ``4·D`` where groups overlap."""
    factor = 4 if overlap else 2
    return CacheRule(
        f"waiting {name} and gates", factor * dim, f"{factor}·D = {factor}·{dim}", rate=rate, remainder=True
    )


MIXER_CACHE: dict[type, Callable[[Any], list[CacheRule]]] = {
    Attention: attention,
    LatentAttention: latent_attention,
    CrossAttention: cross_attention,
    CompressedAttention: compressed_attention,
}
"""The rules of each mixer that caches; the others keep a state of fixed size (`capplan.memory.recurrent_state`)."""


def cache_rules(block: Block) -> list[CacheRule]:
    """Everything that one layer of this block caches."""
    return [rule for mixer in block.mixer for rule in MIXER_CACHE.get(type(mixer), _nothing)(mixer)]


def _nothing(mixer: Any) -> list[CacheRule]:
    return []


def kv_bytes(layers: Any, sequences: Any, length: Any, kv_heads: Any, head_dim: Any, item_bytes: Any) -> Any:
    """The textbook's formula for layers that are all alike: ``2·L·B·S·Hkv·D·b`` bytes; broadcasts.

    Args:
        layers: L, layers with a full cache.
        sequences: B, sequences of equal length.
        length: S, tokens in each.
        kv_heads: Hkv, key/value heads.
        head_dim: D, elements of one head.
        item_bytes: b, bytes of one element.

    Leaves out windows, latents, shared caches, states and everything that an engine adds.
    Source: Pope et al., Efficiently Scaling Transformer Inference (arXiv:2211.05102), section 3.3.
    """
    return 2 * layers * sequences * length * kv_heads * head_dim * item_bytes
