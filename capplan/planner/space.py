"""What could be built: devices, parallel sizes, formats, engines, and which of them go together.

Ranks that exchange messages in every layer (`tp`, `dp`) stay inside one link domain; pipeline stages go beyond it, and
are tried where the domain is full. Sizes are powers of two that divide the model's heads. Attention is made
data-parallel only over experts that are shared (`ep`): without experts that is nothing but further replicas.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from capplan.describe.gpu import GpuSpec
from capplan.describe.model import Attention, LatentAttention, MixtureOfExperts, ModelSpec

MOST_STAGES = 8
UNITS = {"fp8": ("fp8",), "int8": ("int8",), "fp4": ("fp4",)}
"""Number formats of weights that want matrix units of their own; the others are multiplied in 16 bits."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What of a model limits how it can be divided.

    Args:
        heads: numbers of attention heads.
        experts: the fewest experts of any layer; 0: none.
        depth: layers.
    """

    heads: tuple[int, ...]
    experts: int
    depth: int

    @classmethod
    def of(cls, spec: ModelSpec) -> Traits:
        """The traits of a model."""
        blocks = spec.blocks.values()
        heads = {m.heads for b in blocks for m in b.mixer if isinstance(m, (Attention, LatentAttention))}
        experts = [ffn.experts for b in blocks for ffn in b.ffn if isinstance(ffn, MixtureOfExperts)]
        return cls(tuple(sorted(heads)), min(experts, default=0), spec.depth)


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """The parallel sizes of a replica.

    Args:
        tp: tensor-parallel ranks.
        pp: pipeline stages.
        dp: data-parallel groups of attention.
        ep: experts divided by number over all ranks of a stage.
    """

    tp: int
    pp: int = 1
    dp: int = 1
    ep: bool = False

    @property
    def gpus(self) -> int:
        """Devices of a replica."""
        return self.tp * self.pp * self.dp


def link_domain(gpu: GpuSpec) -> int:
    """Devices that exchange messages without leaving their fast links: those of the domain, or of one host."""
    return gpu.link.domain_size if gpu.link is not None else gpu.gpus_per_node or 1


def shapes(traits: Traits, gpu: GpuSpec, most_gpus: int) -> Iterator[Shape]:
    """Every way to divide a model over at most so many devices of a kind; see the module for the rules."""
    domain = min(link_domain(gpu), most_gpus)
    for tp in powers(domain):
        if any(heads % tp for heads in traits.heads):
            continue
        for dp in powers(domain // tp if traits.experts else 1):
            yield from _divided(traits, tp, dp, domain, most_gpus)


def _divided(traits: Traits, tp: int, dp: int, domain: int, most_gpus: int) -> Iterator[Shape]:
    ranks = tp * dp
    divisible = traits.experts >= ranks > 1
    for ep in (False, True):
        if (ep and not divisible) or (dp > 1 and not ep):
            continue
        full = ranks * 2 > domain
        stages = min(MOST_STAGES, traits.depth, most_gpus // ranks) if full else 1
        for pp in powers(stages):
            yield Shape(tp, pp, dp, ep)


def powers(most: int) -> Iterable[int]:
    """1, 2, 4, ... up to `most`."""
    size = 1
    while size <= most:
        yield size
        size *= 2


def has_units(gpu: GpuSpec, precision: str) -> bool:
    """Whether a device multiplies weights of this precision in units of its own, or in 16 bits as it should."""
    return all(gpu.dense_rate(name) is not None for name in UNITS.get(precision, ()))
