"""What a simulation says: times of requests with their spread and intervals, rates, the pool over time."""

from __future__ import annotations

from dataclasses import dataclass

from capplan.errors import UsageError
from capplan.questions.setting import Setting
from capplan.questions.simulate_request import ResolvedLoad
from capplan.serving.service_metrics import distribution
from capplan.serving.simulator import Simulation, SimulatorConfig
from capplan.serving.spread import Interval, tpot_interval, ttft_interval

TIMES = ("ttft", "tpot", "itl", "e2el")


@dataclass(frozen=True)
class SimulatedMoment:
    """The server at one moment.

    Args:
        time: seconds from the start.
        running: requests that run.
        waiting: requests that wait.
        kv_usage: share of the blocks in use.
        output_tokens: tokens generated so far.
    """

    time: float
    running: int
    waiting: int
    kv_usage: float
    output_tokens: int


@dataclass(frozen=True)
class SimulateResult:
    """What clients and the operator see; names are those of ``vllm bench serve``, times in milliseconds.

    Of each time (TTFT, TPOT, ITL, E2E latency) there are mean, standard deviation, median, p90, p95 and p99; intervals,
    which hold four of five measurements, stand beside the means and rates.

    Args:
        completed: requests that got all their tokens.
        rejected: requests that the server can never serve.
        duration: seconds from the first arrival to the last token.
        request_goodput: requests a second that keep to all limits; None without limits.
        mean_queue_ms: milliseconds until a request's first step begins.
        mean_running: requests that run, while any do.
        peak_running: requests that ran at once, at most, in one data-parallel group.
        kv_blocks: blocks of one data-parallel group's pool, as simulated.
        kv_block_size: tokens of one.
        mean_kv_usage: share of the blocks in use, while requests run.
        peak_kv_usage: the most.
        preemptions: how often a request had to give way.
        recomputed_tokens: positions that were computed again for it.
        prefix_hit_rate: share of the prompts' tokens that were found cached.
        evicted_blocks: cached blocks that were given up.
        steps: steps of one data-parallel group.
        mean_step_ms: milliseconds of one.
        busy: share of the time in which steps ran.
        timeline: the server over time.
    """

    completed: int
    rejected: int
    duration: float
    total_input_tokens: int
    total_output_tokens: int
    request_throughput: float
    request_throughput_low: float
    request_throughput_high: float
    output_throughput: float
    output_throughput_low: float
    output_throughput_high: float
    total_token_throughput: float
    total_token_throughput_low: float
    total_token_throughput_high: float
    request_goodput: float | None
    mean_ttft_ms: float
    mean_ttft_ms_low: float
    mean_ttft_ms_high: float
    std_ttft_ms: float
    median_ttft_ms: float
    p90_ttft_ms: float
    p95_ttft_ms: float
    p99_ttft_ms: float
    mean_tpot_ms: float
    mean_tpot_ms_low: float
    mean_tpot_ms_high: float
    std_tpot_ms: float
    median_tpot_ms: float
    p90_tpot_ms: float
    p95_tpot_ms: float
    p99_tpot_ms: float
    mean_itl_ms: float
    mean_itl_ms_low: float
    mean_itl_ms_high: float
    std_itl_ms: float
    median_itl_ms: float
    p90_itl_ms: float
    p95_itl_ms: float
    p99_itl_ms: float
    mean_e2el_ms: float
    mean_e2el_ms_low: float
    mean_e2el_ms_high: float
    std_e2el_ms: float
    median_e2el_ms: float
    p90_e2el_ms: float
    p95_e2el_ms: float
    p99_e2el_ms: float
    mean_queue_ms: float
    p99_queue_ms: float
    mean_running: float
    peak_running: int
    kv_blocks: int
    kv_block_size: int
    mean_kv_usage: float
    peak_kv_usage: float
    preemptions: int
    recomputed_tokens: int
    prefix_hit_rate: float
    evicted_blocks: int
    steps: int
    mean_step_ms: float
    busy: float
    timeline: tuple[SimulatedMoment, ...]


