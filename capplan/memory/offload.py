"""Weights in host memory: what stays on the device, and what crosses the link in every step.

Three ways: some bytes of the weights of every rank (each crosses once a step), whole layers (only the hidden state
crosses, where the host computes its layers itself), or the routed experts. Of E experts, n tokens that choose k each
use

    E · (1 - (1 - k/E)^n)

distinct ones on average when all choices are alike; those cross, or only activations where the host computes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from capplan.arrays import ceil_div
from capplan.describe.formats_plain import DTYPE_BYTES
from capplan.describe.model import MixtureOfExperts, ModelSpec
from capplan.errors import UsageError
from capplan.memory.stage_weights import StageWeights

OffloadKind = Literal["weights", "layers", "experts"]


@dataclass(frozen=True, slots=True)
class Offload:
    """What the user wants in host memory.

    Args:
        kind: bytes of weights, whole layers, or routed experts.
        bytes: bytes a rank, for `weights`.
        device_layers: layers that stay on devices, for `layers`; the output layer counts as one.
        host_computes: the host computes with what it holds (llama.cpp), instead of sending it to the device.
    """

    kind: OffloadKind
    bytes: int = 0
    device_layers: int = 0
    host_computes: bool = False


@dataclass(frozen=True, slots=True)
class Offloaded:
    """One rank's weights, divided between device and host.

    Args:
        device_bytes: bytes that stay.
        host_bytes: bytes in host memory.
        step_bytes: bytes that cross the link in one step.
        formula: how `step_bytes` comes about.
        host_layers: layers that lie in host memory, with their caches.
    """

    device_bytes: int
    host_bytes: int
    step_bytes: int
    formula: str
    host_layers: frozenset[int] = frozenset()


def expected_experts(experts: int, top_k: int, tokens: int) -> Fraction:
    """Distinct experts that `tokens` tokens use on average, all choices alike: ``E·(1 - (1 - k/E)^n)``.

    The exact value of a balanced router with independent tokens; a skewed router uses fewer.
    """
    if experts <= 0:
        return Fraction(0)
    miss = Fraction(experts - min(top_k, experts), experts)
    if tokens > 4096:
        return Fraction(experts) if miss < 1 else Fraction(0)
    return experts * (1 - miss**tokens)


def offloaded(
    spec: ModelSpec, weights: StageWeights, offload: Offload, *, tokens: int, dtype: str, last: bool
) -> Offloaded:
    """One stage's weights under an offload.

    Args:
        spec: the model.
        weights: the stage's weights on one rank.
        offload: what goes to the host.
        tokens: tokens of one step.
        dtype: the dtype of activations.
        last: whether the stage has the output layer.

    Raises:
        UsageError: there is nothing of that kind to offload.
    """
    if offload.kind == "weights":
        return _some_weights(weights, offload)
    if offload.kind == "layers":
        return _layers(spec, weights, offload, tokens=tokens, dtype=dtype, last=last)
    return _experts(spec, weights, offload, tokens=tokens, dtype=dtype)


def _some_weights(weights: StageWeights, offload: Offload) -> Offloaded:
    moved = min(offload.bytes, weights.total)
    return Offloaded(weights.total - moved, moved, moved, f"every offloaded byte once a step: {moved}")


def _layers(
    spec: ModelSpec, weights: StageWeights, offload: Offload, *, tokens: int, dtype: str, last: bool
) -> Offloaded:
    """The last layers stay on devices, the output layer first of all; the token table is always the host's.

    Source: llama.cpp, src/llama-model.cpp (load_tensors: i_gpu_start).
    """
    depth = spec.depth
    start = max(0, depth + 1 - offload.device_layers)
    host = frozenset(layer for layer in weights.layers if layer < start)
    moved = sum(size for layer, size in zip(weights.layers, weights.by_layer, strict=True) if layer in host)
    tied = spec.embedding.tied and spec.embedding.head
    moved += 0 if tied and offload.device_layers > 0 else weights.parts.get("embedding", 0)
    if last and offload.device_layers == 0:
        moved += sum(weights.parts.get(part, 0) for part in ("head",))
    crossing = tokens * spec.hidden_size * max(2, DTYPE_BYTES[dtype]) if host and len(host) < depth else 0
    if not offload.host_computes:
        crossing = moved
    formula = "n·H·b of the hidden state" if offload.host_computes else "every offloaded byte once a step"
    return Offloaded(weights.total - moved, moved, crossing, f"{formula}: {crossing}", host)


def _experts(spec: ModelSpec, weights: StageWeights, offload: Offload, *, tokens: int, dtype: str) -> Offloaded:
    if not weights.experts:
        raise UsageError("the model has no routed experts", where="--offload", hint="use --offload weights or layers")
    sparse = [
        ffn
        for layer in weights.layers
        for ffn in spec.blocks[spec.order[layer]].ffn
        if isinstance(ffn, MixtureOfExperts)
    ]
    if offload.host_computes:
        item = max(2, DTYPE_BYTES[dtype])
        crossing = sum(2 * tokens * (ffn.latent_size or spec.hidden_size) * item for ffn in sparse)
        formula = f"2·n·H·b for each of {len(sparse)} layers: {crossing}"
        return Offloaded(weights.total - weights.experts, weights.experts, crossing, formula)
    all_experts = sum(ffn.experts for ffn in sparse)
    used = sum((expected_experts(ffn.experts, ffn.top_k, tokens) for ffn in sparse), Fraction(0))
    bytes_used = weights.experts * used / all_experts
    crossing = int(ceil_div(bytes_used.numerator, bytes_used.denominator))
    ffn = sparse[0]
    formula = (
        f"E·(1 - (1 - k/E)^n) = {float(expected_experts(ffn.experts, ffn.top_k, tokens)):.4g} of {ffn.experts} experts "
        f"a layer at n = {tokens}: {crossing}"
    )
    return Offloaded(weights.total - weights.experts, weights.experts, crossing, formula)
