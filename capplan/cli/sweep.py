"""``capplan sweep``: every load on every deployment, into a file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from capplan.cli.money import (
    Commitment,
    Day,
    MaxNumSeqs,
    PrefixHitRate,
    PricePerGpuHour,
    Provider,
    Region,
    Text,
    option,
    pricing_of,
    share_of,
)
from capplan.cli.options import HardwareDir, IgnoreKey, Model, ModelsDir, Online
from capplan.cli.output import answers
from capplan.cli.setting import ProfilesDir
from capplan.describe.quantities import parse_integer, parse_list, parse_tokens
from capplan.errors import UsageError
from capplan.questions.answer import Answer
from capplan.questions.plan_request import Folders
from capplan.questions.sweep import SweepResult, chunk_count, one_after_the_other, sweep, sweep_answer
from capplan.questions.sweep_dask import dask_scheduler
from capplan.questions.sweep_request import SweepRequest
from capplan.report.sweep_files import write_sweep
from capplan.report.views.sweep import sweep_chart, sweep_table, sweep_view

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_AXES, _RUN = "Axes: lists 1,8,64, ranges 1:512 by doubling, or 1:512:40 in so many steps", "How it runs"


@app.command("sweep")
@answers(sweep_view, table=sweep_table, chart=sweep_chart)
def command(
    model: Model = None,
    isl: Annotated[Text, option("--isl", help="Input tokens: 512:32k.", panel=_AXES)] = None,
    osl: Annotated[Text, option("--osl", help="Output tokens.", panel=_AXES)] = None,
    concurrency: Annotated[Text, option("--concurrency", help="Clients: 1:512.", panel=_AXES)] = None,
    gpu: Annotated[Text, option("--gpu", help="Devices: h100,h200 [all of the catalog].", panel=_AXES)] = None,
    engine: Annotated[str, option("--engine", help="vllm, sglang, trtllm.", panel=_AXES)] = "vllm",
    tensor_parallel_size: Annotated[
        Text, option("--tensor-parallel-size", "-tp", help="Ranks that share every layer [all that can].", panel=_AXES)
    ] = None,
    pipeline_parallel_size: Annotated[
        Text, option("--pipeline-parallel-size", "-pp", help="Stages [all that can].", panel=_AXES)
    ] = None,
    data_parallel_size: Annotated[
        Text, option("--data-parallel-size", "-dp", help="Attention's groups [all that can].", panel=_AXES)
    ] = None,
    enable_expert_parallel: Annotated[
        bool, option("--enable-expert-parallel", "-ep", help="Only with experts divided by number.", panel=_AXES)
    ] = False,
    no_expert_parallel: Annotated[
        bool, option("--no-enable-expert-parallel", help="Only without.", panel=_AXES)
    ] = False,
    weight_formats: Annotated[
        Text, option("--weight-formats", help="checkpoint, bf16, fp8, ... [what is published].", panel=_AXES)
    ] = None,
    kv_formats: Annotated[str, option("--kv-formats", help="auto, bf16, fp8.", panel=_AXES)] = "auto",
    max_num_batched_tokens: Annotated[
        str, option("--max-num-batched-tokens", help="Tokens of a step.", panel=_AXES)
    ] = "8192",
    prefix_hit_rate: PrefixHitRate = None,
    max_num_seqs: MaxNumSeqs = None,
    max_nodes: Annotated[str, option("--max-nodes", help="Hosts of a replica.", panel=_AXES)] = "1",
    price_per_gpu_hour: PricePerGpuHour = None,
    provider: Provider = None,
    commitment: Commitment = "on-demand",
    region: Region = None,
    on: Day = None,
    out: Annotated[Path | None, option("--out", help="A .csv, .jsonl or .parquet for every row.", panel=_RUN)] = None,
    restart: Annotated[bool, option("--restart", help="Begin anew a sweep that was cut off.", panel=_RUN)] = False,
    scheduler: Annotated[
        Text, option("--scheduler", help="Dask: local, local:4 or tcp://host:8786 [this process].", panel=_RUN)
    ] = None,
    online: Online = False,
    models_dir: ModelsDir = [],
    hardware_dir: HardwareDir = [],
    profiles_dir: ProfilesDir = [],
    ignore_key: IgnoreKey = [],
) -> Answer[SweepResult]:
    """Every load on every deployment: memory, TTFT, TPOT and cost; all rows into a file, the front on the screen."""
    if model is None:
        raise UsageError("which model?", where="--model", hint="give --model")
    if enable_expert_parallel and no_expert_parallel:
        raise UsageError("give either, not both", where="-ep, --no-enable-expert-parallel")
    request = SweepRequest(
        model=model,
        isl=_axis(isl, "--isl", parse_tokens),
        osl=_axis(osl, "--osl", parse_tokens),
        concurrency=_axis(concurrency, "--concurrency", parse_integer),
        prefix_hit_rate=float(share_of(prefix_hit_rate, "--prefix-hit-rate")) if prefix_hit_rate else 0.0,
        gpus=_names(gpu) if gpu else (),
        engines=_names(engine),
        tensor_parallel=_sizes(tensor_parallel_size, "-tp"),
        pipeline_parallel=_sizes(pipeline_parallel_size, "-pp"),
        data_parallel=_sizes(data_parallel_size, "-dp"),
        expert_parallel=True if enable_expert_parallel else False if no_expert_parallel else None,
        weight_formats=_names(weight_formats) if weight_formats else (),
        kv_formats=_names(kv_formats),
        token_budgets=tuple(parse_list(max_num_batched_tokens, parse_tokens, "--max-num-batched-tokens")),
        max_num_seqs=parse_tokens(max_num_seqs, "--max-num-seqs") if max_num_seqs else None,
        max_nodes=parse_integer(max_nodes, "--max-nodes", least=1, most=64),
        pricing=pricing_of(price_per_gpu_hour, provider, commitment, region, on),
        folders=Folders(
            models=tuple(models_dir),
            hardware=tuple(hardware_dir),
            profiles=tuple(profiles_dir),
            ignore_keys=tuple(ignore_key),
            online=online,
        ),
    )
    schedule = dask_scheduler(scheduler) if scheduler else one_after_the_other
    if out is None:
        return sweep(request, scheduler=schedule)
    with Bar(chunk_count(request)) as bar:
        summary = write_sweep(request, out, scheduler=schedule, restart=restart, told=bar)
    return sweep_answer(request, summary, str(out))


@dataclass
class Bar:
    """A progress bar on stderr, where a person may see it.

    Args:
        whole: chunks in all.
    """

    whole: int

    def __enter__(self) -> Bar:
        self._bar: Any = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("sweep", total=self.whole)
        return self

    def __call__(self, done: int) -> None:
        """So many chunks are done."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


