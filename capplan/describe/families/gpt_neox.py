"""GPT-NeoX and Pythia."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import PLAIN_MLP, QKVO, decoder, dense, multi_head, rotary_dim, switched
from capplan.describe.families.llama import same_layers


def gpt_neox(config: Config) -> dict[str, Any]:
    """LayerNorms with shift, biases (attention's by ``attention_bias``), a quarter of each head rotates."""
    config.ignore("use_parallel_residual")
    heads, hidden = config.size("num_attention_heads"), config.size("hidden_size")
    fields = multi_head(config, heads, hidden, bias=switched(config, "attention_bias", QKVO))
    fields["rotary_dim"] = rotary_dim(config, fields["head_dim"], "partial_rotary_factor", "rotary_pct", default=0.25)
    ffn = dense(config, gated=False, bias=PLAIN_MLP)
    return decoder(config, same_layers(config, fields, ffn), norm="layer")
