"""InternLM 1 to 3: llama with one switch for biases, or two."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import MLP, QKV, QKVO, attention, decoder, dense
from capplan.describe.families.llama import llama, same_layers


def internlm(config: Config) -> dict[str, Any]:
    """Biases on q, k, v and the output by ``bias``, which is on in the first generation's class."""
    return llama(config, bias=QKVO if config.flag("bias") else ())


def internlm2(config: Config) -> dict[str, Any]:
    """As the first generation; without the key there are none, since no release has any."""
    return llama(config, bias=QKVO if config.flag("bias", default=False) else ())


def internlm3(config: Config) -> dict[str, Any]:
    """``qkv_bias`` for q, k and v, and ``bias`` for the output and the feed-forward.

    transformers reads the two as llama's ``attention_bias`` and ``mlp_bias``, and insists that they agree.
    """
    inputs = config.flag("qkv_bias", "attention_bias")
    outputs = config.flag("bias", "mlp_bias")
    fields = attention(config, bias=(*(QKV if inputs else ()), *(("o",) if outputs else ())))
    ffn = dense(config, bias=MLP if outputs else ())
    return decoder(config, same_layers(config, fields, ffn))
