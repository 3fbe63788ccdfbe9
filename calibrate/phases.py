"""Prefill and decode of a whole model with random weights: time to first token, time per output token, bytes kept.

TTFT is the time from handing over the prompt until its first token is there; TPOT the mean time of each further token,
``(total − TTFT) / (new − 1)``. The device is synchronised before and after both.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

import torch

from calibrate.device import Device, conditions
from calibrate.formats import ITEM_BYTES
from calibrate.kernels.launch import captured
from calibrate.phase_load import Load
from calibrate.phase_timer import Timed, repeated, timed
from calibrate.repeats import Timing
from calibrate.samples import Sample
from calibrate.stack.model import Model, cache_bytes, gumbel_noise
from calibrate.stack.weights import Weights
from capplan.describe.model import ModelSpec
from capplan.errors import UnsupportedError
from capplan.memory.activations import Peak, activation_peak
from capplan.memory.recurrent_state import CONVOLUTION_DTYPE
from capplan.memory.sequence_memory import Lengths, SequenceMemory, sequence_memory

Mode = Literal["eager", "graphs", "compile"]

SAMPLER_BYTES = 14
"""Bytes that the sampler here holds for one logit: itself in 16 bits, its probability, logarithm and sum in 32."""


@dataclass(frozen=True)
class Phases:
    """What was measured of one model under one load.

    Args:
        spec: the model as it was run.
        load: what it was given.
        mode: how its kernels were launched.
        runner: ``stack`` or ``transformers``.
        ttft: time to first token.
        tpot: time per output token.
        cache_bytes: what the cache tensors hold.
        expected_bytes: what capplan says that they hold.
        weight_bytes: what the parameters hold.
        peak_bytes: most memory that torch had allocated; 0 where it does not tell.
    """

    spec: ModelSpec
    load: Load
    mode: Mode
    runner: str
    ttft: Timing
    tpot: Timing
    cache_bytes: int
    expected_bytes: int
    weight_bytes: int
    peak_bytes: int

    @property
    def output_throughput(self) -> float:
        """Output tokens a second of all sequences together, prompt included in the time."""
        total = self.ttft.seconds + (self.load.new - 1) * self.tpot.seconds
        return self.load.batch * self.load.new / total


def run_phases(
    spec: ModelSpec, load: Load, device: Device, *, format: str = "bf16", mode: Mode = "eager", budget: float = 10.0
) -> Phases:
    """Build a model and measure it.

    Args:
        spec: the model, of a size that fits.
        load: prompts and new tokens.
        device: where.
        format: of weights, activations and cache.
        mode: eager, or decode steps replayed as CUDA graphs, or compiled.
        budget: seconds to spend on repeats, but for the least number of them.

    Raises:
        UnsupportedError: the model has something that cannot be run here.
    """
    with torch.inference_mode():
        weights = Weights(device.torch_name, format)
        model = Model(spec, weights, load.length)
        caches = model.new_caches(load.batch, load.length)
        beside = _start_peak(device) - weights.bytes - cache_bytes(caches)
        steps = _steps(model, caches, load, device, mode)
        ttft, tpot = _repeat(steps, load, device, budget)
    return Phases(
        spec,
        load,
        mode,
        "stack",
        ttft,
        tpot,
        cache_bytes(caches),
        expected_cache_bytes(spec, load, format),
        weights.bytes,
        _peak(device) - beside if device.kind == "cuda" else 0,
    )


def expected_cache_bytes(spec: ModelSpec, load: Load, format: str) -> int:
    """What capplan says that the caches hold; convolution states have the activations' format here."""
    memory = sequence_memory(spec, Lengths(load.length), sequences=load.batch, kv_dtype=format)
    return memory.total_bytes + _wider_columns(memory, format)


