"""``capplan plan``: the cheapest deployments that hold the limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

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
    option,
    optional_money,
    pricing_of,
    share_of,
)
from capplan.cli.options import HardwareDir, IgnoreKey, Model, ModelsDir, Online
from capplan.cli.output import answers
from capplan.cli.setting import ProfilesDir
from capplan.describe.quantities import parse_bandwidth, parse_integer, parse_list, parse_tokens
from capplan.errors import UsageError
from capplan.questions.answer import Answer
from capplan.questions.drafting import DraftRequest
from capplan.questions.plan import plan_of
from capplan.questions.plan_request import DEFAULT_ENGINES, Folders, PlanRequest
from capplan.questions.plan_result import PlanResult
from capplan.questions.pools import PoolsChoice, parse_choices
from capplan.report.engine_flags import EMITTERS, engine_of
from capplan.report.views.plan import plan_chart, plan_view

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_SPACE, _SHOWN = "What may be built", "Result"


@app.command("plan")
@answers(plan_view, chart=plan_chart)
def command(
    model: Model = None,
    isl: Isl = None,
    osl: Osl = None,
    request_rate: RequestRate = None,
    concurrency: Concurrency = None,
    prefix_hit_rate: PrefixHitRate = None,
    ttft: Ttft = None,
    tpot: Tpot = None,
    confidence: Annotated[
        str, option("--confidence", help="Share of the interval whose bad end holds the limits.", panel="Load")
    ] = "0.8",
    gpu: Annotated[Text, option("--gpu", help="Devices: h200,b200 [all of the catalog].", panel=_SPACE)] = None,
    max_nodes: Annotated[str, option("--max-nodes", help="Hosts of a replica.", panel=_SPACE)] = "2",
    engine: Annotated[Text, option("--engine", help="vllm, sglang, trtllm, or several [all].", panel=_SPACE)] = None,
    weight_formats: Annotated[
        Text, option("--weight-formats", help="checkpoint, bf16, fp8, ... [what is published].", panel=_SPACE)
    ] = None,
    kv_formats: Annotated[str, option("--kv-formats", help="auto, bf16, fp8.", panel=_SPACE)] = "auto,fp8",
    max_num_batched_tokens: Annotated[
        str, option("--max-num-batched-tokens", help="Tokens of a step: 2048,8192.", panel=_SPACE)
    ] = "8192",
    max_num_seqs: MaxNumSeqs = None,
    speculative_tokens: Annotated[
        Text, option("--speculative-tokens", help="Drafts of so many tokens, tried as well: 2,4.", panel=_SPACE)
    ] = None,
    acceptance: Annotated[
        Text, option("--acceptance", help="Chance that a drafted token is accepted: 0.7.", panel=_SPACE)
    ] = None,
    draft_model: Annotated[
        Text, option("--draft-model", help="A model that drafts [the model's MTP layers].", panel=_SPACE)
    ] = None,
    disaggregate: Annotated[
        str,
        option(
            "--disaggregate",
            help="Prefill and decode apart, tried as well: auto, 2P4D, or several.",
            panel=_SPACE,
        ),
    ] = "none",
    kv_transfer_bandwidth: Annotated[
        Text, option("--kv-transfer-bandwidth", help="Of each GPU, between pools [links, or 50GB/s].", panel=_SPACE)
    ] = None,
    price_cap: Annotated[Text, option("--price-cap", help="Dollars an hour, at most.", panel="Prices")] = None,
    price_per_gpu_hour: PricePerGpuHour = None,
    provider: Provider = None,
    commitment: Commitment = "on-demand",
    region: Region = None,
    on: Day = None,
    spare_replicas: Annotated[str, option("--spare-replicas", help="Replicas beside the needed.", panel="Load")] = "0",
    top: Annotated[str, option("--top", help="Plans that are wanted.", panel=_SHOWN)] = "10",
    emit: Annotated[
        Text, option("--emit", help="What starts a plan: vllm, vllm-python, sglang, trtllm or k8s.", panel=_SHOWN)
    ] = None,
    row: Annotated[str, option("--row", help="Which plan to emit.", panel=_SHOWN)] = "1",
    online: Online = False,
    models_dir: ModelsDir = [],
    hardware_dir: HardwareDir = [],
    profiles_dir: ProfilesDir = [],
    ignore_key: IgnoreKey = [],
) -> Answer[PlanResult]:
    """The cheapest deployments that serve a load within limits, ranked, and why the others fail."""
    if model is None:
        raise UsageError("which model?", where="--model", hint="give --model")
    load = load_of(isl, osl, concurrency, request_rate, prefix_hit_rate, ttft, tpot, max_num_seqs)
    if load is None:
        raise UsageError("how long are the requests?", where="--isl, --osl")
    if emit is not None and emit not in EMITTERS:
        raise UsageError(f"{emit[:40]!r} cannot be emitted", where="--emit", hint=f"one of {', '.join(EMITTERS)}")
    only = engine_of(emit) if emit else None
    engines = _names(engine, "--engine") if engine else (only,) if only else DEFAULT_ENGINES
    request = PlanRequest(
        model=model,
        isl=load.isl,
        osl=load.osl,
        request_rate=load.request_rate,
        concurrency=load.concurrency,
        prefix_hit_rate=load.prefix_hit_rate,
        ttft=load.ttft,
        tpot=load.tpot,
        confidence=float(share_of(confidence, "--confidence")),
        gpus=_names(gpu, "--gpu") if gpu else (),
        engines=engines,
        weight_formats=_names(weight_formats, "--weight-formats") if weight_formats else (),
        kv_formats=_names(kv_formats, "--kv-formats"),
        token_budgets=tuple(parse_list(max_num_batched_tokens, parse_tokens, "--max-num-batched-tokens")),
        max_num_seqs=load.max_num_seqs,
        max_nodes=parse_integer(max_nodes, "--max-nodes", least=1, most=64),
        drafting=_drafting(speculative_tokens, acceptance, draft_model),
        pools=_pools(disaggregate, kv_transfer_bandwidth),
        price_cap=optional_money(price_cap, "--price-cap"),
        pricing=pricing_of(price_per_gpu_hour, provider, commitment, region, on),
        spare_replicas=parse_integer(spare_replicas, "--spare-replicas"),
        top=parse_integer(top, "--top", least=1, most=1000),
        folders=Folders(
            models=models_dir, hardware=hardware_dir, profiles=profiles_dir, ignore_keys=ignore_key, online=online
        ),
    )
    answer = plan_of(request)
    return replace(answer, inputs={**answer.inputs, "emit": emit, "row": parse_integer(row, "--row", least=1)})


def _drafting(tokens: Text, acceptance: Text, draft_model: Text) -> tuple[DraftRequest, ...]:
    """Ways to draft, one for each number of tokens."""
    if tokens is None:
        if acceptance is not None or draft_model is not None:
            raise UsageError("how many tokens are drafted?", where="--speculative-tokens", hint="2,4")
        return ()
    if acceptance is None:
        raise UsageError("with which chance is a drafted token accepted?", where="--acceptance", hint="0.7")
    chance = float(share_of(acceptance, "--acceptance"))
    counts = parse_list(tokens, lambda item, name: parse_integer(item, name, least=1), "--speculative-tokens")
    return tuple(DraftRequest(count, chance, draft_model) for count in dict.fromkeys(counts))


def _names(text: str, flag: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise UsageError(f"{text[:40]!r} is not a list of names", where=flag)
    return names


def _pools(disaggregate: str, bandwidth: str | None) -> tuple[PoolsChoice, ...]:
    """Ways to keep prefill and decode apart."""
    rate = parse_bandwidth(bandwidth, "--kv-transfer-bandwidth") if bandwidth else None
    pools = parse_choices(disaggregate, rate)
    if rate is not None and not pools:
        raise UsageError("between which pools?", where="--kv-transfer-bandwidth", hint="give --disaggregate auto")
    return pools
