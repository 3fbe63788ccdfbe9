"""What a model is: stacks of layers, each layer a list of mixers and feed-forwards.

A `Stack` names its distinct `Block`s and says in which order they stand, as a formula:
``10*(5*local + global) + 2*local``. A decoder, an encoder, an MTP module and a vision tower are all stacks,
so that parameters, KV cache and work are sums over blocks and no formula multiplies by a number of layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from capplan.describe.layer_formula import expand_layers
from capplan.describe.parts import OneOrMany, Part, TaggedUnion, Whole

Size = Annotated[int, Whole(1)]
Count = Annotated[int, Whole(0)]
Shape = tuple[Size, ...]
Tensors = dict[str, Shape]
Dtype = Literal["fp32", "fp16", "bf16", "fp8"]
Bias = Literal["q", "k", "v", "o", "q_a", "kv_a", "gate", "up", "down"]
Norm = Literal["rms", "layer", "layer_no_bias", "none"]

NORM_VECTORS: dict[Norm, int] = {"rms": 1, "layer": 2, "layer_no_bias": 1, "none": 0}
"""Vectors of parameters that one norm holds: a scale, and for LayerNorm with bias a shift."""


@dataclass(frozen=True, kw_only=True)
class Indexer(Part):
    """The scorer of sparse attention: `heads` query heads of `head_dim` against one cached key a token."""

    heads: Size
    head_dim: Size
    top_k: Size | None = None
    """Tokens (or blocks x block size) that a query then attends to."""
    query_rank: Size | None = None
    """Width of the input of the query projection; None: the hidden size."""
    head_weights: bool = False
    """A projection of the input to one weight a head."""
    norm: Literal["none", "key", "key_with_bias", "query_and_key"] = "none"
    own: bool = True
    """False: this layer reuses the choice of an earlier layer, with no weights and no cache."""


@dataclass(frozen=True, kw_only=True)
class Attention(Part):
    """Softmax attention over a KV cache: MHA, MQA and GQA; full, sliding-window or chunked.

    Sizes per layer: ``heads`` query heads and ``kv_heads`` key/value heads of ``head_dim`` (keys and queries)
    and ``v_head_dim`` (values) elements.
    """

    kind: Literal["attention"] = "attention"
    heads: Size
    kv_heads: Size
    head_dim: Size
    v_head_dim: Size | None = None
    """Values' head dim where it differs from `head_dim`."""
    window: Size | None = None
    """A query sees the last `window` tokens, itself included; None: all."""
    chunk: Size | None = None
    """A query sees only the tokens of its own chunk of this many positions."""
    bias: tuple[Bias, ...] = ()
    qk_norm: Literal["none", "head", "full"] = "none"
    """A norm on queries and keys: one of `head_dim` shared by the heads, or one as wide as all heads."""
    qk_norm_bias: bool = False
    output_gate: Literal["none", "head", "full"] = "none"
    """A sigmoid gate on the output from a projection of the input: one value a head, or one an element."""
    sinks: bool = False
    """One learned sink logit a query head."""
    value_is_key: bool = False
    """Values come from the key projection (no v_proj); both are still cached."""
    cache: Literal["own", "shared", "none"] = "own"
    """`shared` reads an earlier layer's cache; `none` (an encoder) keeps nothing between steps."""
    kv_projection: bool = True
    """False where a layer that reads a shared cache has no key and value projections."""
    causal: bool = True
    indexer: Indexer | None = None
    """Sparse attention: a lightweight scorer picks the tokens; its keys are cached beside K and V."""
    rotary_dim: Count | None = None
    """Rotated elements of a head; None: all of `head_dim`; 0: no rotary embedding."""
    q_lora_rank: Size | None = None
    """Rank of a shared down-projection of the queries (Step-3's MFA); None: straight from the hidden state."""

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads} must be a multiple of kv_heads {self.kv_heads}")
        if self.window and self.chunk:
            raise ValueError("window and chunk cannot both be given")

    @property
    def value_dim(self) -> int:
        """Elements of one value head."""
        return self.v_head_dim or self.head_dim


