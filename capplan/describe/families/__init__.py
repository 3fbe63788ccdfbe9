"""One small module a family of architectures; each reader turns a `Config` into the fields of a `ModelSpec`.

`FAMILIES` names the reader of each ``model_type`` as ``module:function``, so that only the one needed is imported.
"""

from __future__ import annotations

FAMILIES: dict[str, str] = {
    "llama": "llama:llama",
    "mistral": "llama:mistral",
    "qwen2": "llama:qwen2",
    "qwen3": "llama:qwen3",
}
