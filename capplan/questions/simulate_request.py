"""What clients ask of a simulated server: a trace, or generated arrivals of generated lengths."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from typing import Any, Literal, get_args

from capplan.errors import UsageError, did_you_mean
from capplan.serving.lengths import FixedLength, Lengths, parse_lengths
from capplan.serving.requests import (
    Arrivals,
    ClosedLoop,
    OpenLoop,
    Request,
    RequestFactory,
    SharedPrefixes,
    burst_arrivals,
    poisson_arrivals,
    uniform_arrivals,
)
from capplan.serving.traces import read_trace

ArrivalPattern = Literal["closed", "poisson", "uniform", "gamma"]
MOST_REQUESTS = 10_000_000
MOST_PREFIXES = 1_000_000


@dataclass(frozen=True)
class SimulatedLoad:
    """The load of a simulation.

    Args:
        isl: tokens of prompts: a number, ``512-2048`` (uniform) or ``512:0.3,1024:0.7`` (with weights).
        osl: tokens of outputs, likewise.
        requests: how many there are.
        arrivals: closed, poisson, uniform or gamma; None: closed with a concurrency, else poisson.
        concurrency: clients of a closed loop.
        request_rate: requests a second of an open loop.
        burstiness: shape of gamma arrivals: 1 is Poisson, below 1 burstier.
        think: seconds between an answer and the client's next request.
        trace: a CSV file with ``arrival,isl,osl[,prefix_id,prefix_tokens]`` instead of all that.
        prefixes: how many different prefixes requests share.
        prefix_tokens: tokens of each; 0: none are shared.
        prefix_share: share of the requests that have one.
        prefix_skew: s; the i-th prefix is chosen in proportion to ``i^-s``.
        seed: of all draws.
        warmup: requests at the start that the figures leave out.
        ttft: the most seconds to the first token of a good request.
        tpot: the most seconds a token.
        e2el: the most seconds in all.
    """

    isl: int | str | None = None
    osl: int | str | None = None
    requests: int = 1000
    arrivals: ArrivalPattern | None = None
    concurrency: int | None = None
    request_rate: float | None = None
    burstiness: float = 1.0
    think: float = 0.0
    trace: Path | None = None
    prefixes: int = 1
    prefix_tokens: int = 0
    prefix_share: float = 1.0
    prefix_skew: float = 0.0
    seed: int = 0
    warmup: int = 0
    ttft: float | None = None
    tpot: float | None = None
    e2el: float | None = None


@dataclass(frozen=True)
class ResolvedLoad:
    """A load with everything read and chosen.

    Args:
        load: what was asked.
        pattern: how requests arrive; ``trace`` for a trace.
        longest: tokens of the longest request, output included.
        isl: lengths of prompts.
        osl: lengths of outputs.
        requests: those of a trace.
    """

    load: SimulatedLoad
    pattern: str
    longest: int
    isl: Lengths
    osl: Lengths
    requests: tuple[Request, ...] = ()

    def arrivals(self, groups: int) -> Arrivals:
        """The requests of one of `groups` data-parallel groups that take turns."""
        load = self.load
        if self.pattern == "trace":
            mine = self.requests[::groups]
            return OpenLoop(mine, len(mine))
        prefixes = None
        if load.prefix_tokens:
            prefixes = SharedPrefixes(load.prefixes, load.prefix_tokens, load.prefix_share, load.prefix_skew)
        factory = RequestFactory(self.isl, self.osl, load.seed, prefixes)
        count = ceil(load.requests / groups)
        if self.pattern == "closed":
            return ClosedLoop(factory, ceil((load.concurrency or 1) / groups), count, load.think)
        rate = (load.request_rate or 0.0) / groups
        if self.pattern == "uniform":
            return uniform_arrivals(rate, count, factory)
        if self.pattern == "gamma":
            return burst_arrivals(rate, load.burstiness, count, factory, load.seed)
        return poisson_arrivals(rate, count, factory, load.seed)

    @property
    def inputs(self) -> dict[str, Any]:
        """The load as it stands among an answer's inputs."""
        return {**asdict(self.load), "arrivals": self.pattern}


