"""Which measured kernel an operator is: the kind of law, the kernel that is wanted, and its sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from capplan.describe.profile_choice import Wanted, head_group
from capplan.describe.profile_table import Kind
from capplan.timing.kernel_laws.terms import Quantity
from capplan.work.operators import AttentionShape, Gemm, GroupedGemm, Message, Operator, ScanShape

Question = tuple[Kind, Wanted, dict[str, Quantity]]
"""The law's kind, the kernel that is wanted, and the axes of `capplan.timing.kernel_estimates.kernel_time`."""

GATED_MATRICES = 3
"""Matrices of the experts that the law of grouped products counts: gate, up and down."""


def wanted_kernel(operator: Operator, engine: str) -> Question | None:
    """What to ask a profile for; None for an operator of a kind that no table measured."""
    ask = _QUESTIONS.get(operator.kind)
    return ask(operator, engine) if ask else None


def kernel_name(number_format: str) -> str:
    """The name under which kernels of a format were measured: 16-bit formats run alike, and so do 8-bit floats."""
    if number_format in ("fp16", "bfloat16"):
        return "bf16"
    return "fp8" if number_format.startswith(("fp8_e", "fp8_inc", "fp8_ds", "fp8_per")) else number_format


def first(value: Any) -> float:
    """A number, or the first element of an array whose elements stand for one choice."""
    return float(value.flat[0]) if getattr(value, "ndim", 0) else float(value)


def _gemm(operator: Operator, engine: str) -> Question:
    shape = operator.shape
    assert isinstance(shape, Gemm)
    wanted = Wanted(engine=engine, format=kernel_name(operator.weight_format or "bf16"))
    return "gemm", wanted, {"m": shape.m, "n": shape.n * shape.batch, "k": shape.k}


def _grouped_gemm(operator: Operator, engine: str) -> Question:
    """Experts without a gate are narrower ones with: as many FLOPs, and as many weights."""
    shape = operator.shape
    assert isinstance(shape, GroupedGemm)
    sizes: dict[str, Quantity] = {
        "tokens": shape.assignments / shape.top_k,
        "hidden": shape.hidden,
        "width": shape.intermediate * shape.matrices / GATED_MATRICES,
        "top_k": shape.top_k,
        "experts": shape.experts,
        "distinct_experts": shape.distinct,
    }
    return "grouped_gemm", Wanted(engine=engine, format=kernel_name(operator.weight_format)), sizes


def _prefill(operator: Operator, engine: str) -> Question:
    """With the operator's own pairs, so that encoders, chunks and sequences of different lengths are counted right."""
    shape = _attention(operator)
    sizes = _new_tokens(shape) | {"kv_heads": shape.kv_heads, "window": shape.limit or 0, "pairs": shape.pairs}
    wanted = Wanted(
        engine=engine,
        format=kernel_name(operator.activation_format),
        kv_format=_cache_name(operator),
        head_dim=_mean_dim(shape),
        window="window" if shape.limit else "full",
    )
    return "prefill_attention", wanted, sizes


def _decode(operator: Operator, engine: str) -> Question:
    """Several new tokens of one sequence are further query heads on the same keys and values."""
    shape = _attention(operator)
    sizes: dict[str, Quantity] = {
        "batch": shape.sequences,
        "context": shape.keys / shape.sequences,
        "heads": shape.heads * (shape.tokens / shape.sequences),
        "kv_heads": shape.kv_heads,
    }
    wanted = Wanted(
        engine=engine,
        format=kernel_name(operator.activation_format),
        kv_format=_cache_name(operator),
        head_dim=_mean_dim(shape),
        heads=head_group(int(first(shape.heads)), int(first(shape.kv_heads))),
        window="window" if shape.limit else "full",
    )
    return "decode_attention", wanted, sizes


def _mla_prefill(operator: Operator, engine: str) -> Question:
    """Absorbed where it reads the cache of latents itself, as sparse attention does; else on expanded heads."""
    shape, absorbed = _attention(operator), bool(operator.kv_format)
    sizes = _new_tokens(shape) | {
        "limit": shape.limit or 0,
        "pairs": shape.pairs,
        "absorbed": absorbed,
        "key_dim": shape.key_dim,
        "value_dim": shape.value_dim,
    }
    wanted = Wanted(engine=engine, kv_format=_cache_name(operator), absorbed="yes" if absorbed else "no")
    return "mla_prefill", wanted, sizes


def _mla_decode(operator: Operator, engine: str) -> Question:
    shape = _attention(operator)
    sizes: dict[str, Quantity] = {
        "batch": shape.sequences,
        "context": shape.keys / shape.sequences,
        "heads": shape.heads * (shape.tokens / shape.sequences),
        "cached": shape.key_dim,
        "latent": shape.value_dim,
    }
    return "mla_decode", Wanted(engine=engine, kv_format=_cache_name(operator)), sizes


def _collective(operator: Operator, engine: str) -> Question:
    shape = operator.shape
    assert isinstance(shape, Message)
    ranks = int(first(shape.ranks))
    wanted = Wanted(collective=shape.collective, gpus=ranks)
    return "collective", wanted, {"bytes": shape.bytes, "gpus": ranks}


def _rows(operator: Operator, engine: str) -> Question:
    """A norm, a look-up or a draw by its kind, other rows by what they are; what has no kernel of its own is one that
    reads and writes, as an activation function does.
    """
    kernel = operator.kind if operator.kind != "elementwise" else _ROW_KERNELS.get(operator.name, "activation")
    return "rows", Wanted(engine=engine, kernel=kernel), {"bytes": operator.traffic.total}


_ROW_KERNELS = {"rotary embedding": "rotary_embedding", "KV cache write": "cache_write", "top-k": "top_k"}
"""Names of elementwise operators that are measured as kernels of their own."""


def _recurrence(operator: Operator, engine: str) -> Question:
    shape = operator.shape
    assert isinstance(shape, ScanShape)
    sizes = {"tokens": shape.tokens / shape.sequences, "flops": operator.flops, "bytes": operator.traffic.total}
    return "recurrence", Wanted(engine=engine, kernel=operator.name.replace(" ", "_")), sizes


def _new_tokens(shape: AttentionShape) -> dict[str, Quantity]:
    """Sequences, the mean of their new tokens, and of the positions before those."""
    tokens = shape.tokens / shape.sequences
    return {
        "batch": shape.sequences,
        "tokens": tokens,
        "heads": shape.heads,
        "prefix": shape.keys / shape.sequences - tokens,
    }


def _mean_dim(shape: AttentionShape) -> int:
    """The width that stands for both keys and values: FLOPs and bytes go with their sum."""
    return (shape.key_dim + shape.value_dim) // 2


def _cache_name(operator: Operator) -> str:
    return kernel_name(operator.kv_format or operator.activation_format)


def _attention(operator: Operator) -> AttentionShape:
    assert isinstance(operator.shape, AttentionShape)
    return operator.shape


_QUESTIONS: dict[str, Callable[[Operator, str], Question]] = {
    "gemm": _gemm,
    "head": _gemm,
    "absorbed_product": _gemm,
    "grouped_gemm": _grouped_gemm,
    "prefill_attention": _prefill,
    "decode_attention": _decode,
    "mla_prefill": _mla_prefill,
    "mla_decode": _mla_decode,
    "collective": _collective,
    "norm": _rows,
    "elementwise": _rows,
    "embedding": _rows,
    "sampling": _rows,
    "linear_attention": _recurrence,
    "scan": _recurrence,
}
