"""How many tokens the KV pool of one data-parallel group of a server holds."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from capplan.describe.gpu import GpuSpec
from capplan.describe.model import ModelSpec
from capplan.describe.quantisation import QuantisationPlan
from capplan.identity import Same
from capplan.memory.kv_format import kv_format
from capplan.memory.quantised_weights import rank_weights
from capplan.memory.sequence_memory import Lengths, sequence_memory
from capplan.serving.replica import EngineSettings
from capplan.work.sharding import Sharding

MEMORY_SHARE = Fraction(9, 10)
"""Share of the device's memory that engines take by default."""

TIGHT_SHARE = Fraction(97, 100)
"""Share that a server must have been given where the usual one leaves almost nothing beside the weights."""

LEAST_POOL = 4 << 30
"""A pool below which a server is taken to have been given the larger share."""

RESERVED_BYTES = 3 << 30
"""Activations, graphs and communication buffers of a server: about 3 GiB a device (public serving measurements)."""


def pool_tokens(
    spec: ModelSpec,
    plan: QuantisationPlan,
    gpu: GpuSpec,
    engine: str,
    sharding: Sharding,
    kv: str,
    settings: EngineSettings,
) -> float:
    """Tokens of long sequences that the pool holds: ``(0.9·memory - weights - 3 GiB) / bytes a token`` on one rank.

    Args:
        spec: the model.
        plan: how its weights are stored.
        gpu: the device.
        engine: the engine.
        sharding: the parallel sizes.
        kv: the format of the cache.
        settings: the server's settings.
    """
    return _tokens(Same(spec), Same(plan), Same(gpu), sharding, kv)


def held_weights(spec: ModelSpec, plan: QuantisationPlan, sharding: Sharding) -> int:
    """Bytes of weights on one rank: experts divided over all ranks of a stage, stages taken to be equal.

    ``(dense / tp + experts / (tp·dp)) / pp``
    """
    return _held(Same(spec), Same(plan), sharding)


@lru_cache(maxsize=1024)
def _held(spec: Same[ModelSpec], plan: Same[QuantisationPlan], sharding: Sharding) -> int:
    weights = rank_weights(spec.value, plan.value, tp=int(sharding.tp), ep=1)
    routed = sum(term.bytes for term in weights.terms if term.component == "experts_routed")
    return (weights.total - routed + routed // sharding.dp) // sharding.pp


@lru_cache(maxsize=1024)
def _tokens(
    spec_key: Same[ModelSpec], plan_key: Same[QuantisationPlan], gpu_key: Same[GpuSpec], sharding: Sharding, kv: str
) -> float:
    spec, tp = spec_key.value, int(sharding.tp)
    held = _held(spec_key, plan_key, sharding)
    memory = gpu_key.value.engine_memory
    pool = int(MEMORY_SHARE * memory) - held - RESERVED_BYTES
    if pool < LEAST_POOL:
        pool = int(TIGHT_SHARE * memory) - held - (RESERVED_BYTES >> 1)
    form = kv_format(kv, "bf16")
    length = 8192
    one = sequence_memory(spec, Lengths(length, length), kv_dtype="bf16")
    share = float((form.key_bits + form.value_bits) / 32)
    cache = sum(term.rank_bytes(tp) for group in one.groups for term in group.cache) * share
    state = sum(term.rank_bytes(tp) for group in one.groups for term in group.state)
    return max(0.0, pool / ((cache + state) / length / sharding.pp))
