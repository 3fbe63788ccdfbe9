"""Parameters and the bytes of unquantised weights, summed over the tensor inventory.

    params = Σ_blocks layers · Σ_tensors count · prod(shape)  +  embeddings  +  head  +  encoder  +  towers

MTP layers are counted apart: an engine loads them only when it speculates. Buffers (routers' correction biases) are
stored in checkpoints but are no parameters, and are counted apart too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from capplan.describe.formats_plain import DTYPE_BYTES
from capplan.describe.model import ModelSpec
from capplan.memory.tensors import Tensor, each_tensor, embedding_tensors


@dataclass(frozen=True, slots=True)
class ParameterCount:
    """Parameters of one model, as named terms.

    Args:
        total: everything but MTP layers; towers are in it, tied tables count once.
        active: what one token of text uses: all but towers and the routed experts not chosen.
        mtp: parameters of the MTP layers.
        towers: parameters of vision and audio towers.
        buffers: elements that checkpoints store and that are no parameters.
        breakdown: parameters by component; the values add up to `total`.
    """

    total: int
    active: int
    mtp: int
    towers: int
    buffers: int
    breakdown: dict[str, int]


def model_tensors(spec: ModelSpec) -> Iterator[tuple[Tensor, int, str]]:
    """(tensor, number of layers that hold one, part) for the whole model without its MTP layers.

    The part is ``model``, ``encoder`` or the name of a tower.
    """
    for tensor in embedding_tensors(spec):
        yield tensor, 1, "model"
    for tensor, layers in each_tensor(spec):
        yield tensor, layers, "model"
    if spec.encoder:
        for tensor, layers in each_tensor(spec.encoder):
            yield tensor, layers, "encoder"
    for name, tower in spec.towers.items():
        for tensor, layers in each_tensor(tower):
            yield tensor, layers, name


def mtp_tensors(spec: ModelSpec) -> Iterator[tuple[Tensor, int, str]]:
    """(tensor, layers, ``mtp``) for the MTP layers, with the copies of embedding and head that each brings."""
    if spec.mtp is None:
        return
    for tensor, layers in each_tensor(spec.mtp):
        yield tensor, layers, "mtp"
    tables = embedding_tensors(spec)
    copies = [("embed_tokens.weight", spec.mtp.embedding_copy), ("lm_head.weight", spec.mtp.head_copy)]
    for name, copied in copies:
        if copied:
            table = next((tensor for tensor in tables if tensor.name == name), tables[0])
            yield table, spec.mtp.depth, "mtp"


def count_parameters(spec: ModelSpec) -> ParameterCount:
    """Parameters by component, in total and active for one token."""
    breakdown: dict[str, int] = {}
    total = active = towers = buffers = 0
    for tensor, layers, part in model_tensors(spec):
        elements = tensor.elements * layers
        if not tensor.trained:
            buffers += elements
            continue
        total += elements
        in_tower = part in spec.towers
        component = part if in_tower else tensor.component
        breakdown[component] = breakdown.get(component, 0) + elements
        if in_tower:
            towers += elements
        else:
            active += tensor.active_elements * layers
    mtp = sum(tensor.elements * layers for tensor, layers, _ in mtp_tensors(spec))
    return ParameterCount(total, active, mtp, towers, buffers, breakdown)


def weight_bytes(spec: ModelSpec, dtype: str) -> int:
    """Bytes of all parameters but the MTP layers' in one plain dtype: ``params · b``."""
    return count_parameters(spec).total * DTYPE_BYTES[dtype]


def rank_weight_bytes(spec: ModelSpec, dtype: str, tp: int = 1, ep: int = 1) -> int:
    """Weight bytes on the rank of a tensor-parallel group that holds most.

    Heads, intermediate columns and vocabulary rows divide; norms, routers, MLA's down-projections and towers are
    whole on every rank; experts divide by `ep` groups in number, and by ``tp / ep`` in width.
    """
    elements = 0
    for tensor, layers, part in model_tensors(spec):
        if not tensor.trained:
            continue
        if part in spec.towers:
            share = tensor.elements
        elif tensor.component == "experts_routed":
            share = tensor.rank_elements(max(1, tp // ep), ep)
        else:
            share = tensor.rank_elements(tp)
        elements += share * layers
    return elements * DTYPE_BYTES[dtype]