def _axis(text: Text, flag: str, parse: Callable[..., int]) -> tuple[int, ...]:
    """The values of an axis: a list, a range by doubling, or a range in so many geometric steps."""
    if text is None:
        raise UsageError("which values?", where=flag, hint="a list 1,8,64 or a range 1:512")
    parts = text.split(":")
    if len(parts) == 1:
        return tuple(dict.fromkeys(parse_list(text, lambda item, name: parse(item, name, least=1), flag)))
    if len(parts) > 3:
        raise UsageError(f"{text[:40]!r} is no range", where=flag, hint="write 1:512 or 1:512:40")
    first, last = parse(parts[0], flag, least=1), parse(parts[1], flag, least=1)
    if last < first:
        raise UsageError(f"{text[:40]!r} ends before it begins", where=flag)
    if len(parts) == 3:
        return _steps(first, last, parse_integer(parts[2], flag, least=1, most=100_000))
    values = [first]
    while values[-1] * 2 < last:
        values.append(values[-1] * 2)
    return tuple(dict.fromkeys([*values, last]))


def _steps(first: int, last: int, count: int) -> tuple[int, ...]:
    """So many values from the first to the last in equal ratios, without repeats."""
    if count == 1:
        return (first,)
    ratio = (last / first) ** (1 / (count - 1))
    return tuple(dict.fromkeys([round(first * ratio**place) for place in range(count - 1)] + [last]))


def _sizes(text: Text, flag: str) -> tuple[int, ...]:
    return tuple(parse_list(text, lambda item, name: parse_integer(item, name, least=1), flag)) if text else ()


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
