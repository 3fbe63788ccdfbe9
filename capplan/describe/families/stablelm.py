"""StableLM."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import QKV, attention, decoder, dense, even_heads, rotary_dim, switched
from capplan.describe.families.llama import same_layers


def stablelm(config: Config) -> dict[str, Any]:
    """LayerNorms with shift; a quarter of each head rotates; biases on q, k, v by ``use_qkv_bias``.

    ``qk_layernorm`` is a norm of its own for each query and key head; with ``use_parallel_residual`` the sublayers
    share one norm.
    """
    config.ignore("num_heads")
    fields = attention(
        config,
        bias=switched(config, "use_qkv_bias", QKV),
        qk_norm="full" if config.flag("qk_layernorm") else "none",
    )
    fields["head_dim"] = even_heads(config, fields["heads"], config.size("hidden_size"))
    fields["rotary_dim"] = rotary_dim(config, fields["head_dim"], "partial_rotary_factor", "rope_pct", default=0.25)
    norms = 1 if config.flag("use_parallel_residual") else 2
    return decoder(config, same_layers(config, fields, dense(config), norms=norms), norm="layer")
