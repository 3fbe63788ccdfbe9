"""Nemotron 4 and Minitron, and Llama-Nemotron, whose layers a search has made unequal."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import (
    MLP,
    PLAIN_MLP,
    QKVO,
    attention,
    attention_part,
    decoder,
    dense,
    head_dim,
    layer_count,
    layered,
    rotary_dim,
    switched,
)
from capplan.describe.families.llama import same_layers
from capplan.describe.model import Attention, Block, Dense

FFN_MULTIPLE = 256
"""Llama-Nemotron's feed-forwards are as wide as the next multiple of this."""


def nemotron(config: Config) -> dict[str, Any]:
    """LayerNorm with scale and shift (the scale is stored less one), two matrices around a squared ReLU."""
    config.size("num_key_value_heads")
    fields = attention(config, bias=switched(config, "attention_bias", QKVO))
    fields["rotary_dim"] = rotary_dim(config, fields["head_dim"], "partial_rotary_factor", "rope_percent", default=0.5)
    ffn = dense(config, gated=False, bias=switched(config, "mlp_bias", PLAIN_MLP))
    return decoder(config, same_layers(config, fields, ffn), norm="layer")


def nemotron_nas(config: Config) -> dict[str, Any]:
    """``block_configs`` gives each layer its KV heads and feed-forward width, or leaves out a sublayer and its norm."""
    config.ignore("num_key_value_heads", "intermediate_size")
    layers = layer_count(config)
    entries = config.subs("block_configs", length=layers)
    return decoder(config, layered([_nas_block(config, entry) for entry in entries]))


def _nas_block(config: Config, entry: Config) -> tuple[str, Block]:
    """The name and block of one layer: equal names are equal layers."""
    hidden = config.size("hidden_size")
    mixer_name, mixer, tensors = _nas_attention(config, entry.sub("attention"), hidden)
    ffn_name, ffn, more = _nas_feed_forward(config, entry.sub("ffn"), hidden)
    norms = (mixer_name != "none") + (ffn_name != "none")
    block = Block(
        mixer=(mixer,) if mixer else (),
        ffn=(ffn,) if ffn else (),
        norms=norms,
        tensors={**tensors, **more},
    )
    return f"{mixer_name}_{ffn_name}", block


def _nas_attention(
    config: Config, entry: Config, hidden: int
) -> tuple[str, Attention | None, dict[str, tuple[int, ...]]]:
    entry.ignore("unshifted_sink", "use_prefill_window_in_sink_attention")
    _refuse_any(entry, "sparsify", "num_sink_tokens", "llama4", "mamba")
    if entry.flag("no_op", default=False):
        entry.ignore("n_heads_in_group")
        return "none", None, {}
    if entry.flag("replace_with_linear", default=False):
        entry.ignore("n_heads_in_group")
        return "linear", None, {"self_attn.linear_attn.weight": (hidden, hidden)}
    heads, group = config.size("num_attention_heads"), entry.size("n_heads_in_group")
    if heads % group:
        entry.invalid("n_heads_in_group", f"{heads} heads do not divide into groups of {group}")
    window = entry.optional_size("window_length")
    fields = {
        "heads": heads,
        "kv_heads": heads // group,
        "head_dim": head_dim(config, heads, hidden),
        "window": window,
        "bias": switched(config, "attention_bias", QKVO),
    }
    name = f"kv{heads // group}" + (f"_window{window}" if window else "")
    return name, attention_part(config, fields), {}


def _nas_feed_forward(
    config: Config, entry: Config, hidden: int
) -> tuple[str, Dense | None, dict[str, tuple[int, ...]]]:
    """The feed-forward is ``2/3 * ffn_mult * hidden`` wide, rounded up to a multiple of 256."""
    _refuse_any(entry, "sparsify", "moe")
    if entry.flag("no_op", default=False):
        entry.ignore("ffn_mult", "intermediate_size")
        return "none", None, {}
    if entry.flag("replace_with_linear", default=False):
        entry.ignore("ffn_mult", "intermediate_size")
        return "linear", None, {"mlp.linear_mlp.weight": (hidden, hidden)}
    width = entry.optional_size("intermediate_size")
    if width is None:
        multiplier = entry.number("ffn_mult")
        if multiplier is None or multiplier <= 0:
            entry.invalid("ffn_mult", f"ffn_mult must be a positive number, not {multiplier!r}")
        width = -(-int(2 * multiplier * hidden / 3) // FFN_MULTIPLE) * FFN_MULTIPLE
    entry.ignore("ffn_mult")
    gated = entry.flag("gated", default=True)
    ffn = dense(config, intermediate_size=width, gated=gated, bias=switched(config, "mlp_bias", MLP))
    return ("ffn" if gated else "plain_ffn") + str(width), ffn, {}


def _refuse_any(entry: Config, *keys: str) -> None:
    for key in keys:
        if entry.data.get(key):
            entry.refuse(key, f"layers with {key} are not supported")
    entry.ignore(*keys)
