"""Which checkpoint of a model is meant by a precision: fp8, fp4, int4, bf16."""

from __future__ import annotations

from capplan.describe.catalog import list_entries
from capplan.describe.formats import INT8, number_format
from capplan.describe.model import ModelSpec
from capplan.describe.model_plan import checkpoint_plan, has_experts
from capplan.describe.quantisation import QuantisationPlan, default_plan, unquantised_plan
from capplan.describe.weight_schemes import (
    FP8_BLOCK,
    Awq,
    Gptq,
    Mxfp4,
    Nvfp4,
    PackQuantized,
    ScaledEightBit,
    WeightScheme,
)
from capplan.describe.yaml_file import read_text
from capplan.errors import UsageError, did_you_mean

_SCHEMES: dict[str, tuple[type, ...]] = {
    "bf16": (),
    "fp16": (),
    "fp8": (ScaledEightBit,),
    "int8": (ScaledEightBit,),
    "fp4": (Nvfp4, Mxfp4),
    "int4": (PackQuantized, Gptq, Awq),
}
"""The schemes that a precision may mean."""

PRECISIONS = tuple(_SCHEMES)
"""What a checkpoint's precision may be."""

_DEFAULTS: dict[str, WeightScheme] = {
    "fp8": FP8_BLOCK,
    "int8": ScaledEightBit(INT8, "channel"),
    "fp4": Nvfp4(),
    "int4": PackQuantized(4, 128),
}
"""What is assumed where no checkpoint of the catalog has the precision."""


def checkpoint_of(
    spec: ModelSpec, precision: str | None, *, default: WeightScheme | None = None
) -> tuple[ModelSpec, QuantisationPlan]:
    """The model and how its checkpoint of this precision stores the weights.

    The checkpoint's own plan where it has that precision; else that of the catalog's entry which stores the same model
    so; else what a library quantises when it is told nothing.

    Args:
        spec: the model.
        precision: of its checkpoint; None: its own.
        default: the scheme of a checkpoint that nobody describes; None: the usual one.

    Raises:
        UsageError: no such precision.
    """
    own = checkpoint_plan(spec)
    if precision is None:
        return spec, own
    if precision not in _SCHEMES:
        raise UsageError(f"{precision!r} is not a precision", where="precision", hint=did_you_mean(precision, _SCHEMES))
    if not _SCHEMES[precision]:
        return spec, unquantised_plan(number_format(precision))
    if has_precision(own, precision):
        return spec, own
    for variant in _variants(spec.name):
        plan = checkpoint_plan(variant)
        if has_precision(plan, precision):
            return spec, plan
    scheme = default or _DEFAULTS[precision]
    return spec, default_plan(scheme, number_format(spec.dtype), has_experts=has_experts(spec))


def has_precision(plan: QuantisationPlan, precision: str) -> bool:
    """Whether matrices of a plan are stored in that precision."""
    schemes = [plan.scheme, *(rule.scheme for rule in plan.rules)]
    return any(_is(scheme, precision) for scheme in schemes if scheme is not None)


def _is(scheme: WeightScheme, precision: str) -> bool:
    whole = not isinstance(scheme, ScaledEightBit) or (scheme.format == INT8) == (precision == "int8")
    return isinstance(scheme, _SCHEMES[precision]) and whole


def _variants(name: str) -> list[ModelSpec]:
    """The entries of the catalog that lean on this one."""
    from capplan.describe.resolve import load_model

    line = f"base: {name}\n"
    return [load_model(path) for path in list_entries("models") if line in read_text(path)[:400]]
