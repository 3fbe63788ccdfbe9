"""How plans look: the cheapest first, what each is told, and why the others fail; or what starts one of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle

from capplan.cost.amounts import shown_usd
from capplan.describe.gpu_catalog import load_gpu
from capplan.errors import UsageError
from capplan.planner.launch import Launch
from capplan.planner.pareto import pareto_front
from capplan.questions.answer import Answer
from capplan.questions.plan_result import PlanResult, PlanRow
from capplan.questions.pools import pools_label
from capplan.report.charts import MARKS, Axis, Chart, Series
from capplan.report.deployed import Deployed
from capplan.report.engine_flags import emit
from capplan.report.tables import Column, Facts, Section, Table, View


def plan_view(answer: Answer[PlanResult]) -> View:
    """Plans and rejections; with ``--emit`` the text that starts the chosen row."""
    result, inputs = answer.result, answer.inputs
    if inputs.get("emit"):
        return View("", verbatim=emit(inputs["emit"], deployed(chosen_row(result, inputs["row"]))))
    sections: list[Section] = []
    if result.plans:
        sections += [_plans(result), _commands(result.plans[0])]
    sections += [_rejected(result), *_misses(result)]
    return View(_headline(answer), sections)


def chosen_row(result: PlanResult, row: int) -> PlanRow:
    """The plan of a row, counted from 1.

    Raises:
        UsageError: there is no such row.
    """
    if not result.plans:
        raise UsageError("no deployment holds the limits", where="--emit", hint="without --emit the answer says why")
    if not 1 <= row <= len(result.plans):
        raise UsageError(f"there are {len(result.plans)} plans, no row {row}", where="--row")
    return result.plans[row - 1]


def deployed(row: PlanRow) -> Deployed:
    """A row as what the emitters take."""
    parallel, settings, formats = row.parallel, row.settings, row.formats
    launch = Launch(
        engine=row.engine,
        model=row.model_id,
        tp=parallel.tensor_parallel_size,
        pp=parallel.pipeline_parallel_size,
        dp=parallel.data_parallel_size,
        ep=parallel.expert_parallel,
        max_model_len=settings.max_model_len,
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        memory_fraction=settings.gpu_memory_utilization,
        kv_cache_dtype=formats.kv_cache_dtype,
        quantization=formats.weight_dtype,
        gpus_per_node=row.gpus_per_node,
        drafted=row.drafting.speculative_tokens if row.drafting else 0,
        draft_model=row.drafting.draft_model_id if row.drafting else None,
        role="decode" if row.pools else "both",
    )
    headline = f"{row.model_id} on {row.gpus_per_replica} x {row.gpu}, {row.replicas} replicas"
    headline += f", {shown_usd(row.cost_per_month)} a month"
    plan = Deployed(launch, row.replicas, row.gpu, load_gpu(row.gpu).vendor, headline)
    if row.pools is None:
        return plan
    own = row.pools
    return replace(plan, prefill=own.prefill_replicas, decode=own.decode_replicas, units=own.units)


def division(row: PlanRow) -> str:
    """The parallel sizes in a few letters."""
    parallel = row.parallel
    parts = [f"tp{parallel.tensor_parallel_size}"]
    parts += [f"pp{parallel.pipeline_parallel_size}"] if parallel.pipeline_parallel_size > 1 else []
    parts += [f"dp{parallel.data_parallel_size}"] if parallel.data_parallel_size > 1 else []
    return " ".join([*parts, *(["ep"] if parallel.expert_parallel else [])])


def pools_of(row: PlanRow) -> str:
    """The pools as a user writes them, and how many pairs of them."""
    own = row.pools
    if own is None:
        return "-"
    label = pools_label(own.prefill_replicas, own.decode_replicas)
    return label if own.units == 1 else f"{own.units} × {label}"


def plan_chart(answer: Answer[PlanResult]) -> Chart:
    """Cost against time per token, a mark for each plan; those that no other beats in both are joined."""
    plans = answer.result.plans
    front = sorted(pareto_front(plans, _place), key=_place)
    joined = Series("no other beats these in both", [_place(row) for row in front], faint=True)
    series = [joined] if len(front) > 1 else []
    for place, (row, mark) in enumerate(zip(plans, cycle(MARKS), strict=False), start=1):
        series.append(Series(f"{place}: {row.gpus:g} × {row.gpu}, {row.engine}", [_place(row)], line=False, mark=mark))
    limits = [(name, answer.inputs[name.lower()]) for name in ("TTFT", "TPOT")]
    notes = [f"{name} at most {1e3 * limit:g} ms" for name, limit in limits if limit is not None]
    return Chart(f"Plans: {_subject(answer)}", Axis("TPOT, ms"), Axis("$ for 1M tokens"), series, notes)


def _place(row: PlanRow) -> tuple[float, float]:
    return row.tpot_ms, float(row.cost_per_1m_tokens)


def _headline(answer: Answer[PlanResult]) -> str:
    result, subject = answer.result, _subject(answer)
    if not result.plans:
        return f"{subject}: no deployment holds the limits"
    best = result.plans[0]
    return f"{subject}: {best.gpus:g} × {best.gpu}, {shown_usd(best.cost_per_month)} a month"


def _subject(answer: Answer[PlanResult]) -> str:
    """What is served, to whom."""
    inputs = answer.inputs
    load = f"{inputs['request_rate']:g} requests/s" if inputs["request_rate"] else f"{inputs['concurrency']:g} clients"
    return f"{inputs['model']} for {load} of {inputs['isl']:g} + {inputs['osl']:g} tokens"


def _plans(result: PlanResult) -> Table:
    drafting, pooled = any(row.drafting for row in result.plans), any(row.pools for row in result.plans)
    columns = [
        Column("", "row", "integer"),
        Column("GPUs", "gpus", "integer"),
        Column("of", "gpu"),
        Column("replica", "division"),
        Column("engine", "engine"),
        Column("weights", "weights"),
        Column("KV", "kv"),
        *([Column("drafts", "drafts")] if drafting else []),
        *([Column("pools", "pools")] if pooled else []),
        Column("replicas", "replicas", "integer"),
        Column("TTFT ms", "ttft_ms", "quantity"),
        Column("TPOT ms", "tpot_ms", "quantity"),
        Column("used", "utilisation", "percent"),
        Column("$/1M", "cost_per_1m_tokens", "usd"),
        Column("$/month", "cost_per_month", "usd"),
        Column("at", "provider"),
        Column("front", "pareto"),
    ]
    rows = []
    for place, row in enumerate(result.plans, start=1):
        formats = row.formats
        drafts = [str(row.drafting.speculative_tokens) if row.drafting else "-"] if drafting else []
        pools = [pools_of(row)] if pooled else []
        built = [
            int(row.gpus) if row.gpus == int(row.gpus) else row.gpus,
            row.gpu,
            division(row),
            row.engine,
            formats.weights,
            formats.kv_cache_dtype,
            *drafts,
            *pools,
            row.replicas,
        ]
        figures = [row.ttft_ms, row.tpot_ms, row.utilisation, row.cost_per_1m_tokens, row.cost_per_month]
        rows.append([place, *built, *figures, row.provider or "given", "*" if row.pareto else ""])
    return Table(columns, rows, title="Plans, the best of each device (* on the Pareto front of cost, TPOT and TTFT)")


def _commands(row: PlanRow) -> Facts:
    pairs = [("start", row.launch)]
    if row.pools:
        pairs = [("prefill", row.pools.prefill_launch), ("decode", row.launch), ("router", row.pools.router)]
        pairs += [("cache moved in", f"{row.pools.kv_transfer_ms:,.3g} ms, part of TTFT")]
        pairs += [("prefill pool busy", f"{row.pools.prefill_utilisation:.0%}")]
    pairs += [("check", command) for command in row.check]
    pairs += [("note", note) for note in row.notes]
    return Facts(pairs, title="The first of them")


def _rejected(result: PlanResult) -> Table:
    columns = [Column("why not", "reason"), Column("options", "options", "integer")]
    title = f"Of {result.options:,} options {result.worked_out:,} were worked out; the others fail"
    return Table(columns, [[row.reason, row.options] for row in result.rejected], title=title)


def _misses(result: PlanResult) -> list[Section]:
    columns = [Column("why not", "reason"), Column("nearest misses", "option"), Column("", "detail")]
    rows = [[row.reason, miss.option, miss.detail] for row in result.rejected for miss in row.nearest if miss.detail]
    return [Table(columns, rows, title="Nearest misses")] if rows else []
