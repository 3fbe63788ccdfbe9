"""One rank's share: how tensors, heads, experts and layers are divided, and what every rank holds a copy of.

Divided equally, a rank of `tp` holds ``units / tp`` of the equal pieces (heads, columns, vocabulary rows) of a tensor.
Where they don't divide, the rank that holds most has ``⌈units / tp⌉`` and the step waits for it; where ranks outnumber
the pieces (KV heads), each holds one and the pieces are replicated. Tensors that cannot be divided (norms, routers,
MLA's down-projections and its latent cache) are whole on every rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from capplan.arrays import ceil_div
from capplan.describe.deployment import ExpertExchange, Parallel
from capplan.describe.model import (
    Attention,
    Block,
    CompressedAttention,
    CrossAttention,
    LatentAttention,
    MixtureOfExperts,
    ModelSpec,
)
from capplan.errors import UsageError
from capplan.memory.stage_weights import stage_layers
from capplan.memory.tensors import Tensor
from capplan.memory.weights import model_tensors
from capplan.work.operators import Number

ReplicaCause = Literal["whole on every rank", "fewer pieces than ranks", "shared by data-parallel groups"]


@dataclass(frozen=True, slots=True)
class Sharding:
    """The parallel sizes of one replica, as in `capplan.describe.deployment.Parallel`; `tp` and `ep` may be arrays."""

    tp: Number = 1
    pp: int = 1
    dp: int = 1
    ep: Number = 1
    cp: int = 1
    stage_layers: tuple[int, ...] = ()
    expert_exchange: ExpertExchange = "all_gather"

    @classmethod
    def of(cls, parallel: Parallel) -> Sharding:
        """The sharding that a deployment describes."""
        return cls(
            parallel.tp,
            parallel.pp,
            parallel.dp,
            parallel.ep,
            parallel.cp,
            parallel.stage_layers,
            parallel.expert_exchange,
        )

    @property
    def moe_tp(self) -> Number:
        """Ranks that share one expert by width: ``tp · dp / ep``."""
        return self.tp * self.dp // self.ep


def largest_share(units: Number, ranks: Number) -> Number:
    """Pieces on the rank that holds most: ``⌈units / ranks⌉``; broadcasts over `ranks`."""
    return ceil_div(units, ranks)


def shares(units: int, ranks: int) -> tuple[int, ...]:
    """Pieces on every rank: as even as may be, and one on each where ranks outnumber the pieces.

    The sum is ``max(units, ranks)``: whatever is above `units` is replicated.
    """
    if ranks >= units:
        return (1,) * ranks
    whole, more = divmod(units, ranks)
    return tuple(whole + (rank < more) for rank in range(ranks))


def local_experts(ffn: MixtureOfExperts, sharding: Sharding) -> Number:
    """Experts whose weights lie on one rank: ``⌈E / ep⌉``."""
    return ceil_div(ffn.experts, sharding.ep)


def rank_matrix(tensor: Tensor, tp: Number) -> tuple[Number, ...]:
    """The shape of a tensor on the rank that holds most of it."""
    if tensor.split is None:
        return tensor.shape
    axis, units = tensor.split.axis, tensor.split.units
    share = tensor.shape[axis] * largest_share(units, tp) // units
    return (*tensor.shape[:axis], share, *tensor.shape[axis + 1 :])


def rank_vocabulary(vocabulary: int, tp: Number) -> Number:
    """Vocabulary rows on one rank, without the padding that engines add."""
    return largest_share(vocabulary, tp)


def pipeline_stages(depth: int, sharding: Sharding) -> tuple[range, ...]:
    """The layers of each pipeline stage.

    Raises:
        UsageError: the layers don't make that many stages.
    """
    return stage_layers(depth, Parallel(pp=sharding.pp, stage_layers=sharding.stage_layers))


@dataclass(frozen=True, slots=True)
class Replica:
    """What the ranks of a replica hold more than once.

    Args:
        name: the tensor.
        component: the part of the model.
        cause: why it is not divided.
        elements: elements over all ranks beyond one copy.
    """

    name: str
    component: str
    cause: ReplicaCause
    elements: int


def replicas(spec: ModelSpec, sharding: Sharding) -> tuple[Replica, ...]:
    """Every tensor of a model that ranks hold more than once, named, with the elements beyond the first copy.

    ``Σ_ranks elements(rank) = elements(model) + Σ replicas`` for every tensor (stages hold different layers).
    """
    found = []
    for tensor, layers, part in model_tensors(spec):
        tp, dp = sharding.tp, sharding.dp
        if tensor.component == "experts_routed":
            tp, dp = sharding.moe_tp, 1
        once = tensor.elements * layers
        held = once * tp if tensor.split is None else once // tensor.split.units * sum(shares(tensor.split.units, tp))
        if part in spec.towers:
            held = once * tp
        if held > once:
            cause: ReplicaCause = (
                "whole on every rank" if tensor.split is None or part in spec.towers else "fewer pieces than ranks"
            )
            found.append(Replica(tensor.name, tensor.component, cause, held - once))
        if dp > 1:
            found.append(Replica(tensor.name, tensor.component, "shared by data-parallel groups", held * (dp - 1)))
    return tuple(found)


def check_sharding(spec: ModelSpec, sharding: Sharding) -> None:
    """Refuse a sharding that no engine can run on this model; arrays of sizes are the caller's to check.

    Raises:
        UsageError: more ranks than query heads or experts, or context parallelism where KV heads are not replicated.
    """
    pipeline_stages(spec.depth, sharding)
    if not isinstance(sharding.tp, int) or not isinstance(sharding.ep, int):
        return
    if (sharding.tp * sharding.dp) % sharding.ep:
        raise UsageError(
            f"expert parallel size {sharding.ep} must divide tp x dp = {sharding.tp * sharding.dp}",
            where="--enable-expert-parallel",
        )
    for block in spec.blocks.values():
        _check_block(block, sharding)


def _check_block(block: Block, sharding: Sharding) -> None:
    tp, cp = sharding.tp, sharding.cp
    for mixer in block.mixer:
        heads = getattr(mixer, "heads", tp)
        if isinstance(mixer, (Attention, LatentAttention, CrossAttention, CompressedAttention)) and tp > heads:
            raise UsageError(
                f"{heads} attention heads cannot be divided over {tp} ranks",
                where="--tensor-parallel-size",
                hint=f"use at most {heads}",
            )
        if isinstance(mixer, Attention) and cp > 1 and cp * mixer.kv_heads > tp:
            raise UsageError(
                f"{mixer.kv_heads} KV heads over {tp} ranks leave no {cp} ranks that share one",
                where="--decode-context-parallel-size",
                hint=f"use at most {max(1, tp // mixer.kv_heads)}",
            )
    for ffn in block.ffn:
        if isinstance(ffn, MixtureOfExperts) and sharding.ep > ffn.experts:
            raise UsageError(
                f"{ffn.experts} experts cannot be divided over {sharding.ep} ranks", where="--enable-expert-parallel"
            )
