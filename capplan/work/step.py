"""One forward pass of an engine: any mix of decode sequences and prefill chunks, and its ledger."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from capplan.arrays import is_number, minimum
from capplan.describe.formats_plain import DTYPE_BYTES
from capplan.describe.model import CrossAttention, ModelSpec, Stack
from capplan.errors import UsageError
from capplan.memory.tensors import extra_tensors
from capplan.work.ends import embedding, head
from capplan.work.experts import Routing
from capplan.work.formats import Formats, layer_variants
from capplan.work.layers import layer_operators, norm
from capplan.work.ledger import Ledger
from capplan.work.operators import Message, Number, Operator
from capplan.work.projections import layered, remaining, where
from capplan.work.scope import Scope, Span, over, scope_of
from capplan.work.sharding import Sharding, check_sharding, pipeline_stages

AttentionKernel = Literal["flash", "naive"]


@dataclass(frozen=True, slots=True)
class Decode:
    """Sequences that each process their last `tokens` positions.

    Args:
        sequences: B, equal sequences.
        context: S, positions that each has in its cache after the step, the new ones included: the last query sees
            exactly `context` keys.
        tokens: new positions of each: 1, or more where drafted tokens are verified.
        source: positions of the encoder's output or the images that cross-attention sees.
    """

    sequences: Number
    context: Number
    tokens: Number = 1
    source: Number = 0


@dataclass(frozen=True, slots=True)
class Prefill:
    """A prompt, or a chunk of it.

    Args:
        tokens: t, new positions.
        prefix: p, positions that are cached already: earlier chunks, or a shared prefix.
        sequences: B, equal chunks.
        sampled: positions of each whose logits are wanted: 1 for a prompt's last chunk, 0 for the others.
        source: positions of the encoder's output or the images that cross-attention sees; an encoder-decoder model
            runs its encoder over them with the first chunk.
    """

    tokens: Number
    prefix: Number = 0
    sequences: Number = 1
    sampled: Number = 1
    source: Number = 0


@dataclass(frozen=True, slots=True)
class Encode:
    """Inputs of a tower.

    Args:
        tower: which of the model's towers.
        tokens: patches or frames of each input.
        sequences: images or clips.
        outputs: positions of each that go on to the decoder, where a projector merges patches; 0: as many as came in.
    """

    tower: str
    tokens: Number
    sequences: Number = 1
    outputs: Number = 0


@dataclass(frozen=True, slots=True)
class Step:
    """What one data-parallel group of ranks does in one forward pass.

    Figures may be arrays that broadcast together. Integers in arrays have 64 bits, enough for 9.2e18 FLOPs a step;
    pass floats beyond that.
    """

    decode: tuple[Decode, ...] = ()
    prefill: tuple[Prefill, ...] = ()
    encode: tuple[Encode, ...] = ()

    @property
    def tokens(self) -> Number:
        """Positions that pass through the decoder."""
        decoded = sum(part.sequences * part.tokens for part in self.decode)
        return decoded + sum(part.sequences * part.tokens for part in self.prefill)

    @property
    def sampled(self) -> Number:
        """Positions whose logits are computed."""
        decoded = sum(part.sequences * part.tokens for part in self.decode)
        return decoded + sum(part.sequences * part.sampled for part in self.prefill)


def ledger(
    spec: ModelSpec,
    step: Step,
    sharding: Sharding | None = None,
    formats: Formats | None = None,
    *,
    attention: AttentionKernel = "flash",
    routing: Routing | None = None,
) -> Ledger:
    """All operators of one step on the rank that has most to do, from embedding to sampling.

    Args:
        spec: the model.
        step: what its data-parallel group processes; all groups are taken to be alike.
        sharding: the parallel sizes; None: one rank.
        formats: number formats; None: the model's own dtype throughout.
        attention: ``naive`` writes the scores to memory, ``flash`` does not.
        routing: how tokens choose experts; None: balanced.

    Raises:
        UsageError: a step that the model cannot do, or a sharding that no engine can run on it.
    """
    sharding = sharding or Sharding()
    formats = formats or Formats(activation_dtype(spec))
    check_sharding(spec, sharding)
    check_step(spec, step)
    scope = scope_of(
        spec.hidden_size,
        _prefill_spans(spec, step),
        _decode_spans(spec, step),
        sharding,
        formats,
        materialise_scores=attention == "naive",
        routing=routing,
    )
    operators = [*_towers(spec, step, scope), *_encoder(spec, scope)]
    if scope.spans:
        operators += _decoder(spec, step, scope)
    return Ledger(tuple(operators), spec.depth if step.prefill else 0)


def draft_ledger(
    spec: ModelSpec, step: Step, sharding: Sharding | None = None, formats: Formats | None = None
) -> Ledger:
    """One pass of the model's own MTP layers over the positions of a step, with embedding, head and sampling.

    Raises:
        UsageError: the model has no MTP layers.
    """
    if spec.mtp is None:
        raise UsageError(f"{spec.name} has no MTP layers", where="--speculative-tokens")
    sharding, formats = sharding or Sharding(), formats or Formats(activation_dtype(spec))
    scope = scope_of(spec.hidden_size, _prefill_spans(spec, step), _decode_spans(spec, step), sharding, formats)
    stack = spec.mtp
    operators = embedding(spec, scope)
    operators += _layers(stack, range(stack.depth), scope, "mtp")
    operators += _around(stack, _at(scope, "mtp"))
    return Ledger(tuple(operators + head(spec, scope, step.sampled)))


def activation_dtype(spec: ModelSpec) -> str:
    """The dtype that a model computes in when nothing else is said: its weights', and 16 bits where those have less."""
    return spec.dtype if DTYPE_BYTES[spec.dtype] > 1 else "bf16"


