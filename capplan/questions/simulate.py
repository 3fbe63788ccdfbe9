"""What does a server do request by request: a simulation of its scheduler, block by block and step by step."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from capplan.describe.batching import Batching, batching_rules
from capplan.describe.files import whole, writing
from capplan.errors import UnsupportedError, UsageError
from capplan.questions.answer import Answer, Explained, Provenance
from capplan.questions.setting import Setting, SettingOptions, resolve_setting
from capplan.questions.setting_memory import fitting_budget
from capplan.questions.simulate_request import ResolvedLoad, SimulatedLoad, resolve_load
from capplan.questions.simulate_result import TIMES, SimulateResult, simulated_result
from capplan.serving.prefix_cache import expected_hit_rate, prefix_savings, reusable_blocks
from capplan.serving.replica import EngineSettings, Replica
from capplan.serving.requests import SharedPrefixes
from capplan.serving.server import ServerOptions, server_clock, server_config
from capplan.serving.service_metrics import Log, Objectives
from capplan.serving.simulator import Simulation, SimulatorConfig
from capplan.serving.simulator import simulate as run_simulation
from capplan.work.step import is_encoder

if TYPE_CHECKING:
    from capplan.describe.gpu import GpuSpec
    from capplan.describe.model import ModelSpec

Progress = Callable[[int, int], None]


def simulate(
    model: str | ModelSpec,
    gpu: str | GpuSpec | None = None,
    *,
    load: SimulatedLoad,
    server: ServerOptions | None = None,
    engine_version: str | None = None,
    max_num_seqs: int | None = None,
    max_model_len: int | None = None,
    kv_blocks: int | None = None,
    out: Path | None = None,
    progress: Progress | None = None,
    **options: Unpack[SettingOptions],
) -> Answer[SimulateResult]:
    """Serve a trace or generated requests, iteration by iteration; see `capplan.serving.simulator`.

    Args:
        model: a reference as for ``--model``, or a description.
        gpu: a device's name, file or description.
        load: what clients ask.
        server: what is to be other than the engine's defaults.
        engine_version: a version or date of the engine; None: the latest described.
        max_num_seqs: the most sequences at once.
        max_model_len: the longest request; None: the load's longest.
        kv_blocks: blocks of the pool, instead of what is left beside the weights.
        out: a CSV file for one row a request.
        progress: called with (finished, all) requests from time to time.
        options: the deployment, as for `resolve_setting`.

    Raises:
        CapplanError: something that does not exist, does not fit, or that no profile stands for.
    """
    setting = resolve_setting(model, gpu, **options)
    setting = replace(setting, deployment=replace(setting.deployment, engine_version=engine_version))
    if not setting.corrected:
        raise UnsupportedError(
            f"no measured profile stands for {setting.gpu.name}: there are bounds, and no prediction of serving",
            where="--gpu",
            hint="capplan roofline gives the bounds; capplan calibrate makes a profile",
        )
    _check_model(setting.spec)
    if is_encoder(setting.spec) and load.trace is None and load.osl is None:
        load = replace(load, osl=1)
    asked, batching = resolve_load(load), batching_rules(setting.deployment.engine, engine_version)
    config, clock, notes = _server(setting, batching, asked, server, max_num_seqs, max_model_len, kv_blocks)
    groups = setting.sharding.dp
    done = run_simulation(asked.arrivals(groups), clock, config, progress)
    if out is not None:
        write_requests(out, done.log)
    return Answer(
        command="simulate",
        inputs={
            **setting.inputs,
            **asked.inputs,
            "engine_version": batching.version,
            "max_num_seqs": config.scheduler.max_num_seqs,
            "max_model_len": config.scheduler.max_model_len,
            **_scheduling(config),
        },
        result=simulated_result(setting, asked, config, done),
        explanation=(*_explain(config, done), *_explain_prefixes(asked, config, done)),
        assumptions=(*setting.assumptions, *notes, *_assumptions(setting, batching, config)),
        warnings=(*setting.warnings, *_warnings(asked, done)),
        sources=(*setting.sources, *dict.fromkeys(batching.sources.values())),
        provenance=_provenance(setting),
    )


def _check_model(spec: ModelSpec) -> None:
    """Refuse what the simulated scheduler does not know: a decoder that waits for an encoder."""
    if spec.encoder is not None:
        raise UnsupportedError(
            f"{spec.name} encodes before it decodes, which the simulated scheduler does not know",
            where="--model",
            hint="capplan prefill and capplan decode time its steps",
        )


def _server(
    setting: Setting,
    batching: Batching,
    asked: ResolvedLoad,
    options: ServerOptions | None,
    max_num_seqs: int | None,
    max_model_len: int | None,
    kv_blocks: int | None,
) -> tuple[SimulatorConfig, Any, tuple[str, ...]]:
    """(the server, its clock, notes of its memory)."""
    if is_encoder(setting.spec) and asked.osl.longest > 1:
        raise UsageError(f"{setting.spec.name} is an encoder: it generates nothing", where="--osl", hint="--osl 1")
    budget = fitting_budget(setting, max_model_len or asked.longest, max_num_seqs)
    chosen = options or ServerOptions()
    settings = EngineSettings(budget.plan.max_num_batched_tokens, budget.plan.max_num_seqs)
    replica = Replica(setting.spec, setting.machine, setting.sharding, setting.formats, settings)
    config = server_config(budget, batching.rules, replica, chosen)
    if kv_blocks is not None:
        if kv_blocks < 1:
            raise UsageError(f"must be at least 1, not {kv_blocks}", where="--kv-blocks")
        config = replace(config, cache=replace(config.cache, blocks=kv_blocks))
    load = asked.load
    objectives = Objectives(load.ttft, load.tpot, load.e2el)
    config = replace(config, warmup=load.warmup // setting.sharding.dp, objectives=objectives)
    return config, server_clock(replica, budget.plan, batching.rules, chosen), budget.notes


def write_requests(path: Path, log: Log) -> None:
    """One row a request, times in seconds.

    Raises:
        UsageError: the file cannot be written.
    """
    with writing(path, "--out"), whole(path) as part, part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Log.COLUMNS)
        writer.writerows(log.rows())


def _scheduling(config: SimulatorConfig) -> dict[str, Any]:
    """The scheduler's settings as they stand among an answer's inputs."""
    scheduler = config.scheduler
    return {
        "policy": scheduler.policy,
        "step_tokens": scheduler.step_tokens,
        "chunked_prefill": scheduler.chunked_prefill,
        "admission": scheduler.admission,
        "preemption": scheduler.preemption,
        "prefix_caching": scheduler.prefix_caching,
        "steps_ahead": config.steps_ahead,
        "stream_interval": config.stream_interval,
        "receive_interval": config.receive_interval,
        "batch_wait_steps": scheduler.batch_wait_steps,
    }


def _assumptions(setting: Setting, batching: Batching, config: SimulatorConfig) -> list[str]:
    notes = [
        f"scheduling as in {batching.engine} {batching.version}; every output has its length, whatever the model says"
    ]
    if setting.sharding.dp > 1:
        notes.append("data-parallel groups are alike and take requests in turn: one of them is simulated")
    if setting.sharding.pp > 1:
        notes.append("a round of the pipeline's micro-batches is taken as one step")
    if config.cache.block_size > 1 and setting.deployment.engine == "sglang":
        notes.append(f"slots for tokens are counted in blocks of {config.cache.block_size}")
    return notes


def _warnings(asked: ResolvedLoad, done: Simulation) -> list[str]:
    notes = []
    if done.rejected:
        notes.append(f"{done.rejected} requests are longer than the server can ever serve, and were rejected")
    if done.preemptions > done.finished:
        notes.append(
            f"{done.preemptions} preemptions for {done.finished} requests: the pool is too small for this load"
        )
    if asked.pattern != "closed" and _falls_behind(done):
        notes.append("those who come later wait longer and longer: the server cannot keep up with this rate")
    return notes


def _falls_behind(done: Simulation) -> bool:
    """Whether the last fifth of the arrivals waits three times as long as the second fifth, and for half a service."""
    waits = [queue for _, queue in sorted(zip(done.log.arrival, done.log.queue, strict=True))]
    fifth = len(waits) // 5
    if fifth < 10:
        return False
    early, late = sum(waits[fifth : 2 * fifth]), sum(waits[-fifth:])
    service = (sum(done.log.e2e) - sum(done.log.queue)) / len(waits)
    return late > 3 * early and late / fifth > service / 2


def _provenance(setting: Setting) -> dict[str, Provenance]:
    kernels = setting.machine.kernels
    basis: Provenance = "extrapolated" if kernels is not None and kernels.carried else "fitted"
    names = [f"mean_{name}_ms" for name in TIMES]
    names += ["request_throughput", "output_throughput", "total_token_throughput", "mean_step_ms", "kv_blocks"]
    return dict.fromkeys(names, basis)


def _explain(config: SimulatorConfig, done: Simulation) -> list[Explained]:
    cache, finished = config.cache, max(1, done.finished)
    latency = sum(done.log.e2e) / len(done.log.e2e)
    rate = done.finished / done.duration
    return [
        Explained(
            "KV pool", "N · b", f"{cache.blocks} · {cache.block_size}", cache.blocks * cache.block_size, "tokens"
        ),
        Explained("mean step", "busy time / steps", f"{done.busy:.4g} / {done.steps}", done.busy / done.steps, "s"),
        Explained("requests in the system", "λ · W", f"{rate:.4g} · {latency:.4g}", rate * latency, ""),
        Explained("they run", "∫ running dt / busy time", "", done.mean_running, ""),
        Explained(
            "prompt tokens computed",
            "Σ chunks",
            f"{done.prompt_tokens} asked, {done.recomputed_tokens} positions lost to preemption",
            done.computed_tokens,
            "tokens",
        ),
        Explained("steps a request", "steps / requests", f"{done.steps} / {finished}", done.steps / finished, ""),
        Explained("blocks in use", "∫ blocks dt / busy time", f"of {cache.blocks}", done.mean_used_blocks, "blocks"),
    ]


def _explain_prefixes(asked: ResolvedLoad, config: SimulatorConfig, done: Simulation) -> list[Explained]:
    """What the closed forms say of shared prefixes, beside what the simulation found."""
    load, size = asked.load, config.cache.block_size
    shared = reusable_blocks(load.prefix_tokens, load.prefix_tokens + 1, size)
    if not shared or not config.scheduler.prefix_caching:
        return []
    prompt, output = done.prompt_tokens / done.finished, done.output_tokens / done.finished
    savings = prefix_savings(load.prefix_tokens, round(prompt), round(output), size, max(1, round(done.mean_running)))
    own = ceil((prompt + output) / size) - shared
    free = config.cache.blocks - done.mean_running * own
    popularity = SharedPrefixes(load.prefixes, load.prefix_tokens, skew=load.prefix_skew).popularity()
    wanted = [load.prefix_share * chance for chance in popularity]
    chance = expected_hit_rate(wanted, free / shared, own / shared)
    return [
        Explained(
            "prefix tokens found, expected",
            "Σ q·(1 - exp(-q·t)) · whole blocks / mean prompt",
            f"{chance:.4g} · {shared * size} / {prompt:.5g}",
            chance * shared * size / prompt,
            "",
            "Che, Tung and Wang (IEEE JSAC 20(7), 2002)",
        ),
        Explained("prefix tokens found", "simulated", "", done.hit_rate, ""),
        Explained(
            "blocks of as many requests as run, one prefix shared",
            "k + n·(⌈(L + O)/b⌉ - k)",
            f"k = {shared}, n = {max(1, round(done.mean_running))}; {savings.blocks_apart} without sharing",
            savings.blocks_together,
            "blocks",
        ),
    ]
