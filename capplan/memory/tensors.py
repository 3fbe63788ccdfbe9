"""Which tensors a model holds: the one inventory behind parameters, weight bytes, shards and work.

Every mixer and feed-forward names its tensors with their shapes; a layer's tensors are theirs plus its norms,
and a stack's are its layers' plus what stands around them. Names follow the modules of transformers where the
family has them (``self_attn.q_proj.weight``), so that a quantisation config's lists can be applied to them.

Shapes are ``(rows, columns)`` = ``(output features, input features)`` for the matrix of a linear map.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any, Literal

from capplan.describe.model import (
    NORM_VECTORS,
    Attention,
    Block,
    CompressedAttention,
    CrossAttention,
    Dense,
    GatedDeltaNet,
    Indexer,
    KimiDeltaAttention,
    LatentAttention,
    LightningAttention,
    Mamba,
    Mamba2,
    MixtureOfExperts,
    ModelSpec,
    RecurrentGatedLru,
    ShortConvolution,
    Stack,
)
from capplan.identity import Same

Component = Literal[
    "embedding",
    "attention",
    "linear_mixer",
    "indexer",
    "mlp",
    "router",
    "experts_routed",
    "experts_shared",
    "norms",
    "other",
    "head",
]


@dataclass(frozen=True, slots=True)
class Split:
    """How tensor parallelism divides a tensor: `axis` holds `units` equal pieces, of which a rank holds a share.

    A rank of `tp` holds ``ceil(units / tp)`` pieces; where ranks outnumber the pieces each holds one (replicated).
    """

    axis: int
    units: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a layer or of a stack, or `count` equal ones.

    Args:
        name: its module and parameter name inside the layer or stack; ``*`` stands for an expert's number.
        component: which part of the model it belongs to.
        shape: its shape.
        count: how many equal tensors stand under the name (experts).
        active: how many of them one token uses.
        split: how tensor parallelism divides it; None: every rank holds all of it.
        linear: the weight matrix of a linear map (what weight quantisation may apply to).
        trained: False for a buffer, which a checkpoint stores but which is not a parameter.
    """

    name: str
    component: Component
    shape: tuple[int, ...]
    count: int = 1
    active: int | None = None
    split: Split | None = None
    linear: bool = False
    trained: bool = True

    @property
    def elements(self) -> int:
        """Elements of all `count` tensors."""
        return prod(self.shape) * self.count

    @property
    def active_elements(self) -> int:
        """Elements that one token uses."""
        return prod(self.shape) * (self.count if self.active is None else self.active)

    def rank_elements(self, tp: int, ep: int = 1) -> int:
        """Elements on the rank that holds most, with `tp` ranks a tensor and `ep` groups of experts."""
        shape = self.shape
        if self.split is not None:
            pieces = -(-self.split.units // tp)
            whole = shape[self.split.axis]
            shape = (*shape[: self.split.axis], whole * pieces // self.split.units, *shape[self.split.axis + 1 :])
        return prod(shape) * -(-self.count // ep)


def linear(
    name: str,
    component: Component,
    rows: int,
    columns: int,
    *,
    bias: bool = False,
    split: Split | None = None,
) -> list[Tensor]:
    """The weight of a linear map, and its bias (which splits only with the rows)."""
    tensors = [Tensor(f"{name}.weight", component, (rows, columns), split=split, linear=True)]
    if bias:
        tensors.append(Tensor(f"{name}.bias", component, (rows,), split=split if split and split.axis == 0 else None))
    return tensors


def vector(name: str, component: Component, *shape: int, split: Split | None = None) -> Tensor:
    """A tensor that is no matrix of a linear map."""
    return Tensor(name, component, shape, split=split)


def norm_tensors(name: str, stack: Stack, count: int, width: int | None = None) -> list[Tensor]:
    """`count` norms of the stack's kind, as wide as the hidden size unless told."""
    vectors = NORM_VECTORS[stack.norm] * count
    return [Tensor(f"{name}.weight", "norms", (width or stack.hidden_size,), count=vectors)] if vectors else []


def attention(mixer: Attention, hidden: int) -> list[Tensor]:
    """Q ``h·D x H``, K ``hk·D x H``, V ``hk·Dv x H``, O ``H x h·Dv``, with norms, gates, sinks and biases."""
    heads, kv_heads, dim, value_dim = mixer.heads, mixer.kv_heads, mixer.head_dim, mixer.value_dim
    by_head, by_kv = Split(0, heads), Split(0, kv_heads)
    name = "self_attn"
    if mixer.q_lora_rank is None:
        tensors = linear(f"{name}.q_proj", "attention", heads * dim, hidden, bias="q" in mixer.bias, split=by_head)
    else:
        tensors = linear(f"{name}.q_a_proj", "attention", mixer.q_lora_rank, hidden)
        tensors.append(vector(f"{name}.q_a_norm.weight", "attention", mixer.q_lora_rank))
        tensors += linear(f"{name}.q_b_proj", "attention", heads * dim, mixer.q_lora_rank, split=by_head)
    if mixer.kv_projection:
        tensors += linear(f"{name}.k_proj", "attention", kv_heads * dim, hidden, bias="k" in mixer.bias, split=by_kv)
        if not mixer.value_is_key:
            rows = kv_heads * value_dim
            tensors += linear(f"{name}.v_proj", "attention", rows, hidden, bias="v" in mixer.bias, split=by_kv)
    columns = heads * value_dim
    out_split = Split(1, heads)
    tensors += linear(f"{name}.o_proj", "attention", hidden, columns, bias="o" in mixer.bias, split=out_split)
    if mixer.output_gate != "none":
        rows = heads if mixer.output_gate == "head" else heads * value_dim
        tensors += linear(f"{name}.gate_proj", "attention", rows, hidden, split=by_head)
    if mixer.qk_norm != "none":
        wide = mixer.qk_norm == "full"
        norms = [("q_norm", heads * dim if wide else dim, by_head if wide else None)]
        if mixer.kv_projection:
            norms.append(("k_norm", kv_heads * dim if wide else dim, by_kv if wide else None))
        for norm, width, split in norms:
            tensors.append(vector(f"{name}.{norm}.weight", "attention", width, split=split))
            if mixer.qk_norm_bias:
                tensors.append(vector(f"{name}.{norm}.bias", "attention", width, split=split))
    if mixer.sinks:
        tensors.append(vector(f"{name}.sinks", "attention", heads, split=by_head))
    if mixer.indexer:
        tensors += indexer(mixer.indexer, hidden)
    return tensors


def indexer(part: Indexer, hidden: int) -> list[Tensor]:
    """Q ``hi·Di x r`` from the query latent or the hidden state, K ``Di x H``, one weight a head, norms."""
    if not part.own:
        return []
    name = "self_attn.indexer"
    tensors = linear(f"{name}.wq_b", "indexer", part.heads * part.head_dim, part.query_rank or hidden)
    tensors += linear(f"{name}.wk", "indexer", part.head_dim, hidden)
    if part.head_weights:
        tensors += linear(f"{name}.weights_proj", "indexer", part.heads, hidden)
    vectors = {"none": 0, "key": 1, "key_with_bias": 2, "query_and_key": 2}[part.norm]
    if vectors:
        tensors.append(Tensor(f"{name}.k_norm.weight", "indexer", (part.head_dim,), count=vectors))
    return tensors


def latent_attention(mixer: LatentAttention, hidden: int) -> list[Tensor]:
    """MLA: ``q_a``, ``q_b`` (or ``q``), ``kv_a`` to the latent and rotary key, ``kv_b`` back to heads, O.

    The down-projections and their norms stay whole on every rank; the rest divides by heads.
    """
    heads, by_head, name = mixer.heads, Split(0, mixer.heads), "self_attn"
    queries = heads * mixer.qk_head_dim
    if mixer.q_lora_rank is None:
        tensors = linear(f"{name}.q_proj", "attention", queries, hidden, bias="q" in mixer.bias, split=by_head)
    else:
        rank = mixer.q_lora_rank
        tensors = linear(f"{name}.q_a_proj", "attention", rank, hidden, bias="q_a" in mixer.bias)
        tensors.append(vector(f"{name}.q_a_layernorm.weight", "attention", rank))
        tensors += linear(f"{name}.q_b_proj", "attention", queries, rank, split=by_head)
    latent = mixer.kv_lora_rank
    tensors += linear(f"{name}.kv_a_proj_with_mqa", "attention", mixer.latent_dim, hidden, bias="kv_a" in mixer.bias)
    tensors.append(vector(f"{name}.kv_a_layernorm.weight", "attention", latent))
    rows = heads * (mixer.qk_nope_head_dim + mixer.v_head_dim)
    tensors += linear(f"{name}.kv_b_proj", "attention", rows, latent, split=by_head)
    columns = heads * mixer.v_head_dim
    tensors += linear(f"{name}.o_proj", "attention", hidden, columns, bias="o" in mixer.bias, split=Split(1, heads))
    if mixer.output_gate == "full":
        tensors += linear(f"{name}.g_proj", "attention", columns, hidden, split=by_head)
    if mixer.indexer:
        tensors += indexer(mixer.indexer, hidden)
    return tensors


def cross_attention(mixer: CrossAttention, hidden: int) -> list[Tensor]:
    """As self-attention, with keys and values projected from the source's hidden state."""
    heads, kv_heads, dim = mixer.heads, mixer.kv_heads, mixer.head_dim
    source = mixer.kv_input or hidden
    by_head, by_kv, name = Split(0, heads), Split(0, kv_heads), "cross_attn"
    tensors = linear(f"{name}.q_proj", "attention", heads * dim, hidden, bias="q" in mixer.bias, split=by_head)
    tensors += linear(f"{name}.k_proj", "attention", kv_heads * dim, source, bias="k" in mixer.bias, split=by_kv)
    tensors += linear(f"{name}.v_proj", "attention", kv_heads * dim, source, bias="v" in mixer.bias, split=by_kv)
    tensors += linear(f"{name}.o_proj", "attention", hidden, heads * dim, bias="o" in mixer.bias, split=Split(1, heads))
    if mixer.qk_norm == "head":
        tensors += [vector(f"{name}.{part}.weight", "attention", dim) for part in ("q_norm", "k_norm")]
    return tensors


def compressed_attention(mixer: CompressedAttention, hidden: int) -> list[Tensor]:
    """DeepSeek-V4: a query of low rank, one shared K=V vector, a grouped low-rank output, and compressors."""
    name, heads, dim = "self_attn", mixer.heads, mixer.head_dim
    by_head = Split(0, heads)
    rank = mixer.q_lora_rank
    tensors = [vector(f"{name}.sinks", "attention", heads, split=by_head)]
    tensors += linear(f"{name}.q_a_proj", "attention", rank, hidden)
    tensors.append(vector(f"{name}.q_a_norm.weight", "attention", rank))
    tensors += linear(f"{name}.q_b_proj", "attention", heads * dim, rank, split=by_head)
    tensors += linear(f"{name}.kv_proj", "attention", dim, hidden)
    tensors.append(vector(f"{name}.kv_norm.weight", "attention", dim))
    groups, output_rank = mixer.o_groups, mixer.o_lora_rank
    group_rows = groups * output_rank
    tensors += linear(f"{name}.o_a_proj", "attention", group_rows, heads * dim // groups, split=Split(0, groups))
    tensors += linear(f"{name}.o_b_proj", "attention", hidden, group_rows, split=Split(1, groups))
    if mixer.rate:
        tensors += compressor(f"{name}.compressor", "attention", hidden, dim, mixer.rate, mixer.overlap)
    if mixer.indexer and mixer.rate:
        part = mixer.indexer
        prefix = f"{name}.compressor.indexer"
        tensors += compressor(prefix, "indexer", hidden, part.head_dim, mixer.rate, mixer.overlap)
        tensors += linear(f"{prefix}.q_b_proj", "indexer", part.heads * part.head_dim, part.query_rank or rank)
        tensors += linear(f"{prefix}.scorer.weights_proj", "indexer", part.heads, hidden)
    return tensors


def compressor(name: str, component: Component, hidden: int, dim: int, rate: int, overlap: bool) -> list[Tensor]:
    """Projections that turn `rate` tokens into one entry of `dim`; overlapping windows double their width."""
    width = 2 * dim if overlap else dim
    tensors = [vector(f"{name}.position_bias", component, rate, width)]
    tensors += linear(f"{name}.kv_proj", component, width, hidden)
    tensors += linear(f"{name}.gate_proj", component, width, hidden)
    tensors.append(vector(f"{name}.kv_norm.weight", component, dim))
    return tensors


def gated_delta_net(mixer: GatedDeltaNet, hidden: int) -> list[Tensor]:
    """Projections of q, k, v (and the gate z), of beta and decay, a convolution over q, k, v, a norm, O."""
    name, heads = "linear_attn", mixer.value_heads
    keys, values = mixer.key_heads * mixer.key_dim, heads * mixer.value_dim
    by_key, by_value = Split(0, mixer.key_heads), Split(0, heads)
    gate = values if mixer.output_gate else 0
    matrices: dict[str, list[tuple[str, int, Split]]] = {
        "fused": [("in_proj_qkvz", 2 * keys + values + gate, by_key), ("in_proj_ba", 2 * heads, by_key)],
        "split": [
            ("in_proj_qkv", 2 * keys + values, by_key),
            ("in_proj_z", gate, by_value),
            ("in_proj_b", heads, by_value),
            ("in_proj_a", heads, by_value),
        ],
        "separate": [
            ("q_proj", keys, by_key),
            ("k_proj", keys, by_key),
            ("v_proj", values, by_value),
            ("g_proj", gate, by_value),
            ("b_proj", heads, by_value),
            ("a_proj", heads, by_value),
        ],
    }
    tensors: list[Tensor] = []
    for part, rows, split in matrices[mixer.projections]:
        if rows:
            tensors += linear(f"{name}.{part}", "linear_mixer", rows, hidden, split=split)
    norm, out = ("o_norm", "o_proj") if mixer.projections == "separate" else ("norm", "out_proj")
    tensors += [
        vector(f"{name}.conv1d.weight", "linear_mixer", 2 * keys + values, 1, mixer.conv_kernel, split=by_key),
        vector(f"{name}.dt_bias", "linear_mixer", heads, split=by_value),
        vector(f"{name}.A_log", "linear_mixer", heads, split=by_value),
        vector(f"{name}.{norm}.weight", "linear_mixer", mixer.value_dim),
    ]
    return tensors + linear(f"{name}.{out}", "linear_mixer", hidden, values, split=Split(1, heads))


def kimi_delta_attention(mixer: KimiDeltaAttention, hidden: int) -> list[Tensor]:
    """q, k, v with a convolution, a decay per channel and an output gate of low rank (head dim), beta, norm, O."""
    name, heads, dim = "self_attn", mixer.heads, mixer.head_dim
    width, by_head = heads * dim, Split(0, heads)
    tensors: list[Tensor] = []
    for part in ("q_proj", "k_proj", "v_proj"):
        tensors += linear(f"{name}.{part}", "linear_mixer", width, hidden, split=by_head)
    tensors.append(vector(f"{name}.conv1d.weight", "linear_mixer", 3 * width, 1, mixer.conv_kernel, split=by_head))
    tensors += linear(f"{name}.f_a_proj", "linear_mixer", dim, hidden)
    tensors += linear(f"{name}.f_b_proj", "linear_mixer", width, dim, split=by_head)
    tensors += linear(f"{name}.b_proj", "linear_mixer", heads, hidden, split=by_head)
    if mixer.full_rank_gate:
        tensors += linear(f"{name}.g_proj", "linear_mixer", width, hidden, split=by_head)
    else:
        tensors += linear(f"{name}.g_a_proj", "linear_mixer", dim, hidden)
        tensors += linear(f"{name}.g_b_proj", "linear_mixer", width, dim, split=by_head)
    tensors += [
        vector(f"{name}.dt_bias", "linear_mixer", width, split=by_head),
        vector(f"{name}.A_log", "linear_mixer", heads, split=by_head),
        vector(f"{name}.o_norm.weight", "linear_mixer", dim),
    ]
    return tensors + linear(f"{name}.o_proj", "linear_mixer", hidden, width, split=Split(1, heads))


def lightning_attention(mixer: LightningAttention, hidden: int) -> list[Tensor]:
    """One projection to q, k, v, a gate as wide as the heads, a norm over all heads, O."""
    name, heads = "self_attn", mixer.heads
    width, by_head = heads * mixer.head_dim, Split(0, heads)
    return [
        *linear(f"{name}.qkv_proj", "linear_mixer", 3 * width, hidden, split=by_head),
        *linear(f"{name}.output_gate", "linear_mixer", width, hidden, split=by_head),
        vector(f"{name}.norm.weight", "linear_mixer", width, split=by_head),
        *linear(f"{name}.out_proj", "linear_mixer", hidden, width, split=Split(1, heads)),
    ]


def mamba(mixer: Mamba, hidden: int) -> list[Tensor]:
    """In-projection to x and z, a convolution, x to (dt, B, C), dt back to the inner width, A, D, out-projection."""
    name, inner, state, rank = "mixer", mixer.inner, mixer.state, mixer.dt_rank
    by_channel = Split(0, inner)
    tensors = linear(f"{name}.in_proj", "linear_mixer", 2 * inner, hidden, bias=mixer.projection_bias, split=by_channel)
    tensors.append(vector(f"{name}.conv1d.weight", "linear_mixer", inner, 1, mixer.conv_kernel, split=by_channel))
    if mixer.conv_bias:
        tensors.append(vector(f"{name}.conv1d.bias", "linear_mixer", inner, split=by_channel))
    tensors += linear(f"{name}.x_proj", "linear_mixer", rank + 2 * state, inner, split=Split(1, inner))
    tensors += linear(f"{name}.dt_proj", "linear_mixer", inner, rank, bias=True, split=by_channel)
    tensors.append(vector(f"{name}.A_log", "linear_mixer", inner, state, split=by_channel))
    tensors.append(vector(f"{name}.D", "linear_mixer", inner, split=by_channel))
    if mixer.inner_norms:
        widths = (("dt_layernorm", rank), ("b_layernorm", state), ("c_layernorm", state))
        tensors += [vector(f"{name}.{part}.weight", "linear_mixer", width) for part, width in widths]
    return tensors + linear(
        f"{name}.out_proj", "linear_mixer", hidden, inner, bias=mixer.projection_bias, split=Split(1, inner)
    )


def mamba2(mixer: Mamba2, hidden: int) -> list[Tensor]:
    """In-projection to z, x, B, C and dt; a convolution over x, B, C; A, D, dt bias a head; a norm; out-projection."""
    name, inner, heads = "mixer", mixer.inner, mixer.heads
    by_head = Split(0, heads)
    rows = inner + mixer.conv_channels + heads
    tensors = linear(f"{name}.in_proj", "linear_mixer", rows, hidden, bias=mixer.projection_bias, split=by_head)
    channels = mixer.conv_channels
    tensors.append(vector(f"{name}.conv1d.weight", "linear_mixer", channels, 1, mixer.conv_kernel, split=by_head))
    if mixer.conv_bias:
        tensors.append(vector(f"{name}.conv1d.bias", "linear_mixer", channels, split=by_head))
    tensors += [vector(f"{name}.{part}", "linear_mixer", heads, split=by_head) for part in ("dt_bias", "A_log", "D")]
    if mixer.norm:
        tensors.append(vector(f"{name}.norm.weight", "linear_mixer", inner, split=by_head))
    return tensors + linear(
        f"{name}.out_proj", "linear_mixer", hidden, inner, bias=mixer.projection_bias, split=Split(1, heads)
    )


def rg_lru(mixer: RecurrentGatedLru, hidden: int) -> list[Tensor]:
    """Two branches in, a convolution, input and recurrence gates as block-diagonal maps, one branch out."""
    name, width, heads = "temporal_block", mixer.width, mixer.heads
    by_channel, by_head = Split(0, width), Split(0, heads)
    block = width // heads
    tensors: list[Tensor] = []
    for part in ("linear_x", "linear_y"):
        tensors += linear(f"{name}.{part}", "linear_mixer", width, hidden, bias=True, split=by_channel)
    tensors += linear(f"{name}.linear_out", "linear_mixer", hidden, width, bias=True, split=Split(1, width))
    tensors.append(vector(f"{name}.conv_1d.weight", "linear_mixer", width, 1, mixer.conv_kernel, split=by_channel))
    tensors.append(vector(f"{name}.conv_1d.bias", "linear_mixer", width, split=by_channel))
    tensors.append(vector(f"{name}.rg_lru.recurrent_param", "linear_mixer", width, split=by_channel))
    for gate in ("input_gate", "recurrent_gate"):
        tensors.append(vector(f"{name}.rg_lru.{gate}_weight", "linear_mixer", heads, block, block, split=by_head))
        tensors.append(vector(f"{name}.rg_lru.{gate}_bias", "linear_mixer", heads, block, split=by_head))
    return tensors


def short_convolution(mixer: ShortConvolution, hidden: int) -> list[Tensor]:
    """In-projection to three branches, a depthwise convolution, out-projection."""
    by_channel = Split(0, hidden)
    tensors = linear("conv.in_proj", "linear_mixer", 3 * hidden, hidden, bias=mixer.bias, split=by_channel)
    tensors.append(vector("conv.conv.weight", "linear_mixer", hidden, 1, mixer.conv_kernel, split=by_channel))
    if mixer.bias:
        tensors.append(vector("conv.conv.bias", "linear_mixer", hidden, split=by_channel))
    return tensors + linear("conv.out_proj", "linear_mixer", hidden, hidden, bias=mixer.bias, split=Split(1, hidden))


MIXER_TENSORS: dict[type, Callable[[Any, int], list[Tensor]]] = {
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


def dense(ffn: Dense, hidden: int, *, name: str = "mlp", component: Component = "mlp") -> list[Tensor]:
    """Up ``I x H``, gate ``I x H`` where gated, down ``H x I``."""
    width = ffn.intermediate_size
    parts = ("gate", "up") if ffn.gated else ("up",)
    tensors: list[Tensor] = []
    for part in parts:
        tensors += linear(f"{name}.{part}_proj", component, width, hidden, bias=part in ffn.bias, split=Split(0, width))
    return tensors + linear(
        f"{name}.down_proj", component, hidden, width, bias="down" in ffn.bias, split=Split(1, width)
    )


def mixture_of_experts(ffn: MixtureOfExperts, hidden: int) -> list[Tensor]:
    """Router ``E x H``, E experts (on the hidden state or on a latent), and the shared experts.

    A token uses ``top_k`` of the E experts; identity experts have rows in the router and no weights, so that of the
    chosen ones ``top_k·E/(E + identity)`` have weights on average.
    """
    choices = ffn.experts + ffn.identity_experts
    tensors = linear("mlp.gate", "router", choices, hidden, bias=ffn.router_bias)
    if ffn.correction_bias:
        tensors.append(Tensor("mlp.gate.e_score_correction_bias", "router", (choices,), trained=False))
    inside = ffn.latent_size or hidden
    if ffn.latent_size:
        tensors += linear("mlp.fc1_latent_proj", "experts_shared", ffn.latent_size, hidden)
        tensors += linear("mlp.fc2_latent_proj", "experts_shared", hidden, ffn.latent_size)
    biases: tuple[Any, ...] = ("gate", "up", "down") if ffn.expert_bias else ()
    expert = Dense(intermediate_size=ffn.intermediate_size, gated=ffn.gated, bias=biases)
    tensors += [
        replace(tensor, count=ffn.experts, active=ffn.top_k * ffn.experts // choices)
        for tensor in dense(expert, inside, name="mlp.experts.*", component="experts_routed")
    ]
    if ffn.shared:
        shared = Dense(intermediate_size=ffn.shared.intermediate_size, gated=ffn.gated, bias=ffn.shared.bias)
        width = inside if ffn.shared.latent else hidden
        tensors += dense(shared, width, name="mlp.shared_experts", component="experts_shared")
        if ffn.shared.gate:
            tensors += linear("mlp.shared_expert_gate", "experts_shared", 1, hidden)
    return tensors


def block_tensors(block: Block, stack: Stack) -> tuple[Tensor, ...]:
    """All tensors of one layer."""
    return _block_tensors(Same(block), Same(stack))


@lru_cache(maxsize=1024)
def _block_tensors(block_key: Same[Block], stack_key: Same[Stack]) -> tuple[Tensor, ...]:
    block, stack = block_key.value, stack_key.value
    hidden = stack.hidden_size
    tensors: list[Tensor] = []
    for mixer in block.mixer:
        tensors += MIXER_TENSORS[type(mixer)](mixer, hidden)
    for ffn in block.ffn:
        tensors += dense(ffn, hidden) if isinstance(ffn, Dense) else mixture_of_experts(ffn, hidden)
    tensors += norm_tensors("norms", stack, block.norms)
    tensors += extra_tensors(block.tensors)
    tensors += stored_buffers(block.buffers)
    return tuple(tensors)


def extra_tensors(named: dict[str, tuple[int, ...]]) -> list[Tensor]:
    """The tensors that a description lists by name: a ``weight`` of rank two is a linear map, tables apart."""
    return [
        Tensor(name, "other", tuple(shape), linear=len(shape) == 2 and bool(_LINEAR_MAP.search(name)))
        for name, shape in named.items()
    ]


_LINEAR_MAP = re.compile(r"(?<!embed_positions)(?<!embedding)(?<!relative_attention_bias)\.weight$")


def stored_buffers(named: dict[str, tuple[int, ...]]) -> list[Tensor]:
    """What a checkpoint stores that is no parameter."""
    return [replace(tensor, trained=False, linear=False) for tensor in extra_tensors(named)]


def stack_tensors(stack: Stack) -> tuple[Tensor, ...]:
    """What stands around the layers of a stack: its final norms and whatever it lists by name."""
    return (
        *norm_tensors("norm", stack, stack.final_norms),
        *extra_tensors(stack.tensors),
        *stored_buffers(stack.buffers),
    )


def embedding_tensors(spec: ModelSpec) -> tuple[Tensor, ...]:
    """Token table, position and type tables, embedding norms, per-layer table, and the head when it is not tied."""
    embedding, hidden = spec.embedding, spec.hidden_size
    width = embedding.size or hidden
    by_token = Split(0, embedding.vocab_size)
    rows = embedding.vocab_size + embedding.extra_rows
    tensors = [Tensor("embed_tokens.weight", "embedding", (rows, width), split=Split(0, rows))]
    if embedding.positions:
        tensors.append(vector("embed_positions.weight", "embedding", embedding.positions, hidden))
    if embedding.token_types:
        tensors.append(vector("token_type_embeddings.weight", "embedding", embedding.token_types, width))
    tensors += norm_tensors("embed_norm", spec, embedding.norms, width)
    if spec.per_layer_embedding:
        table = spec.per_layer_embedding
        rows, columns = table.vocab_size, table.size * spec.depth
        tensors.append(Tensor("embed_tokens_per_layer.weight", "embedding", (rows, columns), split=Split(0, rows)))
    if embedding.head and not embedding.tied:
        tensors.append(Tensor("lm_head.weight", "head", (embedding.vocab_size, width), split=by_token, linear=True))
    if embedding.head and embedding.head_bias:
        tensors.append(vector("lm_head.bias", "head", embedding.vocab_size, split=by_token))
    return tuple(tensors)


def each_tensor(stack: Stack) -> Iterator[tuple[Tensor, int]]:
    """(tensor, number of layers that hold one) for a whole stack, its layers and what stands around them."""
    for _, layers, block in stack.each_block():
        for tensor in block_tensors(block, stack):
            yield tensor, layers
    for tensor in stack_tensors(stack):
        yield tensor, 1
