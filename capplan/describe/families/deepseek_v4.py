"""DeepSeek-V4: compressed attention beside a window, hyper-connections, hash-routed first layers."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import MLP, decoder, layer_count, layered, make, switched
from capplan.describe.families.experts import draft_layers, one_of, routed_experts
from capplan.describe.model import Block, CompressedAttention, Tensors

SLIDING, SPARSE, HEAVY = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"
NAMES = {SLIDING: "sliding", SPARSE: "sparse", HEAVY: "heavy"}
RATES = {SPARSE: 4, HEAVY: 128}
HASH_LAYERS = 3


def deepseek_v4(config: Config) -> dict[str, Any]:
    """Three kinds of attention by ``compress_ratios``; layers route by a table of token ids or by learned scores."""
    config.ignore("num_key_value_heads", "attention_bias", "hc_sinkhorn_iters", "swiglu_limit")
    layers = layer_count(config)
    rates = _rates(config)
    kinds = _attention_kinds(config, layers, rates)
    hashed = _hash_layers(config, layers)
    order = [
        (NAMES[kind] + ("_hash" if hash_layer else ""), _block(config, kind, rates, hash_layer))
        for kind, hash_layer in zip(kinds[:layers], hashed, strict=True)
    ]
    drafting = kinds[layers] if len(kinds) > layers else SLIDING
    return decoder(
        config,
        layered(order),
        tensors=_head_connections(config, "hc_head.hc_"),
        mtp=_draft_layers(config, _block(config, drafting, rates, False)),
    )


def _rates(config: Config) -> dict[str, int]:
    """Tokens in one compressed entry, by kind of attention."""
    given = config.raw("compress_rates", default=None) or {}
    if not isinstance(given, dict):
        config.invalid("compress_rates", "compress_rates must map kinds of attention to rates")
    one_of(config, "compress_rates", given, tuple(RATES))
    rates = {**RATES, **given}
    for kind, key in ((SPARSE, "compress_rate_csa"), (HEAVY, "compress_rate_hca")):
        rates[kind] = config.optional_size(key) or rates[kind]
    return rates


def _attention_kinds(config: Config, layers: int, rates: dict[str, int]) -> list[str]:
    """The kind of each layer's attention, and of the MTP layers' where the file goes so far.

    ``layer_types``, else ``compress_ratios`` (0: the window alone), else two heavily compressed layers and then
    heavily compressed and sparse ones in turn.
    """
    ratios = config.items("compress_ratios")
    kinds = config.items("layer_types")
    if kinds is None and ratios is not None:
        by_ratio = {0: SLIDING, **{rate: kind for kind, rate in {**RATES, **rates}.items()}}
        kinds = [by_ratio[ratio] for ratio in one_of(config, "compress_ratios", ratios, tuple(by_ratio))]
    if kinds is None:
        turns = [SPARSE if index % 2 else HEAVY for index in range(max(layers - 2, 0))]
        kinds = [HEAVY] * min(layers, 2) + turns
    if len(kinds) < layers:
        config.invalid("layer_types", f"{len(kinds)} layers have a kind of attention where {layers} are expected")
    return one_of(config, "layer_types", kinds, tuple(NAMES))


def _hash_layers(config: Config, layers: int) -> list[bool]:
    """Which layers choose experts by token id: ``mlp_layer_types``, or the first ``num_hash_layers``."""
    first = config.count_or_none("num_hash_layers")
    kinds = config.items("mlp_layer_types")
    if kinds is None:
        return [index < (HASH_LAYERS if first is None else first) for index in range(layers)]
    if len(kinds) < layers:
        config.invalid("mlp_layer_types", f"mlp_layer_types has {len(kinds)} items where {layers} are expected")
    return [kind == "hash_moe" for kind in one_of(config, "mlp_layer_types", kinds[:layers], ("hash_moe", "moe"))]


def _block(config: Config, kind: str, rates: dict[str, int], hash_layer: bool) -> Block:
    """One layer, always with one shared expert; a hash layer stores a table instead of a correction bias."""
    shared = {"intermediate_size": config.size("moe_intermediate_size"), "bias": switched(config, "mlp_bias", MLP)}
    ffn = routed_experts(config, shared=shared, correction_bias=not hash_layer)
    tables: Tensors = {"mlp.gate.tid2eid": (config.size("vocab_size"), ffn.top_k)} if hash_layer else {}
    connections = {**_connections(config, "attn_hc."), **_connections(config, "ffn_hc.")}
    mixer = _attention(config, kind, rates)
    return Block(mixer=(mixer,), ffn=(ffn,), tensors=connections, buffers=tables)


def _attention(config: Config, kind: str, rates: dict[str, int]) -> CompressedAttention:
    """A query of low rank on one shared key and value, in the window and among compressed entries."""
    head_dim = config.size("head_dim")
    rotated = config.optional_size("qk_rope_head_dim")
    factor = config.number("partial_rotary_factor", default=None)
    indexer = {
        "heads": config.size("index_n_heads"),
        "head_dim": config.size("index_head_dim"),
        "top_k": config.size("index_topk"),
    }
    fields: dict[str, Any] = {
        "heads": config.size("num_attention_heads"),
        "head_dim": head_dim,
        "q_lora_rank": config.size("q_lora_rank"),
        "o_lora_rank": config.size("o_lora_rank"),
        "o_groups": config.size("o_groups"),
        "window": config.size("sliding_window"),
        "rate": rates.get(kind),
        "indexer": indexer if kind == SPARSE else None,
        "overlap": kind == SPARSE,
        "rotary_dim": rotated or int(head_dim * (1 / 8 if factor is None else factor)),
    }
    if fields["heads"] * head_dim % fields["o_groups"]:
        config.invalid("o_groups", f"{fields['o_groups']} groups do not divide the {fields['heads']} heads")
    return make(config, CompressedAttention, fields)


def _connections(config: Config, name: str) -> Tensors:
    """A hyper-connection of n residual streams: ``(2 + n)·n`` weights from all streams, biases, three scales.

    Source: Xie et al., mHC (arXiv:2512.24880), section 4.
    """
    streams, hidden = config.size("hc_mult"), config.size("hidden_size")
    rows = (2 + streams) * streams
    return {f"{name}fn": (rows, streams * hidden), f"{name}base": (rows,), f"{name}scale": (3,)}


def _head_connections(config: Config, name: str) -> Tensors:
    """What folds the residual streams into one hidden state at the end of a stack."""
    streams, hidden = config.size("hc_mult"), config.size("hidden_size")
    return {f"{name}fn": (streams, streams * hidden), f"{name}base": (streams,), f"{name}scale": (1,)}


def _draft_layers(config: Config, block: Block) -> dict[str, Any] | None:
    """MTP layers with a projection each for the embedding and the hidden state, and no copies of the tables."""
    hidden = config.size("hidden_size")
    projections: Tensors = {"e_proj.weight": (hidden, hidden), "h_proj.weight": (hidden, hidden)}
    return draft_layers(config, block, tensors={**projections, **_head_connections(config, "hc_head_")})
