"""What do tokens cost on this deployment, what does a load cost a month, and from when on is an API dearer?"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import prod
from typing import Any, Unpack

from capplan.cost.amounts import usd
from capplan.cost.cost import DAYS_PER_MONTH, Billing
from capplan.describe.gpu import GpuSpec
from capplan.describe.gpu_catalog import load_gpu
from capplan.describe.model import ModelSpec
from capplan.describe.resolve import resolve_model
from capplan.errors import UsageError
from capplan.memory.weights import count_parameters
from capplan.questions.answer import Answer, Provenance
from capplan.questions.cost_apis import ApiBreakEven, api_break_evens
from capplan.questions.cost_curve import CurvePoint, cost_curve, own_servers
from capplan.questions.cost_explained import explain_cost
from capplan.questions.cost_lines import CostLine, with_totals
from capplan.questions.cost_request import CostRequest
from capplan.questions.estimate import LoadRequest
from capplan.questions.reckoning import Reckoning, reckoned
from capplan.questions.served import RULE, Served, served_as_estimated, served_as_given
from capplan.questions.setting import SettingOptions, resolve_setting

MONEY = (
    "cost_per_1k_tokens",
    "cost_per_1m_tokens",
    "cost_per_1m_input_tokens",
    "cost_per_1m_output_tokens",
    "cost_per_request",
    "cost_per_day",
    "cost_per_month",
)


@dataclass(frozen=True)
class RuleOfThumb:
    """The seed's rule of thumb beside the answer; all of it is assumed.

    Args:
        throughput: ``100 · (P / 7)^-0.6`` tokens a second.
        cost_per_1k_tokens: at that throughput, on as many devices.
        times_the_answer: its cost over the answer's.
    """

    throughput: float
    cost_per_1k_tokens: Decimal
    times_the_answer: float


@dataclass(frozen=True)
class Energy:
    """Electricity, building included.

    Args:
        kwh_per_day: of all devices that are paid for.
        kwh_per_1m_tokens: over the tokens of the load.
        cost_per_month: null where the hire includes it.
    """

    kwh_per_day: float
    kwh_per_1m_tokens: float
    cost_per_month: Decimal | None


@dataclass(frozen=True)
class CostResult:
    """Dollars; intervals come from that of the throughput.

    Args:
        currency: of every amount.
        basis: how the throughput was come by: given, rule of thumb, or estimate.
        billing: what is paid for: busy seconds, replicas by the hour, or the peak's replicas always.
        total_token_throughput: tokens a second of one replica at full load.
        cost_per_1k_tokens: over input and output tokens together.
        cost_per_1m_tokens: the same for a million.
        cost_per_1m_input_tokens: by prefill's share of the GPUs' time; null: not told apart.
        cost_per_1m_output_tokens: by decode's share.
        cost_per_request: null: no lengths were given.
        cost_per_1m_tokens_at_full_load: without idle hours and empty instances.
        gpu_hours_per_day: that are paid for.
        cost_per_day: of everything.
        cost_per_month: 730 hours.
        price_per_gpu_hour: of a GPU that is paid for.
        provider: null: the price was given.
        instance: null: GPUs are hired singly.
        replicas: the most that run at once.
        instances: that hold them.
        gpus: of those instances.
        gpus_per_replica: of one replica.
        utilisation: share of the paid GPU-hours that is used.
        requests_per_day: of the load, or of full replicas.
        tokens_per_day: likewise.
        prefill_share: prefill's share of the GPUs' time.
        energy: null: no device's power limit is known.
        lines: the month, line by line; totals last.
        break_even: APIs, the cheapest first.
        rule_of_thumb: null unless asked for.
        curve: a month's cost against its tokens, in whole instances that are always on.
    """

    currency: str
    basis: str
    billing: Billing
    total_token_throughput: float
    total_token_throughput_low: float
    total_token_throughput_high: float
    cost_per_1k_tokens: Decimal
    cost_per_1k_tokens_low: Decimal
    cost_per_1k_tokens_high: Decimal
    cost_per_1m_tokens: Decimal
    cost_per_1m_tokens_low: Decimal
    cost_per_1m_tokens_high: Decimal
    cost_per_1m_input_tokens: Decimal | None
    cost_per_1m_input_tokens_low: Decimal | None
    cost_per_1m_input_tokens_high: Decimal | None
    cost_per_1m_output_tokens: Decimal | None
    cost_per_1m_output_tokens_low: Decimal | None
    cost_per_1m_output_tokens_high: Decimal | None
    cost_per_request: Decimal | None
    cost_per_request_low: Decimal | None
    cost_per_request_high: Decimal | None
    cost_per_1m_tokens_at_full_load: Decimal
    gpu_hours_per_day: float
    gpu_hours_per_day_low: float
    gpu_hours_per_day_high: float
    cost_per_day: Decimal
    cost_per_day_low: Decimal
    cost_per_day_high: Decimal
    cost_per_month: Decimal
    cost_per_month_low: Decimal
    cost_per_month_high: Decimal
    price_per_gpu_hour: Decimal
    provider: str | None
    instance: str | None
    replicas: int
    replicas_low: int
    replicas_high: int
    instances: int
    gpus: float
    gpus_per_replica: int
    utilisation: float
    requests_per_day: float | None
    tokens_per_day: float
    prefill_share: float | None
    energy: Energy | None
    lines: tuple[CostLine, ...]
    break_even: tuple[ApiBreakEven, ...]
    rule_of_thumb: RuleOfThumb | None
    curve: tuple[CurvePoint, ...]


def serving_cost(
    model: str | ModelSpec | None = None,
    gpu: str | GpuSpec | None = None,
    *,
    load: LoadRequest | None = None,
    request: CostRequest | None = None,
    **options: Unpack[SettingOptions],
) -> Answer[CostResult]:
    """Dollars a token, request, day and month; see `capplan.cost.cost` for the equations.

    Args:
        model: a reference as for ``--model``; not needed where the throughput is given.
        gpu: a device; likewise.
        load: what clients ask: lengths with a concurrency or a rate; lengths alone where the throughput is given.
        request: prices, load, electricity, APIs.
        options: the deployment, as for `capplan.questions.setting.resolve_setting`.

    Raises:
        CapplanError: something that does not exist or fit, or a question that is not whole.
    """
    request = request or CostRequest()
    served, inputs = _served(model, gpu, load, request, options)
    reckoning = reckoned(served, request, options.get("hardware_dirs", ()))
    answer = served.answer
    spec = served.spec or (resolve_model(model).spec if isinstance(model, str) else model)
    own = own_servers(reckoning, load)
    break_even = api_break_evens(request, spec.name if spec is not None else None, own) if own is not None else ()
    result = _result(reckoning, break_even, _rule(reckoning, spec))
    gpu_name = served.gpu.name if served.gpu else gpu if isinstance(gpu, str) else "the GPU"
    return Answer(
        command="cost",
        inputs={**inputs, **_inputs(request)},
        result=result,
        explanation=(*explain_cost(reckoning), *(answer.explanation if answer else ())),
        assumptions=(*(answer.assumptions if answer else ()), *_assumptions(reckoning)),
        warnings=(*(answer.warnings if answer else ()), *reckoning.hire.warnings(str(gpu_name), request.pricing.on)),
        sources=(*(answer.sources if answer else ()), *([reckoning.hire.price.source] if reckoning.hire.price else [])),
        provenance=_provenance(served),
    )


def _served(
    model: str | ModelSpec | None,
    gpu: str | GpuSpec | None,
    load: LoadRequest | None,
    request: CostRequest,
    options: SettingOptions,
) -> tuple[Served, dict[str, Any]]:
    """What one replica does, and the inputs behind that."""
    if request.throughput is not None or (request.throughput_rule and gpu is None):
        parameters = request.parameters
        if parameters is None and model is not None and request.throughput is None:
            spec = resolve_model(model).spec if isinstance(model, str) else model
            parameters = count_parameters(spec).total
        lengths = {"isl": load.isl, "osl": load.osl} if load is not None else {}
        device = load_gpu(gpu, options.get("hardware_dirs", ())) if isinstance(gpu, str) else gpu
        sizes = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
        ranks = prod(options.get(size, 1) for size in sizes)  # type: ignore[misc]
        served = served_as_given(request, load, parameters, device, max(request.gpus, ranks))
        gpus = {"gpu": device.name if device else None, "gpus": served.gpus}
        return served, {"throughput": request.throughput, **lengths, **gpus}
    if model is None or load is None:
        missing = "--model" if model is None else "--isl, --osl"
        raise UsageError(
            "what is served?", where=missing, hint="give a deployment and a load, or --throughput in tokens a second"
        )
    served = served_as_estimated(resolve_setting(model, gpu, **options), load)
    assert served.answer is not None
    return served, served.answer.inputs


def _rule(reckoning: Reckoning, spec: ModelSpec | None) -> RuleOfThumb | None:
    request, served = reckoning.request, reckoning.served
    if not request.throughput_rule or served.basis == "rule of thumb":
        return None
    parameters = request.parameters
    if parameters is None and spec is not None:
        parameters = count_parameters(spec).total
    ruled = served_as_given(CostRequest(tokens_per_request=float(served.tokens or 1)), None, parameters)
    per_1k = reckoning.hire.usd_per_gpu_hour * served.gpus / 3600 / ruled.throughput.total.value * 1000
    times = per_1k / (reckoning.token.value * 1000)
    return RuleOfThumb(float(ruled.throughput.total.value), usd(per_1k), float(times))


def _result(reckoning: Reckoning, break_even: tuple[ApiBreakEven, ...], rule: RuleOfThumb | None) -> CostResult:
    served, bill, hire = reckoning.served, reckoning.bill, reckoning.hire
    token, throughput = reckoning.token, served.throughput
    share = throughput.prefill_share
    ingoing = outgoing = None
    if share is not None and served.isl and served.osl:
        tokens = served.isl + served.osl
        ingoing, outgoing = token * (share * tokens / served.isl), token * ((1 - share) * tokens / served.osl)
    amounts: dict[str, Any] = {}
    for name, amount in (
        ("cost_per_1k_tokens", token * 1000),
        ("cost_per_1m_tokens", token * 10**6),
        ("cost_per_1m_input_tokens", ingoing * 10**6 if ingoing is not None else None),
        ("cost_per_1m_output_tokens", outgoing * 10**6 if outgoing is not None else None),
        ("cost_per_request", token * served.tokens if served.tokens is not None else None),
        ("cost_per_day", reckoning.day),
        ("cost_per_month", reckoning.day * DAYS_PER_MONTH),
    ):
        amounts[name] = usd(amount.value) if amount is not None else None
        amounts[f"{name}_low"] = usd(amount.low) if amount is not None else None
        amounts[f"{name}_high"] = usd(amount.high) if amount is not None else None
    replicas = int(bill.replicas.value)
    full = hire.usd_per_gpu_hour * served.gpus / 3600 / throughput.total.value
    return CostResult(
        currency="USD",
        basis=served.basis,
        billing=reckoning.billing,
        total_token_throughput=float(throughput.total.value),
        total_token_throughput_low=float(throughput.total.low),
        total_token_throughput_high=float(throughput.total.high),
        **amounts,
        cost_per_1m_tokens_at_full_load=usd(full * 10**6),
        gpu_hours_per_day=float(bill.gpu_hours.value),
        gpu_hours_per_day_low=float(bill.gpu_hours.low),
        gpu_hours_per_day_high=float(bill.gpu_hours.high),
        price_per_gpu_hour=usd(hire.usd_per_gpu_hour),
        provider=hire.price.provider if hire.price else None,
        instance=(hire.price.instance or None) if hire.price else None,
        replicas=replicas,
        replicas_low=int(bill.replicas.low),
        replicas_high=int(bill.replicas.high),
        instances=hire.instances(replicas),
        gpus=float(hire.gpus(replicas)),
        gpus_per_replica=served.gpus,
        utilisation=float(bill.utilisation),
        requests_per_day=_requests_per_day(reckoning),
        tokens_per_day=float(reckoning.tokens.value),
        prefill_share=float(share) if share is not None else None,
        energy=_energy(reckoning),
        lines=tuple(with_totals(list(reckoning.lines))),
        break_even=break_even,
        rule_of_thumb=rule,
        curve=cost_curve(reckoning, break_even),
    )


def _requests_per_day(reckoning: Reckoning) -> float | None:
    if reckoning.load is not None:
        return float(reckoning.load.requests_per_day)
    tokens = reckoning.served.tokens
    return float(reckoning.tokens.value / tokens) if tokens is not None else None


def _energy(reckoning: Reckoning) -> Energy | None:
    kwh, price = reckoning.energy, reckoning.request.electricity_price
    if kwh is None:
        return None
    monthly = usd(kwh * Fraction(price) * DAYS_PER_MONTH) if price is not None else None
    return Energy(float(kwh), float(kwh / reckoning.tokens.value * 10**6), monthly)


def _assumptions(reckoning: Reckoning) -> list[str]:
    request, notes = reckoning.request, ["a month has 730 hours"]
    if reckoning.served.basis == "rule of thumb" or request.throughput_rule:
        notes.append(RULE)
    if reckoning.energy is not None:
        power = request.power
        notes.append(
            f"devices draw {float(power.tdp_share):.0%} of their power limit under load and "
            f"{float(power.idle_share):.0%} idle, and the building {float(power.pue):g} times as much"
        )
    if reckoning.load is None:
        notes.append("always full: no load was given")
    return notes


def _inputs(request: CostRequest) -> dict[str, Any]:
    return {
        "tokens_per_request": request.tokens_per_request,
        "requests_per_day": float(request.requests_per_day) if request.requests_per_day is not None else None,
        "load_profile": [float(rate) for rate in request.load_profile.rates] if request.load_profile else None,
        **request.pricing.inputs,
        "spare_replicas": request.spare_replicas,
        "electricity_price": request.electricity_price,
    }


def _provenance(served: Served) -> dict[str, Provenance]:
    if served.basis == "estimate" and served.answer is not None:
        found = served.answer.provenance.get("total_token_throughput", "fitted")
        return dict.fromkeys((*MONEY, "gpu_hours_per_day", "total_token_throughput"), found)
    kind: Provenance = "assumed" if served.basis == "rule of thumb" else "exact"
    return dict.fromkeys((*MONEY, "gpu_hours_per_day", "total_token_throughput"), kind)
