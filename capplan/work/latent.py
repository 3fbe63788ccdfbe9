"""Multi-head latent attention as operators: expanded heads in prefill, absorbed projections in decode."""

from __future__ import annotations

from dataclasses import replace

from capplan.describe.model import LatentAttention
from capplan.memory.tensors import Tensor
from capplan.memory.tensors import latent_attention as latent_attention_tensors
from capplan.work.attention import sparse_keys
from capplan.work.attention_kernel import PHASES, Heads, Reach, cache_write, context_parallel
from capplan.work.attention_kernel import attention_kernel as kernel
from capplan.work.attention_pairs import causal_pairs, limited_pairs
from capplan.work.operators import Gemm, Kind, Number, Operator, Traffic
from capplan.work.projections import Shelf, elementwise, products, remaining, where
from capplan.work.scope import Phase, Scope, Span, over
from capplan.work.sharding import largest_share
from capplan.work.sparse import indexer


def latent_attention(mixer: LatentAttention, scope: Scope) -> list[Operator]:
    """Down-projections whole on every rank, up-projections by heads; one latent cached for all heads.

    Prefill expands the latents to heads of ``Dn + Dr`` (keys) and ``Dv`` (values) and attends as usual. Decode, and
    sparse attention in both phases, absorb the up-projections into query and output and attend to the latents.

    Source: DeepSeek-V2 (arXiv:2405.04434), section 2.1 and appendix C.
    """
    tokens, rank_heads = scope.tokens, largest_share(mixer.heads, scope.sharding.tp)
    shelf = Shelf(latent_attention_tensors(mixer, scope.hidden))
    scorer = shelf.take_component("indexer")
    down = shelf.take("q_a_proj", "kv_a_proj_with_mqa")
    operators = products(scope, "qkv_a_proj", down, tokens)
    norms = shelf.take("q_a_layernorm")
    if mixer.q_lora_rank:
        operators.append(
            elementwise(scope, "q_a norm", "attention", tokens, mixer.q_lora_rank, weights=norms, kind="norm")
        )
    norms = shelf.take("kv_a_layernorm")
    operators.append(
        elementwise(scope, "kv_a norm", "attention", tokens, mixer.kv_lora_rank, weights=norms, kind="norm")
    )
    operators += products(scope, "q_b_proj", shelf.take("q_proj", "q_b_proj", "g_proj"), tokens)
    if mixer.qk_rope_head_dim:
        width = (rank_heads + 1) * mixer.qk_rope_head_dim
        operators.append(elementwise(scope, "rotary embedding", "attention", tokens, width))
    if mixer.cache == "own":
        operators.append(cache_write(scope, tokens, mixer.latent_dim))
    if mixer.indexer:
        operators += indexer(mixer.indexer, scope, scorer)
    expansion = shelf.take("kv_b_proj")
    for phase in PHASES:
        if scope.phase(phase):
            if phase == "prefill" and not mixer.indexer:
                operators += expanded_attention(mixer, scope, rank_heads, expansion)
            else:
                operators += absorbed_attention(mixer, scope, phase, rank_heads)
    if mixer.output_gate == "full":
        width = rank_heads * mixer.v_head_dim
        operators.append(elementwise(scope, "output gate", "attention", tokens, width, read=2))
    operators += products(scope, "o_proj", shelf.take("o_proj"), tokens)
    return operators + remaining(scope, shelf.rest(), tokens)


def expanded_attention(mixer: LatentAttention, scope: Scope, heads: Number, expansion: list[Tensor]) -> list[Operator]:
    """Keys and values of all heads from the latents, of the cached prefix too, then attention.

    FLOPs: expansion ``2·(p + t)·h·(Dn + Dv)·c``, attention ``2·h·(Dn + Dr + Dv)·pairs``. A prompt in several chunks
    expands its prefix again with each; that product stands apart under its own name.
    """
    spans = scope.prefill
    fresh, prefix = over(spans, lambda span: span.tokens), over(spans, lambda span: span.prefix)
    operators = where(fresh, products(scope, "kv_b_proj", expansion, fresh))
    latents = scope.kv(prefix * mixer.latent_dim)
    operators += [
        replace(
            again, traffic=replace(again.traffic, activations_read=0, kv_read=latents), kv_format=scope.formats.kv_name
        )
        for again in where(prefix, products(scope, "kv_b_proj of the prefix", expansion, prefix))
    ]
    shape = Heads(heads, heads, mixer.qk_head_dim, mixer.v_head_dim)
    return [*operators, kernel(scope, "mla_prefill", reach(mixer, spans), shape, cached=False)]


def absorbed_attention(mixer: LatentAttention, scope: Scope, phase: Phase, heads: Number) -> list[Operator]:
    """Queries into the latent space, attention on the latents as one shared key and value, outputs back.

    FLOPs: ``2·t·h·Dn·c`` and ``2·t·h·c·Dv`` for the absorbed products, ``2·h·(2c + Dr)·pairs`` for the attention;
    reads ``c + Dr`` cached elements a position, for all heads together. The two halves of the up-projection that
    are absorbed are in the activations' dtype: engines turn quantised ones back when they load.

    Source: DeepSeek-V2 (arXiv:2405.04434), section 2.1.2; vLLM, v1/attention/backends/mla/common.py.
    """
    spans, latent = scope.phase(phase), mixer.kv_lora_rank
    tokens = over(spans, lambda span: span.tokens)
    joined = elementwise(scope, "join query parts", "attention", tokens, heads * mixer.latent_dim)
    shape = Heads(heads, 1, mixer.latent_dim, latent, entry=mixer.latent_dim)
    kind: Kind = "mla_prefill" if phase == "prefill" else "mla_decode"
    attended = context_parallel(scope, phase, spans, kind, reach(mixer, spans), shape)
    into = _absorbed(scope, "query", tokens, heads, mixer.qk_nope_head_dim, latent)
    out_of = _absorbed(scope, "value", tokens, heads, latent, mixer.v_head_dim)
    return where(tokens, [into, joined, *attended, out_of])


def _absorbed(scope: Scope, name: str, tokens: Number, heads: Number, inner: int, outer: int) -> Operator:
    """One product a head of ``inner x outer`` weights: ``2·t·h·inner·outer`` FLOPs."""
    return Operator(
        kind="absorbed_product",
        name=f"absorbed {name} product",
        component="attention",
        shape=Gemm(tokens, outer, inner, batch=heads),
        flops=2 * tokens * heads * inner * outer,
        traffic=Traffic(
            weights=scope.activations(heads * inner * outer),
            activations_read=scope.activations(tokens * heads * inner),
            activations_written=scope.activations(tokens * heads * outer),
        ),
        weight_format=scope.formats.dtype,
        activation_format=scope.formats.dtype,
    )


def reach(mixer: LatentAttention, spans: tuple[Span, ...]) -> Reach:
    """What latent attention sees: everything before, or the scorer's choice."""
    top_k = mixer.indexer.top_k if mixer.indexer else None
    return Reach(
        over(spans, lambda span: 1),
        over(spans, lambda span: span.tokens),
        over(
            spans,
            lambda span: (
                limited_pairs(span.prefix, span.tokens, top_k) if top_k else causal_pairs(span.prefix, span.tokens)
            ),
        ),
        over(spans, lambda span: sparse_keys(span, top_k) if top_k else span.context),
        over(spans, lambda span: span.tokens * span.context),
        top_k,
    )
