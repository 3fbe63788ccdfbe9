"""What stands around the layers: embedding, final norms, head, sampling."""

from __future__ import annotations

from dataclasses import replace

from capplan.describe.model import ModelSpec
from capplan.memory.tensors import Split, Tensor, embedding_tensors
from capplan.work.collectives import all_reduce, collective
from capplan.work.formats import rank_bytes
from capplan.work.operators import Number, Operator, Rows, Traffic
from capplan.work.projections import Shelf, elementwise, products, where
from capplan.work.scope import Scope
from capplan.work.sharding import largest_share

LOGIT_BYTES = 4
"""Sampling works on fp32 logits."""


def embedding(spec: ModelSpec, scope: Scope) -> list[Operator]:
    """One row of each table a token, summed: ``m·(table width)`` elements read, ``m·H`` written; norms on the result.

    A rank of a vocabulary-parallel table has ``1/tp`` of the rows, on average those of ``m/tp`` tokens; an all-reduce
    gives all ranks the rest.

    Source: Shoeybi et al., Megatron-LM (arXiv:1909.08053), section 3.
    """
    tables = [tensor for tensor in embedding_tensors(spec) if tensor.component == "embedding"]
    norms = [tensor for tensor in embedding_tensors(spec) if tensor.component == "norms"]
    rows = scope.tokens
    read = sum(_rows_read(scope, table) * _row_bytes(scope, table) for table in tables)
    width = spec.embedding.size or spec.hidden_size
    operators = [
        Operator(
            kind="embedding",
            name="embedding",
            component="embedding",
            shape=Rows(rows, width),
            traffic=Traffic(weights=read, activations_written=scope.activations(rows * width)),
            weight_format=scope.formats.of(tables[0]).name,
            activation_format=scope.formats.dtype,
        )
    ]
    operators += all_reduce(scope, "embedding", scope.tokens * width)
    if spec.embedding.norms:
        operators.append(elementwise(scope, "embedding norm", "norms", scope.tokens, width, weights=norms, kind="norm"))
    return operators


def _rows_read(scope: Scope, table: Tensor) -> Number:
    """Rows that a rank reads: its share of the tokens where the table's rows are divided, else one a token."""
    return largest_share(scope.tokens, scope.sharding.tp) if table.split else scope.tokens


def _row_bytes(scope: Scope, table: Tensor) -> Number:
    """Bytes of one row of a table, wherever it lies."""
    return rank_bytes(table, scope.formats.of(table), 1) // table.shape[0]


def head(spec: ModelSpec, scope: Scope, sampled: Number) -> list[Operator]:
    """Logits of the sampled positions, ``2·m·H·V`` FLOPs, gathered from the ranks' shares of the vocabulary.

    The head is the token table where the two are tied. Nothing for a model without a head, or where nothing is sampled.
    """
    if not spec.embedding.head:
        return []
    vocabulary = spec.embedding.vocab_size
    tensors = head_tensors(spec)
    projections = products(scope, "lm_head", tensors, sampled, kind="head")
    projections = [replace(product, component="head") for product in projections]
    size = scope.activations(sampled * vocabulary)
    gather = collective("gather logits", "all_gather", scope.sharding.tp, size)
    return where(sampled, [*projections, *gather, sampling(scope, sampled, vocabulary)])


def head_tensors(spec: ModelSpec) -> list[Tensor]:
    """The matrix of the head, which may be the token table, and its bias."""
    shelf = Shelf(embedding_tensors(spec))
    own = shelf.take("lm_head")
    if any(tensor.linear for tensor in own):
        return own
    table = shelf.take("embed_tokens")[0]
    rows = spec.embedding.vocab_size
    return [replace(table, shape=(rows, table.shape[1]), split=Split(0, rows), linear=True), *own]


def sampling(scope: Scope, sampled: Number, vocabulary: int) -> Operator:
    """Logits to fp32, softmax, one draw: ``m·V`` logits read, written in fp32 and read again.

    Leaves out sorting for top-k and top-p, penalties and grammars.
    """
    logits = sampled * vocabulary
    return Operator(
        kind="sampling",
        name="sampling",
        component="head",
        shape=Rows(sampled, vocabulary),
        traffic=Traffic(
            activations_read=scope.activations(logits) + LOGIT_BYTES * logits, activations_written=LOGIT_BYTES * logits
        ),
        activation_format="fp32",
    )
