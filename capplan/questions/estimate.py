"""How fast does a server answer under a load: TTFT, TPOT, throughput, with intervals; what binds; when it queues."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from capplan.errors import UnsupportedError
from capplan.questions.answer import Answer, Explained, Provenance
from capplan.questions.drafting import DraftRequest, Drafts, drafting_replica, resolve_drafts
from capplan.questions.pools import PoolsRequest, resolve_pools
from capplan.questions.probes import probes_of, read_points
from capplan.questions.setting import Setting, SettingOptions, resolve_setting
from capplan.questions.setting_memory import fitting_budget
from capplan.serving.disaggregation import Pools
from capplan.serving.forecast import Forecast, carried_spread
from capplan.serving.open_loop import breaking_rate, saturation, serve, share_within, ttft_percentile
from capplan.serving.probe import corrected
from capplan.serving.replica import EngineSettings, Replica
from capplan.serving.speculation import SpeculativeReplica, gain
from capplan.serving.spread import Interval, tpot_interval, ttft_interval
from capplan.serving.steady_state import OperatingPoint, ReplicaServer
from capplan.serving.workload import Workload

if TYPE_CHECKING:
    from capplan.describe.gpu import GpuSpec
    from capplan.describe.model import ModelSpec

FIGURES = (
    "mean_ttft_ms",
    "mean_tpot_ms",
    "mean_itl_ms",
    "mean_e2el_ms",
    "request_throughput",
    "output_throughput",
    "total_token_throughput",
)


@dataclass(frozen=True)
class EstimateResult:
    """One operating point; names are those of ``vllm bench serve``, intervals hold four of five measurements.

    Args:
        mean_ttft_ms: milliseconds to the first token.
        mean_tpot_ms: milliseconds of each further token.
        mean_itl_ms: milliseconds between two tokens of one request, the pauses for others' prefills included.
        mean_e2el_ms: milliseconds of a whole request.
        request_throughput: requests a second of the deployment.
        output_throughput: output tokens a second.
        total_token_throughput: input and output tokens a second.
        concurrency: requests in the system.
        admitted_batch: of them those that run.
        queued: whether some wait for memory or a place.
        saturation_rate: requests a second that the server cannot exceed.
        kv_capacity_tokens: tokens that the KV pools hold.
        binds: what sets the time of a decode step.
        p50_ttft_ms: half of Poisson arrivals stay under this; None for a closed loop.
        p90_ttft_ms: nine of ten do.
        p99_ttft_ms: 99 of 100 do.
        goodput: requests a second that keep to both limits; None without limits.
        breaking_rate: the rate at which a mean leaves its limit; None without limits.
        prefill_utilisation: share of the time in which the prefill pool works; None for one pool.
        kv_transfer_ms: milliseconds to move a prompt's cache to the decode pool; None for one pool.
        balanced_prefill_replicas: prefill replicas that keep as busy as the decode pool is; None for one pool.
    """

    mean_ttft_ms: float
    mean_ttft_ms_low: float
    mean_ttft_ms_high: float
    mean_tpot_ms: float
    mean_tpot_ms_low: float
    mean_tpot_ms_high: float
    mean_itl_ms: float
    mean_itl_ms_low: float
    mean_itl_ms_high: float
    mean_e2el_ms: float
    mean_e2el_ms_low: float
    mean_e2el_ms_high: float
    request_throughput: float
    request_throughput_low: float
    request_throughput_high: float
    output_throughput: float
    output_throughput_low: float
    output_throughput_high: float
    total_token_throughput: float
    total_token_throughput_low: float
    total_token_throughput_high: float
    concurrency: float
    admitted_batch: float
    queued: bool
    saturation_rate: float
    kv_capacity_tokens: int | None
    binds: str
    p50_ttft_ms: float | None = None
    p90_ttft_ms: float | None = None
    p99_ttft_ms: float | None = None
    goodput: float | None = None
    breaking_rate: float | None = None
    prefill_utilisation: float | None = None
    kv_transfer_ms: float | None = None
    balanced_prefill_replicas: float | None = None


@dataclass(frozen=True)
class LoadRequest:
    """The load of an estimate.

    Args:
        isl: mean input tokens.
        osl: mean output tokens.
        concurrency: clients of a closed loop.
        request_rate: requests a second of an open loop.
        prefix_hit_rate: share of the input whose cache is there already.
        ttft: the most seconds to the first token.
        tpot: the most seconds a token.
        max_num_seqs: the most sequences that run at once; None: the engine's default.
        waves: requests of each client, where the first burst counts; None: a steady load.
        isl_variation: squared coefficient of variation of the input tokens; 0: all alike.
        osl_variation: of the output tokens.
    """

    isl: float
    osl: float
    concurrency: float | None = None
    request_rate: float | None = None
    prefix_hit_rate: float = 0.0
    ttft: float | None = None
    tpot: float | None = None
    max_num_seqs: int | None = None
    waves: int | None = None
    isl_variation: float = 0.0
    osl_variation: float = 0.0

    def workload(self) -> Workload:
        """The load without limits.

        Raises:
            UsageError: lengths or a load that cannot be.
        """
        return Workload(
            self.isl,
            self.osl,
            self.concurrency,
            self.request_rate,
            self.waves,
            self.prefix_hit_rate,
            self.isl_variation,
            self.osl_variation,
        )


def estimate(
    model: str | ModelSpec,
    gpu: str | GpuSpec | None = None,
    *,
    load: LoadRequest,
    drafting: DraftRequest | None = None,
    pools: PoolsRequest | None = None,
    probe: Path | None = None,
    **options: Unpack[SettingOptions],
) -> Answer[EstimateResult]:
    """TTFT, TPOT and throughput of a server in steady state; see `capplan.serving.steady_state` for the equations.

    Args:
        model: a reference as for ``--model``, or a description.
        gpu: a device's name, file or description.
        load: what clients ask.
        drafting: how the server drafts; None: it does not.
        pools: replicas that only prefill and replicas that only decode; None: one replica does both.
        probe: a file of measurements of this server, which correct the level and narrow the intervals.
        options: the deployment, as for `resolve_setting`.

    Raises:
        CapplanError: something that does not exist, does not fit, or that no profile stands for.
    """
    setting = resolve_setting(model, gpu, **options)
    return estimate_of(setting, load, drafting, pools, probe)


def estimate_of(
    setting: Setting,
    load: LoadRequest,
    drafting: DraftRequest | None = None,
    pools: PoolsRequest | None = None,
    probe: Path | None = None,
) -> Answer[EstimateResult]:
    """`estimate` for a setting that is resolved already."""
    if not setting.corrected:
        raise UnsupportedError(
            f"no measured profile stands for {setting.gpu.name}: there are bounds, and no prediction of serving",
            where="--gpu",
            hint="capplan roofline gives the bounds; capplan calibrate makes a profile",
        )
    drafts = resolve_drafts(setting, drafting) if drafting is not None else None
    replica, notes, tokens = served_replica(setting, load, drafts)
    server: ReplicaServer | Pools = ReplicaServer(replica)
    if pools is not None:
        server, way = resolve_pools(setting, replica, pools, load.isl)
        notes = (*notes, way)
        tokens = tokens * pools.decode if tokens is not None else None
    workload = load.workload()
    forecast = _forecast(server, workload, probe)
    point = forecast.point
    result = _result(server, workload, load, forecast, tokens)
    warnings = list(setting.warnings)
    if point.queued:
        warnings.append(
            f"the KV pool or the limit of sequences admits {point.admitted_batch:.0f} requests: the rest queue"
        )
    if isinstance(replica, SpeculativeReplica):
        warnings += _drafting_warnings(replica, point, workload)
    figures: dict[str, Provenance] = dict.fromkeys(FIGURES, "fitted")
    if setting.machine.kernels is not None and setting.machine.kernels.carried:
        figures = dict.fromkeys(FIGURES, "extrapolated")
    return Answer(
        command="estimate",
        inputs={
            **setting.inputs,
            **vars(load),
            **_drafting_inputs(drafts),
            **_pools_inputs(setting, pools),
            "probe": str(probe) if probe else None,
        },
        result=result,
        explanation=tuple(_explain(server, workload, point)),
        assumptions=(*setting.assumptions, *notes, *(drafts.notes if drafts else ())),
        warnings=tuple(warnings),
        sources=tuple(dict.fromkeys((*setting.sources, *(drafts.sources if drafts else ())))),
        provenance=figures,
    )


def served_replica(
    setting: Setting, load: LoadRequest, drafts: Drafts | None = None
) -> tuple[Replica, tuple[str, ...], int | None]:
    """The replica behind a setting with the KV pool that fits beside its weights, notes, and the pool in tokens.

    Raises:
        UsageError: it does not fit.
    """
    budget = fitting_budget(setting, ceil(load.isl + load.osl), load.max_num_seqs, drafts)
    tokens = budget.capacity.capacity_tokens
    settings = EngineSettings(
        max_num_batched_tokens=setting.deployment.max_num_batched_tokens or budget.plan.max_num_batched_tokens,
        max_num_seqs=budget.plan.max_num_seqs,
    )
    replica = Replica(setting.spec, setting.machine, setting.sharding, setting.formats, settings, float(tokens))
    if drafts is not None:
        replica = drafting_replica(replica, drafts)
    return replica, budget.notes, tokens * setting.sharding.dp


def _forecast(server: ReplicaServer | Pools, workload: Workload, probe: Path | None) -> Forecast:
    """The operating point with its intervals, at the level of the user's own measurements where there are some."""
    point = serve(server, workload)
    times, carried = server.replica.machine.times, carried_spread(server.replica)
    found = Forecast(point, ttft_interval(point.ttft, times, carried), tpot_interval(point.tpot, times, carried))
    if probe is None:
        return found
    clients = workload.concurrency or point.request_rate * point.e2e
    found = corrected(found, probes_of(server, read_points(probe)), workload.isl, workload.osl, clients)
    if workload.request_rate is None:
        return found
    rates = {name: getattr(point, name) for name in ("request_rate", "output_rate", "input_rate")}
    return replace(found, point=replace(found.point, **rates))


