"""StarCoder 2."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import PLAIN_MLP, QKVO, attention, decoder, dense, switched
from capplan.describe.families.llama import same_layers


def starcoder2(config: Config) -> dict[str, Any]:
    """LayerNorms with shift, all biases by ``use_bias``, one window for all layers, two matrices a feed-forward."""
    for key, usual in (("mlp_type", "default"), ("norm_type", "layer_norm")):
        if config.text(key, default=usual) != usual:
            config.refuse(key, f"StarCoder 2 with another {key} than {usual!r} is not supported")
    fields = attention(config, bias=switched(config, "use_bias", QKVO), window=config.optional_size("sliding_window"))
    ffn = dense(config, gated=False, bias=switched(config, "use_bias", PLAIN_MLP))
    return decoder(config, same_layers(config, fields, ffn), norm="layer")
