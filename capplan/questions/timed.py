"""A step as figures: what it asks of the hardware, its bound, its time with an interval, operator by operator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from capplan.questions.answer import Provenance
from capplan.questions.setting import Setting
from capplan.timing.operator_time import OperatorTime
from capplan.timing.roofline import Bound, operator_bound, step_bound
from capplan.timing.step_time import Overhead, StepTime, step_time
from capplan.work.ledger import Ledger, Totals
from capplan.work.operators import AttentionShape, Operator

Basis = Literal["fitted", "extrapolated", "assumed", "bound"]


@dataclass(frozen=True)
class OperatorFigures:
    """All calls of one operator in a step; seconds are null without a measured profile.

    Args:
        name: what it is.
        detail: its phase and its window, where there are several of the name.
        kind: which law it follows.
        component: the part of the model.
        stage: pipeline stage.
        calls: how often it runs.
        flops: FLOPs of all calls.
        bytes: bytes read and written by all calls, everything once.
        message_bytes: bytes of its messages, or of its transfers from the host.
        arithmetic_intensity: FLOPs for each byte.
        limit: what its own bound is set by: memory, compute, link or host link.
        bound_seconds: its own bound, alone.
        seconds: what it takes in the step.
        share: of the sum of all operators' seconds (of their bounds, without a profile).
        basis: what its seconds rest on.
        notes: what was stretched.
    """

    name: str
    detail: str
    kind: str
    component: str
    stage: int
    calls: int | float
    flops: int | float
    bytes: int | float
    message_bytes: int | float
    arithmetic_intensity: float
    limit: str
    bound_seconds: float
    seconds: float | None
    seconds_low: float | None
    seconds_high: float | None
    share: float
    basis: Basis
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class TermFigures:
    """A term beside the operators."""

    name: str
    seconds: float
    source: str


@dataclass(frozen=True)
class StepFigures:
    """One step of one rank of each stage.

    Args:
        flops: FLOPs.
        bytes: bytes read and written, everything once.
        weight_bytes: bytes of weights read.
        kv_bytes: bytes of the KV cache read and written.
        state_bytes: bytes of recurrent states read and written.
        activation_bytes: bytes of activations read and written.
        message_bytes: bytes of messages.
        arithmetic_intensity: FLOPs for each byte.
        limit: what the bound is set by.
        compute_seconds: ``Σ FLOPs / P``.
        memory_seconds: ``Σ (weights + KV + state) / BW``.
        link_seconds: ``Σ messages / link``.
        bound_seconds: the datasheet's bound.
        seconds: the prediction; null without a measured profile.
        seconds_low: lower end of its 80 % interval.
        seconds_high: upper end.
        fitted_share: share of the operators' seconds that rests on fitted kernels, within what was measured.
        extrapolated_share: share on fitted kernels outside of it.
        assumed_share: share on no measurement.
        operators: every operator; with the terms they add up to `seconds`.
        terms: what is no operator.
    """

    flops: int | float
    bytes: int | float
    weight_bytes: int | float
    kv_bytes: int | float
    state_bytes: int | float
    activation_bytes: int | float
    message_bytes: int | float
    arithmetic_intensity: float
    limit: str
    compute_seconds: float
    memory_seconds: float
    link_seconds: float
    bound_seconds: float
    seconds: float | None
    seconds_low: float | None
    seconds_high: float | None
    fitted_share: float
    extrapolated_share: float
    assumed_share: float
    operators: tuple[OperatorFigures, ...]
    terms: tuple[TermFigures, ...] = ()

    @property
    def provenance(self) -> Provenance:
        """What most of the operators' seconds rest on."""
        shares: dict[Provenance, float] = {
            "fitted": self.fitted_share,
            "extrapolated": self.extrapolated_share,
            "assumed": self.assumed_share,
        }
        return max(shares, key=lambda name: shares[name])


