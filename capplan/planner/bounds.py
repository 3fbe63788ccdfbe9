"""What no deployment can beat: rooflines of its operators, through the equations of a steady server.

The work of a step is counted once for a model, its formats and its division. For each device a few divisions turn it
into the least time: no operator is faster than its FLOPs at the best efficiency that was fitted for its kind, than its
bytes at the full bandwidth, or than its least launch:

    T  ≥ σ · Σ max(FLOPs / (ec · P), bytes / BW, message / link, t0)         σ: the engine's share of kernels in a graph
    T  ≥ max(Σ FLOPs / P, Σ (weights + KV + states) / BW, Σ messages / link)

With n chunks of a prompt, each joining a decode step, and x = n·(B - 1)/O,

    TPOT = S + (B - 1)/O · (Σ joined - n·S)  ≥  S·(1 - x) + (B - 1)/O · σ·(n·C_d + C_p)        for x < 1
                                             ≥  max(S, σ·(C_d + C_p/n))                        for x ≥ 1

where C are the operators' times without their weights, which grow by as much with each token. Queueing for prefill
falls as tokens slow down, and is left out of TTFT. A request rate that follows from least times is the most there can
be. Times are those at the bad end of the predictions' interval, as limits are held there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from capplan.describe.gpu import GpuSpec
from capplan.describe.model import ModelSpec
from capplan.describe.profile_choice import KernelProfile
from capplan.identity import Same
from capplan.planner.capacity import LADDER, Lengths, slowdown
from capplan.serving.load_curve import decode_parts, token_parts
from capplan.serving.replica import Replica
from capplan.serving.steady_state import RESIDUAL
from capplan.timing.machine import Machine
from capplan.timing.operator_time import SEND_LATENCY
from capplan.timing.roofline import knows_links, link_rate, math_rate, sent_bytes
from capplan.timing.wanted_kernels import kernel_name
from capplan.work.formats import Formats
from capplan.work.ledger import Ledger
from capplan.work.operators import Message
from capplan.work.sharding import Sharding
from capplan.work.step import Decode, Prefill, Step, ledger

Real = npt.NDArray[np.float64]

BATCHES: npt.NDArray[np.int64] = np.unique(np.geomspace(1, 16384, 80).round().astype(np.int64))
"""Batches at which the bound is computed; between two of them the better end of each figure counts."""

_LAWS = {"gemm": "gemm", "head": "gemm", "absorbed_product": "gemm", "grouped_gemm": "grouped_gemm"}
"""Kinds of operators whose law has a term of FLOPs over an efficiency."""

_KINDS = {**_LAWS, "collective": "collective"} | {
    kind: kind for kind in ("prefill_attention", "decode_attention", "mla_prefill", "mla_decode")
}
"""The kernels that were measured, by the operators that run them."""


@dataclass(frozen=True)
class StepWork:
    """The operators of a step as matrices, one row an operator and one column a batch.

    Args:
        stages: the pipeline stage of each operator.
        laws: its kind, the name of its kernel's format, its own name.
        math: the format that it multiplies in; empty: it does not.
        flops: FLOPs of all calls.
        moved: bytes of all calls, everything once.
        weights: of them those of weights.
        required: of them those that cannot stay on the chip.
        sent: bytes that leave a rank.
        calls: how often it runs.
    """

    stages: npt.NDArray[np.int64]
    laws: tuple[tuple[str, str, str], ...]
    math: tuple[str, ...]
    flops: Real
    moved: Real
    weights: Real
    required: Real
    sent: Real
    calls: Real


@dataclass(frozen=True)
class Work:
    """What a server must do for a load.

    Args:
        decode: decode steps at `BATCHES`.
        prefill: one whole prompt.
        prompt: its tokens.
        depth: layers.
    """

    decode: StepWork
    prefill: StepWork
    prompt: int
    depth: int


@dataclass(frozen=True)
class Bound:
    """The best that a server could do at each batch of `BATCHES`, in each of its groups, at the interval's bad end.

    Args:
        ttft: seconds, at least.
        tpot: seconds, at least.
        rate: requests a second of one group between this batch and the next, at most.
        step: seconds of an output token's own decode step, at least; as predicted.
        prefill: seconds of one prompt, at least; as predicted.
    """

    ttft: Real
    tpot: Real
    rate: Real
    step: Real
    prefill: float


@dataclass(frozen=True)
class LeastTime:
    """The least seconds of a step, at each batch.

    Args:
        kernels: by the operators one after the other.
        whole: by the sums over all of them.
        added: of the operators without their weights: what a token adds, if other tokens have read those already.
        peak: arithmetic alone, at the datasheet's rate.
        launches: of the operators' launches.
    """

    kernels: Real
    whole: Real
    added: Real
    peak: Real
    launches: Real


def work_of(spec: ModelSpec, sharding: Sharding, formats: Formats, isl: float, osl: float, hit: float) -> Work:
    """The work of a load's steps; see `capplan.serving.steady_state.load_of` for which steps those are."""
    context = round(isl + osl / 2)
    new = max(1, round(isl * (1 - hit)))
    decode = ledger(spec, Step(decode=(Decode(BATCHES, context),)), sharding, formats)
    prefill = ledger(spec, Step(prefill=(Prefill(new),)), sharding, formats)
    return Work(_matrices(decode, len(BATCHES)), _matrices(prefill, 1), new, spec.depth)