def _wider_columns(memory: SequenceMemory, format: str) -> int:
    """Bytes by which convolution states exceed the 16 bits that capplan counts."""
    more = ITEM_BYTES[format] - ITEM_BYTES[CONVOLUTION_DTYPE]
    columns = (term for group in memory.groups for term in group.state if term.state.name == "convolution")
    return sum(term.bytes // ITEM_BYTES[CONVOLUTION_DTYPE] * more for term in columns)


def expected_peak(phases: Phases, format: str) -> Peak:
    """What ``capplan fit`` says that is allocated at most: weights, caches, and the working set of a prefill."""
    working = working_set(phases.spec, phases.load, format)
    held = phases.weight_bytes + phases.expected_bytes
    formula = f"weights + caches + {working.formula}"
    return Peak(held + working.bytes, held + working.low, held + working.high, formula)


def working_set(spec: ModelSpec, load: Load, format: str) -> Peak:
    """What a prefill of all prompts allocates beside weights and caches."""
    return activation_peak(
        spec,
        tokens=load.batch * load.prompt,
        sequences=load.batch,
        tp=1,
        moe_tp=1,
        dtype=format,
        logit_bytes=SAMPLER_BYTES,
    )


@dataclass(frozen=True)
class _Steps:
    """The two phases as functions without arguments: the first resets what is kept."""

    prefill: Callable[[], Any]
    decode_all: Callable[[], Any]


def _steps(model: Model, caches: list[Any], load: Load, device: Device, mode: Mode) -> _Steps:
    vocabulary = model.spec.embedding.vocab_size
    tokens = torch.randint(0, vocabulary, (load.batch, load.prompt)).to(device.torch_name)
    noise = gumbel_noise(load.batch, vocabulary, device.torch_name)
    found: dict[str, Any] = {}

    def prefill() -> None:
        reset(caches)
        found["next"] = model.next_tokens(tokens, caches, 0, noise)

    def decode_all() -> None:
        following = found["next"]
        for place in range(load.prompt, load.length):
            following = model.next_tokens(following, caches, place, noise)

    if mode == "eager":
        return _Steps(prefill, decode_all)
    prefill()
    return _fixed_steps(model, caches, load, tokens, noise, found["next"], mode)


def _fixed_steps(
    model: Model, caches: list[Any], load: Load, tokens: Any, noise: Any, first: Any, mode: Mode
) -> _Steps:
    """Captured or compiled phases: the decode step is that of the mean context, again and again."""
    step = torch.compile(model.next_tokens, dynamic=False) if mode == "compile" else model.next_tokens

    def prefill() -> None:
        step(tokens, caches, 0, noise)

    def decode() -> None:
        step(first, caches, load.mean_context - 1, noise)

    one_prefill, one_decode = _captured(model.spec, prefill, decode) if mode == "graphs" else (prefill, decode)

    def decode_all() -> None:
        for _ in range(load.new - 1):
            one_decode()

    return _Steps(one_prefill, decode_all)


def _captured(spec: ModelSpec, *phases: Callable[[], None]) -> list[Callable[[], Any]]:
    """The phases as graphs.

    Raises:
        UnsupportedError: something of the model cannot be captured; the driver says what.
    """
    try:
        return [captured(phase) for phase in phases]
    except RuntimeError as error:
        reason = str(error).split("\n", 1)[0][:100]
        raise UnsupportedError(f"{spec.name} cannot be captured as a graph: {reason}", where="--mode") from None


def reset(caches: list[Any]) -> None:
    """Begin new sequences: states are zero again; what attention keeps is overwritten."""
    for cache in caches:
        if getattr(cache, "state", None) is not None:
            cache.state.zero_()


def _repeat(steps: _Steps, load: Load, device: Device, budget: float) -> tuple[Timing, Timing]:
    """TTFT and TPOT again and again, after one warm-up of both."""

    def once() -> tuple[Timed, Timed]:
        first = timed(steps.prefill, device)
        seconds, disturbed = timed(steps.decode_all, device)
        return first, (seconds / max(load.new - 1, 1), disturbed)

    steps.prefill()
    steps.decode_all()
    ttft, tpot = repeated(once, budget)
    return ttft, tpot


def _start_peak(device: Device) -> int:
    """Begin to watch for the peak; bytes that are allocated now."""
    if device.kind != "cuda":
        return 0
    torch.cuda.reset_peak_memory_stats(device.torch_name)
    return int(torch.cuda.memory_allocated(device.torch_name))


def _peak(device: Device) -> int:
    return int(torch.cuda.max_memory_allocated(device.torch_name)) if device.kind == "cuda" else 0


def phase_samples(phases: Phases, device: Device, format: str, *, started: datetime, spent: float) -> list[Sample]:
    """The two samples of a run: prefill and decode."""
    load = phases.load
    problem, peak = "", expected_peak(phases, format)
    if phases.cache_bytes != phases.expected_bytes:
        problem = f"the caches hold {phases.cache_bytes} bytes, capplan says {phases.expected_bytes}"
    prefill = Sample(
        kind="phase",
        name=phases.spec.name,
        key={"phase": "prefill", "mode": phases.mode, "runner": phases.runner, "format": format},
        shape={"batch": load.batch, "prompt": load.prompt, "new": load.new, "layers": phases.spec.depth},
        cache="cold",
        seconds=phases.ttft.seconds,
        low=phases.ttft.low,
        high=phases.ttft.high,
        repeats=phases.ttft.repeats,
        marked=phases.ttft.marked,
        held_out=True,
        problem=problem,
        figures={
            "output_throughput": phases.output_throughput,
            "cache_bytes": phases.cache_bytes,
            "expected_cache_bytes": phases.expected_bytes,
            "weight_bytes": phases.weight_bytes,
            "peak_bytes": phases.peak_bytes,
            "expected_peak_bytes": peak.bytes,
            "expected_peak_bytes_low": peak.low,
            "expected_peak_bytes_high": peak.high,
        },
        conditions=conditions(device),
        started=started.isoformat(timespec="seconds"),
        spent=spent,
    )
    decode = replace(
        prefill,
        key={**prefill.key, "phase": "decode"},
        seconds=phases.tpot.seconds,
        low=phases.tpot.low,
        high=phases.tpot.high,
        repeats=phases.tpot.repeats,
        marked=phases.tpot.marked,
        spent=0.0,
    )
    return [prefill, decode]


def measure_phases(
    spec: ModelSpec, load: Load, device: Device, *, format: str = "bf16", mode: Mode = "eager", budget: float = 10.0
) -> list[Sample]:
    """Measure a model under a load, as samples."""
    started, begin = datetime.now(UTC), time.perf_counter()
    phases = run_phases(spec, load, device, format=format, mode=mode, budget=budget)
    return phase_samples(phases, device, format, started=started, spent=time.perf_counter() - begin)