def step_figures(setting: Setting, ledger: Ledger, *, sequences: float) -> tuple[StepFigures, StepTime | None]:
    """The figures of a step, and the step as timed; without a profile there is a bound alone.

    Args:
        setting: what it runs on.
        ledger: its operators.
        sequences: sequences that the engine schedules and samples.
    """
    if not setting.corrected:
        return _bounds(setting, ledger), None
    time = step_time(ledger, setting.machine, sequences=sequences)
    whole = sum(in_step(part, time) for part in time.operators)
    rows = _merged(_timed_row(part, time, setting, whole) for part in time.operators)
    low, high = time.interval
    figures = _totals(
        ledger.totals,
        time.least.whole,
        float(time.bound),
        rows,
        seconds=float(time.seconds),
        low=float(low),
        high=float(high),
        terms=tuple(TermFigures(term.name, float(term.seconds), term.source) for term in time.terms),
    )
    return figures, time


def together(parts: Sequence[StepFigures], terms: Iterable[Overhead] = ()) -> StepFigures:
    """Steps one after the other, and further terms: equal operators are joined, intervals add up."""
    rows: dict[tuple[object, ...], OperatorFigures] = {}
    seconds = [part.seconds for part in parts]
    whole = sum(_weight(row) for part in parts for row in part.operators)
    for part in parts:
        for row in part.operators:
            key = (row.name, row.detail, row.stage)
            rows[key] = _joined(rows[key], row) if key in rows else row
    shared = tuple(replace(row, share=_weight(row) / whole if whole else 0.0) for row in rows.values())
    extra = tuple(TermFigures(term.name, float(term.seconds), term.source) for term in terms)
    added = sum(term.seconds for term in extra)
    timed = None not in seconds
    first = parts[0]
    return StepFigures(
        **{name: sum(getattr(part, name) for part in parts) for name in _SUMMED},
        arithmetic_intensity=_ratio(sum(part.flops for part in parts), sum(part.bytes for part in parts)),
        limit=first.limit if len(parts) == 1 else _limit(parts),
        seconds=_sum(part.seconds for part in parts) + added if timed else None,
        seconds_low=_sum(part.seconds_low for part in parts) + added if timed else None,
        seconds_high=_sum(part.seconds_high for part in parts) + added if timed else None,
        **_shares(shared),
        operators=shared,
        terms=(*_joined_terms(parts), *extra),
    )


def _bounds(setting: Setting, ledger: Ledger) -> StepFigures:
    """The figures without a profile: bounds alone."""
    bounds = [operator_bound(operator, setting.gpu).times(operator.count) for operator in ledger.operators]
    whole = float(sum(bound.seconds for bound in bounds))
    rows = _merged(
        _row(operator, bound, float(bound.seconds) / whole if whole else 0.0)
        for operator, bound in zip(ledger.operators, bounds, strict=True)
    )
    least = step_bound(ledger.operators, setting.gpu)
    return _totals(ledger.totals, least.whole, float(least.seconds), rows)


def _merged(rows: Iterable[OperatorFigures]) -> tuple[OperatorFigures, ...]:
    """Equal operators of layers of different kinds as one row."""
    merged: dict[tuple[object, ...], OperatorFigures] = {}
    for row in rows:
        calls = row.calls or 1
        key = (row.name, row.detail, row.stage, row.basis, row.flops / calls, row.bytes / calls)
        merged[key] = _joined(merged[key], row) if key in merged else row
    return tuple(merged.values())


_PHASES = {
    "prefill_attention": "prefill",
    "mla_prefill": "prefill",
    "decode_attention": "decode",
    "mla_decode": "decode",
}


def detail_of(operator: Operator) -> str:
    """The phase of an attention, and the most keys that its queries see."""
    words = [_PHASES[operator.kind]] if operator.kind in _PHASES else []
    limit = operator.shape.limit if isinstance(operator.shape, AttentionShape) else None
    return ", ".join([*words, f"{limit} keys"] if limit else words)


def _row(operator: Operator, bound: Bound, share: float) -> OperatorFigures:
    count = operator.count
    return OperatorFigures(
        name=operator.name,
        detail=detail_of(operator),
        kind=operator.kind,
        component=operator.component,
        stage=operator.stage,
        calls=count,
        flops=operator.flops * count,
        bytes=operator.traffic.total * count,
        message_bytes=(operator.message_bytes + operator.transfer_bytes) * count,
        arithmetic_intensity=float(operator.arithmetic_intensity),
        limit="link" if operator.kind == "collective" else bound.limit,
        bound_seconds=float(bound.seconds),
        seconds=None,
        seconds_low=None,
        seconds_high=None,
        share=share,
        basis="bound",
    )


