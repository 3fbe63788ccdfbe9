"""Artificial clocks and servers that the tests of the simulator share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from capplan.serving.lengths import FixedLength, Lengths
from capplan.serving.random_source import RandomSource
from capplan.serving.requests import OpenLoop, Request, RequestFactory
from capplan.serving.scheduler import SchedulerConfig
from capplan.serving.sequences import CacheModel
from capplan.serving.simulator import Simulation, SimulatorConfig, simulate


class ConstantClock:
    """Every step takes as long."""

    prompt_host = 0.0

    def __init__(self, step: float = 1.0) -> None:
        self.step = step

    def seconds(self, decode: int, context: int, chunks: Sequence[tuple[int, int]]) -> float:
        return self.step


class LinearClock:
    """A step costs something by itself, for each sequence, each cached position, and each prompt token."""

    prompt_host = 0.0

    def __init__(self, step: float = 0.01, sequence: float = 1e-4, position: float = 1e-7, token: float = 1e-5) -> None:
        self.costs = step, sequence, position, token

    def seconds(self, decode: int, context: int, chunks: Sequence[tuple[int, int]]) -> float:
        step, sequence, position, token = self.costs
        prompt = sum(size for size, _ in chunks)
        attended = sum(size * (prefix + (size + 1) / 2) for size, prefix in chunks)
        return step + sequence * decode + position * context + token * prompt + 0.01 * position * attended


class ExponentialClock:
    """Steps of a random length, exponentially distributed."""

    prompt_host = 0.0

    def __init__(self, mean: float, seed: int) -> None:
        self.mean, self.source = mean, RandomSource(seed, "service")

    def seconds(self, decode: int, context: int, chunks: Sequence[tuple[int, int]]) -> float:
        return self.source.exponential(self.mean)


class GeometricLength:
    """Lengths without memory, of a mean: the discrete sibling of the exponential distribution."""

    def __init__(self, mean: float) -> None:
        self.mean = mean
        self.second_moment = 2 * mean**2 - mean
        self.longest = 1 << 20

    def draw(self, source: RandomSource) -> int:
        import math

        return 1 + int(math.log1p(-source.uniform()) / math.log1p(-1 / self.mean))


def factory(isl: int | Lengths = 1, osl: int | Lengths = 1, seed: int = 1) -> RequestFactory:
    """Requests of given lengths."""
    prompts = FixedLength(isl) if isinstance(isl, int) else isl
    return RequestFactory(prompts, FixedLength(osl) if isinstance(osl, int) else osl, seed)


def at_once(*lengths: tuple[int, int]) -> OpenLoop:
    """Requests of (isl, osl) that all arrive at 0."""
    return OpenLoop([Request(0.0, isl, osl) for isl, osl in lengths], len(lengths))


def server(
    *, blocks: int = 1 << 14, block_size: int = 16, scheduler: dict[str, Any] | None = None, **settings: Any
) -> SimulatorConfig:
    """A server with room for everything unless told otherwise."""
    return SimulatorConfig(SchedulerConfig(**(scheduler or {})), CacheModel(blocks, block_size), **settings)


def by_prompt(simulation: Simulation, column: str) -> dict[int, float]:
    """A column of the log by the prompt's length."""
    log = simulation.log
    return dict(zip(log.isl, getattr(log, column), strict=True))


def run(arrivals: Any, clock: Any, **settings: Any) -> Simulation:
    """Simulate a server that is described by keywords."""
    return simulate(arrivals, clock, server(**settings))
