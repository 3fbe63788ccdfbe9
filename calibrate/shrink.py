"""A model with fewer layers, where all of them do not fit: the same layers, in the same order, from the first on."""

from __future__ import annotations

from dataclasses import replace

from calibrate.formats import ITEM_BYTES
from capplan.describe.model import ModelSpec, Stack
from capplan.errors import UsageError
from capplan.memory.tensors import block_tensors
from capplan.memory.weights import count_parameters


def weight_bytes(spec: ModelSpec, format: str) -> int:
    """Bytes of the decoder's parameters in one number format; towers and drafting layers are not run."""
    counted = count_parameters(spec)
    return (counted.total - counted.towers) * ITEM_BYTES[format]


def shrunk(spec: ModelSpec, most_bytes: int, format: str = "bf16") -> ModelSpec:
    """The model with as many of its first layers as fit, at least one of each kind.

    Raises:
        UsageError: not even those fit.
    """
    if weight_bytes(spec, format) <= most_bytes:
        return spec
    least = least_depth(spec)
    size = weight_bytes(with_depth(spec, least), format)
    if size > most_bytes:
        raise UsageError(
            f"one layer of each kind of {spec.name} needs {size / 2**30:.1f} GiB",
            where="--model",
            hint=f"at most {most_bytes / 2**30:.1f} GiB are there for weights; choose a smaller model",
        )
    depth = least
    while size + layer_bytes(spec, spec.order[depth], format) <= most_bytes:
        size += layer_bytes(spec, spec.order[depth], format)
        depth += 1
    return with_depth(spec, depth)


def least_depth(spec: Stack) -> int:
    """Layers until every kind has come."""
    return max(spec.order.index(name) for name in spec.blocks) + 1


def layer_bytes(spec: ModelSpec, name: str, format: str) -> int:
    """Bytes of the parameters of one layer."""
    return sum(t.elements for t in block_tensors(spec.blocks[name], spec) if t.trained) * ITEM_BYTES[format]


def with_depth(spec: ModelSpec, depth: int) -> ModelSpec:
    """The model's first layers; kinds of layers that come later go."""
    order = spec.order[:depth]
    blocks = {name: block for name, block in spec.blocks.items() if name in order}
    return replace(spec, blocks=blocks, layers=" + ".join(order), mtp=None, towers={})