def _timed_row(part: OperatorTime, time: StepTime, setting: Setting, whole: float) -> OperatorFigures:
    bound = operator_bound(part.operator, setting.gpu).times(part.operator.count)
    seconds = in_step(part, time)
    return replace(
        _row(part.operator, bound, seconds / whole if whole else 0.0),
        seconds=seconds,
        seconds_low=seconds - max(0.0, float(part.seconds - part.low)),
        seconds_high=seconds + max(0.0, float(part.high - part.seconds)),
        basis=part.basis,
        notes=part.notes,
    )


def in_step(part: OperatorTime, time: StepTime) -> float:
    """Seconds of an operator within the step: launches, and its share of the bodies."""
    return float(part.launch + time.kernel_share * part.body)


def _totals(
    sums: Totals,
    bound: Bound,
    bound_seconds: float,
    rows: tuple[OperatorFigures, ...],
    *,
    seconds: float | None = None,
    low: float | None = None,
    high: float | None = None,
    terms: tuple[TermFigures, ...] = (),
) -> StepFigures:
    traffic = sums.traffic
    return StepFigures(
        flops=sums.flops,
        bytes=traffic.total,
        weight_bytes=traffic.weights,
        kv_bytes=traffic.kv,
        state_bytes=traffic.state,
        activation_bytes=traffic.activations,
        message_bytes=sums.message_bytes,
        arithmetic_intensity=_ratio(sums.flops, traffic.total),
        limit=bound.limit,
        compute_seconds=float(bound.compute),
        memory_seconds=float(bound.memory),
        link_seconds=float(bound.link),
        bound_seconds=bound_seconds,
        seconds=seconds,
        seconds_low=low,
        seconds_high=high,
        **_shares(rows),
        operators=rows,
        terms=terms,
    )


_SUMMED = (
    "flops", "bytes", "weight_bytes", "kv_bytes", "state_bytes", "activation_bytes", "message_bytes",
    "compute_seconds", "memory_seconds", "link_seconds", "bound_seconds",
)  # fmt: skip


def _shares(rows: Sequence[OperatorFigures]) -> dict[str, float]:
    shares = {f"{basis}_share": 0.0 for basis in ("fitted", "extrapolated", "assumed")}
    for row in rows:
        if row.basis != "bound":
            shares[f"{row.basis}_share"] += row.share
    return shares


def _joined(one: OperatorFigures, other: OperatorFigures) -> OperatorFigures:
    """The same operator in two steps."""
    flops, moved = one.flops + other.flops, one.bytes + other.bytes
    timed = one.seconds is not None
    ranks = ("fitted", "extrapolated", "assumed", "bound")
    return replace(
        one,
        calls=one.calls + other.calls,
        flops=flops,
        bytes=moved,
        message_bytes=one.message_bytes + other.message_bytes,
        arithmetic_intensity=_ratio(flops, moved),
        limit=one.limit if one.bound_seconds >= other.bound_seconds else other.limit,
        bound_seconds=one.bound_seconds + other.bound_seconds,
        share=one.share + other.share,
        seconds=_sum((one.seconds, other.seconds)) if timed else None,
        seconds_low=_sum((one.seconds_low, other.seconds_low)) if timed else None,
        seconds_high=_sum((one.seconds_high, other.seconds_high)) if timed else None,
        basis=max(one.basis, other.basis, key=ranks.index),
        notes=tuple(dict.fromkeys((*one.notes, *other.notes))),
    )


def _joined_terms(parts: Sequence[StepFigures]) -> tuple[TermFigures, ...]:
    terms: dict[str, TermFigures] = {}
    for part in parts:
        for term in part.terms:
            before = terms.get(term.name)
            terms[term.name] = replace(term, seconds=term.seconds + before.seconds) if before else term
    return tuple(terms.values())


def _limit(parts: Sequence[StepFigures]) -> str:
    return max(parts, key=lambda part: part.bound_seconds).limit


def _weight(row: OperatorFigures) -> float:
    return row.bound_seconds if row.seconds is None else row.seconds


def _sum(values: Iterable[float | None]) -> float:
    return sum(value for value in values if value is not None)


def _ratio(flops: float, moved: float) -> float:
    return float(flops / moved) if moved else 0.0
