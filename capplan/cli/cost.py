"""``capplan cost``: what tokens, a load and a month cost."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Annotated, Any, get_args

import typer

from capplan.cli.money import (
    Commitment,
    Concurrency,
    Day,
    Isl,
    MaxNumSeqs,
    Osl,
    PrefixHitRate,
    PricePerGpuHour,
    Provider,
    Region,
    RequestRate,
    Text,
    Tpot,
    Ttft,
    load_of,
    number,
    option,
    optional_money,
    optional_number,
    pricing_of,
    share_of,
)
from capplan.cli.output import answers
from capplan.cli.setting import of_a_setting
from capplan.cost.cost import Billing
from capplan.cost.energy import IDLE_SHARE, PUE, TDP_SHARE, Power
from capplan.cost.load_profile import parse_load
from capplan.describe.quantities import parse_integer, parse_parameters
from capplan.errors import UsageError
from capplan.questions.answer import Answer
from capplan.questions.cost import CostResult, serving_cost
from capplan.questions.cost_request import CostRequest
from capplan.report.views.cost import cost_chart, cost_view

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_LOAD, _GIVEN, _POWER, _MORE, _API = "Load", "Given throughput", "Electricity", "Storage and egress", "APIs"


@app.command("cost")
@answers(cost_view, chart=cost_chart)
@partial(of_a_setting, needs_model=False)
def command(
    setting: Any,
    isl: Isl = None,
    osl: Osl = None,
    concurrency: Concurrency = None,
    request_rate: RequestRate = None,
    prefix_hit_rate: PrefixHitRate = None,
    ttft: Ttft = None,
    tpot: Tpot = None,
    max_num_seqs: MaxNumSeqs = None,
    requests_per_day: Annotated[
        Text, option("--requests-per-day", help="The load, spread evenly.", panel=_LOAD)
    ] = None,
    load_profile: Annotated[
        Text,
        option("--load-profile", help="Hours with requests a second, 8-20:5,20-8:0.5, or a .csv trace.", panel=_LOAD),
    ] = None,
    billing: Annotated[
        Text, option("--billing", help="busy seconds, replicas by the hour (hourly), or always on.", panel=_LOAD)
    ] = None,
    spare_replicas: Annotated[str, option("--spare-replicas", help="Replicas beside the needed.", panel=_LOAD)] = "0",
    throughput: Annotated[
        Text, option("--throughput", help="Tokens a second of a replica, instead of an estimate.", panel=_GIVEN)
    ] = None,
    tokens_per_request: Annotated[
        Text, option("--tokens-per-request", help="Tokens of a request, input and output.", panel=_GIVEN)
    ] = None,
    gpus: Annotated[str, option("--gpus", help="GPUs of the replica.", panel=_GIVEN)] = "1",
    throughput_rule: Annotated[
        bool, option("--throughput-rule", help="The rule 100·(P/7)^-0.6, alone or beside.", panel=_GIVEN)
    ] = False,
    params: Annotated[Text, option("--params", help="P of the rule: 7B [the model's].", panel=_GIVEN)] = None,
    price_per_gpu_hour: PricePerGpuHour = None,
    provider: Provider = None,
    commitment: Commitment = "on-demand",
    region: Region = None,
    on: Day = None,
    electricity_price: Annotated[
        Text, option("--electricity-price", help="Dollars a kWh, for machines of your own.", panel=_POWER)
    ] = None,
    tdp: Annotated[Text, option("--tdp", help="Power limit of a GPU in W [the catalog's].", panel=_POWER)] = None,
    tdp_share: Annotated[Text, option("--tdp-share", help="Share of it drawn under load [0.7].", panel=_POWER)] = None,
    idle_share: Annotated[Text, option("--idle-share", help="Share of it drawn idle [0.15].", panel=_POWER)] = None,
    pue: Annotated[Text, option("--pue", help="Power of the building over the machines' [1.3].", panel=_POWER)] = None,
    storage_gb: Annotated[Text, option("--storage-gb", help="Gigabytes kept.", panel=_MORE)] = None,
    storage_price: Annotated[Text, option("--storage-price", help="Dollars a GB and month.", panel=_MORE)] = None,
    egress_gb: Annotated[Text, option("--egress-gb", help="Gigabytes sent a month.", panel=_MORE)] = None,
    egress_price: Annotated[Text, option("--egress-price", help="Dollars a GB.", panel=_MORE)] = None,
    api_provider: Annotated[Text, option("--api-provider", help="Whose API to compare with [all].", panel=_API)] = None,
    api_input_price: Annotated[Text, option("--api-input-price", help="Dollars a 1M input tokens.", panel=_API)] = None,
    api_output_price: Annotated[
        Text, option("--api-output-price", help="Dollars a 1M output tokens.", panel=_API)
    ] = None,
) -> Answer[CostResult]:
    """Dollars a token, request, day and month of a deployment or a given throughput; break-even against APIs."""
    shares = [
        Fraction(1) if text == "1" else share_of(text, flag) if text is not None else default
        for text, flag, default in ((tdp_share, "--tdp-share", TDP_SHARE), (idle_share, "--idle-share", IDLE_SHARE))
    ]
    request = CostRequest(
        throughput=optional_number(throughput, "--throughput"),
        tokens_per_request=optional_number(tokens_per_request, "--tokens-per-request"),
        gpus=parse_integer(gpus, "--gpus", least=1),
        throughput_rule=throughput_rule,
        parameters=float(parse_parameters(params, "--params")) if params is not None else None,
        requests_per_day=number(requests_per_day, "--requests-per-day") if requests_per_day is not None else None,
        load_profile=parse_load(load_profile) if load_profile is not None else None,
        billing=_billing(billing),
        spare_replicas=parse_integer(spare_replicas, "--spare-replicas"),
        pricing=pricing_of(price_per_gpu_hour, provider, commitment, region, on),
        tdp_w=optional_number(tdp, "--tdp"),
        power=Power(shares[0], shares[1], number(pue, "--pue") if pue is not None else PUE),
        electricity_price=optional_money(electricity_price, "--electricity-price"),
        storage_gb=optional_money(storage_gb, "--storage-gb"),
        storage_price=optional_money(storage_price, "--storage-price"),
        egress_gb=optional_money(egress_gb, "--egress-gb"),
        egress_price=optional_money(egress_price, "--egress-price"),
        api_provider=api_provider,
        api_input_price=optional_money(api_input_price, "--api-input-price"),
        api_output_price=optional_money(api_output_price, "--api-output-price"),
    )
    load = load_of(isl, osl, concurrency, request_rate, prefix_hit_rate, ttft, tpot, max_num_seqs)
    return serving_cost(load=load, request=request, **setting)


def _billing(text: str | None) -> Billing | None:
    known: tuple[Billing, ...] = get_args(Billing)
    for kind in known:
        if text == kind:
            return kind
    if text is not None:
        raise UsageError(f"{text[:40]!r} is not one of {', '.join(known)}", where="--billing")
    return None