@dataclass(frozen=True, kw_only=True)
class LatentAttention(Part):
    """Multi-head latent attention (MLA): the cache holds one latent and one rotary key a token.

    Cached elements a token and layer: ``kv_lora_rank + qk_rope_head_dim``, for all heads together.
    """

    kind: Literal["mla"] = "mla"
    heads: Size
    kv_lora_rank: Size
    qk_nope_head_dim: Size
    qk_rope_head_dim: Count
    v_head_dim: Size
    q_lora_rank: Size | None = None
    """Rank of the query's down-projection; None: queries come straight from the hidden state."""
    bias: tuple[Bias, ...] = ()
    output_gate: Literal["none", "full"] = "none"
    indexer: Indexer | None = None
    cache: Literal["own", "shared", "none"] = "own"

    @property
    def latent_dim(self) -> int:
        """Cached elements a token."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    @property
    def qk_head_dim(self) -> int:
        """Elements of one query or key head as computed without absorption."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim


@dataclass(frozen=True, kw_only=True)
class CrossAttention(Part):
    """Attention of a decoder on an encoder's (or a tower's) output: its keys and values are cached once a request."""

    kind: Literal["cross_attention"] = "cross_attention"
    heads: Size
    kv_heads: Size
    head_dim: Size
    source: Literal["encoder", "images"] | Size
    """Where the source length comes from: the encoder's input, the images, or a fixed number of frames."""
    kv_input: Size | None = None
    """Width of the source's hidden state; None: the stack's own."""
    bias: tuple[Bias, ...] = ()
    qk_norm: Literal["none", "head"] = "none"

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads} must be a multiple of kv_heads {self.kv_heads}")


@dataclass(frozen=True, kw_only=True)
class CompressedAttention(Part):
    """DeepSeek-V4's attention: a sliding window of raw tokens beside a cache of compressed ones.

    Every `rate` tokens become one compressed entry of `head_dim`; with an indexer (rate 4) a scorer picks
    among compressed index keys. K and V are one vector (a single KV head); the output goes through
    `groups` low-rank projections.
    """

    kind: Literal["compressed_attention"] = "compressed_attention"
    heads: Size
    head_dim: Size
    q_lora_rank: Size
    o_lora_rank: Size
    o_groups: Size
    window: Size
    rate: Size | None = None
    """Tokens in one compressed entry; None: the window alone."""
    indexer: Indexer | None = None
    overlap: bool = False
    """Compression windows overlap: each entry mixes two neighbouring groups, which doubles the projections."""
    rotary_dim: Count = 0


@dataclass(frozen=True, kw_only=True)
class GatedDeltaNet(Part):
    """Gated delta rule (Qwen3-Next, Qwen3.5): a matrix state of ``value_heads x key_dim x value_dim`` a sequence."""

    kind: Literal["gated_delta_net"] = "gated_delta_net"
    key_heads: Size
    value_heads: Size
    key_dim: Size
    value_dim: Size
    conv_kernel: Size
    state_dtype: Dtype = "fp32"
    engine_state_dtype: Dtype | None = None
    """The dtype that the configuration asks engines to keep the recurrent state in; None: it leaves that to them."""
    projections: Literal["fused", "split", "separate"] = "fused"
    """Matrices: q, k, v and gate in one, beta and decay in another (Qwen3-Next); q, k, v in one and gate, beta, decay
    each in its own (Qwen3.5); each in its own (OLMo hybrid). Their sizes are the same, their names are not."""
    output_gate: bool = True


@dataclass(frozen=True, kw_only=True)
class KimiDeltaAttention(Part):
    """Kimi delta attention (KDA): a delta rule with a decay per channel, gates through low-rank projections."""

    kind: Literal["kimi_delta_attention"] = "kimi_delta_attention"
    heads: Size
    head_dim: Size
    conv_kernel: Size
    state_dtype: Dtype = "fp32"
    full_rank_gate: bool = False
    """The output gate is one projection of full rank instead of two low-rank ones."""


@dataclass(frozen=True, kw_only=True)
class LightningAttention(Part):
    """Lightning attention (MiniMax-Text-01): linear attention with a fixed decay a head."""

    kind: Literal["lightning_attention"] = "lightning_attention"
    heads: Size
    head_dim: Size
    state_dtype: Dtype = "bf16"


@dataclass(frozen=True, kw_only=True)
class Mamba(Part):
    """Mamba-1 selective scan: a state of ``inner x state`` a sequence."""

    kind: Literal["mamba"] = "mamba"
    inner: Size
    state: Size
    conv_kernel: Size
    dt_rank: Size
    conv_bias: bool = True
    projection_bias: bool = False
    inner_norms: bool = False
    """Learned norms on dt, B and C (Jamba)."""
    state_dtype: Dtype = "fp32"


