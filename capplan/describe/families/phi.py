"""Phi 1 to 4."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import PLAIN_MLP, QKVO, attention, decoder, dense, rotary_dim
from capplan.describe.families.llama import same_layers


def phi(config: Config) -> dict[str, Any]:
    """LayerNorms with shift, biases everywhere and on the head; sublayers side by side under one norm."""
    fields = attention(config, bias=QKVO)
    if config.flag("qk_layernorm"):
        fields.update(qk_norm="head", qk_norm_bias=True)
    fields["rotary_dim"] = rotary_dim(config, fields["head_dim"], default=0.5)
    stack = same_layers(config, fields, dense(config, gated=False, bias=PLAIN_MLP), norms=1)
    return decoder(config, stack, norm="layer", embedding={"head_bias": True})


def phi3(config: Config) -> dict[str, Any]:
    """Llama's shapes with one window for all layers where ``sliding_window`` has a value."""
    config.ignore("interpolate_factor")
    if config.count("full_attn_mod", default=1) != 1:
        config.refuse("full_attn_mod", "Phi with sparse attention in some layers is not supported")
    window = config.optional_size("sliding_window")
    fields = attention(config, window=window)
    fields["rotary_dim"] = rotary_dim(config, fields["head_dim"])
    return decoder(config, same_layers(config, fields, dense(config)))