def resolve_load(load: SimulatedLoad) -> ResolvedLoad:
    """Read the trace or the lengths, choose the pattern of arrivals, refuse contradictions.

    Raises:
        UsageError: what contradicts itself, or is missing.
        InvalidFileError: a trace that is none.
        NotFoundError: a trace that is not there.
    """
    _check_limits(load)
    if load.trace is not None:
        return _trace(load, load.trace)
    if load.isl is None or load.osl is None:
        flag = "--isl" if load.isl is None else "--osl"
        raise UsageError("how long are requests?", where=flag, hint="give --isl and --osl, or --trace FILE")
    isl, osl = parse_lengths(str(load.isl), "--isl"), parse_lengths(str(load.osl), "--osl")
    longest = max(isl.longest, load.prefix_tokens + 1 if load.prefix_tokens else 0) + osl.longest
    return ResolvedLoad(load, _pattern(load), longest, isl, osl)


def _trace(load: SimulatedLoad, path: Path) -> ResolvedLoad:
    for flag, given in (
        ("--isl", load.isl),
        ("--osl", load.osl),
        ("--arrivals", load.arrivals),
        ("--concurrency", load.concurrency),
        ("--request-rate", load.request_rate),
        ("--prefix-tokens", load.prefix_tokens or None),
    ):
        if given is not None:
            raise UsageError("a trace says this itself", where=f"{flag}, --trace", hint="give either, not both")
    requests = read_trace(path)
    longest = max(request.isl + request.osl for request in requests)
    isl, osl = (FixedLength(max(getattr(one, name) for one in requests)) for name in ("isl", "osl"))
    return ResolvedLoad(load, "trace", longest, isl, osl, tuple(requests))


def _pattern(load: SimulatedLoad) -> ArrivalPattern:
    known: tuple[ArrivalPattern, ...] = get_args(ArrivalPattern)
    pattern = load.arrivals or ("closed" if load.concurrency is not None else "poisson")
    if pattern not in known:
        raise UsageError(
            f"{str(pattern)[:40]!r} is not a pattern of arrivals; valid are {', '.join(known)}",
            where="--arrivals",
            hint=did_you_mean(str(pattern), known),
        )
    if pattern == "closed" and load.concurrency is None:
        raise UsageError("how many clients?", where="--concurrency", hint="a closed loop needs --concurrency N")
    if pattern != "closed" and load.request_rate is None:
        raise UsageError(
            "how many requests a second?", where="--request-rate", hint="give --rate N, or --concurrency N"
        )
    if load.concurrency is not None and load.request_rate is not None:
        raise UsageError("give either, not both", where="--concurrency, --request-rate")
    if load.burstiness != 1 and pattern != "gamma":
        raise UsageError("only gamma arrivals have a burstiness", where="--burstiness", hint="--arrivals gamma")
    return pattern


def _check_limits(load: SimulatedLoad) -> None:
    for flag, value, least, most in (
        ("--requests", load.requests, 1, MOST_REQUESTS),
        ("--concurrency", load.concurrency, 1, MOST_REQUESTS),
        ("--prefixes", load.prefixes, 1, MOST_PREFIXES),
        ("--prefix-share", load.prefix_share, 0, 1),
        ("--prefix-skew", load.prefix_skew, 0, 10),
        ("--warmup", load.warmup, 0, load.requests - 1 if load.trace is None else MOST_REQUESTS),
        ("--think", load.think, 0, 1e6),
    ):
        if value is not None and not least <= value <= most:
            raise UsageError(f"must be between {least} and {most:g}, not {value}", where=flag)
    for flag, rate in (("--request-rate", load.request_rate), ("--burstiness", load.burstiness)):
        if rate is not None and not 0 < rate <= 1e6:
            raise UsageError(f"must be above 0 and at most 1e6, not {rate}", where=flag)
