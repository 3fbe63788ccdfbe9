"""How many parameters has a model, and how many bytes are its weights?"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from capplan.describe.formats_plain import DTYPE_BYTES
from capplan.describe.model import ModelSpec
from capplan.describe.resolve import resolve_model
from capplan.errors import UsageError, did_you_mean
from capplan.memory.weights import count_parameters, rank_weight_bytes, weight_bytes
from capplan.questions.answer import Answer, Explained

WEIGHT_FIGURES = ("params_total", "params_active", "params_mtp", "weight_bytes", "per_rank_bytes")


@dataclass(frozen=True)
class WeightsResult:
    """Parameters and weight bytes.

    Args:
        params_total: parameters with towers and without MTP layers; tied tables count once.
        params_active: what one token of text uses.
        params_mtp: parameters of the MTP layers.
        weight_bytes: bytes of `params_total`.
        per_rank_bytes: bytes on the tensor-parallel rank that holds most.
        breakdown: parameters by component, adding up to `params_total`.
    """

    params_total: int
    params_active: int
    params_mtp: int
    weight_bytes: int
    per_rank_bytes: int
    breakdown: dict[str, int]


def weights(
    model: str | ModelSpec | None = None,
    *,
    weight_dtype: str | None = None,
    params: int | None = None,
    bits: Fraction | int | None = None,
    tensor_parallel_size: int = 1,
    models_dirs: Sequence[Path] = (),
    ignore_keys: Collection[str] = (),
) -> Answer[WeightsResult]:
    """Parameters, and ``params · b`` bytes of weights in one dtype.

    Args:
        model: a reference as for ``--model``, or a description.
        weight_dtype: fp32, fp16, bf16, fp8 or int8 for every tensor; None: the published dtype.
        params: a number of parameters instead of a model.
        bits: bits a parameter, with `params`.
        tensor_parallel_size: ranks that share every layer.
        models_dirs: further folders of descriptions.
        ignore_keys: keys of a ``config.json`` that are known to change no size.

    Raises:
        CapplanError: inputs that make no question.
    """
    if tensor_parallel_size < 1:
        raise UsageError(f"must be at least 1, not {tensor_parallel_size}", where="-tp")
    if model is None:
        return _bare(params, bits, tensor_parallel_size)
    if params is not None or bits is not None:
        raise UsageError("a model has its own parameters", where="--params", hint="give either, not both")
    spec, source = model, "a description"
    if isinstance(spec, str):
        found = resolve_model(spec, models_dirs=models_dirs, ignore_keys=ignore_keys)
        spec, source = found.spec, found.source
    dtype = weight_dtype or spec.dtype
    if dtype not in DTYPE_BYTES:
        raise UsageError(
            f"{dtype!r} is not a weight dtype; valid are {', '.join(DTYPE_BYTES)}",
            where="--weight-dtype",
            hint=did_you_mean(dtype, DTYPE_BYTES),
        )
    count = count_parameters(spec)
    total_bytes = weight_bytes(spec, dtype)
    rank_bytes = rank_weight_bytes(spec, dtype, tensor_parallel_size)
    item = DTYPE_BYTES[dtype]
    terms = " + ".join(str(value) for value in count.breakdown.values())
    explanation = [
        Explained(name, "Σ layers · Σ tensors · prod(shape)", "", value, "parameters")
        for name, value in count.breakdown.items()
    ]
    explanation += [
        Explained("total", "Σ of the above", terms, count.total, "parameters"),
        Explained("weights", "params · b", f"{count.total} · {item}", total_bytes, "B"),
    ]
    assumptions = list(spec.assumptions)
    if weight_dtype == "fp8":
        assumptions.append("every tensor in 8 bits; real fp8 checkpoints keep embeddings, head and norms in 16")
    return Answer(
        command="weights",
        inputs={"model": spec.name, "weight_dtype": dtype, "tensor_parallel_size": tensor_parallel_size},
        result=WeightsResult(count.total, count.active, count.mtp, total_bytes, rank_bytes, dict(count.breakdown)),
        explanation=tuple(explanation),
        assumptions=tuple(assumptions),
        sources=(source,),
        provenance=dict.fromkeys(WEIGHT_FIGURES, "exact"),
    )


def _bare(params: int | None, bits: Fraction | int | None, tp: int) -> Answer[WeightsResult]:
    """``params · bits / 8`` bytes: bare weights, with no scales and nothing kept in another format."""
    if params is None or bits is None:
        raise UsageError("which model?", where="--model", hint="give --model, or --params and --bits")
    if not 0 < bits <= 64:
        raise UsageError(f"must be between 0 and 64, not {bits}", where="--bits")
    if params < 1:
        raise UsageError(f"must be at least 1, not {params}", where="--params")
    exact = Fraction(bits) * params / 8
    total = -(-exact.numerator // exact.denominator)
    share = -(-total // tp)
    return Answer(
        command="weights",
        inputs={"params": params, "bits": float(bits), "tensor_parallel_size": tp},
        result=WeightsResult(params, params, 0, total, share, {}),
        explanation=(Explained("weights", "params · bits / 8", f"{params} · {bits} / 8", total, "B"),),
        assumptions=("bare weights: no scales, no zero points, no tensor kept in another format",),
        provenance=dict.fromkeys(WEIGHT_FIGURES, "exact"),
    )
