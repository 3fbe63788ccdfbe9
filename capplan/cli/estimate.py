"""``capplan estimate``: TTFT, TPOT and throughput of a server under a load."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from capplan.cli.output import answers
from capplan.cli.setting import of_a_setting
from capplan.describe.quantities import parse_bandwidth, parse_integer, parse_number, parse_seconds
from capplan.errors import UsageError
from capplan.questions.answer import Answer
from capplan.questions.drafting import DraftRequest
from capplan.questions.encode import EncodeResult, answered
from capplan.questions.estimate import EstimateResult, LoadRequest
from capplan.questions.pools import PoolsRequest, parse_pools
from capplan.questions.setting import Setting, resolve_setting
from capplan.report.views.estimate import estimate_view
from capplan.serving.lengths import Lengths, parse_lengths, variation
from capplan.work.step import is_encoder

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("estimate")
@answers(estimate_view)
@of_a_setting
def command(
    isl: Annotated[str, typer.Option("--isl", help="Input tokens: 1024, 512-2048 or 512:0.3,1024:0.7.")],
    setting: dict[str, Any],
    osl: Annotated[
        str | None, typer.Option("--osl", help="Output tokens, as for --isl; 0: the model only reads.")
    ] = None,
    concurrency: Annotated[str | None, typer.Option("--concurrency", help="Requests at once (closed loop).")] = None,
    request_rate: Annotated[str | None, typer.Option("--request-rate", help="Requests a second (open loop).")] = None,
    prefix_hit_rate: Annotated[
        str, typer.Option("--prefix-hit-rate", help="Share of the input whose cache is there already.")
    ] = "0",
    ttft: Annotated[str | None, typer.Option("--ttft", help="The most to the first token: 500ms, 2s.")] = None,
    tpot: Annotated[str | None, typer.Option("--tpot", help="The most a token: 30ms.")] = None,
    max_num_seqs: Annotated[
        str | None, typer.Option("--max-num-seqs", help="The most sequences that run at once.")
    ] = None,
    waves: Annotated[
        str | None, typer.Option("--waves", help="Requests of each client, of which the first come at once.")
    ] = None,
    speculative_tokens: Annotated[str, typer.Option("--speculative-tokens", help="Tokens drafted a round.")] = "0",
    acceptance: Annotated[
        str | None, typer.Option("--acceptance", help="Chance that a drafted token is accepted: 0.8.")
    ] = None,
    draft_model: Annotated[
        str | None, typer.Option("--draft-model", help="A model that drafts [the model's MTP layers].")
    ] = None,
    medusa_heads: Annotated[str, typer.Option("--medusa-heads", help="Medusa heads that draft instead.")] = "0",
    probe: Annotated[
        Path | None, typer.Option("--probe", help="CSV or a benchmark's result: points of this very server.")
    ] = None,
    disaggregate: Annotated[
        str | None, typer.Option("--disaggregate", help="Pools of replicas: 2P4D prefills on 2, decodes on 4.")
    ] = None,
    kv_transfer_bandwidth: Annotated[
        str | None, typer.Option("--kv-transfer-bandwidth", help="Of each GPU, between the pools [links, or 50GB/s].")
    ] = None,
) -> Answer[EstimateResult] | Answer[EncodeResult]:
    """TTFT, TPOT and throughput of a server in steady state, each with an 80 % interval, and when it queues."""
    found = resolve_setting(**setting)
    prompt, output = parse_lengths(isl, "--isl"), output_of(found, osl)
    load = LoadRequest(
        isl=prompt.mean,
        osl=output.mean if output else 0.0,
        isl_variation=variation(prompt),
        osl_variation=variation(output) if output else 0.0,
        concurrency=parse_number(concurrency, "--concurrency") if concurrency else None,
        request_rate=parse_number(request_rate, "--request-rate") if request_rate else None,
        prefix_hit_rate=parse_number(prefix_hit_rate, "--prefix-hit-rate"),
        ttft=parse_seconds(ttft, "--ttft") if ttft else None,
        tpot=parse_seconds(tpot, "--tpot") if tpot else None,
        max_num_seqs=parse_integer(max_num_seqs, "--max-num-seqs", least=1) if max_num_seqs else None,
        waves=parse_integer(waves, "--waves", least=1) if waves else None,
    )
    drafting = drafting_of(speculative_tokens, acceptance, draft_model, medusa_heads)
    pools = pools_of(disaggregate, kv_transfer_bandwidth)
    return answered(found, load, drafting, pools, probe)


def output_of(setting: Setting, text: str | None) -> Lengths | None:
    """The lengths of outputs; None where the model only reads.

    Raises:
        UsageError: a model that writes, and no length.
    """
    if is_encoder(setting.spec) or (text is not None and text.strip() == "0"):
        return None
    if text is None:
        raise UsageError("how many tokens come out?", where="--osl", hint="0 where the model only reads")
    return parse_lengths(text, "--osl")


def pools_of(disaggregate: str | None, bandwidth: str | None) -> PoolsRequest | None:
    """The pools from the flags as written; None: one replica does all."""
    if disaggregate is None:
        if bandwidth is not None:
            raise UsageError("which pools?", where="--kv-transfer-bandwidth", hint="give --disaggregate, such as 2P4D")
        return None
    rate = parse_bandwidth(bandwidth, "--kv-transfer-bandwidth") if bandwidth else None
    return PoolsRequest(*parse_pools(disaggregate), rate)


def drafting_of(tokens: str, acceptance: str | None, draft_model: str | None, heads: str) -> DraftRequest | None:
    """How the server drafts, from the flags as written; None: it does not.

    Raises:
        UsageError: one flag without the others that it needs.
    """
    drafted, medusa = parse_integer(tokens, "--speculative-tokens"), parse_integer(heads, "--medusa-heads")
    if not drafted and not medusa:
        for flag, value in (("--acceptance", acceptance), ("--draft-model", draft_model)):
            if value is not None:
                raise UsageError("how many tokens are drafted a round?", where=flag, hint="give --speculative-tokens")
        return None
    if acceptance is None:
        raise UsageError("how often is a drafted token accepted?", where="--acceptance", hint="such as 0.8")
    return DraftRequest(drafted, parse_number(acceptance, "--acceptance"), draft_model, medusa)
