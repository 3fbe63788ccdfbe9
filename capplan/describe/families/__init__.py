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
    "apertus": "llama:apertus",
    "arcee": "llama:arcee",
    "baichuan": "llama:llama",
    "bamba": "hybrid_mamba:bamba",
    "bert": "bert:bert",
    "bloom": "bloom:bloom",
    "chatglm": "glm:chatglm",
    "cohere": "cohere:cohere",
    "cohere2": "cohere:cohere2",
    "ernie4_5": "llama:ernie4_5",
    "exaone4": "exaone:exaone4",
    "falcon": "falcon:falcon",
    "falcon_h1": "hybrid_mamba:falcon_h1",
    "falcon_mamba": "mamba:mamba",
    "gemma": "gemma:gemma",
    "gemma2": "gemma:gemma2",
    "glm": "glm:glm",
    "glm4": "glm:glm4",
    "gpt2": "gpt:gpt2",
    "gpt_bigcode": "gpt:gpt_bigcode",
    "gpt_neo": "gpt:gpt_neo",
    "gpt_neox": "gpt_neox:gpt_neox",
    "gptj": "gpt:gptj",
    "granite": "llama:llama",
    "granitemoehybrid": "hybrid_mamba:granitemoehybrid",
    "hunyuan_v1_dense": "llama:hunyuan_v1_dense",
    "internlm": "internlm:internlm",
    "internlm2": "internlm:internlm2",
    "internlm3": "internlm:internlm3",
    "jamba": "hybrid_mamba:jamba",
    "lfm2": "lfm2:lfm2",
    "lfm2_moe": "lfm2:lfm2_moe",
    "llama": "llama:llama",
    "mamba": "mamba:mamba",
    "mamba2": "mamba:mamba2",
    "mimo": "qwen:mimo",
    "minicpm": "minicpm:minicpm",
    "minicpm3": "minicpm:minicpm3",
    "minimax": "lightning:minimax",
    "minimax_m1": "lightning:minimax",
    "minimax_text_01": "lightning:minimax",
    "ministral3": "llama:mistral",
    "mistral": "llama:mistral",
    "modernbert": "bert:modernbert",
    "mpt": "mpt:mpt",
    "nemotron": "nemotron:nemotron",
    "nemotron-nas": "nemotron:nemotron_nas",
    "nemotron_h": "nemotron_h:nemotron_h",
    "olmo": "olmo:olmo",
    "olmo2": "olmo:olmo2",
    "olmo3": "olmo:olmo3",
    "olmo_hybrid": "olmo_hybrid:olmo_hybrid",
    "opt": "opt:opt",
    "orion": "llama:orion",
    "phi": "phi:phi",
    "phi3": "phi:phi3",
    "qwen": "qwen:qwen",
    "qwen2": "qwen:qwen2",
    "qwen3": "qwen:qwen3",
    "recurrent_gemma": "recurrent_gemma:recurrent_gemma",
    "roberta": "bert:bert",
    "seed_oss": "llama:seed_oss",
    "smollm3": "llama:smollm3",
    "stablelm": "stablelm:stablelm",
    "starcoder2": "starcoder:starcoder2",
    "t5": "t5:t5",
    "whisper": "whisper:whisper",
    "xlm-roberta": "bert:bert",
}


def reader(model_type: str) -> Callable[[Config], dict[str, Any]]:
    """The reader of a model type that is in the table; a multimodal reader finds its text model's here, too."""
    module, function = FAMILIES[model_type].split(":")
    found: Callable[[Config], dict[str, Any]] = getattr(
        importlib.import_module(f"capplan.describe.families.{module}"), function
    )
    return found
