"""How many bytes are the KV cache and the states of a model?"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from capplan.describe.model import Attention, Block, Embedding, ModelSpec
from capplan.describe.resolve import resolve_model
from capplan.errors import UsageError
from capplan.memory.paging import paged_context
from capplan.memory.sequence_memory import (
    CacheTerm,
    GroupMemory,
    Lengths,
    SequenceMemory,
    kv_item_bytes,
    sequence_memory,
)
from capplan.questions.answer import Answer, Explained

KV_FIGURES = ("kv_bytes", "state_bytes", "total_bytes", "bytes_per_token", "per_rank_bytes")


@dataclass(frozen=True)
class KvGroup:
    """The cache and states of the layers of one kind."""

    name: str
    kind: str
    layers: int
    kv_bytes: int
    state_bytes: int
    bytes: int


@dataclass(frozen=True)
class KvPaging:
    """The same cache in blocks, beside a reservation of the maximum length.

    Args:
        block_size: tokens of a block.
        blocks: blocks that one sequence takes.
        allocated_tokens: places of those blocks.
        lost_tokens: places of the last one that hold nothing.
        lost_share: `lost_tokens` over `allocated_tokens`.
        allocated_bytes: bytes of the blocks of all sequences, states included.
        reserved_tokens: the maximum length that a reservation would hold for each sequence.
        reserved_bytes: what it would take.
        reservation_lost_tokens: places of it that hold nothing.
        reservation_lost_share: `reservation_lost_tokens` over `reserved_tokens`.
    """

    block_size: int
    blocks: int
    allocated_tokens: int
    lost_tokens: int
    lost_share: float
    allocated_bytes: int
    reserved_tokens: int
    reserved_bytes: int
    reservation_lost_tokens: int
    reservation_lost_share: float


@dataclass(frozen=True)
class KvResult:
    """KV cache and states of all sequences, for the whole model.

    Args:
        kv_bytes: bytes of the cache.
        state_bytes: bytes of the states of fixed size.
        total_bytes: their sum.
        bytes_per_token: what one more token of one sequence adds at this length.
        per_rank_bytes: cache and states on the rank that holds most.
        groups: the same, by kind of layer.
        paging: the same in blocks, where a block size was given.
    """

    kv_bytes: int
    state_bytes: int
    total_bytes: int
    bytes_per_token: int | float
    per_rank_bytes: int
    groups: tuple[KvGroup, ...]
    paging: KvPaging | None = None


@dataclass(frozen=True)
class KvRow:
    """One combination of factors, and its cache."""

    factors: dict[str, int | str]
    kv_bytes: int
    state_bytes: int
    total_bytes: int
    bytes_per_token: int | float
    per_rank_bytes: int


@dataclass(frozen=True)
class KvTable:
    """One row a combination of the factors that were given as lists."""

    varied: tuple[str, ...]
    rows: tuple[KvRow, ...]


@dataclass(frozen=True)
class KvRequest:
    """The inputs of one KV figure, all of them single values.

    Args:
        seq: S, tokens in the context of each sequence.
        batch: B, sequences.
        kv_cache_dtype: the dtype of cached keys and values.
        tensor_parallel_size: ranks that share every layer.
        source_seq: tokens of an encoder's input; None: `seq`.
        images: images a sequence, for layers that attend to them.
        image_tokens: tokens of one image; None: what the model's description says.
    """

    seq: int
    batch: int = 1
    kv_cache_dtype: str = "bf16"
    tensor_parallel_size: int = 1
    source_seq: int | None = None
    images: int = 0
    image_tokens: int | None = None


def kv(
    model: str | ModelSpec | None = None,
    *,
    seq: int,
    batch: int = 1,
    kv_cache_dtype: str = "bf16",
    tensor_parallel_size: int = 1,
    source_seq: int | None = None,
    images: int = 0,
    image_tokens: int | None = None,
    block_size: int | None = None,
    max_model_len: int | None = None,
    layers: int | None = None,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    models_dirs: Sequence[Path] = (),
    ignore_keys: Collection[str] = (),
) -> Answer[KvResult]:
    """KV cache and states: ``Σ_layers B · entries(S) · elements · b``, plus the fixed states of B sequences.

    Give a model, or `layers`, `kv_heads` and `head_dim` of one whose layers are all alike.

    Args:
        model: a reference as for ``--model``, or a description.
        seq: S, tokens in the context of each sequence.
        batch: B, sequences.
        kv_cache_dtype: bf16, fp16, fp32, fp8, int8, nvfp4, or one of ggml's types (q8_0, q4_0).
        tensor_parallel_size: ranks that share every layer.
        source_seq: tokens of an encoder's input; None: `seq`.
        images: images a sequence, for layers that attend to them.
        image_tokens: tokens of one image.
        block_size: tokens of a block, to show what blocks lose.
        max_model_len: the length that a reservation would hold; None: what the model was made for.
        layers: L of a model without a description.
        kv_heads: Hkv of a model without a description.
        head_dim: D of a model without a description.
        models_dirs: further folders of descriptions.
        ignore_keys: keys of a ``config.json`` that are known to change no size.

    Raises:
        CapplanError: inputs that make no question.
    """
    spec, source = _subject(model, layers, kv_heads, head_dim, models_dirs, ignore_keys)
    request = KvRequest(seq, batch, kv_cache_dtype, tensor_parallel_size, source_seq, images, image_tokens)
    memory = _memory(spec, request)
    paging = _paging(spec, request, memory, block_size, max_model_len)
    inputs = {"model": spec.name, **vars(request), "source_seq": memory.lengths.encoder}
    if paging is not None:
        inputs |= {"block_size": paging.block_size, "max_model_len": paging.reserved_tokens}
    return Answer(
        command="kv",
        inputs=inputs,
        result=_result(memory, tensor_parallel_size, paging),
        explanation=(*_explain(memory, request), *_explain_paging(paging, seq)),
        assumptions=(*spec.assumptions, *_assumptions(spec, request)),
        sources=(source,),
        provenance=dict.fromkeys(KV_FIGURES, "exact"),
    )


def kv_table(
    model: str | None = None,
    *,
    factors: dict[str, list[Any]],
    models_dirs: Sequence[Path] = (),
    ignore_keys: Collection[str] = (),
) -> Answer[KvTable]:
    """`kv` for every combination of factors, the last one varying fastest.

    Args:
        model: a reference as for ``--model``; None: the factors describe the layers.
        factors: values by the parameter names of `kv`.
        models_dirs: further folders of descriptions.
        ignore_keys: keys of a ``config.json`` that are known to change no size.
    """
    combinations = 1
    for values in factors.values():
        combinations *= len(values)
    if combinations > 100_000:
        raise UsageError(f"the lists make {combinations} combinations; at most 100000 are answered", where="kv")
    subject = resolve_model(model, models_dirs=models_dirs, ignore_keys=ignore_keys).spec if model else None
    rows: list[KvRow] = []
    assumptions: tuple[str, ...] = ()
    for combination in itertools.product(*factors.values()):
        chosen = dict(zip(factors, combination, strict=True))
        answer = kv(subject, **chosen)
        assumptions = answer.assumptions
        figures = {name: getattr(answer.result, name) for name in KV_FIGURES}
        rows.append(KvRow(factors=chosen, **figures))
    varied = tuple(name for name, values in factors.items() if len(values) > 1)
    return Answer(
        command="kv",
        inputs={"model": subject.name if subject else None, **factors},
        result=KvTable(varied, tuple(rows)),
        explanation=(_textbook(rows[0]),) if subject is None else (),
        assumptions=assumptions,
        provenance={f"rows.{name}": "exact" for name in KV_FIGURES},
    )


def _subject(
    model: str | ModelSpec | None,
    layers: int | None,
    kv_heads: int | None,
    head_dim: int | None,
    models_dirs: Sequence[Path],
    ignore_keys: Collection[str],
) -> tuple[ModelSpec, str]:
    shape = {"--layers": layers, "--kv-heads": kv_heads, "--head-dim": head_dim}
    given = [flag for flag, value in shape.items() if value is not None]
    if model is not None:
        if given:
            raise UsageError("a model has its own layers and heads", where=given[0], hint="give either, not both")
        if isinstance(model, ModelSpec):
            return model, "a description"
        found = resolve_model(model, models_dirs=models_dirs, ignore_keys=ignore_keys)
        return found.spec, found.source
    if layers is None or kv_heads is None or head_dim is None:
        missing = [flag for flag, value in shape.items() if value is None]
        raise UsageError("which model?", where="--model", hint=f"give --model, or {', '.join(missing)}")
    return uniform_model(layers, kv_heads, head_dim), "--layers, --kv-heads, --head-dim"


def uniform_model(layers: int, kv_heads: int, head_dim: int) -> ModelSpec:
    """A model of which only the layers' cache is known: all alike, with full attention."""
    for flag, value, most in (
        ("--layers", layers, 4096),
        ("--kv-heads", kv_heads, 1 << 20),
        ("--head-dim", head_dim, 1 << 20),
    ):
        if not 1 <= value <= most:
            raise UsageError(f"must be between 1 and {most}, not {value}", where=flag)
    mixer = Attention(heads=kv_heads, kv_heads=kv_heads, head_dim=head_dim)
    return ModelSpec(
        name=f"{layers} layers of {kv_heads} KV heads of {head_dim}",
        hidden_size=kv_heads * head_dim,
        blocks={"layer": Block(mixer=(mixer,))},
        layers=f"{layers}*layer",
        embedding=Embedding(vocab_size=1),
    )


