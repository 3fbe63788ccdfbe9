"""A deployment's formats and sharding, as the ledger takes them."""

from __future__ import annotations

from capplan.describe.deployment import Deployment
from capplan.describe.formats import FP8_E4M3
from capplan.describe.gguf_mix import GgufMix
from capplan.describe.model import ModelSpec
from capplan.describe.model_plan import weight_plan
from capplan.memory.gguf_plan import mix_plan
from capplan.work.formats import MATH_FORMATS, Formats
from capplan.work.step import activation_dtype


def deployment_formats(spec: ModelSpec, deployment: Deployment, math: frozenset[str] = MATH_FORMATS) -> Formats:
    """The number formats of a deployment: its weight dtype or the checkpoint's own plan, its KV cache's dtype.

    A cache that is left to the engine has the format that the checkpoint asks for, as its memory has.

    Args:
        spec: the model.
        deployment: the deployment.
        math: which of fp8, int8 and fp4 the device's matrix units multiply.

    Raises:
        UsageError: a format that has no meaning.
        UnsupportedError: a quantisation that isn't known, or a mix for an architecture that llama.cpp lacks.
    """
    plan = weight_plan(spec, deployment.weight_dtype)
    stored = mix_plan(spec, plan) if isinstance(plan, GgufMix) else plan
    kv = deployment.kv_cache_dtype
    if kv == "auto" and stored is not None and stored.kv_cache:
        kv = "fp8" if stored.kv_cache == FP8_E4M3.name else stored.kv_cache
    return Formats(activation_dtype(spec), kv, stored, math)
