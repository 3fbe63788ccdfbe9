"""One measured kernel call, a kind of row for each kind of table."""

from __future__ import annotations

from typing import NamedTuple


class GemmRow(NamedTuple):
    """A product of m rows of activations with an (n × k) weight matrix."""

    kernel: str
    format: str
    m: int
    n: int
    k: int
    seconds: float


class GroupedGemmRow(NamedTuple):
    """The feed-forward of a mixture of experts."""

    kernel: str
    format: str
    tokens: int
    hidden: int
    intermediate: int
    top_k: int
    experts: int
    tensor_parallel: int
    expert_parallel: int
    routing: str
    """How the collector spread the tokens: ``balanced`` or ``power_law_<exponent>``."""
    seconds: float


class PrefillAttentionRow(NamedTuple):
    """Causal attention of new tokens."""

    kernel: str
    format: str
    kv_format: str
    head_dim: int
    batch: int
    tokens: int
    prefix: int
    heads: int
    kv_heads: int
    window: int
    """Keys that a query sees at most; 0: all."""
    seconds: float


class DecodeAttentionRow(NamedTuple):
    """Attention of one new token a sequence."""

    kernel: str
    format: str
    kv_format: str
    head_dim: int
    batch: int
    context: int
    """Tokens that the new token sees, itself included."""
    heads: int
    kv_heads: int
    window: int
    seconds: float


class MlaPrefillRow(NamedTuple):
    """Causal latent attention of new tokens."""

    kernel: str
    kv_format: str
    batch: int
    tokens: int
    prefix: int
    heads: int
    seconds: float


class MlaDecodeRow(NamedTuple):
    """Latent attention of one new token a sequence."""

    kernel: str
    kv_format: str
    batch: int
    context: int
    heads: int
    seconds: float


class CollectiveRow(NamedTuple):
    """One collective between GPUs."""

    kernel: str
    collective: str
    gpus: int
    bytes: int
    seconds: float


KernelRow = (
    GemmRow | GroupedGemmRow | PrefillAttentionRow | DecodeAttentionRow | MlaPrefillRow | MlaDecodeRow | CollectiveRow
)