def _memory(spec: ModelSpec, request: KvRequest) -> SequenceMemory:
    for flag, value, least in (
        ("--seq", request.seq, 0),
        ("--batch", request.batch, 1),
        ("-tp", request.tensor_parallel_size, 1),
        ("--images", request.images, 0),
    ):
        if value < least:
            raise UsageError(f"must be at least {least}, not {value}", where=flag)
    kv_item_bytes(request.kv_cache_dtype)
    encoder = request.seq if request.source_seq is None else request.source_seq
    lengths = Lengths(request.seq, encoder, request.images * _image_tokens(spec, request))
    return sequence_memory(spec, lengths, sequences=request.batch, kv_dtype=request.kv_cache_dtype)


def _image_tokens(spec: ModelSpec, request: KvRequest) -> int:
    if request.image_tokens is not None or not request.images:
        return request.image_tokens or 0
    known = [tower.tokens_per_image for tower in spec.towers.values() if tower.tokens_per_image]
    if not known:
        raise UsageError(
            "the description does not say how many tokens one image has", where="--images", hint="give --image-tokens"
        )
    return known[0]


def _paging(
    spec: ModelSpec, request: KvRequest, memory: SequenceMemory, block_size: int | None, max_model_len: int | None
) -> KvPaging | None:
    """Blocks of each sequence against a reservation of the maximum length; None where no block size was given."""
    if block_size is None:
        if max_model_len is not None:
            raise UsageError("a reservation is compared with blocks", where="--max-model-len", hint="give --block-size")
        return None
    for flag, value in (("--block-size", block_size), ("--max-model-len", max_model_len)):
        if value is not None and value < 1:
            raise UsageError(f"must be at least 1, not {value}", where=flag)
    pages = paged_context(request.seq, block_size, max_model_len or spec.max_positions or request.seq)
    reserved = _memory(spec, replace(request, seq=pages.reserved_tokens))
    return KvPaging(
        pages.block_size,
        pages.blocks,
        pages.allocated_tokens,
        pages.lost_tokens,
        float(pages.blocks_lost_share),
        memory.paged_bytes(block_size),
        pages.reserved_tokens,
        reserved.total_bytes,
        pages.reserved_tokens - pages.tokens,
        float(pages.reservation_lost_share),
    )


