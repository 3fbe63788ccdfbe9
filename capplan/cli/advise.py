"""``capplan advise``: what to change next, each item with its predicted gain."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from capplan.cli.money import Commitment, Day, PricePerGpuHour, Provider, Region, pricing_of
from capplan.cli.output import answers
from capplan.cli.setting import of_a_setting
from capplan.describe.quantities import parse_number, parse_tokens
from capplan.questions.advise import AdviseResult, advise
from capplan.questions.answer import Answer
from capplan.questions.estimate import LoadRequest
from capplan.report.views.advise import advise_view

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("advise")
@answers(advise_view)
@of_a_setting
def command(
    isl: Annotated[str, typer.Option("--isl", help="Mean input tokens of a request.")],
    osl: Annotated[str, typer.Option("--osl", help="Mean output tokens of a request.")],
    setting: dict[str, Any],
    concurrency: Annotated[str | None, typer.Option("--concurrency", help="Requests at once (closed loop).")] = None,
    request_rate: Annotated[str | None, typer.Option("--request-rate", help="Requests a second (open loop).")] = None,
    prefix_hit_rate: Annotated[
        str | None, typer.Option("--prefix-hit-rate", help="Share of the input that is cached already [0].")
    ] = None,
    prefix_share: Annotated[str, typer.Option("--prefix-share", help="Share that a prefix cache would find.")] = "0.5",
    acceptance: Annotated[str, typer.Option("--acceptance", help="Chance that a drafted token is accepted.")] = "0.7",
    draft_model: Annotated[
        str | None, typer.Option("--draft-model", help="A model that would draft [MTP layers, or Medusa heads].")
    ] = None,
    price_per_gpu_hour: PricePerGpuHour = None,
    provider: Provider = None,
    commitment: Commitment = "on-demand",
    region: Region = None,
    on: Day = None,
) -> Answer[AdviseResult]:
    """The checklist of inference optimisation, each item estimated on this deployment and ranked by its gain."""
    load = LoadRequest(
        isl=parse_tokens(isl, "--isl"),
        osl=parse_tokens(osl, "--osl"),
        concurrency=parse_number(concurrency, "--concurrency") if concurrency else None,
        request_rate=parse_number(request_rate, "--request-rate") if request_rate else None,
        prefix_hit_rate=parse_number(prefix_hit_rate, "--prefix-hit-rate") if prefix_hit_rate else 0.0,
    )
    return advise(
        load=load,
        acceptance=parse_number(acceptance, "--acceptance"),
        draft_model=draft_model,
        cached=parse_number(prefix_share, "--prefix-share"),
        pricing=pricing_of(price_per_gpu_hour, provider, commitment, region, on),
        **setting,
    )