@dataclass(frozen=True, kw_only=True)
class Mamba2(Part):
    """Mamba-2 (SSD): a state of ``heads x head_dim x state`` a sequence, B and C shared by `groups`."""

    kind: Literal["mamba2"] = "mamba2"
    heads: Size
    head_dim: Size
    groups: Size
    state: Size
    conv_kernel: Size
    conv_bias: bool = True
    projection_bias: bool = False
    norm: bool = True
    """A gated RMS norm before the output projection."""
    state_dtype: Dtype = "fp32"
    engine_state_dtype: Dtype | None = None
    """The dtype that the configuration asks engines to keep the recurrent state in; None: it leaves that to them."""

    @property
    def inner(self) -> int:
        """Width of the mixer: heads times head dim."""
        return self.heads * self.head_dim

    @property
    def conv_channels(self) -> int:
        """Channels of the convolution: x, B and C."""
        return self.inner + 2 * self.groups * self.state


@dataclass(frozen=True, kw_only=True)
class RecurrentGatedLru(Part):
    """RG-LRU (RecurrentGemma): an elementwise gated recurrence of `width` channels in `heads` blocks."""

    kind: Literal["rg_lru"] = "rg_lru"
    width: Size
    heads: Size
    conv_kernel: Size
    state_dtype: Dtype = "fp32"


@dataclass(frozen=True, kw_only=True)
class ShortConvolution(Part):
    """A gated short convolution (LFM2): a state of `conv_kernel` columns of the hidden state."""

    kind: Literal["short_convolution"] = "short_convolution"
    conv_kernel: Size
    bias: bool = False


Mixer = Annotated[
    Attention
    | LatentAttention
    | CrossAttention
    | CompressedAttention
    | GatedDeltaNet
    | KimiDeltaAttention
    | LightningAttention
    | Mamba
    | Mamba2
    | RecurrentGatedLru
    | ShortConvolution,
    TaggedUnion("kind"),
]