def _result(
    server: ReplicaServer | Pools, workload: Workload, load: LoadRequest, forecast: Forecast, tokens: int | None
) -> EstimateResult:
    point, ttft, tpot = forecast.point, forecast.ttft, forecast.tpot
    rest = max(workload.osl - 1, 0)
    e2e = Interval(ttft.low + rest * tpot.low, ttft.high + rest * tpot.high)
    rate, rates = point.request_rate, e2e.inverse(point.request_rate * point.e2e)
    if workload.request_rate is not None:
        rate, rates = workload.request_rate, Interval(workload.request_rate, workload.request_rate)
    figures: dict[str, Any] = {}
    for name, value, interval, factor in (
        ("mean_ttft_ms", point.ttft, ttft, 1e3),
        ("mean_tpot_ms", point.tpot, tpot, 1e3),
        ("mean_itl_ms", point.tpot, tpot, 1e3),
        ("mean_e2el_ms", point.e2e, e2e, 1e3),
        ("request_throughput", rate, rates, 1.0),
        ("output_throughput", rate, rates, workload.osl),
        ("total_token_throughput", rate, rates, workload.osl + workload.isl),
    ):
        figures[name] = value * factor
        figures[f"{name}_low"], figures[f"{name}_high"] = interval.low * factor, interval.high * factor
    tails: dict[str, Any] = {}
    if workload.request_rate is not None:
        tails = {f"p{p}_ttft_ms": 1e3 * ttft_percentile(point, p / 100) for p in (50, 90, 99)}
    if load.ttft is not None or load.tpot is not None:
        tails["breaking_rate"] = breaking_rate(server, workload, ttft=load.ttft, tpot=load.tpot)
        in_time = share_within(point, load.ttft) if load.ttft is not None else 1.0
        fast = load.tpot is None or point.tpot <= load.tpot
        tails["goodput"] = rate * in_time if fast else 0.0
    if isinstance(server, Pools):
        tails["prefill_utilisation"] = point.terms.utilisation
        tails["kv_transfer_ms"] = 1e3 * server.transfer
        tails["balanced_prefill_replicas"] = server.decode * server.balance(workload, point.terms.admitted)
    return EstimateResult(
        **figures,
        concurrency=point.request_rate * point.e2e,
        admitted_batch=point.admitted_batch,
        queued=point.queued,
        saturation_rate=saturation(server, workload),
        kv_capacity_tokens=tokens,
        binds=_binds(point),
        **tails,
    )