def _explain_paging(paging: KvPaging | None, seq: int) -> list[Explained]:
    if paging is None:
        return []
    source = "Kwon et al., PagedAttention (arXiv:2309.06180)"
    size, blocks = paging.block_size, paging.blocks
    return [
        Explained("blocks", "⌈S / b⌉", f"⌈{seq} / {size}⌉", blocks, "", source),
        Explained(
            "lost in the last block", "blocks · b - S", f"{blocks} · {size} - {seq}", paging.lost_tokens, "tokens"
        ),
        Explained(
            "lost in a reservation",
            "S_max - S",
            f"{paging.reserved_tokens} - {seq}",
            paging.reservation_lost_tokens,
            "tokens",
        ),
    ]


def _result(memory: SequenceMemory, tp: int, paging: KvPaging | None = None) -> KvResult:
    marginal = memory.bytes_per_token
    return KvResult(
        kv_bytes=memory.kv_bytes,
        state_bytes=memory.state_bytes,
        total_bytes=memory.total_bytes,
        bytes_per_token=int(marginal) if marginal.denominator == 1 else float(marginal),
        per_rank_bytes=memory.rank_bytes(tp),
        groups=tuple(
            KvGroup(
                group.name,
                group.kind,
                group.layers,
                group.kv_bytes,
                group.state_bytes,
                group.kv_bytes + group.state_bytes,
            )
            for group in memory.groups
        ),
        paging=paging,
    )


