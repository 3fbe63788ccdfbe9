"""StepFun: Step-3 with multi-matrix factorisation attention, Step-3.5 and 3.7 with windows and gated heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import (
    MLP,
    QKVO,
    attention_part,
    decoder,
    dense,
    head_dim,
    layer_count,
    layered,
    make,
    rotary_dim,
    switched,
)
from capplan.describe.families.experts import dense_or_experts, draft_stack, one_of
from capplan.describe.families.towers import biased, encoder_layer, tower
from capplan.describe.model import Attention, Block, Dense, MixtureOfExperts, Tensors

FULL, SLIDING = "full_attention", "sliding_attention"
EXPERTS = ("moe_num_experts", "n_routed_experts", "num_experts")
TOP_K = ("moe_top_k", "num_experts_per_tok")
SHARED_WIDTH = ("share_expert_dims", "share_expert_dim")
KV_HEADS = ("num_attention_groups", "num_key_value_heads")
ROUTING_KEYS = (
    "norm_expert_weight",
    "moe_router_activation",
    "moe_router_scaling_factor",
    "use_moe_router_bias",
    "use_moe",
    "moe_every_n_layer",
    "moe_layer_offset",
    "need_fp32_gate",
    "att_impl_type",
    "use_qk_norm",
    "zero_centered",
)
"""How experts are chosen, and switches whose meaning the lists of layers carry."""


def step3_text(config: Config) -> dict[str, Any]:
    """Queries through a shared low-rank projection with a norm, one KV head, dense layers at both ends."""
    config.ignore("use_im_start_end", "intermediate_size", *ROUTING_KEYS)
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    fields = {
        "heads": heads,
        "kv_heads": config.size(*KV_HEADS, default=1),
        "head_dim": head_dim(config, heads, hidden),
        "q_lora_rank": config.optional_size("share_q_dim"),
    }
    mixer = attention_part(config, fields)
    sparse = _listed_layers(config, config.raw("moe_layers_enum", default=None), layer_count(config))
    layers = layer_count(config)
    mask = [index in sparse if sparse is not None else index > 0 for index in range(layers)]

    def block(has_experts: bool) -> Block:
        return Block(mixer=(mixer,), ffn=(_experts(config) if has_experts else dense(config),))

    return decoder(config, dense_or_experts(mask, block))


def step3p5(config: Config) -> dict[str, Any]:
    """Layers slide or see everything, with head counts of their own; a norm and a gate a head; dense first layers.

    Lists of one item a layer may go on for the MTP layers, which have a copy of the head each.
    """
    config.ignore("swiglu_limits", "swiglu_limits_shared", "yarn_only_types", *ROUTING_KEYS)
    config.ignore("num_local_experts")  # transformers' class sets its own n_routed_experts over it
    if config.flag("use_mfa", default=False):
        config.refuse("use_mfa", "multi-matrix factorisation attention is not known of Step-3.5")
    layers = layer_count(config)
    drafts = config.count("num_nextn_predict_layers", "num_mtp_layers", default=0)
    kinds = _kinds(config, layers, drafts)
    sparse = _expert_layers(config, layers, drafts)
    mixers = {
        FULL: _attention(config, {"rotary_dim": _rotated(config, kinds, FULL)}),
        SLIDING: _sliding_attention(config, kinds),
    }
    bias = switched(config, "mlp_bias", MLP)
    ffns: dict[bool, Dense | MixtureOfExperts] = {
        False: dense(config, bias=bias),
        True: _experts(config, bias, corrected=config.flag("use_moe_router_bias", default=True)),
    }
    order = []
    for kind, has_experts in zip(kinds, sparse, strict=True):
        name = ("moe" if has_experts else "dense") + ("_sliding" if kind == SLIDING else "")
        order.append((name, Block(mixer=(mixers[kind],), ffn=(ffns[has_experts],))))
    mtp = draft_stack(config, order[layers:], head_copy=True)
    return decoder(config, layered(order[:layers]), mtp=mtp)


def step3p7(config: Config) -> dict[str, Any]:
    """Step-3.5's text model with a vision tower; a flat file without ``text_config`` is the text model alone."""
    if "text_config" not in config.data and "hidden_size" in config.data:
        config.assume("no vision tower", "the configuration has the text model's keys alone")
        return step3p5(config.typed("step3p5"))
    config.ignore("understand_projector_stride", "image_token_len", "patch_token_len", "im_end_token")
    text = config.sub("text_config", "step3p5", fixed=True)
    vision = config.sub("vision_config", "step3p5_vision", fixed=True)
    fields = step3p5(text)
    tied = config.flag("tie_word_embeddings", default=False) or fields["embedding"]["tied"]
    bias = config.flag("projector_bias", default=False)
    return {
        **fields,
        "embedding": {**fields["embedding"], "tied": tied},
        "towers": {"vision": _tower(vision, fields["hidden_size"], bias)},
    }


