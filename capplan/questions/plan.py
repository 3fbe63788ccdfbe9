"""Which deployment is the cheapest that holds the limits, and why do the others fail?"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice
from math import ceil
from typing import Any

import numpy as np

from capplan.cost.amounts import usd
from capplan.cost.cost import DAYS_PER_MONTH, HOURS_PER_DAY
from capplan.planner.capacity import Rungs, rungs_at, serving_at
from capplan.planner.launch import Launch, launch_command, router_command, servers_of
from capplan.planner.pareto import pareto_front
from capplan.planner.pools import AS_PREDICTED, Pair, PoolReplica
from capplan.planner.rejections import Rejections
from capplan.questions.answer import Answer, Explained
from capplan.questions.plan_option import Candidate
from capplan.questions.plan_request import PlanRequest
from capplan.questions.plan_result import (
    NearMiss,
    PlanDrafts,
    PlanFormats,
    PlanParallel,
    PlanPools,
    PlanResult,
    PlanRow,
    PlanSettings,
    Rejected,
)
from capplan.questions.plan_search import DEARER, PlanSearch
from capplan.questions.pools import pools_label, way_between
from capplan.serving.speculation import SpeculativeReplica
from capplan.serving.spread import tpot_interval, ttft_interval

MONTH_HOURS = DAYS_PER_MONTH * HOURS_PER_DAY


def plan(model: str, **wishes: Any) -> Answer[PlanResult]:
    """The cheapest deployments that serve a load within limits; see `capplan.questions.plan_search` for how.

    Args:
        model: a reference as for ``--model``.
        wishes: the other fields of `capplan.questions.plan_request.PlanRequest`.

    Raises:
        CapplanError: something that does not exist, or a question that is not whole.
    """
    return plan_of(PlanRequest(model=model, **wishes))


def plan_of(request: PlanRequest) -> Answer[PlanResult]:
    """`plan` for a request that is put together already."""
    search = PlanSearch.of(request)
    found = list(islice(search.plans(_per_family(search)), request.top))
    rows = _marked(sorted((_row(item, request) for item in found), key=lambda row: (row.cost_per_hour, row.tpot_ms)))
    left = len(search.search.left) + search.too_dear
    if left:
        search.rejections.counts["no cheaper than the plans shown"] = left
    return Answer(
        command="plan",
        inputs=_inputs(request, search),
        result=PlanResult("USD", tuple(rows), _rejected(search.rejections), search.options_tried, search.measured),
        explanation=tuple(_explain(found[0], request)) if found else (),
        assumptions=(
            f"limits hold at the bad end of the {request.confidence:.0%} interval of each prediction",
            f"plans dearer than {DEARER} times the cheapest are not worked out",
        ),
        warnings=_warnings(rows, found, request),
        sources=tuple(dict.fromkeys(item.hire.price.source for item in found if item.hire and item.hire.price)),
        provenance={"plans.ttft_ms": "fitted", "plans.tpot_ms": "fitted", "plans.cost_per_month": "fitted"},
    )


def launch_of(item: Candidate) -> Launch:
    """What the engine of a plan must be told."""
    assert item.budget is not None
    option, settings = item.option, item.budget.plan
    spec, shape, drafts = option.format.spec, option.shape, _drafts(item)
    return Launch(
        engine=option.engine,
        model=spec.huggingface_id or spec.name,
        tp=shape.tp,
        pp=shape.pp,
        dp=shape.dp,
        ep=shape.ep,
        max_model_len=settings.max_model_len,
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        memory_fraction=float(settings.utilization),
        kv_cache_dtype=option.kv,
        quantization=option.format.weight_dtype,
        gpus_per_node=option.gpu.gpus_per_node or 1,
        drafted=drafts.speculative_tokens if drafts else 0,
        draft_model=drafts.draft_model_id if drafts else None,
        role="decode" if item.pair else "both",
    )


def _drafts(item: Candidate) -> PlanDrafts | None:
    request, server = item.option.draft, item.replica
    if request is None or not isinstance(server, SpeculativeReplica):
        return None
    draft = server.speculation.draft
    name, hub = (draft.spec.name, draft.spec.huggingface_id or draft.spec.name) if draft else (None, None)
    return PlanDrafts(request.tokens, request.acceptance, name, hub)


def _per_family(search: PlanSearch) -> int:
    """Plans of each device: one where all are asked about, more where few are."""
    asked = len(search.request.gpus)
    return 1 if not asked else ceil(search.request.top / asked)


def _row(item: Candidate, request: PlanRequest) -> PlanRow:
    """One plan with the operating point of its replicas."""
    assert item.hire is not None
    assert item.replica is not None
    assert item.budget is not None
    option, machine = item.option, item.replica.machine
    served = _pair_served(item, item.pair, request) if item.pair else _served(item, request)
    ttft, tpot, rate = served.ttft, served.tpot, served.rate
    carried = machine.kernels.carried_error("gemm") if machine.kernels is not None else None
    first, token = ttft_interval(ttft, machine.times, carried), tpot_interval(tpot, machine.times, carried)
    hired = item.replicas + request.spare_replicas
    launch = launch_of(item)
    settings = item.budget.plan
    price = item.hire.price
    return PlanRow(
        gpu=option.gpu.name,
        gpus=float(item.hire.gpus(hired)),
        gpus_per_replica=option.shape.gpus,
        gpus_per_node=launch.gpus_per_node,
        model_id=launch.model,
        parallel=PlanParallel(option.shape.tp, option.shape.pp, option.shape.dp, option.shape.ep),
        engine=option.engine,
        formats=PlanFormats(option.format.label, option.format.reference, option.format.weight_dtype, option.kv),
        settings=PlanSettings(
            settings.max_model_len,
            settings.max_num_seqs,
            settings.max_num_batched_tokens,
            float(settings.utilization),
        ),
        drafting=_drafts(item),
        pools=_pools(item.pair, served.busy, launch) if item.pair else None,
        replicas=hired,
        concurrency=served.concurrency,
        ttft_ms=1e3 * ttft,
        ttft_ms_low=1e3 * first.low,
        ttft_ms_high=1e3 * first.high,
        tpot_ms=1e3 * tpot,
        tpot_ms_low=1e3 * token.low,
        tpot_ms_high=1e3 * token.high,
        e2e_ms=1e3 * (ttft + (request.osl - 1) * tpot),
        ttft_margin=1 - ttft / request.ttft if request.ttft is not None else None,
        tpot_margin=1 - tpot / request.tpot if request.tpot is not None else None,
        request_capacity=served.capacity,
        utilisation=served.used,
        cost_per_hour=usd(item.cost),
        cost_per_month=usd(item.cost * MONTH_HOURS),
        cost_per_1m_tokens=usd(item.cost / 3600 / (Fraction(rate) * Fraction(request.isl + request.osl)) * 10**6),
        price_per_gpu_hour=usd(item.hire.usd_per_gpu_hour),
        provider=price.provider if price else None,
        instance=(price.instance or None) if price else None,
        instances=item.hire.instances(hired),
        pareto=False,
        launch=shlex.join(launch_command(launch).arguments),
        check=_checks(item, request, launch, rate / (item.pair.units if item.pair else item.replicas)),
        notes=tuple(_notes(item, request.spare_replicas)),
    )


@dataclass(frozen=True)
class _Served:
    """A plan under its load: seconds, requests a second of all replicas, requests at once on each, the most requests a
    second that it carries, the share of that which it does, and how busy its prefill pool is.
    """

    ttft: float
    tpot: float
    rate: float
    concurrency: int
    capacity: float
    used: float
    busy: float = 0.0


def _served(item: Candidate, request: PlanRequest) -> _Served:
    """Replicas that do both prefill and decode."""
    assert item.capacity is not None
    point = _operating_point(item, request)
    rate = request.request_rate or float(point.rate[0]) * item.replicas
    clients = int(point.clients[0]) * point.groups
    capacity = item.capacity.sure_rate * item.replicas
    return _Served(float(point.ttft[0]), float(point.tpot[0]), rate, clients, capacity, rate / capacity)


def _pair_served(item: Candidate, pair: Pair, request: PlanRequest) -> _Served:
    """Pools."""
    assert item.replica is not None
    load = request.pool_load(AS_PREDICTED)
    point = PoolReplica(item.replica, load).under(pair)
    rate = request.request_rate or point.request_rate * pair.units
    running = ceil(point.terms.admitted * item.option.shape.dp)
    used = load.units(pair.capacity) / pair.units
    return _Served(point.ttft, point.tpot, rate, running, pair.sure_rate, used, point.terms.utilisation)


def _operating_point(item: Candidate, request: PlanRequest) -> Rungs:
    """What one replica does at its share of the load."""
    assert item.replica is not None
    assert item.capacity is not None
    lengths, limits = request.lengths, request.limits
    if request.request_rate is not None:
        rate = request.request_rate / item.replicas
        return serving_at(item.replica, lengths, limits, rate, item.capacity)
    groups = item.capacity.rungs.groups
    clients = ceil((request.concurrency or 0) / (item.replicas * groups))
    return rungs_at(item.replica, lengths, limits, np.array([clients]))


def _pools(pair: Pair, busy: float, launch: Launch) -> PlanPools:
    """The pools of a plan, and what starts them beside its decode replicas."""
    servers = [
        servers_of(launch.engine, role, number) for role, number in (("prefill", pair.prefill), ("decode", pair.decode))
    ]
    return PlanPools(
        pair.prefill,
        pair.decode,
        pair.units,
        1e3 * pair.transfer,
        busy,
        shlex.join(launch_command(replace(launch, role="prefill")).arguments),
        shlex.join(router_command(launch.engine, *servers).arguments),
    )


def _marked(rows: list[PlanRow]) -> list[PlanRow]:
    """The rows, those on the Pareto front of cost, TPOT and TTFT marked."""
    front = pareto_front(rows, lambda row: (float(row.cost_per_1m_tokens), row.tpot_ms, row.ttft_ms))
    return [replace(row, pareto=any(row is kept for kept in front)) for row in rows]


def _checks(item: Candidate, request: PlanRequest, launch: Launch, rate: float) -> tuple[str, ...]:
    """The questions that a user can ask again about one replica."""
    option, shape = item.option, item.option.shape
    shared = ["--model", option.format.reference, "--gpu", option.gpu.name, "--engine", option.engine]
    shared += ["-tp", str(shape.tp)]
    shared += ["-pp", str(shape.pp)] if shape.pp > 1 else []
    shared += ["-dp", str(shape.dp)] if shape.dp > 1 else []
    shared += ["--enable-expert-parallel"] if shape.ep else []
    shared += ["--weight-dtype", option.format.weight_dtype] if option.format.weight_dtype else []
    shared += ["--kv-cache-dtype", option.kv] if option.kv != "auto" else []
    shared += ["--max-num-batched-tokens", str(option.budget)]
    seqs = ["--max-num-seqs", str(launch.max_num_seqs)]
    drafts = _drafts(item)
    drafting = ["--draft-model", drafts.draft_model] if drafts and drafts.draft_model else []
    drafted, chance = (str(drafts.speculative_tokens), f"{drafts.acceptance:g}") if drafts else ("0", "0")
    load = ["--isl", f"{request.isl:g}", "--osl", f"{request.osl:g}"]
    load += ["--request-rate", f"{rate:.6g}"]
    load += ["--prefix-hit-rate", f"{request.prefix_hit_rate:g}"] if request.prefix_hit_rate else []
    load += ["--ttft", f"{1e3 * request.ttft:g}ms"] if request.ttft is not None else []
    load += ["--tpot", f"{1e3 * request.tpot:g}ms"] if request.tpot is not None else []
    load += ["--speculative-tokens", drafted, "--acceptance", chance, *drafting] if drafts else []
    load += ["--disaggregate", pools_label(item.pair.prefill, item.pair.decode)] if item.pair else []
    bandwidth = option.pools.transfer_bandwidth if option.pools else None
    load += ["--kv-transfer-bandwidth", f"{bandwidth / 1e9:.9g}GB/s"] if bandwidth else []
    fit = ["capplan", "fit", *shared, *seqs, "--max-model-len", str(launch.max_model_len), "--check"]
    fit += ["--num-speculative-tokens", drafted, *drafting] if drafts else []
    return shlex.join(fit), shlex.join(["capplan", "estimate", *shared, *seqs, *load])


def _notes(item: Candidate, spare: int) -> list[str]:
    """What may mislead about one plan."""
    notes = [text for text in (item.setting.warnings if item.setting else ()) if "doubtful" not in text]
    kernels = item.replica.machine.kernels if item.replica else None
    if kernels is not None and kernels.carried is not None:
        notes.append(f"{item.option.gpu.name} was not measured: constants of {kernels.profile.name}")
    if item.pair is not None and item.option.pools is not None and item.setting is not None:
        replicas = item.pair.prefill + item.pair.decode
        notes.append(way_between(item.setting, replicas, item.option.pools.transfer_bandwidth)[1])
        notes += [f"spare replicas, {spare} of them, stand by for either pool"] if spare else []
    return notes


def _rejected(found: Rejections) -> tuple[Rejected, ...]:
    return tuple(
        Rejected(
            reason,
            count,
            tuple(NearMiss(miss.option, miss.detail, miss.gap) for miss in found.nearest.get(reason, ())),
        )
        for reason, count in found.counts.most_common()
    )


def _inputs(request: PlanRequest, search: PlanSearch) -> dict[str, Any]:
    pricing = request.pricing
    return {
        "model": request.model,
        "isl": request.isl,
        "osl": request.osl,
        "request_rate": request.request_rate,
        "concurrency": request.concurrency,
        "prefix_hit_rate": request.prefix_hit_rate,
        "ttft": request.ttft,
        "tpot": request.tpot,
        "confidence": request.confidence,
        "gpus": list(request.gpus) or None,
        "engines": list(request.engines),
        "weight_formats": [choice.label for choice in search.formats],
        "kv_formats": list(request.kv_formats),
        "max_num_batched_tokens": list(request.token_budgets),
        "max_nodes": request.max_nodes,
        "speculative_tokens": [draft.tokens for draft in request.drafting] or None,
        "acceptance": request.drafting[0].acceptance if request.drafting else None,
        "draft_model": request.drafting[0].draft_model if request.drafting else None,
        "disaggregate": [pools.label for pools in request.pools] or None,
        "kv_transfer_bandwidth": request.pools[0].transfer_bandwidth if request.pools else None,
        "price_cap": request.price_cap,
        "price_per_gpu_hour": pricing.price_per_gpu_hour,
        "provider": pricing.provider,
        "commitment": pricing.commitment,
        "spare_replicas": request.spare_replicas,
    }


def _warnings(rows: list[PlanRow], found: list[Candidate], request: PlanRequest) -> tuple[str, ...]:
    warnings = [
        text for item in found[:1] if item.hire for text in item.hire.warnings(item.option.gpu.name, request.pricing.on)
    ]
    if not rows:
        warnings.append("nothing that was tried serves this load within the limits")
    return tuple(warnings)


def _explain(item: Candidate, request: PlanRequest) -> list[Explained]:
    """How the best plan's cost comes about."""
    assert item.hire is not None
    hourly, hired = float(item.cost), item.replicas + request.spare_replicas
    lines = _explain_pools(item.pair, request) if item.pair else _explain_replicas(item, request)
    instance = float(item.hire.usd_per_instance_hour)
    lines += [
        Explained(
            "an hour",
            "instances · price",
            f"{item.hire.instances(hired)} · {instance:g}",
            hourly,
            "USD",
            item.hire.price.source if item.hire.price else "",
        ),
        Explained("a month", "730 · an hour", f"730 · {hourly:g}", hourly * 730, "USD"),
    ]
    return lines


