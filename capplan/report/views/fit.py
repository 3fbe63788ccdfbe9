"""How the answer to ``fit`` looks: the verdict first, then where the memory goes, then what the caches hold."""

from __future__ import annotations

from capplan.questions.answer import Answer
from capplan.questions.fit import FitRank, FitResult
from capplan.report.charts import Axis, Bar, BarChart, Part
from capplan.report.tables import Column, Facts, Section, Table, View
from capplan.report.units import GIB, show_bytes


def fit_view(answer: Answer[FitResult]) -> View:
    """Verdict, budget, caches, and what would make it fit."""
    result = answer.result
    sections: list[Section] = [Facts(_facts(answer)), _budget(result)]
    if result.cache:
        sections.append(_cache(result))
    if len(result.ranks) > 1:
        sections.append(_ranks(result))
    if not result.fits:
        sections.append(Facts([("because", reason) for reason in result.reasons], title="Why not"))
        sections.append(_suggestions(result))
    return View(_headline(answer), tuple(sections))


def fit_chart(answer: Answer[FitResult]) -> BarChart:
    """What the memory of a rank is spent on, one bar a stage; what is free, or what one request lacks."""
    result, inputs = answer.result, answer.inputs
    bars = [Bar(_rank_name(answer, rank), _parts(result, rank)) for rank in result.ranks]
    device, usable = result.budget.device_bytes, result.budget.usable_bytes
    limits = [(f"{inputs['gpu'] or 'device'}, {show_bytes(device)}", device / GIB)] if device is not None else []
    share = f"{inputs['engine']} allows itself {show_bytes(usable)} of it" if usable is not None and usable >= 0 else ""
    verdict = "fits" if result.fits else f"does not fit, {show_bytes(result.missing_bytes)} are missing"
    title = f"Memory of {inputs['model']} on {_devices(answer)}: {verdict}"
    return BarChart(title, Axis("GiB on a rank"), bars, limits, [share] if share and limits else [])


def _parts(result: FitResult, rank: FitRank) -> list[Part]:
    """The terms of a rank's budget in order, and what is left of the device, or what one request lacks."""
    budget = rank.budget
    parts = []
    for term in budget.terms:
        certain = term.bytes_low == term.bytes_high
        interval = "" if certain else f"{show_bytes(term.bytes_low)} to {show_bytes(term.bytes_high)}, "
        parts.append(Part(term.name, term.bytes / GIB, show_bytes(term.bytes), f"{interval}{term.provenance}"))
    lacking = 0
    if not result.fits and rank.rank == result.binding_rank:
        lacking = max(0, result.kv_request_bytes - budget.terms[-1].bytes)
    if lacking:
        parts.append(Part("lacking for one request", lacking / GIB, show_bytes(lacking), look="lacking"))
    elif budget.unclaimed_bytes is not None and budget.unclaimed_bytes > 0:
        free = budget.unclaimed_bytes
        parts.append(Part("free", free / GIB, show_bytes(free), look="free"))
    return parts


def _rank_name(answer: Answer[FitResult], rank: FitRank) -> str:
    tensor = answer.inputs["tensor_parallel_size"] * answer.inputs["data_parallel_size"]
    if len(answer.result.ranks) == 1:
        return "device" if tensor == 1 else f"each of {tensor} ranks"
    return f"stage {rank.stage}" if tensor == 1 else f"stage {rank.stage}, each of {tensor} ranks"


def _devices(answer: Answer[FitResult]) -> str:
    inputs = answer.inputs
    devices = inputs["tensor_parallel_size"] * inputs["pipeline_parallel_size"] * inputs["data_parallel_size"]
    return f"{devices} × {inputs['gpu'] or 'a device'} ({inputs['engine']} {inputs['engine_version']})"


def _headline(answer: Answer[FitResult]) -> str:
    result, inputs = answer.result, answer.inputs
    subject = f"{inputs['model']} on {_devices(answer)}"
    if not result.fits:
        return f"{subject}: does not fit, {show_bytes(result.missing_bytes)} are missing on rank {result.binding_rank}"
    if not result.cache:
        return f"{subject}: fits, and keeps no caches: up to {result.max_concurrency:,.0f} requests at once"
    return f"{subject}: fits, {result.max_concurrency:,.2f} requests of {result.max_model_len:,} tokens at once"


