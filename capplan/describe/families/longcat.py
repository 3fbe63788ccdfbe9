"""LongCat-Flash: two latent attentions and two dense feed-forwards a layer, and experts that do nothing."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import decoder, dense, layer_count, make, uniform
from capplan.describe.families.deepseek import latent_attention
from capplan.describe.families.experts import NEXTN_KEYS, draft_layers
from capplan.describe.model import Block, MixtureOfExperts

LAYER_KEYS = ("num_layers", "num_hidden_layers")


def longcat_flash(config: Config) -> dict[str, Any]:
    """The router chooses among routed and identity experts (``zero_expert_num``), which have no weights."""
    config.ignore("attention_method", "mla_scale_q_lora", "mla_scale_kv_lora", "zero_expert_type")
    layer_count(config, *LAYER_KEYS)
    mixer = latent_attention(config)
    mlp = dense(config, intermediate_size=config.size("intermediate_size", "ffn_hidden_size"))
    fields = {
        "experts": config.size("num_local_experts", "n_routed_experts"),
        "identity_experts": config.count("zero_expert_num", default=0),
        "top_k": config.size("num_experts_per_tok", "moe_topk"),
        "intermediate_size": config.size("moe_intermediate_size", "expert_ffn_hidden_size"),
        "router_bias": config.flag("router_bias", default=False),
        "correction_bias": True,
    }
    experts = make(config, MixtureOfExperts, fields)
    block = Block(mixer=(mixer, mixer), ffn=(experts, mlp, mlp), norms=4)
    mtp = _draft_layers(config, Block(mixer=(mixer,), ffn=(mlp,)))
    return decoder(config, uniform(config, block, *LAYER_KEYS), mtp=mtp)


def _draft_layers(config: Config, block: Block) -> dict[str, Any] | None:
    """A dense layer, with a copy of the token table; only where the file counts such layers."""
    stack = draft_layers(config, block, count=config.count(*NEXTN_KEYS, default=0))
    return None if stack is None else {**stack, "embedding_copy": True}
