"""Medusa heads: what drafting with them asks of the hardware."""

from __future__ import annotations

from dataclasses import replace

from capplan.describe.model import ModelSpec
from capplan.memory.tensors import Split, Tensor
from capplan.work.ends import sampling
from capplan.work.formats import Formats
from capplan.work.ledger import Ledger
from capplan.work.operators import Number, Operator
from capplan.work.projections import products
from capplan.work.scope import Scope, Span, scope_of
from capplan.work.sharding import Sharding
from capplan.work.step import activation_dtype


def medusa_ledger(
    spec: ModelSpec, heads: int, positions: Number, sharding: Sharding | None = None, formats: Formats | None = None
) -> Ledger:
    """Heads over the hidden state of m positions: each ``2·m·(H² + H·V/tp)`` FLOPs, a residual block and a head.

    Every head reads weights of its own; the blocks are whole on each rank, the heads divided by the vocabulary. They
    are stored in the dtype of the activations, whatever the model's weights are.

    Source: Cai et al., Medusa (arXiv:2401.10774), section 2.1.1.
    """
    sharding = sharding or Sharding()
    dtype = formats.dtype if formats is not None else activation_dtype(spec)
    scope = scope_of(spec.hidden_size, (), (Span(positions, 1, 0),), sharding, Formats(dtype))
    operators = [operator for tensor in _tensors(spec, heads) for operator in _each(scope, tensor, positions)]
    draws = sampling(scope, positions * heads, spec.embedding.vocab_size)
    return Ledger((*operators, draws))


def _tensors(spec: ModelSpec, heads: int) -> list[Tensor]:
    hidden, vocabulary = spec.hidden_size, spec.embedding.vocab_size
    block = Tensor("medusa_block.weight", "head", (hidden, hidden), linear=True)
    head = Tensor("medusa_head.weight", "head", (vocabulary, hidden), split=Split(0, vocabulary), linear=True)
    return [replace(tensor, name=f"{number}.{tensor.name}") for number in range(heads) for tensor in (block, head)]


def _each(scope: Scope, tensor: Tensor, positions: Number) -> list[Operator]:
    return list(products(scope, tensor.name.removesuffix(".weight"), [tensor], positions))
