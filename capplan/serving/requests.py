"""Requests as they arrive: when, how long, and what they share with others."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from capplan.serving.lengths import Lengths
from capplan.serving.random_source import RandomSource


@dataclass(slots=True)
class Request:
    """One request.

    Args:
        arrival: seconds from the start.
        isl: tokens of the prompt.
        osl: tokens that are generated.
        prefix: name of the prefix that it shares with others of the same name; None: nothing shared.
        prefix_tokens: tokens of that prefix.
    """

    arrival: float
    isl: int
    osl: int
    prefix: str | None = None
    prefix_tokens: int = 0


class Arrivals(Protocol):
    """Where requests come from."""

    @property
    def count(self) -> int:
        """How many there will be."""

    def next_arrival(self) -> float | None:
        """When the next one arrives; None: no more, or none before another has finished."""

    def take(self) -> Request:
        """The next one."""

    def finished(self, time: float) -> None:
        """A request has been answered."""


@dataclass(frozen=True, slots=True)
class SharedPrefixes:
    """Prefixes that requests have in common.

    Args:
        count: how many there are.
        tokens: tokens of each.
        share: share of the requests that have one.
        skew: s; the i-th prefix is chosen in proportion to ``i^-s`` (0: all alike).
    """

    count: int
    tokens: int
    share: float = 1.0
    skew: float = 0.0

    def popularity(self) -> tuple[float, ...]:
        """The chance of each prefix among the requests that have one."""
        weights = [(index + 1) ** -self.skew for index in range(self.count)]
        total = sum(weights)
        return tuple(weight / total for weight in weights)


class RequestFactory:
    """Draws the lengths and the prefix of one request after another.

    Args:
        isl: lengths of prompts, a shared prefix included; a prompt is at least one token longer than its prefix.
        osl: lengths of outputs.
        seed: seed of the draws.
        prefixes: prefixes in common; None: none.
    """

    def __init__(self, isl: Lengths, osl: Lengths, seed: int, prefixes: SharedPrefixes | None = None) -> None:
        self._isl, self._osl, self._prefixes = isl, osl, prefixes
        self._prompt_draws, self._output_draws = RandomSource(seed, "isl"), RandomSource(seed, "osl")
        self._prefix_draws = RandomSource(seed, "prefix")
        self._cumulative: list[float] = []
        if prefixes:
            total = 0.0
            for chance in prefixes.popularity():
                total += chance
                self._cumulative.append(total)

    def make(self, arrival: float) -> Request:
        """The next request, arriving then."""
        isl, osl = self._isl.draw(self._prompt_draws), self._osl.draw(self._output_draws)
        if self._prefixes is None:
            return Request(arrival, isl, osl)
        return self._with_prefix(Request(arrival, isl, osl), self._prefixes)

    def _with_prefix(self, request: Request, prefixes: SharedPrefixes) -> Request:
        if self._prefix_draws.uniform() >= prefixes.share:
            return request
        place = min(bisect_right(self._cumulative, self._prefix_draws.uniform()), prefixes.count - 1)
        request.prefix, request.prefix_tokens = f"prefix {place}", prefixes.tokens
        request.isl = max(request.isl, prefixes.tokens + 1)
        return request


class OpenLoop:
    """Requests that arrive whatever the server does: a list in the order of arrival, or a generator of one."""

    def __init__(self, requests: Iterable[Request], count: int) -> None:
        self.count = count
        self._rest: Iterator[Request] = iter(requests)
        self._next: Request | None = next(self._rest, None)

    def next_arrival(self) -> float | None:
        """When the next one arrives; None: no more."""
        return None if self._next is None else self._next.arrival

    def take(self) -> Request:
        """The next one."""
        request = self._next
        if request is None:
            raise LookupError("no request is left")
        self._next = next(self._rest, None)
        return request

    def finished(self, time: float) -> None:
        """Nothing: clients don't wait for each other."""


class ClosedLoop:
    """`concurrency` clients, each sending its next request when the last one is answered.

    Args:
        factory: draws the requests.
        concurrency: clients; all send their first request at once.
        count: requests in all.
        think: seconds between an answer and the next request.
    """

    def __init__(self, factory: RequestFactory, concurrency: int, count: int, think: float = 0.0) -> None:
        self.count = count
        self._factory, self._think = factory, think
        self._times: deque[float] = deque([0.0] * min(concurrency, count))
        self._left = count

    def next_arrival(self) -> float | None:
        """When the next one arrives; None: no more, or all clients wait."""
        return self._times[0] if self._times and self._left else None

    def take(self) -> Request:
        """The next one."""
        self._left -= 1
        return self._factory.make(self._times.popleft())

    def finished(self, time: float) -> None:
        """One client's request has been answered: it sends the next; requests keep the order of their answers."""
        last = self._times[-1] if self._times else 0.0
        self._times.append(max(last, time + self._think))


def poisson_arrivals(rate: float, count: int, factory: RequestFactory, seed: int) -> OpenLoop:
    """`count` requests at `rate` a second, independent of each other: exponential gaps of mean ``1 / rate``."""
    return burst_arrivals(rate, 1.0, count, factory, seed)


def uniform_arrivals(rate: float, count: int, factory: RequestFactory) -> OpenLoop:
    """`count` requests at equal distances of ``1 / rate`` seconds."""
    return OpenLoop((factory.make(index / rate) for index in range(count)), count)


def burst_arrivals(rate: float, burstiness: float, count: int, factory: RequestFactory, seed: int) -> OpenLoop:
    """`count` requests with gamma gaps of mean ``1 / rate`` and shape `burstiness`.

    1: Poisson; below 1 burstier, above 1 more even. The gaps' squared coefficient of variation is ``1 / burstiness``.

    Source: vLLM, vllm/benchmarks/serve.py (--burstiness).
    """
    draws = RandomSource(seed, "arrivals")

    def each() -> Iterator[Request]:
        time = 0.0
        for _ in range(count):
            time += draws.exponential(1 / rate) if burstiness == 1 else draws.gamma(burstiness, 1 / rate)
            yield factory.make(time)

    return OpenLoop(each(), count)