def _explain_replicas(item: Candidate, request: PlanRequest) -> list[Explained]:
    assert item.capacity is not None
    clients, sure = item.capacity.clients * item.capacity.rungs.groups, item.capacity.sure_rate
    return _explain_count("one replica", str(clients), sure, "replicas", item.replicas, request)


def _explain_pools(pair: Pair, request: PlanRequest) -> list[Explained]:
    terms, unit = pair.capacity.terms, pools_label(pair.prefill, pair.decode)
    times = "at the bad end" if request.request_rate is not None else "as predicted"
    lines = [
        Explained("prefill", f"G of one prompt alone, {times}", "", terms.prefill, "s"),
        Explained("decode step", f"S of b sequences, {times}", f"b = {terms.admitted:.4g}", terms.decode_step, "s"),
        Explained("cache moved", "X: bytes on a rank / bandwidth", "", pair.transfer, "s"),
    ]
    clients = f"{pair.capacity.request_rate * pair.capacity.e2e:.4g}"
    return lines + _explain_count(unit, clients, pair.sure_rate / pair.units, "units", pair.units, request)


def _explain_count(
    one: str, clients: str, sure: float, several: str, count: int, request: PlanRequest
) -> list[Explained]:
    """What one of them carries in time, and how many a rate takes."""
    limits = "max C / E2E at the bad end, TTFT and TPOT within limits"
    lines = [Explained(f"{one} in time", limits, f"C = {clients}", sure, "requests/s")]
    if request.request_rate is not None:
        lines.append(Explained(several, "⌈λ / μ⌉", f"⌈{request.request_rate:g} / {sure:.4g}⌉", count, ""))
    return lines