def _assumptions(spec: ModelSpec, request: KvRequest) -> list[str]:
    notes = []
    if spec.max_positions and request.seq > spec.max_positions:
        notes.append(f"the model was made for {spec.max_positions} positions; beyond them this is the formula's value")
    if spec.encoder and request.source_seq is None:
        notes.append(f"the encoder's input has as many tokens as the context ({request.seq}); --source-seq changes it")
    return notes


def _explain(memory: SequenceMemory, request: KvRequest) -> list[Explained]:
    lines = []
    for group in memory.groups:
        lines += [_explain_cache(group, term) for term in group.cache]
        for state in group.state:
            shape = "·".join(str(size) for size in state.state.shape)
            item = state.state.bytes // prod(state.state.shape)
            lines.append(
                Explained(
                    f"{group.name}: {state.state.name} state",
                    "L · B · shape · b",
                    f"{state.layers} · {state.sequences} · {shape} · {item}",
                    state.bytes,
                    "B",
                )
            )
    names = " + ".join(f"{line.value}" for line in lines) or "0"
    lines.append(Explained("total", "Σ of the above", names, memory.total_bytes, "B"))
    tp = request.tensor_parallel_size
    if tp > 1:
        lines.append(
            Explained(
                "largest rank",
                "KV heads and states divide by tp (at least one head a rank), latents and indexer keys do not",
                f"tp = {tp}",
                memory.rank_bytes(tp),
                "B",
            )
        )
    return lines


def _explain_cache(group: GroupMemory, term: CacheTerm) -> Explained:
    entries = term.rule.entries_formula()
    shown = entries if entries == str(term.entries) else f"({entries} = {term.entries})"
    return Explained(
        f"{group.name}: {term.rule.name}",
        "L · B · entries · elements · b",
        f"{term.layers} · {term.sequences} · {shown} · ({term.rule.formula}) · {term.item_bytes}",
        term.bytes,
        "B",
    )


def _textbook(row: KvRow) -> Explained:
    factors = row.factors
    item = kv_item_bytes(str(factors.get("kv_cache_dtype", "bf16")))
    order = ("layers", "batch", "seq", "kv_heads", "head_dim")
    numbers = " · ".join(str(factors.get(name, 1)) for name in order)
    return Explained("first row", "2·L·B·S·Hkv·D·b", f"2 · {numbers} · {item}", row.kv_bytes, "B")
