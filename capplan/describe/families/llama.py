"""Llama and the decoders that differ from it in a switch or two."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import (
    FULL_OR_SLIDING,
    MLP,
    PLAIN_MLP,
    QKV,
    QKVO,
    attention,
    attention_part,
    decoder,
    dense,
    layer_count,
    layer_types,
    layered,
    sliding_layers,
    switched,
    uniform,
)
from capplan.describe.model import Block, Dense


def same_layers(config: Config, attention_fields: dict[str, Any], ffn: Dense, **block: Any) -> dict[str, Any]:
    """``blocks`` and ``layers`` of a stack of one attention and one feed-forward a layer, all layers alike."""
    mixer = attention_part(config, attention_fields)
    return uniform(config, Block(mixer=(mixer,), ffn=(ffn,), **block))


def llama(config: Config, **features: Any) -> dict[str, Any]:
    """RMS norms, GQA, a gated feed-forward; biases by ``attention_bias`` and ``mlp_bias``."""
    features.setdefault("bias", switched(config, "attention_bias", QKVO))
    ffn = dense(config, bias=switched(config, "mlp_bias", MLP))
    return decoder(config, same_layers(config, attention(config, **features), ffn))


def orion(config: Config) -> dict[str, Any]:
    """Llama with LayerNorm, scale and shift."""
    return {**llama(config), "norm": "layer"}


def mistral(config: Config) -> dict[str, Any]:
    """Llama without biases; all layers slide where ``sliding_window`` has a value, or those of ``layer_types``."""
    window = config.optional_size("sliding_window")
    everywhere = "full_attention" if window is None else "sliding_attention"
    types = layer_types(config, FULL_OR_SLIDING, lambda layers: [everywhere] * layers)
    return decoder(config, sliding_layers(config, types, attention(config), window, ffn=(dense(config),)))


def seed_oss(config: Config) -> dict[str, Any]:
    """Biases on q, k, v by ``attention_bias`` and on the output by ``attention_out_bias``."""
    bias = (*switched(config, "attention_bias", QKV), *switched(config, "attention_out_bias", ("o",)))
    return llama(config, bias=bias)


def ernie4_5(config: Config) -> dict[str, Any]:
    """One switch, ``use_bias``, for all biases."""
    config.ignore("compression_ratio", "freq_allocation", "weight_share_add_bias")
    if not config.flag("use_rmsnorm", default=True):
        config.refuse("use_rmsnorm", "ERNIE 4.5 with another norm than RMSNorm is not supported")
    features = attention(config, bias=switched(config, "use_bias", QKVO))
    ffn = dense(config, bias=switched(config, "use_bias", MLP))
    return decoder(config, same_layers(config, features, ffn))


def hunyuan_v1_dense(config: Config) -> dict[str, Any]:
    """Norms on each query and key head, after the rotation; no biases in the feed-forward."""
    config.ignore("cla_share_factor", "attention_head_dim", "org_vocab_size", "dense_list", "norm_type")
    if config.flag("use_cla", default=False):
        config.refuse("use_cla", "cross-layer attention is not part of the dense Hunyuan architecture")
    if config.count("num_experts", default=1) > 1:
        config.refuse("num_experts", "the dense Hunyuan architecture has no experts")
    features = attention(
        config,
        bias=switched(config, "attention_bias", QKVO),
        qk_norm="head" if config.flag("use_qk_norm", default=True) else "none",
    )
    return decoder(config, same_layers(config, features, dense(config)))


def arcee(config: Config) -> dict[str, Any]:
    """A feed-forward of two matrices (squared ReLU)."""
    features = attention(config, bias=switched(config, "attention_bias", QKVO))
    ffn = dense(config, gated=False, bias=switched(config, "mlp_bias", PLAIN_MLP))
    return decoder(config, same_layers(config, features, ffn))


def apertus(config: Config) -> dict[str, Any]:
    """Norms on each query and key head; two matrices around xIELU, which has two learned slopes and two buffers."""
    if not config.flag("qk_norm", default=True):
        config.refuse("qk_norm", "Apertus without norms on queries and keys is not known")
    if config.flag("post_norm", default=False):
        config.refuse("post_norm", "Apertus with norms after its sublayers is not known")
    features = attention(config, bias=switched(config, "attention_bias", QKVO), qk_norm="head")
    slopes, constants = {}, {}
    if config.text("hidden_act", default="xielu") == "xielu":
        slopes = {"mlp.act_fn.alpha_p": (1,), "mlp.act_fn.alpha_n": (1,)}
        constants = {"mlp.act_fn.beta": (1,), "mlp.act_fn.eps": (1,)}
    ffn = dense(config, gated=False)
    return decoder(config, same_layers(config, features, ffn, tensors=slopes, buffers=constants))


def smollm3(config: Config) -> dict[str, Any]:
    """Layers with a 0 in ``no_rope_layers`` have no rotary embedding, and slide where ``use_sliding_window`` is set."""
    window = config.optional_size("sliding_window")
    slides = config.flag("use_sliding_window", default=False) and window is not None
    layers = layer_count(config)
    rotates = config.items("no_rope_layers", length=layers)
    if rotates is None:
        interval = config.size("no_rope_layer_interval")
        rotates = [(index + 1) % interval != 0 for index in range(layers)]
    config.ignore("no_rope_layer_interval")

    def unrotated_slide(_: int) -> list[str]:
        return ["sliding_attention" if slides and not rotated else "full_attention" for rotated in rotates]

    types = layer_types(config, FULL_OR_SLIDING, unrotated_slide)
    if window is None and "sliding_attention" in types:
        config.invalid("sliding_window", "layers slide (layer_types), but no sliding_window is given")
    fields = attention(config, bias=switched(config, "attention_bias", QKVO))
    ffn = dense(config, bias=switched(config, "mlp_bias", MLP))
    order = []
    for kind, rotated in zip(types, rotates, strict=True):
        sliding = kind == "sliding_attention"
        name = ("sliding" if sliding else "full") + ("" if rotated else "_unrotated")
        variant = {**fields, "window": window if sliding else None, "rotary_dim": None if rotated else 0}
        order.append((name, Block(mixer=(attention_part(config, variant),), ffn=(ffn,))))
    return decoder(config, layered(order))