def _experts(config: Config, bias: tuple[str, ...] = (), *, corrected: bool = False) -> MixtureOfExperts:
    """Routed experts beside one shared expert of ``share_expert_dim``, with a correction bias or without."""
    if config.count("n_shared_experts", default=1) != 1:
        config.refuse("n_shared_experts", "another number of shared experts than 1 is not known of Step's models")
    shared = config.count(*SHARED_WIDTH, default=0)
    fields = {
        "experts": config.size(*EXPERTS),
        "top_k": config.size(*TOP_K),
        "intermediate_size": config.size("moe_intermediate_size"),
        "shared": {"intermediate_size": shared, "bias": bias} if shared else None,
        "correction_bias": corrected,
    }
    return make(config, MixtureOfExperts, fields)


def _attention(config: Config, other: dict[str, Any]) -> Attention:
    """Gated attention with a norm a head; `other` overrides the head counts and the head dim."""
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    fields: dict[str, Any] = {
        "heads": heads,
        "kv_heads": config.optional_size(*KV_HEADS) or heads,
        "head_dim": head_dim(config, heads, hidden),
        "qk_norm": "head",
        "output_gate": _gate(config),
        "bias": switched(config, "attention_bias", QKVO),
    }
    return attention_part(config, {**fields, **other})


def _gate(config: Config) -> str:
    """One gate a head, or with ``gating`` set otherwise one an element; none where the released key says so."""
    if not config.flag("use_head_wise_attn_gate", default=True):
        return "none"
    return "head" if config.raw("gating", default=True) in (True, "per-head") else "full"


def _rotated(config: Config, kinds: Sequence[str], kind: str) -> int | None:
    """Rotated elements of a head in the layers of one kind, which all have the factor of the first of them."""
    width = head_dim(config, config.size("num_attention_heads"), config.size("hidden_size"))
    factors = config.items("partial_rotary_factors") or []
    default = factors[kinds.index(kind)] if kind in kinds and len(factors) > kinds.index(kind) else 1.0
    return rotary_dim(config, width, default=default, layer_type=kind)


def _sliding_attention(config: Config, kinds: Sequence[str]) -> Attention:
    """Attention in a window, with the head counts of ``attention_other_setting`` or of a key of their own."""
    window = config.optional_size("sliding_window")
    if window is None and SLIDING in kinds:
        config.invalid("sliding_window", "layers slide (layer_types), but sliding_window has no value")
    other: dict[str, Any] = {"window": window, "rotary_dim": _rotated(config, kinds, SLIDING)}
    if config.has("attention_other_setting"):
        setting = config.sub("attention_other_setting")
        setting.ignore("attention_type", "true_head_dim")
        sizes = {
            "heads": setting.optional_size("num_attention_heads"),
            "kv_heads": setting.optional_size(*KV_HEADS),
            "head_dim": setting.optional_size("head_dim"),
        }
        other.update({key: value for key, value in sizes.items() if value is not None})
    heads = config.optional_size("num_sliding_attention_heads")
    config.ignore("attention_other_setting")
    return _attention(config, other if heads is None else {**other, "heads": heads})


