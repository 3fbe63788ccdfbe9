"""Count parameters and cache bytes of a Hugging Face configuration with transformers itself.

The reader of `config.json` is tested against what another program builds from the same file. This script is that
other program: it puts the model of a configuration on torch's meta device, where tensors have shapes but no data,
counts the parameters that it finds and sums the tensors that a forward pass leaves in the model's own cache.
It shares no formula with capplan.

It needs torch and transformers 5.24.0, and the suite does not: `tests/data/oracle_counts.jsonl` is its frozen answer.

    python -m tests.oracle.count_parameters --output tests/data/oracle_counts.jsonl
    python -m tests.oracle.count_parameters --check tests/data/model_truth/model_truth.jsonl
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

TRANSFORMERS_VERSION = "5.24.0"
ENCODER_TYPES = ("bert", "roberta", "xlm-roberta", "modernbert")
# The text model of step3p7 has no class of its own with a head: the whole model is built and the rest left out.
TEXT_ONLY_TYPES = {"step3p5": "step3p7"}
TOWER = re.compile(r"(^|\.)(vision_\w+|visual|multi_modal_projector|mm_projector|audio_\w+|embed_vision|embed_audio)\.")
ROUTED = re.compile(r"\.experts\.")
# Names under which a configuration says how many experts a token uses.
TOP_K_KEYS = ("num_experts_per_tok", "top_k_experts", "moe_topk", "moe_k", "num_experts_per_token")
# The first pattern that matches a parameter's name gives its component.
COMPONENTS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("towers", TOWER.pattern),
        ("lm_head", r"^(language_model\.)?(lm_head|proj_out)\."),
        ("experts_routed", r"\.experts\."),
        ("experts_shared", r"shared_expert|shared_mlp"),
        ("router", r"\.(router|gate|gate\.wg)\.(weight|bias|layer\.weight|classifier\.weight|proj\.weight)$|moe_statics"),
        ("indexer", r"\.indexer\.|index_[qk]_(proj|norm)"),
        ("norms", r"norm|ln_\w+\.|\.ln_f|layer_norm"),
        ("linear_mixer", r"\.(mamba|linear_attn|conv|rg_lru|conv_1d)\b|A_log|dt_bias|forget_gate"),
        ("attention", r"attn|attention|temporal_block"),
        ("mlp", r"mlp|feed_forward|ffn|\.fc\d|dense|DenseReluDense|intermediate|output\.dense"),
        ("embeddings", r"embed|wte|wpe|shared\.weight|embeddings"),
    )
)


@dataclass(frozen=True)
class Parameters:
    """Parameters of one model: unique tensors, a tied one once; `active` are those that one token meets."""

    total: int
    active: int
    components: dict[str, int]


@dataclass(frozen=True)
class LayerCache:
    """What one layer keeps after `length` tokens: token-shaped tensors, states, and the window that the cache has."""

    kind: str
    token_bytes: int
    tokens_kept: int
    state_bytes: int
    window: int | None
    shapes: dict[str, list[Any]]


def configuration(model_type: str, config: Mapping[str, Any]) -> Any:
    """The transformers configuration object of a `config.json`."""
    values = {key: value for key, value in config.items() if key not in ("quantization_config", "model_type")}
    if model_type in TEXT_ONLY_TYPES:
        return CONFIG_MAPPING[TEXT_ONLY_TYPES[model_type]].from_dict({"text_config": {**values, "model_type": model_type}})
    return CONFIG_MAPPING[model_type].from_dict({**values, "model_type": model_type})


def model_class(config: Any, architecture: str | None = None) -> Any:
    """The class that serves this configuration: the named one, else a generating one, else the bare model."""
    if architecture is not None and hasattr(transformers, architecture):
        return getattr(transformers, architecture)
    model_type = config.model_type
    tables = [
        modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
        modeling_auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES,
        modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
        modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    ]
    if model_type in ENCODER_TYPES:
        tables = []
    for table in [*tables, modeling_auto.MODEL_MAPPING_NAMES]:
        if model_type in table:
            names = table[model_type]
            return getattr(transformers, names if isinstance(names, str) else names[0])
    raise LookupError(f"transformers {TRANSFORMERS_VERSION} has no model for {model_type!r}")


def on_meta(config: Any, architecture: str | None = None) -> Any:
    """The model of this configuration, in bfloat16, without data."""
    with torch.device("meta"):
        model = model_class(config, architecture)._from_config(config, dtype=torch.bfloat16)
    model.tie_weights()
    return model.eval()


def unique_parameters(model: Any, keep: Callable[[str], bool] = lambda name: True) -> dict[str, Any]:
    """Named parameters, a shared tensor under its first name only."""
    return {name: tensor for name, tensor in model.named_parameters() if keep(name)}


def component(name: str) -> str:
    """The part of the model that a parameter's name belongs to."""
    return next((part for part, pattern in COMPONENTS if pattern.search(name)), "other")


def experts_used(config: Any) -> int | list[int]:
    """How many routed experts a token uses (a list where it differs by layer)."""
    text = config.get_text_config(decoder=True)
    for owner in (text, getattr(text, "ffn_config", None)):
        for key in (*TOP_K_KEYS, "moe_top_k"):
            value = getattr(owner, key, None)
            if value is not None:
                return value  # type: ignore[no-any-return]
    raise LookupError("no key says how many experts a token uses")


def experts_held(config: Any) -> int:
    """How many routed experts one layer holds in one tensor whose first axis isn't the experts."""
    return int(config.ffn_config.moe_num_experts)


def idle_parameters(config: Any, parameters: Mapping[str, Any]) -> int:
    """Parameters of the routed experts that one token leaves out: (E - k)/E of each expert tensor."""
    idle = 0
    for name, tensor in parameters.items():
        if not ROUTED.search(name) or "shared" in name:
            continue
        held = tensor.shape[0] if config.model_type != "dbrx" else experts_held(config)
        used = experts_used(config)
        if isinstance(used, list):
            used = used[int(re.search(r"layers\.(\d+)\.", name).group(1))]  # type: ignore[union-attr]
        idle += tensor.numel() // held * (held - min(used, held))
    return idle


def count(model: Any, config: Any, text_only: bool = False) -> Parameters:
    """Parameters in total, active per token (towers aside, the input embedding included) and by component."""
    parameters = unique_parameters(model, (lambda name: not TOWER.search(name)) if text_only else (lambda name: True))
    parts: Counter[str] = Counter()
    for name, tensor in parameters.items():
        parts[component(name)] += tensor.numel()
    total = sum(parts.values())
    active = total - parts["towers"] - idle_parameters(config, parameters)
    return Parameters(total, active, dict(sorted(parts.items())))