def _drafting_inputs(drafts: Drafts | None) -> dict[str, Any]:
    if drafts is None:
        return {"drafts": None, "speculative_tokens": 0, "acceptance": None}
    own = drafts.speculation
    return {"drafts": drafts.name, "speculative_tokens": own.tokens, "acceptance": own.acceptance}


def _pools_inputs(setting: Setting, pools: PoolsRequest | None) -> dict[str, Any]:
    if pools is None:
        return {"prefill_replicas": None, "decode_replicas": None}
    gpus = setting.gpus * (pools.prefill + pools.decode)
    return {"prefill_replicas": pools.prefill, "decode_replicas": pools.decode, "gpus": gpus}


def _drafting_warnings(replica: SpeculativeReplica, point: OperatingPoint, workload: Workload) -> list[str]:
    """Whether drafting slows the server at this batch."""
    context = round(workload.isl + workload.residing_osl / 2)
    batch = max(1, round(point.admitted_batch / replica.sharding.dp))
    factor = gain(replica, batch, context)
    if factor >= 1:
        return []
    return [f"drafting slows decoding here: {factor:.2f} times as fast as without, at {batch} sequences a step"]


def _binds(point: OperatingPoint) -> str:
    """What takes most of a token's time."""
    terms = point.terms
    waiting = point.tpot - terms.decode_step
    return "others' prefills" if waiting > terms.decode_step else "decode steps"