def _facts(answer: Answer[FitResult]) -> list[tuple[str, str]]:
    result, inputs = answer.result, answer.inputs
    pairs = [
        ("weights on a rank", f"{show_bytes(result.weight_bytes_per_rank)}  ({inputs['weight_dtype']})"),
        ("left for caches", _range(result)),
    ]
    if result.kv_blocks:
        pairs.append(("blocks", _blocks(result)))
    if not result.cache:
        return pairs
    pairs += [
        ("tokens, as the engine prints", f"{result.kv_tokens:,}"),
        ("tokens that really fit", f"{result.kv_capacity_tokens:,}"),
        (
            "one request",
            f"{show_bytes(result.kv_request_bytes)} reserved, {show_bytes(result.kv_architectural_bytes)} held",
        ),
        ("longest request", f"{result.longest_model_len:,} tokens"),
    ]
    if result.state_slots is not None:
        pairs.append(("sequences with a state", f"{result.state_slots:,}"))
    if inputs["data_parallel_size"] > 1:
        pairs.append(("all data-parallel groups", f"{result.replica_concurrency:,.2f} requests"))
    if result.offload:
        pairs.append(("in host memory", f"{show_bytes(result.offload.host_bytes)} of {result.offload.kind}"))
        pairs.append(("across the link a step", f"{show_bytes(result.offload.step_bytes)} on each rank"))
    return pairs


def _blocks(result: FitResult) -> str:
    if result.kv_block_size == 1:
        return f"{result.kv_blocks:,} of one token"
    return f"{result.kv_blocks:,} of {result.kv_block_size:,} tokens"


def _range(result: FitResult) -> str:
    low, high = result.kv_pool_bytes_per_rank_low, result.kv_pool_bytes_per_rank_high
    shown = show_bytes(result.kv_pool_bytes_per_rank)
    return shown if low == high else f"{shown}  ({show_bytes(low)} to {show_bytes(high)})"


def _budget(result: FitResult) -> Table:
    columns = [
        Column("use", "name"),
        Column("memory", "bytes", "bytes"),
        Column("at least", "bytes_low", "bytes"),
        Column("at most", "bytes_high", "bytes"),
        Column("", "provenance"),
    ]
    rows = [[term.name, term.bytes, term.bytes_low, term.bytes_high, term.provenance] for term in result.budget.terms]
    budget = result.budget
    rows.append(["together", budget.total_bytes, None, None, ""])
    if budget.device_bytes is not None:
        rows.append(["device", budget.device_bytes, None, None, ""])
    return Table(columns, rows, title=f"Memory of rank {result.binding_rank}")


def _cache(result: FitResult) -> Table:
    columns = [
        Column("layers", "layers", "integer"),
        Column("kind", "kind"),
        Column("tokens a block", "block_size", "integer"),
        Column("blocks a request", "request_blocks", "integer"),
        Column("places", "places", "integer"),
        Column("bytes", "bytes", "bytes"),
    ]
    rows = [
        [
            group.layers,
            group.kind,
            group.block_size,
            group.request_blocks,
            group.places,
            group.key_bytes + group.value_bytes + group.state_bytes,
        ]
        for group in result.cache
    ]
    shared = len(rows) > 1 and len({row[-1] for row in rows}) == 1
    return Table(columns, rows, title="Caches (all groups draw on one pool)" if shared else "Caches")


def _ranks(result: FitResult) -> Table:
    columns = [
        Column("rank", "rank", "integer"),
        Column("stage", "stage", "integer"),
        Column("layers", "layers", "integer"),
        Column("weights", "weight_bytes", "bytes"),
        Column("working memory", "working_bytes", "bytes"),
        Column("left for caches", "pool_bytes", "bytes"),
    ]
    return Table(columns, [[getattr(rank, column.name) for column in columns] for rank in result.ranks], title="Stages")


def _suggestions(result: FitResult) -> Section:
    if not result.suggestions:
        return Facts([("try", "no single change that was tried makes it fit")], title="What would fit")
    columns = [Column("try", "flags"), Column("effect", "effect"), Column("then at once", "max_concurrency", "ratio")]
    rows = [[remedy.flags, remedy.effect, remedy.max_concurrency] for remedy in result.suggestions]
    return Table(columns, rows, title="What would fit (each worked out again)")
