"""OLMo 1 to 3."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import (
    FULL_OR_SLIDING,
    QKVO,
    attention,
    decoder,
    dense,
    layer_types,
    sliding_every,
    sliding_layers,
    switched,
)
from capplan.describe.families.llama import same_layers


def _attention(config: Config, **features: Any) -> dict[str, Any]:
    return attention(config, bias=switched(config, "attention_bias", QKVO), **features)


def olmo(config: Config) -> dict[str, Any]:
    """LayerNorm without scale or shift: no norm has a parameter."""
    return decoder(config, same_layers(config, _attention(config), dense(config)), norm="none")


def olmo2(config: Config) -> dict[str, Any]:
    """Norms after the sublayers, and on queries and keys as wide as all heads."""
    return decoder(config, same_layers(config, _attention(config, qk_norm="full"), dense(config)))


def olmo3(config: Config) -> dict[str, Any]:
    """OLMo 2 with a full layer after each three that slide."""
    types = layer_types(config, FULL_OR_SLIDING, sliding_every(4))
    fields = _attention(config, qk_norm="full")
    return decoder(
        config, sliding_layers(config, types, fields, config.optional_size("sliding_window"), ffn=(dense(config),))
    )