def _matrices(work: Ledger, width: int) -> StepWork:
    operators = work.operators

    def rows(values: list[Any]) -> Real:
        matrix = np.empty((len(values), width))
        for row, value in enumerate(values):
            matrix[row] = value
        return matrix

    traffic = [operator.traffic for operator in operators]
    counts = [operator.count for operator in operators]
    return StepWork(
        np.array([operator.stage for operator in operators]),
        tuple((o.kind, kernel_name(o.weight_format or "bf16"), o.name) for o in operators),
        tuple("" if _none(o.flops) else o.activation_format for o in operators),
        rows([operator.flops * operator.count for operator in operators]),
        rows([part.total * count for part, count in zip(traffic, counts, strict=True)]),
        rows([part.weights * count for part, count in zip(traffic, counts, strict=True)]),
        rows([(t.weights + t.kv + t.state) * n for t, n in zip(traffic, counts, strict=True)]),
        rows([sent_bytes(o.shape) * o.count if isinstance(o.shape, Message) else 0.0 for o in operators]),
        rows(counts),
    )


def _none(value: Any) -> bool:
    return not isinstance(value, np.ndarray) and value == 0


@dataclass(frozen=True)
class KnownSteps:
    """Decode steps by the laws of their kernels, at each batch of `BATCHES` at least.

    Args:
        kernels: seconds of a step's bodies and launches.
        whole: seconds that an output token takes of steps, with all that the engine adds to them.
    """

    kernels: Real
    whole: Real


def known_steps(replica: Replica, lengths: Lengths) -> KnownSteps:
    """The decode steps of a server at the rungs of `LADDER`; between two of them the smaller, as steps grow."""
    context = np.full(len(LADDER), round(lengths.isl + lengths.osl / 2))
    step: Any = decode_parts(replica, LADDER, context)
    token: Any = token_parts(replica, LADDER, context)
    times, below = replica.machine.times, np.searchsorted(LADDER, BATCHES, side="right") - 1
    kernels = times.body_share(prompts=False) * step.bodies + step.launches
    return KnownSteps(kernels[below], token.seconds(times)[below])


def bound_of(
    work: Work,
    machine: Machine,
    budget: int,
    isl: float,
    osl: float,
    widening: float,
    per_round: float = 1.0,
    known: KnownSteps | None = None,
) -> Bound:
    """The best TTFT, TPOT and rate of one group on a device; see the module for the equations.

    Args:
        work: of the load's steps.
        machine: the device under its engine.
        budget: tokens of a step.
        isl: input tokens.
        osl: output tokens.
        widening: exponent of the interval's factors; see `capplan.planner.capacity.Limits`.
        per_round: tokens of a sequence that a decode step gives, if the server drafts: a step that verifies drafts
            takes no less than one that decodes, so that no token takes less than this share of one.
        known: the server's own decode steps, which then stand for S; None: not worked out.

    Raises:
        UnsupportedError: the device has no units for a format.
    """
    times, share = machine.times, machine.times.body_share(prompts=True)
    decode, prompt = least_time(work.decode, machine), least_time(work.prefill, machine, prompts=True)
    kernels = decode.kernels if known is None else np.maximum(decode.kernels, known.kernels)
    step = np.maximum(kernels, decode.whole)
    one = np.maximum(prompt.kernels, prompt.whole)
    floor = times.prompt_host(work.depth, prompt.launches)
    others = (BATCHES - 1) / osl
    if times.prefill_joins_decode:
        chunks = np.ceil(work.prompt / np.maximum(1, budget - BATCHES))
        joined = share * (chunks * decode.added + prompt.added)
        crowded = others * chunks
        apart = kernels * (1 - crowded) + others * joined
        tokens = np.where(crowded < 1, apart, joined / chunks)
        waited = others * np.maximum(prompt.peak - chunks * (decode.whole - decode.peak), 0.0)
        tokens = np.maximum(np.maximum(tokens, step), step + waited)
    else:
        waited = others * one
        tokens = step + waited
    beside = times.per_sequence * BATCHES + times.per_step
    tpot = (tokens + beside) / per_round
    if known is not None:
        tpot = np.maximum(tpot, known.whole + waited)
    prefill = np.maximum(one, floor)
    ttft = times.around_prefill(isl, tpot) + prefill + RESIDUAL * tpot
    ahead = np.append(BATCHES[1:], BATCHES[-1])
    slow_first, slow_token = slowdown(machine, widening)
    ttft, tpot = ttft * slow_first, tpot * slow_token
    rate = ahead / (ttft + (osl - 1) * tpot)
    return Bound(ttft, tpot, rate, (step + beside) / per_round, float(prefill[0]))