def _kinds(config: Config, layers: int, drafts: int) -> list[str]:
    """How each layer attends, the MTP layers after the decoder's."""
    kinds, own = config.items("layer_types"), config.items("mtp_layer_types")
    if kinds is None:
        kinds = [FULL] * layers
    if len(kinds) == layers and drafts:
        last = SLIDING if SLIDING in kinds else FULL
        if own is None and last == SLIDING:
            config.assume("sliding MTP layers", "as in the releases; layer_types does not reach them")
        kinds = kinds + (own or [last] * drafts)
    if len(kinds) != layers + drafts:
        config.invalid("layer_types", f"layer_types has {len(kinds)} items where {layers} are expected")
    return one_of(config, "layer_types", kinds, (FULL, SLIDING))


def _expert_layers(config: Config, layers: int, drafts: int) -> list[bool]:
    """Which layers have experts, the MTP layers after the decoder's: by a list, or all but the first ones."""
    kinds, own = config.items("mlp_layer_types"), config.items("mtp_mlp_layer_types")
    listed = _listed_layers(config, config.raw("moe_layers_enum", default=None), layers + drafts)
    first = config.count("first_k_dense_replace", default=3)
    if kinds is not None:
        kinds = kinds + (own or ["dense"] * drafts) if len(kinds) == layers else kinds
        if len(kinds) != layers + drafts:
            config.invalid("mlp_layer_types", f"mlp_layer_types has {len(kinds)} items where {layers} are expected")
        return [kind == "sparse" for kind in one_of(config, "mlp_layer_types", kinds, ("dense", "sparse"))]
    if listed is not None:
        return [index in listed for index in range(layers + drafts)]
    return [first <= index < layers for index in range(layers + drafts)]


def _listed_layers(config: Config, value: Any, layers: int) -> set[int] | None:
    """Layer numbers from a list, from ``"4,5,6"``, or from a range ``"4..59"`` with both ends."""
    if value is None:
        return None
    items = value.split(",") if isinstance(value, str) else value
    numbers: set[int] = set()
    for item in items if isinstance(items, list) else [items]:
        first, _, last = str(item).strip().partition("..")
        if not all(number.isdecimal() and len(number) <= 9 for number in (first, last or first)):
            config.invalid("moe_layers_enum", f"moe_layers_enum must list layers, not {item!r}")
        numbers.update(range(int(first), min(int(last or first), layers) + 1))
    return numbers


def _tower(config: Config, text_hidden: int, projector_bias: bool) -> dict[str, Any]:
    """A ViT with learned positions and scaled branches, two strided convolutions and a projection."""
    hidden = config.size("width", "hidden_size")
    width = int(hidden * (config.number("mlp_ratio") or 4))
    channels, patch = config.size("num_channels"), config.size("patch_size")
    positions = (config.size("image_size") // patch) ** 2
    scales: Tensors = {"lambda_1": (hidden,), "lambda_2": (hidden,)}
    tensors: Tensors = {
        "embeddings.patch_embedding.weight": (hidden, channels, patch, patch),
        "embeddings.position_embedding.weight": (positions, hidden),
        "downsampler1.weight": (2 * hidden, hidden, 3, 3),
        "downsampler1.bias": (2 * hidden,),
        "downsampler2.weight": (4 * hidden, 2 * hidden, 3, 3),
        "downsampler2.bias": (4 * hidden,),
        **biased("multi_modal_projector", text_hidden, 4 * hidden, projector_bias),
    }
    config.ignore("intermediate_size", "ls_init_value", "layer_scale_init_value", "max_position_embeddings")
    layer = encoder_layer(config, hidden, config.size("heads", "num_attention_heads"), width, tensors=scales)
    return tower(hidden, layer_count(config, "layers", "num_hidden_layers"), layer, tensors, norms=1)
