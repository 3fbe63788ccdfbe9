"""What mixtures of experts share: which layers have experts, how many, and the layers that draft further tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import MAX_LAYERS, layer_count, layered, make
from capplan.describe.model import Block, MixtureOfExperts, Tensors

FEED_FORWARD_KEYS = (
    "intermediate_size",
    "moe_intermediate_size",
    "n_routed_experts",
    "num_experts",
    "num_local_experts",
    "n_shared_experts",
    "num_experts_per_tok",
)
"""Sizes of feed-forwards that a model may have in none of its layers."""
ROUTING_KEYS = (
    "moe_router_dtype",
    "router_dtype",
    "moe_router_activation",
    "moe_router_use_sigmoid",
    "route_norm",
)
"""How experts are chosen: nothing that has a size."""
WIDTH_KEYS = ("moe_intermediate_size", "expert_hidden_dim")
NEXTN_KEYS = ("num_nextn_predict_layers", "num_mtp_layers")
COPIES = "an MTP layer with its own copies of the token table and the head"


def expert_mask(config: Config, *, first_dense: int | None = None) -> list[bool]:
    """Which layers have experts, under DeepSeek's key names.

    ``mlp_layer_types`` names each layer ``dense`` or ``sparse``; else ``moe_layer_freq`` is a list of 0 and 1; else
    experts start after ``first_k_dense_replace`` layers, in each layer whose number ``moe_layer_freq`` divides.

    Args:
        config: the configuration.
        first_dense: dense layers where no key tells; None: the class's default, or none.
    """
    config.ignore(*FEED_FORWARD_KEYS, *ROUTING_KEYS)
    layers = layer_count(config)
    freq = config.raw("moe_layer_freq", default=1)
    default = 0 if first_dense is None else first_dense
    first = config.count("first_k_dense_replace", default=default)
    kinds = config.items("mlp_layer_types", length=layers)
    if kinds is not None:
        return [flag == "sparse" for flag in one_of(config, "mlp_layer_types", kinds, ("dense", "sparse"))]
    if isinstance(freq, list):
        flags = config.items("moe_layer_freq", length=layers) or []
        return [flag == 1 for flag in one_of(config, "moe_layer_freq", flags, (0, 1))]
    period = config.optional_size("moe_layer_freq", default=1) or 1
    return [index >= first and index % period == 0 for index in range(layers)]


def one_of(config: Config, key: str, items: Iterable[Any], valid: Sequence[Any]) -> list[Any]:
    """The items of a list, each of which must be one of `valid`."""
    items = list(items)
    for item in items:
        if item not in valid:
            expected = ", ".join(map(str, valid))
            config.refuse(key, f"{key} has the item {item!r}, which is not supported", f"one of {expected}")
    return items


def by_layer(config: Config, key: str, value: Any, layers: int) -> list[int | None]:
    """A whole number (or null) that is the same for all layers, or a list of one a layer."""
    values = value if isinstance(value, list) else [value] * layers
    if len(values) < layers:
        config.invalid(key, f"{key} has {len(values)} items where {layers} are expected")
    for item in values:
        if item is not None and (isinstance(item, bool) or not isinstance(item, int) or not 0 <= item <= 1 << 32):
            config.invalid(key, f"{key} must be a whole number or a list of them, not {item!r}")
    return values[:layers]


def routed_experts(config: Config, *, shared_bias: Sequence[str] = (), **features: Any) -> MixtureOfExperts:
    """Routed and shared experts of ``moe_intermediate_size`` under DeepSeek's key names.

    ``n_shared_experts`` shared experts are one feed-forward of their total width.
    """
    width = config.size(*WIDTH_KEYS)
    shared = config.count("n_shared_experts", default=0)
    fields: dict[str, Any] = {
        "experts": config.size("num_local_experts", "num_experts", "n_routed_experts"),
        "top_k": config.size("num_experts_per_tok"),
        "intermediate_size": width,
    }
    if shared:
        fields["shared"] = {"intermediate_size": shared * width, "bias": tuple(shared_bias)}
    return make(config, MixtureOfExperts, {**fields, **features})


def dense_or_experts(mask: Sequence[bool], block: Callable[[bool], Block]) -> dict[str, Any]:
    """``blocks`` and ``layers`` of a stack whose layers are ``dense`` or ``moe`` by `mask`."""
    blocks = {flag: block(flag) for flag in sorted(set(mask))}
    return layered([("moe" if flag else "dense", blocks[flag]) for flag in mask])


def draft_layers(config: Config, block: Block, *, count: int | None = None, **options: Any) -> dict[str, Any] | None:
    """`count` MTP layers that are all alike, or as many as the configuration says under DeepSeek's keys."""
    layers = config.count(*NEXTN_KEYS, default=0) if count is None else count
    if layers > MAX_LAYERS:
        config.invalid(NEXTN_KEYS[0], f"{layers} MTP layers are more than {MAX_LAYERS}")
    return draft_stack(config, [("mtp", block)] * layers, **options)


def draft_stack(
    config: Config,
    layers: Sequence[tuple[str, Block]],
    *,
    copies: bool = False,
    head_copy: bool = False,
    norms: int = 3,
    tensors: Tensors | None = None,
) -> dict[str, Any] | None:
    """MTP layers: each a decoder layer on a projection of an embedding and a hidden state; None where there are none.

    Args:
        config: the configuration.
        layers: the name and the decoder layer of each.
        copies: the checkpoint stores the token table and the head once more with each.
        head_copy: it stores the head alone once more with each.
        norms: norms beside the decoder layer's: of the embedding, the hidden state and the output.
        tensors: the projections; None: ``eh_proj``, twice the hidden size to once.

    Source: DeepSeek-V3 (arXiv:2412.19437), section 2.2.
    """
    if not layers:
        return None
    hidden = config.size("hidden_size")
    projections = {"eh_proj.weight": (hidden, 2 * hidden)} if tensors is None else tensors
    drafting = [
        (name, replace(block, norms=block.norms + norms, tensors={**block.tensors, **projections}))
        for name, block in layers
    ]
    return {
        "hidden_size": hidden,
        **layered(drafting),
        "final_norms": 0,
        "embedding_copy": copies,
        "head_copy": copies or head_copy,
    }