def check_step(spec: ModelSpec, step: Step) -> None:
    """Refuse what cannot be: nothing to do, sizes below zero, decoding without a cache, towers that are not there.

    Raises:
        UsageError: what is wrong.
    """
    if not (step.decode or step.prefill or step.encode):
        raise UsageError("the step has nothing to do", hint="give decode sequences, a prefill chunk, or both")
    if step.decode and is_encoder(spec):
        raise UsageError(f"{spec.name} is an encoder: it keeps no cache and cannot decode", hint="ask for its prefill")
    for name, value, least in _scalars(step):
        if is_number(value) and value < least:
            raise UsageError(f"{name} must be at least {least}, not {value}")
    for part in step.decode:
        if is_number(part.context) and is_number(part.tokens) and part.context < part.tokens:
            raise UsageError(
                f"a context of {part.context} cannot hold {part.tokens} new tokens",
                where="--decode",
                hint="the context counts the new tokens too",
            )
    for encode in step.encode:
        if encode.tower not in spec.towers:
            raise UsageError(f"{spec.name} has no {encode.tower} tower")


def _scalars(step: Step) -> Iterator[tuple[str, Number, int]]:
    """(name, value, least allowed) of every plain number of a step."""
    for decode in step.decode:
        yield from (("decode sequences", decode.sequences, 1), ("decode tokens", decode.tokens, 1))
    for prefill in step.prefill:
        yield from (("prefill tokens", prefill.tokens, 1), ("prefill sequences", prefill.sequences, 1))
        yield from (("prefix", prefill.prefix, 0), ("sampled positions", prefill.sampled, 0))
    for encode in step.encode:
        yield from (("tower tokens", encode.tokens, 1), ("tower inputs", encode.sequences, 1))


def is_encoder(spec: ModelSpec) -> bool:
    """Whether the model keeps nothing between steps: it encodes, embeds or ranks, and cannot decode."""
    mixers = [mixer for block in spec.blocks.values() for mixer in block.mixer]
    return all(getattr(mixer, "cache", "own") == "none" for mixer in mixers)


def _decode_spans(spec: ModelSpec, step: Step) -> list[Span]:
    return [
        Span(part.sequences, part.tokens, _kept(spec, part.context) - part.tokens, part.source, 0, part.tokens)
        for part in step.decode
    ]


def _prefill_spans(spec: ModelSpec, step: Step) -> list[Span]:
    spans = []
    for part in step.prefill:
        starts = int(part.prefix == 0) if is_number(part.prefix) else (part.prefix == 0).astype(int)
        spans.append(Span(part.sequences, part.tokens, part.prefix, part.source, starts, part.sampled))
    return spans


