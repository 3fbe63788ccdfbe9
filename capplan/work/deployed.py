"""A deployment's formats and sharding, as the ledger takes them."""

from __future__ import annotations

from capplan.describe.deployment import Deployment
from capplan.describe.gguf_mix import GgufMix
from capplan.describe.model import ModelSpec
from capplan.describe.model_plan import weight_plan
from capplan.memory.gguf_plan import mix_plan
from capplan.work.formats import MATH_FORMATS, Formats
from capplan.work.step import activation_dtype


def deployment_formats(spec: ModelSpec, deployment: Deployment, math: frozenset[str] = MATH_FORMATS) -> Formats:
    """The number formats of a deployment: its weight dtype or the checkpoint's own plan, its KV cache's dtype.

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
    return Formats(activation_dtype(spec), deployment.kv_cache_dtype, stored, math)