@dataclass(frozen=True, kw_only=True)
class Dense(Part):
    """A feed-forward of two matrices, or three when gated (SwiGLU, GeGLU)."""

    kind: Literal["dense"] = "dense"
    intermediate_size: Size
    gated: bool = True
    bias: tuple[Bias, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SharedExperts(Part):
    """Experts that every token uses, as one feed-forward of their total width."""

    intermediate_size: Size
    gate: bool = False
    """A sigmoid gate on their output, from a projection of the hidden state to one value."""
    latent: bool = False
    """They act on the latent of the routed experts instead of the hidden state."""
    bias: tuple[Bias, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MixtureOfExperts(Part):
    """Routed experts, of which a token uses `top_k`, beside optional shared experts."""

    kind: Literal["moe"] = "moe"
    experts: Size
    top_k: Size
    intermediate_size: Size
    gated: bool = True
    identity_experts: Count = 0
    """Experts without weights that the router may choose as well (LongCat)."""
    latent_size: Size | None = None
    """Experts act on a down-projection of the hidden state of this width."""
    shared: SharedExperts | None = None
    router_bias: bool = False
    expert_bias: bool = False
    correction_bias: bool = False
    """A buffer of one value an expert for load balance: not a parameter, but stored in the checkpoint (float32)."""

    def __post_init__(self) -> None:
        if self.top_k > self.experts + self.identity_experts:
            raise ValueError(f"top_k {self.top_k} is more than the {self.experts} experts")


FeedForward = Annotated[Dense | MixtureOfExperts, TaggedUnion("kind")]


@dataclass(frozen=True, kw_only=True)
class Block(Part):
    """One layer: its mixers (side by side or one after the other), its feed-forwards, its norms."""

    mixer: Annotated[tuple[Mixer, ...], OneOrMany()] = ()
    ffn: Annotated[tuple[FeedForward, ...], OneOrMany()] = ()
    norms: Count = 2
    """Norms as wide as the hidden size."""
    tensors: Tensors = field(default_factory=dict)
    """Whatever else the layer holds, by name."""
    buffers: Tensors = field(default_factory=dict)
    """What its checkpoint stores that is not a parameter."""

    def __post_init__(self) -> None:
        for name in ("mixer", "ffn"):
            value = getattr(self, name)
            if not isinstance(value, tuple):
                object.__setattr__(self, name, tuple(value) if isinstance(value, list) else (value,))


@dataclass(frozen=True, kw_only=True)
class LayerGroup(Part):
    """Equal layers that follow one another."""

    name: str
    first: Count
    repeat: Size
    block: Block


@dataclass(frozen=True, kw_only=True)
class Stack(Part):
    """Layers of one hidden size, in order, with what stands around them."""

    hidden_size: Size
    norm: Norm = "rms"
    blocks: dict[str, Block]
    layers: str
    """The order of the blocks as a formula, such as ``3*dense + 58*moe``."""
    final_norms: Count = 1
    tensors: Tensors = field(default_factory=dict)
    """Whatever else the stack holds, by name."""
    buffers: Tensors = field(default_factory=dict)
    """What its checkpoint stores around the layers that is not a parameter."""

    _MAX_LAYERS: ClassVar[int] = 4096

    def __post_init__(self) -> None:
        order = expand_layers(self.layers, self.blocks, most=self._MAX_LAYERS)
        unused = [name for name in self.blocks if name not in order]
        if unused:
            raise ValueError(f"layers does not use the block {unused[0]!r}")

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The block name of every layer."""
        return tuple(expand_layers(self.layers, self.blocks, most=self._MAX_LAYERS))

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many layers each block stands for."""
        order = self.order
        return {name: order.count(name) for name in self.blocks}

    @cached_property
    def groups(self) -> tuple[LayerGroup, ...]:
        """Runs of equal layers, in order."""
        runs: list[tuple[str, int, int]] = []
        for index, name in enumerate(self.order):
            if runs and runs[-1][0] == name:
                runs[-1] = (name, runs[-1][1], runs[-1][2] + 1)
            else:
                runs.append((name, index, 1))
        return tuple(
            LayerGroup(name=name, first=first, repeat=repeat, block=self.blocks[name]) for name, first, repeat in runs
        )

    @property
    def depth(self) -> int:
        """The number of layers."""
        return len(self.order)

    def each_block(self) -> Iterator[tuple[str, int, Block]]:
        """(name, number of layers, block) for every distinct block."""
        for name, block in self.blocks.items():
            yield name, self.counts[name], block


@dataclass(frozen=True, kw_only=True)
class Embedding(Part):
    """The token table, what is added to it, and the output head."""

    vocab_size: Size
    size: Size | None = None
    """Columns of the table where they differ from the hidden size."""
    tied: bool = False
    """The head uses the token table."""
    head: bool = True
    """False: the model has no output head (encoders for embeddings)."""
    head_bias: bool = False
    extra_rows: Count = 0
    """Rows of the table beyond the vocabulary, which the head does not have (Llama 3.2 Vision)."""
    positions: Count = 0
    """Rows of a learned position table."""
    token_types: Count = 0
    norms: Count = 0
    """Norms on the embedded tokens."""


@dataclass(frozen=True, kw_only=True)
class PerLayerEmbedding(Part):
    """A second token table that feeds every layer (Gemma 3n): ``vocab_size x (layers x size)``."""

    vocab_size: Size
    size: Size


@dataclass(frozen=True, kw_only=True)
class MtpStack(Stack):
    """Layers that draft further tokens (multi-token prediction), loaded only when speculating."""

    embedding_copy: bool = False
    """The checkpoint stores the token table once more with these layers."""
    head_copy: bool = False


@dataclass(frozen=True, kw_only=True)
class Tower(Stack):
    """An encoder of images or sound, with the projector to the decoder's hidden size."""

    tokens_per_image: Size | None = None


@dataclass(frozen=True, kw_only=True)
class Source(Part):
    """Where a figure came from, and the date it was read."""

    source: str
    date: str = ""


@dataclass(frozen=True, kw_only=True)
class ModelSpec(Stack):
    """A whole model. Its own stack is the decoder (or the encoder, for a model that has no other)."""

    schema: Literal[1] = 1
    name: str
    aliases: tuple[str, ...] = ()
    huggingface_id: str | None = None
    model_type: str | None = None
    dtype: Dtype = "bf16"
    """The dtype of the published, unquantised weights."""
    max_positions: Size | None = None
    cache_positions: Size | None = None
    """A hard stop of the decoder, beyond which nothing is ever cached (Whisper's 448)."""
    embedding: Embedding
    per_layer_embedding: PerLayerEmbedding | None = None
    encoder: Stack | None = None
    mtp: MtpStack | None = None
    towers: dict[str, Tower] = field(default_factory=dict)
    quantisation: dict[str, Any] | None = None
    """The checkpoint's own quantisation configuration, as it stands in its files; None: weights in `dtype`."""
    assumptions: tuple[str, ...] = ()
    sources: dict[str, Source] = field(default_factory=dict)