def _kept(spec: ModelSpec, context: Number) -> Number:
    """A context, up to the positions beyond which the model caches nothing."""
    return context if spec.cache_positions is None else minimum(context, spec.cache_positions)


def _decoder(spec: ModelSpec, step: Step, scope: Scope) -> list[Operator]:
    """Embedding, the layers stage by stage with what is sent between stages, final norms, head."""
    operators = embedding(spec, scope)
    stages = pipeline_stages(spec.depth, scope.sharding)
    for stage, layers in enumerate(stages):
        operators += _layers(spec, layers, scope, "model", stage)
        if stage + 1 < len(stages):
            operators += _send(spec, scope, stage)
    last = len(stages) - 1
    ending = [*_around(spec, scope), *head(spec, scope, step.sampled)]
    return operators + layered(ending, 1, last)


def _layers(stack: Stack, layers: range, scope: Scope, part: str, stage: int = 0) -> list[Operator]:
    """The operators of a range of layers: those of each block once, times the layers that are alike."""
    operators: list[Operator] = []
    for name, block in stack.blocks.items():
        for count, formats in layer_variants(stack, name, layers, scope.formats, part):
            one = layer_operators(block, stack, replace(scope, formats=formats))
            operators += layered(one, count, stage)
    return operators


def _at(scope: Scope, part: str) -> Scope:
    """The scope of what stands around the layers of a part of the model."""
    return replace(scope, formats=scope.formats.at(part))


def _send(spec: ModelSpec, scope: Scope, stage: int) -> list[Operator]:
    """The hidden state on its way to the next stage: ``m·H`` elements.

    Leaves out the residual, which some engines send apart, and slicing over the tensor-parallel ranks.
    """
    message = Message("send", 2, scope.activations(scope.tokens * spec.hidden_size))
    return [Operator("collective", "send to the next stage", "communication", message, stage=stage)]


def _around(stack: Stack, scope: Scope) -> list[Operator]:
    """Final norms, and whatever a stack lists by name."""
    norms = [norm(stack, scope, "final norm", stack.final_norms, passes=2)] if stack.final_norms else []
    return norms + remaining(scope, extra_tensors(stack.tensors), scope.tokens)


def _encoder(spec: ModelSpec, scope: Scope) -> list[Operator]:
    """The encoder over the sources of sequences that start in this step."""
    if spec.encoder is None:
        return []
    fixed = _fixed_source(spec)
    spans = [
        Span(span.sequences * span.starts, fixed or span.source)
        for span in scope.prefill
        if not (is_number(span.starts) and span.starts == 0)
    ]
    positions = over(spans, lambda span: span.tokens)
    if is_number(positions) and positions == 0:
        return []
    return where(positions, _stack_once(spec.encoder, spans, scope, "encoder"))


def _fixed_source(spec: ModelSpec) -> int:
    """The number of source positions that a model's cross-attention fixes, or 0."""
    mixers = [mixer for block in spec.blocks.values() for mixer in block.mixer]
    fixed = [m.source for m in mixers if isinstance(m, CrossAttention) and isinstance(m.source, int)]
    return max(fixed, default=0)


def _towers(spec: ModelSpec, step: Step, scope: Scope) -> list[Operator]:
    """Towers over their inputs, whole on every rank as their weights are."""
    operators: list[Operator] = []
    for part in step.encode:
        whole = replace(scope, sharding=Sharding(), formats=scope.formats.at(part.tower, tower=True))
        span = Span(part.sequences, part.tokens, sampled=part.outputs)
        operators += _stack_once(spec.towers[part.tower], [span], whole, part.tower)
    return operators


def _stack_once(stack: Stack, spans: list[Span], scope: Scope, part: str) -> list[Operator]:
    """A stack that keeps nothing, over its own spans."""
    inner = replace(
        scope,
        hidden=stack.hidden_size,
        prefill=tuple(spans),
        decode=(),
        tokens=over(spans, lambda span: span.tokens),
    )
    return _layers(stack, range(stack.depth), inner, part) + _around(stack, _at(inner, part))
