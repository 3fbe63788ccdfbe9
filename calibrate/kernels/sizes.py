"""The shapes worth measuring, by kind of device: those of layers of language models, from small to large."""

from __future__ import annotations

from calibrate.device import Device

_ROWS = {
    "cpu": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
    "cuda": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192),
}
"""Tokens."""

_MATRICES = {
    "cpu": (
        (1024, 1024), (2048, 2048), (4096, 1024), (1024, 4096), (6144, 2048), (2048, 6144), (4096, 4096), (512, 2048),
        (2048, 512), (8192, 2048), (32768, 1024), (11008, 4096), (65536, 2048),
    ),
    "cuda": (
        (1024, 1024), (2048, 2048), (4096, 4096), (8192, 8192), (6144, 4096), (28672, 4096), (4096, 14336),
        (10240, 8192), (57344, 8192), (8192, 28672), (2112, 7168), (1536, 7168), (24576, 1536), (7168, 16384),
        (32768, 4096), (128256, 4096), (512, 2048),
    ),
}  # fmt: skip
"""(n, k) of weight matrices."""

_FEW_ROWS = {"cpu": (1, 16, 256), "cuda": (1, 64, 1024, 8192)}

_HEADS = {
    "cpu": ((16, 4, 64), (32, 8, 64), (16, 16, 64), (32, 8, 128), (16, 8, 128), (8, 8, 128), (32, 4, 128)),
    "cuda": ((32, 8, 128), (64, 8, 128), (32, 32, 128), (8, 1, 128), (16, 4, 64), (32, 8, 64), (16, 8, 256)),
}
"""(query heads, KV heads, head dim)."""

_PROMPTS = {"cpu": (16, 64, 128, 256, 512, 1024, 2048), "cuda": (16, 128, 512, 1024, 2048, 4096, 8192, 16384, 32768)}
_CONTEXTS = {"cpu": (16, 128, 512, 1024, 2048, 4096, 8192), "cuda": (16, 128, 512, 2048, 8192, 32768, 131072)}
_PROMPT_BATCHES = {"cpu": (1, 4), "cuda": (1, 4, 16)}
_DECODE_BATCHES = {"cpu": (1, 4, 16), "cuda": (1, 8, 64, 256)}

_EXPERTS = {
    "cpu": ((1024, 512, 16, 4), (1024, 768, 32, 8), (2048, 768, 16, 4), (2048, 1408, 8, 2), (512, 256, 64, 8)),
    "cuda": (
        (2048, 768, 128, 8), (4096, 1536, 128, 8), (4096, 14336, 8, 2), (7168, 2048, 64, 8), (2048, 1408, 64, 6),
        (2880, 2880, 32, 4),
    ),
}  # fmt: skip
"""(hidden size, expert width, experts, experts a token)."""

_EXPERT_TOKENS = {"cpu": (1, 2, 4, 16, 64, 256), "cuda": (1, 4, 16, 64, 256, 1024, 4096, 16384)}

_LATENT_HEADS = {"cpu": (4, 8, 16, 32), "cuda": (8, 16, 32, 64, 128)}

_WIDTHS = {"cpu": (512, 1024, 2048, 4096), "cuda": (1024, 2048, 4096, 8192, 16384)}
_VOCABULARIES = (32000, 128256)


def gemm_shapes(device: Device, *, all_of_them: bool) -> list[dict[str, int]]:
    """Products of activations with a weight matrix; a few of them for a format beside the main one."""
    rows = _ROWS[device.kind] if all_of_them else _FEW_ROWS[device.kind]
    matrices = _MATRICES[device.kind] if all_of_them else _MATRICES[device.kind][1:8:2]
    return [{"m": m, "n": n, "k": k} for n, k in matrices for m in rows]


def prefill_shapes(device: Device) -> list[dict[str, int]]:
    """Prompts."""
    return [
        {"batch": batch, "tokens": tokens, "prefix": 0, "heads": heads, "kv_heads": kv_heads, "head_dim": dim}
        for heads, kv_heads, dim in _HEADS[device.kind]
        for batch in _PROMPT_BATCHES[device.kind]
        for tokens in _PROMPTS[device.kind]
    ]


def decode_shapes(device: Device) -> list[dict[str, int]]:
    """One token of each sequence over its cache."""
    return [
        {"batch": batch, "context": context, "heads": heads, "kv_heads": kv_heads, "head_dim": dim}
        for heads, kv_heads, dim in _HEADS[device.kind]
        for batch in _DECODE_BATCHES[device.kind]
        for context in _CONTEXTS[device.kind]
    ]


def latent_prefill_shapes(device: Device) -> list[dict[str, int]]:
    """Prompts of latent attention."""
    return [
        {"batch": batch, "tokens": tokens, "prefix": 0, "heads": heads}
        for heads in _LATENT_HEADS[device.kind]
        for batch in _PROMPT_BATCHES[device.kind]
        for tokens in _PROMPTS[device.kind]
    ]


def latent_decode_shapes(device: Device) -> list[dict[str, int]]:
    """One token of each sequence over its latents."""
    return [
        {"batch": batch, "context": context, "heads": heads}
        for heads in _LATENT_HEADS[device.kind]
        for batch in _DECODE_BATCHES[device.kind]
        for context in _CONTEXTS[device.kind]
    ]


def expert_shapes(device: Device) -> list[dict[str, int]]:
    """Routed experts."""
    return [
        {"tokens": tokens, "hidden": hidden, "width": width, "top_k": top_k, "experts": experts}
        for hidden, width, experts, top_k in _EXPERTS[device.kind]
        for tokens in _EXPERT_TOKENS[device.kind]
    ]


def row_shapes(device: Device) -> list[dict[str, int]]:
    """Activations: tokens and width."""
    rows = _ROWS[device.kind]
    return [{"rows": count, "width": width} for width in _WIDTHS[device.kind] for count in rows]


def vocabulary_shapes(device: Device) -> list[dict[str, int]]:
    """Logits of sampled positions."""
    rows = (1, 2, 4, 8, 16) if device.kind == "cpu" else (1, 8, 32, 64, 256)
    return [{"rows": count, "width": width} for width in _VOCABULARIES for count in rows]


def recurrence_shapes(device: Device) -> list[dict[str, int]]:
    """Positions of states (sequences, positions of each, heads, key and value dim)."""
    prompts = (1, 64, 256, 1024) if device.kind == "cpu" else (1, 64, 512, 4096, 16384)
    heads = (8, 16, 32) if device.kind == "cpu" else (16, 32, 64)
    return [
        {"batch": batch, "tokens": tokens, "heads": count, "key_dim": 128, "value_dim": 128}
        for count in heads
        for batch in (1, 4, 16)
        for tokens in prompts
        if tokens == 1 or batch < 16
    ]


def copy_sizes(device: Device) -> list[int]:
    """Bytes of copies: from far below the cache to far above it."""
    most = max(8 * device.cache_bytes, 1 << 28)
    return [1 << power for power in range(12, most.bit_length(), 2)]
