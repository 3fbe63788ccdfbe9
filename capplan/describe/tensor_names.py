"""Which part of a model a checkpoint's tensor belongs to, by its name.

The parts are those of the tensor inventory, so that a checkpoint's bytes and a description's stand side by side; towers
and MTP layers, which the inventory keeps as stacks of their own, are ``tower`` and ``mtp`` here.
"""

from __future__ import annotations

import re

from capplan.describe.module_names import canonical_name

_MTP = re.compile(r"(?:^|\.)(?:mtp|mtp_block|nextn|eh_proj|enorm|hnorm|shared_head)(?:\.|$|_)")
_TOWER = re.compile(
    r"(?:^|\.)(?:visual|vision_\w+|vision|audio_\w+|audio|mm_projector|multi_modal_projector|embed_vision)\b"
)

_COMPONENTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("embedding", re.compile(r"(?:^|\.)(?:embed_tokens|embed_tokens_per_layer|wpe|embed_positions|word_embeddings)\b")),
    ("head", re.compile(r"^(?:lm_head|embed_out)\b")),
    ("router", re.compile(r"\.mlp\.gate\.|\.gate\.(?:weight|bias|e_score_correction_bias)$|e_score_correction_bias$")),
    ("experts_routed", re.compile(r"\.experts\.")),
    ("experts_shared", re.compile(r"\.shared_experts?\b|\.shared_expert_gate\b")),
    ("indexer", re.compile(r"\.indexer\b")),
    ("attention", re.compile(r"\.(?:self_attn|self_attention|cross_attn|encoder_attn|attn|attention)\b")),
    ("linear_mixer", re.compile(r"\.(?:linear_attn|mixer|mamba|conv|temporal_block|ssm)\b")),
    ("mlp", re.compile(r"\.(?:mlp|fc1|fc2|dense_h_to_4h|dense_4h_to_h)\b")),
    ("norms", re.compile(r"norm|ln_|layernorm")),
)


def component_of(name: str) -> str:
    """The component of a tensor: ``attention``, ``experts_routed``, ``tower``, ..., or ``other``."""
    if _TOWER.search(name):
        return "tower"
    if _MTP.search(name):
        return "mtp"
    canonical = canonical_name(name)
    for component, pattern in _COMPONENTS:
        if pattern.search(canonical):
            return component
    return "other"
