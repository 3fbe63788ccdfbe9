"""How many parameters has a model, and how many bytes are its weights?"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from capplan.describe.formats_plain import DTYPE_BYTES
from capplan.describe.model import ModelSpec
from capplan.describe.resolve import ResolvedModel, resolve_model
from capplan.errors import NotFoundError, UsageError
from capplan.memory.weights import ParameterCount, count_parameters, rank_weight_bytes, weight_bytes
from capplan.questions.answer import Answer, Explained

if TYPE_CHECKING:
    from capplan.memory.quantised_weights import QuantisedWeights

WEIGHT_FIGURES = ("params_total", "params_active", "params_mtp", "weight_bytes", "per_rank_bytes", "bits_per_weight")


@dataclass(frozen=True)
class StoredPart:
    """Weights of one component that are stored alike.

    Args:
        component: the part of the model.
        format: how they are stored.
        params: their parameters.
        bytes: their bytes, scales included.
    """

    component: str
    format: str
    params: int
    bytes: int


@dataclass(frozen=True)
class WeightsResult:
    """Parameters and weight bytes.

    Args:
        params_total: parameters with towers and without MTP layers; tied tables count once.
        params_active: what one token of text uses.
        params_mtp: parameters of the MTP layers.
        weight_bytes: bytes of the weights as stored, with towers and without MTP layers.
        per_rank_bytes: bytes on the tensor-parallel rank that holds most.
        bits_per_weight: ``8 · weight_bytes / params_total``.
        breakdown: parameters by component, adding up to `params_total`.
        stored: bytes by component and format, where they are known tensor by tensor.
        file_bytes: bytes of all tensors in the files of a checkpoint, MTP layers included; None without files.
    """

    params_total: int
    params_active: int
    params_mtp: int
    weight_bytes: int
    per_rank_bytes: int
    bits_per_weight: float
    breakdown: dict[str, int]
    stored: tuple[StoredPart, ...] = ()
    file_bytes: int | None = None


@dataclass(frozen=True)
class _Bytes:
    """Bytes of the weights, by whatever way they were found."""

    total: int
    rank: int
    stored: tuple[StoredPart, ...] = ()
    file: int | None = None
    explanation: tuple[Explained, ...] = ()
    notes: tuple[str, ...] = ()
    form: str = ""


def weights(
    model: str | ModelSpec | None = None,
    *,
    weight_dtype: str | None = None,
    params: int | None = None,
    bits: Fraction | int | None = None,
    tensor_parallel_size: int = 1,
    models_dirs: Sequence[Path] = (),
    ignore_keys: Collection[str] = (),
    online: bool = False,
) -> Answer[WeightsResult]:
    """Parameters, and bytes of the weights tensor by tensor.

    Args:
        model: a reference as for ``--model``, or a description.
        weight_dtype: how to store them: a plain dtype for every tensor (fp32, fp16, bf16, fp8, int8), a scheme such as
            ``awq-int4-g128`` or a mix of llama.cpp's such as ``gguf:Q4_K_M``; None: as the checkpoint stores them.
        params: a number of parameters instead of a model.
        bits: bits a parameter, with `params`.
        tensor_parallel_size: ranks that share every layer.
        models_dirs: further folders of descriptions.
        ignore_keys: keys of a ``config.json`` that are known to change no size.
        online: whether a Hugging Face id may be looked up on the hub.

    Raises:
        CapplanError: inputs that make no question.
    """
    if tensor_parallel_size < 1:
        raise UsageError(f"must be at least 1, not {tensor_parallel_size}", where="-tp")
    if model is None:
        return _bare(params, bits, tensor_parallel_size)
    if params is not None or bits is not None:
        raise UsageError("a model has its own parameters", where="--params", hint="give either, not both")
    if isinstance(model, ModelSpec):
        found = ResolvedModel(model, Path(), "a description")
    else:
        found = resolve_model(model, models_dirs=models_dirs, ignore_keys=ignore_keys, online=online)
    count = count_parameters(found.spec)
    stored = _stored_bytes(found, weight_dtype, tensor_parallel_size, count)
    return Answer(
        command="weights",
        inputs={"model": found.spec.name, "weight_dtype": stored.form, "tensor_parallel_size": tensor_parallel_size},
        result=WeightsResult(
            count.total,
            count.active,
            count.mtp,
            stored.total,
            stored.rank,
            8 * stored.total / count.total,
            dict(count.breakdown),
            stored.stored,
            stored.file,
        ),
        explanation=(*_explain(count), *stored.explanation),
        assumptions=(*found.spec.assumptions, *stored.notes),
        sources=(found.source,),
        provenance=dict.fromkeys(WEIGHT_FIGURES, "exact"),
    )


def _stored_bytes(found: ResolvedModel, weight_dtype: str | None, tp: int, count: ParameterCount) -> _Bytes:
    """The bytes, from the files where there are any, else from the plan of the checkpoint or of the named scheme."""
    if weight_dtype is None and found.gguf is not None:
        return _of_gguf(found, tp)
    if weight_dtype in DTYPE_BYTES or (weight_dtype is None and found.spec.quantisation is None):
        plain = _plain(found.spec, weight_dtype or found.spec.dtype, tp, count)
        return _with_files(found, plain) if weight_dtype is None else plain
    planned = _planned(found.spec, weight_dtype, tp)
    return _with_files(found, planned) if weight_dtype is None else planned


def _plain(spec: ModelSpec, dtype: str, tp: int, count: ParameterCount) -> _Bytes:
    """Every tensor in one number format: ``params · b``."""
    total = weight_bytes(spec, dtype)
    notes = []
    if DTYPE_BYTES[dtype] == 1:
        scheme = f"{dtype}-tensor" if dtype == "fp8" else f"{dtype}-channel"
        real = _planned(spec, scheme, tp).total
        notes.append(
            f"every tensor in 8 bits; a real {scheme} checkpoint keeps embeddings, head and norms in 16: {real:,} bytes"
        )
    step = Explained("weights", "params · b", f"{count.total} · {DTYPE_BYTES[dtype]}", total, "B")
    return _Bytes(total, rank_weight_bytes(spec, dtype, tp), explanation=(step,), notes=tuple(notes), form=dtype)


def _planned(spec: ModelSpec, weight_dtype: str | None, tp: int) -> _Bytes:
    """Tensor by tensor as a plan stores them."""
    from capplan.describe.gguf_mix import GgufMix
    from capplan.describe.model_plan import weight_plan
    from capplan.memory.gguf_weights import gguf_weights
    from capplan.memory.quantised_weights import quantised_weights, rank_weights

    plan = weight_plan(spec, weight_dtype)
    if isinstance(plan, GgufMix):
        mixed = gguf_weights(spec, plan)
        parts = tuple(StoredPart("all", name, 0, size) for name, size in mixed.bytes_by_type().items())
        step = Explained("weights", "Σ tensors rows · row bytes of the type", "", mixed.total, "B")
        return _Bytes(mixed.total, -(-mixed.total // tp), parts, explanation=(step,), form=str(weight_dtype))
    whole = quantised_weights(spec, plan)
    rank = whole if tp == 1 else rank_weights(spec, plan, tp=tp)
    return _Bytes(
        whole.total,
        rank.total,
        _parts(whole),
        explanation=tuple(_explain_plan(whole)),
        form=weight_dtype or plan.method,
    )


def _parts(stored: QuantisedWeights) -> tuple[StoredPart, ...]:
    from capplan.describe.weight_dtype import scheme_name

    return tuple(
        StoredPart(term.component, scheme_name(term.scheme), term.elements, term.bytes) for term in stored.terms
    )


def _explain_plan(stored: QuantisedWeights) -> list[Explained]:
    from capplan.describe.weight_dtype import scheme_name

    lines = [
        Explained(
            f"{term.component} in {scheme_name(term.scheme)}",
            "Σ tensors packed + scales",
            f"{term.bytes - term.scale_bytes} + {term.scale_bytes}",
            term.bytes,
            "B",
        )
        for term in stored.terms
    ]
    return [*lines, Explained("weights", "Σ of the above", "", stored.total, "B")]


def _with_files(found: ResolvedModel, planned: _Bytes) -> _Bytes:
    """The plan's bytes beside what the headers of the checkpoint's files say, which is exact."""
    if found.checkpoint is None:
        return planned
    from dataclasses import replace

    from capplan.describe.checkpoint import read_checkpoint

    try:
        files = read_checkpoint(found.checkpoint)
    except NotFoundError:
        return planned
    parts = tuple(StoredPart(component, "as stored", 0, size) for component, size in files.bytes_by_component().items())
    notes = [*planned.notes, *files.notes]
    difference = files.data_bytes - planned.total
    if difference:
        notes.append(
            f"the files hold {files.data_bytes:,} bytes, {difference:+,} beside the configuration's {planned.total:,}"
            " (MTP layers, copies of tied tables, buffers)"
        )
    formats = ", ".join(f"{name} {size:,}" for name, size in files.bytes_by_format().items())
    step = Explained("files", "Σ tensors of all headers", formats, files.data_bytes, "B")
    return replace(
        planned,
        stored=parts,
        file=files.data_bytes,
        notes=tuple(notes),
        explanation=(*planned.explanation, step),
    )


def _of_gguf(found: ResolvedModel, tp: int) -> _Bytes:
    """What a GGUF file's table holds, tensor by tensor."""
    file = found.gguf
    assert file is not None
    parts = tuple(
        StoredPart("all", name, sum(tensor.elements for tensor in file.tensors if tensor.type.name == name), size)
        for name, size in file.bytes_by_type().items()
    )
    total = file.data_bytes
    step = Explained("weights", "Σ tensors of the table", "", total, "B")
    return _Bytes(total, -(-total // tp), parts, total, (step,), form="gguf")


def _explain(count: ParameterCount) -> list[Explained]:
    lines = [
        Explained(name, "Σ layers · Σ tensors · prod(shape)", "", value, "parameters")
        for name, value in count.breakdown.items()
    ]
    terms = " + ".join(str(value) for value in count.breakdown.values())
    return [*lines, Explained("total", "Σ of the above", terms, count.total, "parameters")]


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
        result=WeightsResult(params, params, 0, total, share, float(bits), {}),
        explanation=(Explained("weights", "params · bits / 8", f"{params} · {bits} / 8", total, "B"),),
        assumptions=("bare weights: no scales, no zero points, no tensor kept in another format",),
        provenance=dict.fromkeys(WEIGHT_FIGURES, "exact"),
    )