def _explain(server: ReplicaServer | Pools, workload: Workload, point: OperatingPoint) -> list[Explained]:
    replica = server.replica
    drafted = _explain_drafting(replica, workload, point) if isinstance(replica, SpeculativeReplica) else []
    steps = _explain_pools(server, workload, point) if isinstance(server, Pools) else _explain_one(workload, point)
    return [*drafted, *steps]


def _explain_one(workload: Workload, point: OperatingPoint) -> list[Explained]:
    terms, osl = point.terms, workload.osl
    return [
        Explained(
            "decode step", "S of B sequences at context L + O/2", f"B = {terms.admitted:g}", terms.decode_step, "s"
        ),
        Explained("one prompt's prefill", "M, added to the others' steps", "", terms.prefill_share, "s"),
        Explained(
            "TPOT",
            "S + (B - 1)/O · M",
            f"{terms.decode_step:.4g} + {max(terms.admitted - 1, 0):g}/{osl:g} · {terms.prefill_share:.4g}",
            point.tpot,
            "s",
        ),
        Explained("prefill over decoding", "x = C·G(1) / (nb·O·TPOT)", "", terms.utilisation, ""),
        Explained("others in prefill", "rho = (C - 1)/C · x / (1 + x)", "", terms.others_in_prefill, ""),
        Explained("later requests", "(P + TPOT/2)·(1 + rho/2) + wait·TPOT", "", terms.later, "s"),
        Explained("TTFT", "t0 + tok·L + kx·TPOT + later", "", point.ttft, "s"),
        Explained("request", "TTFT + (O - 1)·TPOT + queueing", "", point.e2e, "s"),
    ]


def _explain_pools(pools: Pools, workload: Workload, point: OperatingPoint) -> list[Explained]:
    terms, further = point.terms, workload.osl - 1
    return [
        Explained("prefill", "G of one prompt alone", "", terms.prefill, "s"),
        Explained("prefill pool busy", "λ·G / P", f"λ = {point.request_rate:.4g}", terms.utilisation, ""),
        Explained("cache moved", "X: bytes on a rank / bandwidth", "", pools.transfer, "s"),
        Explained("TTFT", "t0 + tok·L + kx·S + wait + G + X", "", point.ttft, "s"),
        Explained(
            "decode step", "S of b sequences at context L + O/2", f"b = {terms.admitted:.4g}", terms.decode_step, "s"
        ),
        Explained(
            "prefill replicas in balance",
            "D · G·b/((O - 1)·S)",
            f"{pools.decode} · {terms.prefill:.4g}·{terms.admitted:.4g}/({further:g}·{terms.decode_step:.4g})",
            pools.decode * pools.balance(workload, terms.admitted),
            "replicas",
        ),
    ]


def _explain_drafting(replica: SpeculativeReplica, workload: Workload, point: OperatingPoint) -> list[Explained]:
    own, context = replica.speculation, round(workload.isl + workload.residing_osl / 2)
    batch = max(1, round(point.admitted_batch / replica.sharding.dp))
    numbers = f"alpha = {own.acceptance:g}, K = {own.tokens}"
    return [
        Explained("tokens a round", "E = Σ_{k=0..K} α^k", numbers, own.per_round, "tokens"),
        Explained(
            "gain", "E · S / (D + V); below, S is (D + V) / E", f"B = {batch}", gain(replica, batch, context), ""
        ),
    ]