def simulated_result(
    setting: Setting, asked: ResolvedLoad, config: SimulatorConfig, done: Simulation
) -> SimulateResult:
    """All figures of a simulation; one data-parallel group stands for all.

    Raises:
        UsageError: no request could be served.
    """
    log, groups = done.log, setting.sharding.dp
    if not log.ttft:
        raise UsageError(
            f"none of {done.rejected} requests can be served: each is longer than the server allows",
            where="--max-model-len",
            hint="shorter requests, a larger pool, or chunked prefill",
        )
    samples = {
        "ttft": distribution(log.ttft),
        "tpot": distribution(log.tpots()),
        "itl": distribution(log.gaps, log.gap_weights),
        "e2el": distribution(log.e2e),
    }
    intervals = _intervals(setting, {name: sample.mean for name, sample in samples.items()}, asked)
    times: dict[str, float] = {}
    for name in TIMES:
        sample = samples[name]
        times |= {f"mean_{name}_ms": 1e3 * sample.mean, f"std_{name}_ms": 1e3 * sample.std}
        times |= {f"mean_{name}_ms_low": 1e3 * intervals[name].low, f"mean_{name}_ms_high": 1e3 * intervals[name].high}
        times[f"median_{name}_ms"] = 1e3 * sample.percentile(50)
        times |= {f"p{percent}_{name}_ms": 1e3 * sample.percentile(percent) for percent in (90, 95, 99)}
    queue = distribution(log.queue)
    return SimulateResult(
        completed=done.finished * groups,
        rejected=done.rejected * groups,
        duration=done.duration,
        total_input_tokens=done.prompt_tokens * groups,
        total_output_tokens=done.output_tokens * groups,
        **_rates(done, groups, samples["e2el"].mean, intervals["e2el"], closed=asked.pattern == "closed"),
        request_goodput=log.good * groups / done.duration if config.objectives.any else None,
        **times,
        mean_queue_ms=1e3 * queue.mean,
        p99_queue_ms=1e3 * queue.percentile(99),
        mean_running=done.mean_running * groups,
        peak_running=done.peak_running,
        kv_blocks=config.cache.blocks,
        kv_block_size=config.cache.block_size,
        mean_kv_usage=done.mean_used_blocks / config.cache.blocks,
        peak_kv_usage=done.peak_used_blocks / config.cache.blocks,
        preemptions=done.preemptions * groups,
        recomputed_tokens=done.recomputed_tokens * groups,
        prefix_hit_rate=done.hit_rate,
        evicted_blocks=done.evictions,
        steps=done.steps,
        mean_step_ms=1e3 * done.busy / done.steps,
        busy=done.busy / done.duration,
        timeline=tuple(
            SimulatedMoment(
                point.time,
                point.running * groups,
                point.waiting * groups,
                point.used_blocks / config.cache.blocks,
                point.tokens * groups,
            )
            for point in done.timeline
        ),
    )


def _rates(done: Simulation, groups: int, e2e: float, interval: Interval, *, closed: bool) -> dict[str, float]:
    """Requests and tokens a second: in a closed loop as uncertain as the latency; in an open one they just arrive."""
    low, high = (e2e / interval.high, e2e / interval.low) if closed else (1.0, 1.0)
    rates: dict[str, float] = {}
    for name, amount in (
        ("request_throughput", done.finished),
        ("output_throughput", done.output_tokens),
        ("total_token_throughput", done.prompt_tokens + done.output_tokens),
    ):
        rate = amount * groups / done.duration
        rates |= {name: rate, f"{name}_low": rate * low, f"{name}_high": rate * high}
    return rates


def _intervals(setting: Setting, means: dict[str, float], asked: ResolvedLoad) -> dict[str, Interval]:
    """80 % intervals of the means, as for the steady state."""
    times, kernels = setting.machine.times, setting.machine.kernels
    carried = kernels.carried_error("gemm") if kernels is not None else None
    ttft, tpot = ttft_interval(means["ttft"], times, carried), tpot_interval(means["tpot"], times, carried)
    rest = max(0.0, means["e2el"] - means["ttft"])
    share = (tpot.low / means["tpot"], tpot.high / means["tpot"]) if means["tpot"] else (1.0, 1.0)
    return {
        "ttft": ttft,
        "tpot": tpot,
        "itl": tpot_interval(means["itl"], times, carried),
        "e2el": Interval(ttft.low + rest * share[0], ttft.high + rest * share[1]),
    }
