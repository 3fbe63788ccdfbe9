"""How the weights of a described model are stored: its checkpoint's own plan, or a scheme that the user names."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from capplan.describe.formats import number_format
from capplan.describe.gguf_mix import GgufMix
from capplan.describe.model import MixtureOfExperts, ModelSpec
from capplan.describe.quantisation import QuantisationPlan, default_plan, unquantised_plan
from capplan.describe.quantisation_config import read_quantisation
from capplan.describe.weight_dtype import FLAG as WEIGHT_DTYPE_FLAG
from capplan.describe.weight_dtype import parse_weight_dtype
from capplan.errors import UsageError
from capplan.identity import Same


def checkpoint_plan(spec: ModelSpec) -> QuantisationPlan:
    """How the published checkpoint stores each weight.

    Raises:
        UnsupportedError: a quantisation method or option that is not known.
        InvalidFileError: a value that is not what its key means.
    """
    return _checkpoint_plan(Same(spec))


@lru_cache(maxsize=256)
def _checkpoint_plan(key: Same[ModelSpec]) -> QuantisationPlan:
    spec = key.value
    if spec.quantisation is None:
        return unquantised_plan(number_format(spec.dtype))
    config: dict[str, Any] = {"dtype": number_format(spec.dtype).name, "quantization_config": dict(spec.quantisation)}
    expert_dtype = config["quantization_config"].pop("expert_dtype", None)
    if expert_dtype is not None:
        config["expert_dtype"] = expert_dtype
    return read_quantisation(config, where=spec.name)


def weight_plan(
    spec: ModelSpec, weight_dtype: str | None, *, where: str = WEIGHT_DTYPE_FLAG
) -> QuantisationPlan | GgufMix:
    """The plan of a named scheme, or a mix of llama.cpp's; without a name the checkpoint's own.

    Args:
        spec: the model.
        weight_dtype: the name.
        where: the option that it was given to, for an error.

    Raises:
        UsageError: no such name.
    """
    if weight_dtype is None:
        return checkpoint_plan(spec)
    scheme = parse_weight_dtype(weight_dtype, where=where)
    if isinstance(scheme, GgufMix):
        return scheme
    return default_plan(scheme, number_format(spec.dtype), has_experts=has_experts(spec))


def tensor_plan(spec: ModelSpec, weight_dtype: str | None) -> QuantisationPlan:
    """As `weight_plan`, for what cannot work with llama.cpp's mixes.

    Raises:
        UsageError: the name is a mix.
    """
    plan = weight_plan(spec, weight_dtype)
    if isinstance(plan, GgufMix):
        raise UsageError(f"{weight_dtype} is a mix of llama.cpp's", where=WEIGHT_DTYPE_FLAG, hint="--engine llama.cpp")
    return plan


def has_experts(spec: ModelSpec) -> bool:
    """Whether any layer routes tokens to experts."""
    return any(isinstance(ffn, MixtureOfExperts) for block in spec.blocks.values() for ffn in block.ffn)