def least_time(work: StepWork, machine: Machine, *, prompts: bool = False) -> LeastTime:
    """The least seconds of a step, with prompt tokens or without; see the module."""
    physics = _physics(Same(work), Same(machine.gpu), Same(machine.kernels))
    launches = _launches(Same(machine), work.laws)
    called = launches * work.calls
    kernels = np.maximum(machine.times.body_share(prompts=prompts) * physics.bodies, called).sum(axis=0)
    return LeastTime(kernels, physics.whole, physics.added, physics.peak, called.sum(axis=0))


@dataclass(frozen=True, slots=True)
class _Physics:
    """What of a step's least time no engine changes; see `LeastTime`, and the bodies of the operators one by one."""

    bodies: Real
    whole: Real
    added: Real
    peak: Real


@lru_cache(maxsize=32)
def _physics(key: Same[StepWork], device: Same[GpuSpec], measured: Same[KernelProfile | None]) -> _Physics:
    work, gpu = key.value, device.value
    rates = {name: math_rate(gpu, name) if name else np.inf for name in set(work.math)}
    best = {law: _efficiency(measured.value, *law) for law in {(kind, form) for kind, form, _ in work.laws}}
    fitted = np.array([best[kind, form] for kind, form, _ in work.laws])[:, None]
    peak = work.flops / np.array([rates[name] for name in work.math])[:, None]
    memory = work.moved / gpu.memory.bandwidth
    link = work.sent / link_rate(gpu) if knows_links(gpu) else np.zeros_like(work.sent)
    arithmetic = peak / fitted
    bodies = np.maximum(np.maximum(arithmetic, memory), link)
    light = (work.moved - work.weights) / gpu.memory.bandwidth
    added = np.maximum(np.maximum(arithmetic, light), link).sum(axis=0)
    required = work.required / gpu.memory.bandwidth
    whole: Any = 0.0
    for stage in np.unique(work.stages):
        rows = work.stages == stage
        sums = [matrix[rows].sum(axis=0) for matrix in (peak, required, link)]
        whole = whole + np.maximum.reduce(sums)
    return _Physics(bodies, whole, added, peak.sum(axis=0))


@lru_cache(maxsize=1024)
def _launches(key: Same[Machine], laws: tuple[tuple[str, str, str], ...]) -> Real:
    """The least launch of each operator, as a column."""
    least = {(kind, name): _launch(key.value, kind, name) for kind, name in {(kind, name) for kind, _, name in laws}}
    return np.array([least[kind, name] for kind, _, name in laws])[:, None]


def _efficiency(kernels: KernelProfile | None, kind: str, form: str) -> float:
    """The best efficiency of arithmetic that was fitted for kernels of this kind and format; 1: none was."""
    law = _LAWS.get(kind)
    if kernels is None or law is None:
        return 1.0
    return _best(kernels, law, form, "compute_efficiency", max, 1.0)


def _launch(machine: Machine, kind: str, name: str) -> float:
    """The least launch of an operator: of the kernels that were measured for its kind, or as assumed."""
    law, times = _KINDS.get(kind), machine.times
    if kind == "host_transfer" or name in times.fused:
        return 0.0
    assumed = SEND_LATENCY if kind == "collective" else times.small_kernel
    if law is None or machine.kernels is None:
        return 0.0 if law is None else assumed
    field = "latency" if kind == "collective" else "launch"
    return min(assumed, _best(machine.kernels, law, None, field, min, assumed))


def _best(kernels: KernelProfile, law: str, form: str | None, field: str, choose: Any, default: float) -> float:
    return _best_of(Same(kernels), law, form, field, choose, default)


@lru_cache(maxsize=4096)
def _best_of(key: Same[KernelProfile], law: str, form: str | None, field: str, choose: Any, default: float) -> float:
    fits = key.value.profile.fits(law)  # type: ignore[arg-type]
    found = [getattr(fit.constants, field) for fit in fits if form is None or fit.key.format == form]
    return float(choose(found)) if found else default


def best_rate(bound: Bound, *, ttft: float | None, tpot: float | None, most: int) -> float:
    """The most requests a second that one group could serve within limits on the least times; 0: none.

    Args:
        bound: of the group.
        ttft: seconds, at most; None: any.
        tpot: seconds, at most; None: any.
        most: sequences that may run at once.
    """
    fits = in_time(bound, ttft, tpot) & (most >= BATCHES)
    return float(bound.rate[fits].max(initial=0.0))


def in_time(bound: Bound, ttft: float | None, tpot: float | None) -> npt.NDArray[np.bool_]:
    """The batches whose least times keep the limits."""
    fits = np.ones(len(BATCHES), dtype=bool)
    if ttft is not None:
        fits &= bound.ttft <= ttft
    if tpot is not None:
        fits &= bound.tpot <= tpot
    return fits


def most_in_time(bound: Bound, *, ttft: float | None, tpot: float | None, most: int) -> int:
    """Clients that one group could serve within limits on the least times, at most."""
    places = np.flatnonzero(in_time(bound, ttft, tpot) & (most >= BATCHES))
    if not len(places):
        return 0
    last = int(places[-1])
    return min(most, int(BATCHES[last + 1]) - 1 if last + 1 < len(BATCHES) else most)
