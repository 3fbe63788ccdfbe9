"""One small module a family of architectures; each reader turns a `Config` into the fields of a `ModelSpec`.

`FAMILIES` names the reader of each ``model_type`` as ``module:function``, so that only the one needed is imported.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from capplan.describe.config import Config

FAMILIES: dict[str, str] = {
    "bamba": "hybrid_mamba:bamba",
    "falcon_h1": "hybrid_mamba:falcon_h1",
    "falcon_mamba": "mamba:mamba",
    "granitemoehybrid": "hybrid_mamba:granitemoehybrid",
    "jamba": "hybrid_mamba:jamba",
    "lfm2": "lfm2:lfm2",
    "lfm2_moe": "lfm2:lfm2_moe",
    "mamba": "mamba:mamba",
    "mamba2": "mamba:mamba2",
    "minimax": "lightning:minimax",
    "minimax_m1": "lightning:minimax",
    "minimax_text_01": "lightning:minimax",
    "nemotron_h": "nemotron_h:nemotron_h",
    "olmo_hybrid": "olmo_hybrid:olmo_hybrid",
    "recurrent_gemma": "recurrent_gemma:recurrent_gemma",
    "llama": "llama:llama",
    "mistral": "llama:mistral",
    "qwen2": "llama:qwen2",
    "qwen3": "llama:qwen3",
}


def reader(model_type: str) -> Callable[[Config], dict[str, Any]]:
    """The reader of a model type that is in the table; a multimodal reader finds its text model's here, too."""
    module, function = FAMILIES[model_type].split(":")
    found: Callable[[Config], dict[str, Any]] = getattr(
        importlib.import_module(f"capplan.describe.families.{module}"), function
    )
    return found
