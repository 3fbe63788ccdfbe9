"""``capplan simulate``: a server's scheduler, block by block and step by step."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from capplan.cli.output import answers
from capplan.cli.progress import bar
from capplan.cli.setting import of_a_setting
from capplan.describe.quantities import parse_integer, parse_parameters, parse_seconds, parse_tokens
from capplan.errors import UsageError
from capplan.questions.answer import Answer
from capplan.questions.simulate import simulate
from capplan.questions.simulate_request import SimulatedLoad
from capplan.questions.simulate_result import SimulateResult
from capplan.report.views.simulate import simulate_chart, simulate_view
from capplan.serving.server import ServerOptions

app = typer.Typer(add_completion=False, rich_markup_mode=None)

Text = str | None
_LOAD, _PREFIX, _SCHEDULER, _LIMITS = "Load", "Shared prefixes", "Scheduler", "Limits of a good request"


def _option(*names: str, help: str, panel: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel)


@app.command("simulate")
@answers(simulate_view, chart=simulate_chart)
@of_a_setting
def command(
    setting: dict[str, Any],
    isl: Annotated[Text, _option("--isl", help="Input tokens: 1024, 512-2048 or 512:0.3,1k:0.7.", panel=_LOAD)] = None,
    osl: Annotated[Text, _option("--osl", help="Output tokens, as for --isl.", panel=_LOAD)] = None,
    trace: Annotated[
        Path | None, _option("--trace", help="CSV: arrival,isl,osl[,prefix_id,prefix_tokens].", panel=_LOAD)
    ] = None,
    arrivals: Annotated[Text, _option("--arrivals", help="closed, poisson, uniform or gamma.", panel=_LOAD)] = None,
    concurrency: Annotated[Text, _option("--concurrency", help="Clients of a closed loop.", panel=_LOAD)] = None,
    rate: Annotated[Text, _option("--rate", "--request-rate", help="Requests a second.", panel=_LOAD)] = None,
    burstiness: Annotated[
        str, _option("--burstiness", help="Shape of gamma arrivals: below 1 burstier than Poisson.", panel=_LOAD)
    ] = "1",
    think: Annotated[str, _option("--think", help="From an answer to the client's next request.", panel=_LOAD)] = "0",
    requests: Annotated[
        str, _option("--requests", "--num-prompts", help="How many: 1000, 100K.", panel=_LOAD)
    ] = "1000",
    seed: Annotated[str, _option("--seed", help="Of all draws.", panel=_LOAD)] = "0",
    warmup: Annotated[str, _option("--warmup", help="Requests that the figures leave out.", panel=_LOAD)] = "0",
    prefix_tokens: Annotated[str, _option("--prefix-tokens", help="Tokens of a shared prefix.", panel=_PREFIX)] = "0",
    prefixes: Annotated[str, _option("--prefixes", help="How many there are.", panel=_PREFIX)] = "1",
    prefix_share: Annotated[
        str, _option("--prefix-share", help="Share of the requests with one.", panel=_PREFIX)
    ] = "1",
    prefix_skew: Annotated[
        str, _option("--prefix-skew", help="s: the i-th is chosen in proportion to i^-s.", panel=_PREFIX)
    ] = "0",
    engine_version: Annotated[
        Text, _option("--engine-version", help="A version or a date [the latest].", panel=_SCHEDULER)
    ] = None,
    max_num_seqs: Annotated[
        Text, _option("--max-num-seqs", help="Sequences at once, at most.", panel=_SCHEDULER)
    ] = None,
    max_model_len: Annotated[
        Text, _option("--max-model-len", help="The longest request [the load's].", panel=_SCHEDULER)
    ] = None,
    kv_blocks: Annotated[Text, _option("--kv-blocks", help="Blocks of the pool [what fits].", panel=_SCHEDULER)] = None,
    enable_chunked_prefill: Annotated[
        bool, _option("--enable-chunked-prefill", help="Divide prompts over steps.", panel=_SCHEDULER)
    ] = False,
    no_enable_chunked_prefill: Annotated[
        bool, _option("--no-enable-chunked-prefill", help="Don't.", panel=_SCHEDULER)
    ] = False,
    enable_prefix_caching: Annotated[
        bool, _option("--enable-prefix-caching", help="Look cached prefixes up.", panel=_SCHEDULER)
    ] = False,
    no_enable_prefix_caching: Annotated[
        bool, _option("--no-enable-prefix-caching", help="Don't.", panel=_SCHEDULER)
    ] = False,
    preemption: Annotated[
        Text, _option("--preemption-mode", help="recompute or swap [the engine's].", panel=_SCHEDULER)
    ] = None,
    stream_interval: Annotated[
        Text, _option("--stream-interval", help="Tokens of a message to the client.", panel=_SCHEDULER)
    ] = None,
    receive_interval: Annotated[
        Text, _option("--scheduler-recv-interval", help="Decode steps between looks at the queue.", panel=_SCHEDULER)
    ] = None,
    batch_wait_steps: Annotated[
        Text, _option("--batch-wait-timeout-iters", help="Steps that prompts wait for company.", panel=_SCHEDULER)
    ] = None,
    cuda_graph_padding: Annotated[
        bool, _option("--cuda-graph-padding", help="Pad batches to the next graph (TensorRT-LLM).", panel=_SCHEDULER)
    ] = False,
    ttft: Annotated[Text, _option("--ttft", help="Time to first token, at most: 500ms, 2s.", panel=_LIMITS)] = None,
    tpot: Annotated[Text, _option("--tpot", help="Time per output token, at most: 50ms.", panel=_LIMITS)] = None,
    e2el: Annotated[Text, _option("--e2el", help="Latency of the whole request, at most.", panel=_LIMITS)] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write one row a request to this CSV file.")] = None,
) -> Answer[SimulateResult]:
    """Simulate a server: requests arrive, are scheduled step by step, hold blocks of the KV cache and finish.

    TTFT, TPOT, ITL and latency with percentiles, goodput, KV usage and preemptions; the same seed gives the same.
    """
    load = SimulatedLoad(
        isl=isl,
        osl=osl,
        requests=parse_parameters(requests, "--requests"),
        arrivals=arrivals,  # type: ignore[arg-type]  # resolve_load refuses what is none
        concurrency=parse_integer(concurrency, "--concurrency", least=1) if concurrency else None,
        request_rate=_number(rate, "--request-rate") if rate else None,
        burstiness=_number(burstiness, "--burstiness"),
        think=parse_seconds(think, "--think", positive=False),
        trace=trace,
        prefixes=parse_integer(prefixes, "--prefixes", least=1),
        prefix_tokens=parse_tokens(prefix_tokens, "--prefix-tokens", least=0),
        prefix_share=_number(prefix_share, "--prefix-share"),
        prefix_skew=_number(prefix_skew, "--prefix-skew"),
        seed=parse_integer(seed, "--seed"),
        warmup=parse_integer(warmup, "--warmup"),
        ttft=parse_seconds(ttft, "--ttft") if ttft else None,
        tpot=parse_seconds(tpot, "--tpot") if tpot else None,
        e2el=parse_seconds(e2el, "--e2el") if e2el else None,
    )
    server = ServerOptions(
        chunked_prefill=_either(enable_chunked_prefill, no_enable_chunked_prefill, "chunked-prefill"),
        prefix_caching=_either(enable_prefix_caching, no_enable_prefix_caching, "prefix-caching"),
        preemption=_preemption(preemption),
        stream_interval=_count(stream_interval, "--stream-interval"),
        receive_interval=_count(receive_interval, "--scheduler-recv-interval"),
        batch_wait_steps=_count(batch_wait_steps, "--batch-wait-timeout-iters", least=0),
        graph_padding=True if cuda_graph_padding else None,
    )
    asked: dict[str, Any] = {
        "load": load,
        "server": server,
        "engine_version": engine_version,
        "max_num_seqs": _count(max_num_seqs, "--max-num-seqs"),
        "max_model_len": parse_tokens(max_model_len, "--max-model-len") if max_model_len else None,
        "kv_blocks": _count(kv_blocks, "--kv-blocks"),
        "out": out,
    }
    if not sys.stderr.isatty():
        return simulate(**asked, **setting)
    with bar("no figures: the simulation was interrupted") as say:
        return simulate(**asked, progress=lambda done, total: say(done / total, f"{done:,} requests"), **setting)


def _count(text: Text, flag: str, *, least: int = 1) -> int | None:
    return None if text is None else parse_integer(text, flag, least=least)


def _either(on: bool, off: bool, name: str) -> bool | None:
    if on and off:
        raise UsageError("give either, not both", where=f"--enable-{name}, --no-enable-{name}")
    return True if on else False if off else None


def _preemption(text: Text) -> Any:
    if text is None or text in ("recompute", "swap"):
        return text
    raise UsageError(f"{text[:40]!r} is neither recompute nor swap", where="--preemption-mode")


def _number(text: str, flag: str) -> float:
    """A plain decimal number, not negative."""
    try:
        value = float(text) if len(text) <= 20 else float("nan")
    except ValueError:
        value = float("nan")
    if not 0 <= value <= 1e9:
        raise UsageError(f"{text[:40]!r} is not a number from 0 to 1e9", where=flag)
    return value
