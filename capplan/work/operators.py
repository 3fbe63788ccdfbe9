"""What one step asks of the hardware, operator by operator: shapes, FLOPs, bytes by cause, messages.

An `Operator` is one kernel's worth of work on one rank, and how often the step does it. It knows no hardware:
FLOPs and bytes are exact integers, with one exception, the expected number of distinct experts, which is a real
number. Any figure may be a NumPy array where a sweep passes arrays.

Conventions: a multiply and an add are two FLOPs; only matrix products, attention, recurrences and convolutions count
FLOPs (elementwise kernels count bytes alone); bytes are those that must pass between the device's memory and its
processors when everything is read and written once.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

Number: TypeAlias = Any
"""An exact integer, a real number where an expectation is meant, or an array of either."""

Kind = Literal[
    "embedding",
    "norm",
    "elementwise",
    "gemm",
    "grouped_gemm",
    "prefill_attention",
    "decode_attention",
    "mla_prefill",
    "mla_decode",
    "absorbed_product",
    "index_scores",
    "linear_attention",
    "scan",
    "head",
    "sampling",
    "collective",
    "host_transfer",
]

Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"]


@dataclass(frozen=True, slots=True)
class Gemm:
    """``C[m, n] = A[m, k] · B[k, n]``, `batch` of them side by side (heads of a batched product)."""

    m: Number
    n: Number
    k: Number
    batch: Number = 1


@dataclass(frozen=True, slots=True)
class GroupedGemm:
    """The experts of one MoE layer: up (and gate) and down products of the tokens routed to each.

    Args:
        tokens: T, tokens that the router distributed (of all data-parallel groups).
        assignments: token-expert pairs that this rank computes, ``T·K·(local experts)/E``.
        top_k: K, experts that a token uses.
        experts: experts whose weights lie on this rank.
        distinct: expected number of them that at least one token uses.
        hidden: width of an expert's input and output.
        intermediate: an expert's inner width on this rank.
        matrices: 3 for gated experts, else 2.
    """

    tokens: Number
    assignments: Number
    top_k: int
    experts: Number
    distinct: Number
    hidden: int
    intermediate: Number
    matrices: int


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Attention of all sequences of one phase in one layer, on one rank.

    Args:
        sequences: B, sequences.
        tokens: query positions of all sequences.
        keys: cached positions read, summed over the sequences (``B·L`` when all have L).
        pairs: query-key pairs computed a head, summed over the sequences.
        heads: h, query heads.
        kv_heads: hk, key/value heads; 1 where all heads share one latent.
        key_dim: elements of a query or key head.
        value_dim: elements of a value head.
        limit: the most keys that a query sees (a window, a chunk, the choice of a scorer); None: all.
    """

    sequences: Number
    tokens: Number
    keys: Number
    pairs: Number
    heads: Number
    kv_heads: Number
    key_dim: int
    value_dim: int
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class ScanShape:
    """A recurrence of `heads` states of ``key_dim x value_dim`` over `tokens` positions of `sequences` sequences."""

    sequences: Number
    tokens: Number
    heads: Number
    key_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True)
class Rows:
    """A kernel over `rows` rows of `width` elements: elementwise, norm, gather, sampling."""

    rows: Number
    width: Number


@dataclass(frozen=True, slots=True)
class Message:
    """What one collective moves.

    `bytes` is the size of the whole vector: what every rank holds before an all-reduce, after an all-gather, before a
    reduce-scatter; what one rank sends in an all-to-all or a send. `apart` is how far its ranks lie from one another:
    those of data-parallel groups have a whole tensor-parallel group between them.
    """

    collective: Collective
    ranks: Number
    bytes: Number
    apart: Number = 1


@dataclass(frozen=True, slots=True)
class Transfer:
    """Bytes that cross the link between host and device."""

    bytes: Number
    direction: Literal["to_device", "to_host"]


Shape: TypeAlias = Gemm | GroupedGemm | AttentionShape | ScanShape | Rows | Message | Transfer


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes between memory and processors, by cause."""

    weights: Number = 0
    kv_read: Number = 0
    kv_written: Number = 0
    state_read: Number = 0
    state_written: Number = 0
    activations_read: Number = 0
    activations_written: Number = 0

    @property
    def read(self) -> Number:
        """Bytes read."""
        return self.weights + self.kv_read + self.state_read + self.activations_read

    @property
    def written(self) -> Number:
        """Bytes written."""
        return self.kv_written + self.state_written + self.activations_written

    @property
    def total(self) -> Number:
        """Bytes read and written."""
        return self.read + self.written

    @property
    def kv(self) -> Number:
        """KV-cache bytes read and written."""
        return self.kv_read + self.kv_written

    @property
    def state(self) -> Number:
        """Bytes of recurrent and convolution states read and written."""
        return self.state_read + self.state_written

    @property
    def activations(self) -> Number:
        """Activation bytes read and written."""
        return self.activations_read + self.activations_written

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(*(getattr(self, name) + getattr(other, name) for name in CAUSES))

    def times(self, count: Number) -> Traffic:
        """The traffic of `count` equal operators."""
        return Traffic(*(getattr(self, name) * count for name in CAUSES))


NO_TRAFFIC = Traffic()

CAUSES: tuple[str, ...] = tuple(field.name for field in fields(Traffic))
"""The causes that `Traffic` tells apart."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One kernel on one rank, and how often the step launches it.

    Args:
        kind: which law it follows.
        name: what it is, in the words of the model's modules.
        component: the part of the model it belongs to, as in `capplan.memory.tensors.Component`, or ``communication``.
        shape: the sizes that kernel laws need.
        count: equal ones in the step (layers); the other fields are of one.
        flops: FLOPs of one.
        traffic: bytes of one, by cause.
        weight_format: how its weights are stored; empty where it has none.
        activation_format: what its input is computed in.
        kv_format: number format of the KV cache where it touches one.
        stage: pipeline stage.
    """

    kind: Kind
    name: str
    component: str
    shape: Shape
    count: Number = 1
    flops: Number = 0
    traffic: Traffic = NO_TRAFFIC
    weight_format: str = ""
    activation_format: str = ""
    kv_format: str = ""
    stage: int = 0

    @property
    def message_bytes(self) -> Number:
        """Bytes of one message; 0 for anything but a collective."""
        return self.shape.bytes if isinstance(self.shape, Message) else 0

    @property
    def transfer_bytes(self) -> Number:
        """Bytes of one host transfer; 0 for anything else."""
        return self.shape.bytes if isinstance(self.shape, Transfer) else 0

    @property
    def arithmetic_intensity(self) -> Number:
        """FLOPs for each byte of memory traffic; 0 where nothing is read or written."""
        total = self.traffic.total
        if isinstance(total, int) and total == 0:
            return 0
        return self.flops / total
