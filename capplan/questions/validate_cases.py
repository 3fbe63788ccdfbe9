"""Measured runs as cases that can be predicted: the server behind each row, its load, and what of it is to be scored.

A row's measured values are never looked at here but to be carried along; labels that were made with them in view
(``quality``, ``ttft_regime``) decide what is scored and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from capplan.describe.engine_eras import era_before
from capplan.describe.gpu import GpuSpec
from capplan.describe.gpu_catalog import load_gpu
from capplan.errors import CapplanError, NotFoundError, UsageError
from capplan.measured.bench_results import read_bench_results
from capplan.measured.measured_run import MeasuredRun
from capplan.measured.public_names import engine_named, gpu_named, models_named, precision_named
from capplan.measured.table_columns import FIELDS
from capplan.measured.table_mapping import TableMapping
from capplan.measured.table_notes import NoteFacts, read_notes
from capplan.measured.tables import TableRow, read_table
from capplan.serving.measured_server import (
    BENCHMARK_WAVES,
    MeasuredServer,
    default_settings,
    measured_checkpoint,
)
from capplan.serving.replica import EngineSettings

BATCH_ENGINES = frozenset({"llama.cpp", "transformers"})
"""Engines whose public measurements are of one batch, and not of a server."""

DISAGGREGATED, SPECULATIVE, SUSPECT = "disaggregated", "speculative", "suspect"
IMPOSSIBLE = "faster than the bound"
"""Why a row is scored apart: prefill and decode on devices of their own, drafts of unknown acceptance, a figure that
its own table doubts, one that no device can reach."""

_KV_FORMATS = {"auto": None, "": None, "fp16": "bf16", "f16": "bf16", "float16": "bf16", "bfloat16": "bf16"}
_LABELS = (
    "model", "model_path", "gpu", "engine", "engine_version", "precision", "kv_format", "isl", "osl", "concurrency",
    "gpus", "tp", "attention_dp", "expert_parallel", "regime", "quality", "source",
)  # fmt: skip


@dataclass(frozen=True)
class Known:
    """What a user says of every run, where a file does not.

    Args:
        model: as for ``--model``.
        gpu: as for ``--gpu``.
        engine: its name.
        precision: of the checkpoint, or a weight dtype.
        tp: tensor-parallel size.
        dp: data-parallel groups of attention.
        ep: groups of experts.
    """

    model: str | None = None
    gpu: str | None = None
    engine: str | None = None
    precision: str | None = None
    tp: int | None = None
    dp: int | None = None
    ep: int | None = None


@dataclass(frozen=True)
class Case:
    """One measured row.

    Args:
        id: the table's own, or the line or place.
        where: file and line, or place.
        labels: what it can be grouped by.
        measured: figures by name.
        server: the server; None: `refused` says why there is none.
        batch: whether one batch was run to its end, and no server.
        depth: positions cached before a batch.
        aside: why it is scored apart; empty: it is not.
        ok: whether the table trusts it.
        steady: whether its first token is that of a steady load.
        refused: why it cannot be predicted.
    """

    id: str
    where: str
    labels: Mapping[str, str]
    measured: Mapping[str, float]
    server: MeasuredServer | None
    batch: bool = False
    depth: int = 0
    aside: str = ""
    ok: bool = True
    steady: bool = True
    refused: str = ""

    def scores(self, metric: str) -> bool:
        """Whether a figure of this row counts."""
        return self.ok and not self.aside and (self.steady or "ttft" not in metric)


def read_cases(path: Path, mapping: TableMapping | None = None, known: Known | None = None) -> Iterator[Case]:
    """The rows of a table, or the runs of a benchmark tool's result file.

    Args:
        path: of the file; its content says what it is.
        mapping: what a table calls its columns.
        known: what the file does not say.

    Raises:
        NotFoundError: no such file.
        InvalidFileError: neither a table nor a result, or a cell or figure that is none, with its place.
        UsageError: a result file without its model, GPU or engine.
    """
    known = known or Known()
    if mapping is not None or is_table(path):
        for row in read_table(path, _filled(mapping or TableMapping(), path, known)):
            yield table_case(row, path, known)
        return
    for run in read_bench_results(path):
        yield run_case(run, known)


def is_table(path: Path) -> bool:
    """Whether the first line that is not blank or a comment heads a table of measured servers."""
    heads = _headings(path)
    known = {heading for column in FIELDS.values() for heading in column.headings}
    return len(heads & known) >= 2


def _headings(path: Path) -> set[str]:
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            for line in iter(lambda: file.readline(1 << 17), ""):
                if line.strip() and not line.startswith("#"):
                    delimiter = max(",;\t", key=line.count)
                    return {heading.strip().strip('"') for heading in line.split(delimiter)}
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {path}", where=str(path)) from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", where="FILE") from None
    return set()


def _filled(mapping: TableMapping, path: Path, known: Known) -> TableMapping:
    """The mapping, with what the user says as the cells of columns that the table lacks; an id alone names a model."""
    heads = _headings(path)
    given = {"model": known.model, "gpu": known.gpu, "engine": known.engine}
    lacking = [
        name
        for name in given
        if name not in (*mapping.columns, *mapping.constants) and not heads & set(FIELDS[name].headings)
    ]
    constants = {name: value for name in lacking if (value := given[name]) is not None}
    columns = {"model": "model_path"} if "model" in lacking and not known.model and "model_path" in heads else {}
    return replace(mapping, columns={**mapping.columns, **columns}, constants={**mapping.constants, **constants})


def table_case(row: TableRow, path: Path, known: Known) -> Case:
    """The case of a table's row."""
    notes = read_notes(row.notes)
    labels = {name: _text(getattr(row, name)) for name in _LABELS} | dict(row.labels)
    if len(row.metrics) == 1:
        labels["metric"] = next(iter(row.metrics))
    case = Case(
        id=row.id or str(row.line),
        where=f"{path}:{row.line}",
        labels=labels,
        measured=dict(row.metrics),
        server=None,
        depth=notes.depth,
        aside=_aside(notes),
        ok=row.quality in ("", "ok"),
        steady=row.regime in ("", "steady"),
    )
    try:
        server = table_server(row, notes, known)
    except CapplanError as error:
        return replace(case, refused=error.message)
    batch = notes.static or server.engine in BATCH_ENGINES or not (row.isl and row.osl)
    return replace(case, server=server, batch=batch)


def table_server(row: TableRow, notes: NoteFacts, known: Known) -> MeasuredServer:
    """The server of a table's row: its columns, what its notes say beside them, and the engine's defaults.

    Raises:
        CapplanError: an engine, a device or a model that is not known.
    """
    engine = engine_named(row.engine)
    gpu = _gpu(row.gpu)
    precision = precision_named(row.precision) or known.precision
    model = find_model(row.model_path or row.model, precision, engine)
    sizes = _sizes(row, notes, known)
    defaults = _defaults(engine, row.engine_version, row.gpu)
    told = row.max_num_batched_tokens or notes.max_num_batched_tokens
    settings = EngineSettings(
        max_num_batched_tokens=told or defaults.max_num_batched_tokens,
        max_num_seqs=notes.max_num_seqs or max(defaults.max_num_seqs, EngineSettings().max_num_seqs),
        chunked_prefill=defaults.chunked_prefill if row.chunked_prefill is None else row.chunked_prefill,
        receive_interval=row.scheduler_recv_interval or defaults.receive_interval,
        batch_wait=defaults.batch_wait if row.batch_wait_steps is None else row.batch_wait_steps,
    )
    cache = row.kv_format.strip().lower()
    return MeasuredServer(
        model=model,
        precision=precision,
        gpu=gpu.name,
        engine=engine,
        isl=row.isl,
        osl=row.osl,
        concurrency=row.concurrency,
        mean_length=row.mean_length,
        era=era_before(engine, row.engine_version, row.date),
        kv="fp8" if notes.fp8_cache else _KV_FORMATS.get(cache, cache),
        settings=settings,
        waves=_waves(notes, row.concurrency) if notes.request_rate is None else None,
        request_rate=notes.request_rate,
        **sizes,
    )


def _sizes(row: TableRow, notes: NoteFacts, known: Known) -> dict[str, int]:
    """Devices and parallel sizes; a table that tells the devices alone is taken for tensor parallel."""
    tp = row.tp or notes.tp or known.tp
    dp = row.attention_dp or (notes.dp if notes.dp_attention or not notes.tp else None) or known.dp or 1
    gpus = row.gpus or (tp or 1) * (dp if dp > 1 and row.tp else 1)
    if notes.layer_split:
        return {"gpus": gpus, "tp": 1, "pipeline": gpus}
    if tp is None:
        tp = max(1, gpus // dp)
    ep = row.expert_parallel or notes.ep or known.ep or (gpus if notes.expert_parallel else 1)
    return {"gpus": gpus, "tp": tp, "attention_dp": dp, "expert_parallel": ep}


def _waves(notes: NoteFacts, concurrency: float) -> int:
    """Requests of each client: as the notes say, else as benchmarks do."""
    if notes.waves is not None:
        return notes.waves
    if notes.prompts is not None:
        return max(1, round(notes.prompts / concurrency))
    return BENCHMARK_WAVES


def _aside(notes: NoteFacts) -> str:
    if notes.suspect:
        return SUSPECT
    if notes.disaggregated:
        return DISAGGREGATED
    return SPECULATIVE if notes.speculative or notes.draft_tokens else ""


@lru_cache(maxsize=256)
def _gpu(name: str) -> GpuSpec:
    return load_gpu(gpu_named(name))


@lru_cache(maxsize=256)
def _defaults(engine: str, version: str, gpu: str) -> EngineSettings:
    return default_settings(engine, version, _gpu(gpu))


@lru_cache(maxsize=1024)
def find_model(name: str, precision: str | None, engine: str) -> str:
    """The first of a model's possible names that the catalog has.

    Raises:
        NotFoundError: it has none of them.
    """
    missing: NotFoundError | None = None
    for candidate in models_named(name):
        try:
            measured_checkpoint(candidate, precision, engine)
        except NotFoundError as error:
            missing = missing or error
        else:
            return candidate
    raise missing or NotFoundError(f"there is no model named {name[:60]!r} in the catalog", where="model")


def run_case(run: MeasuredRun, known: Known) -> Case:
    """The case of a run of a benchmark tool.

    Raises:
        UsageError: neither the file nor the user says which model, GPU or engine it was.
    """
    engine = _said("engine", known.engine or run.engine, run)
    model = _said("model", known.model or run.model, run)
    gpu = _said("gpu", known.gpu, run)
    labels = {"tool": run.tool, "model": model, "gpu": gpu, "engine": engine, "precision": known.precision or ""}
    numbers = {"isl": run.isl, "osl": run.osl, "concurrency": run.concurrency, "request_rate": run.request_rate}
    labels |= {name: _text(value) for name, value in numbers.items()}
    case = Case(run.where, run.where, labels, dict(run.metrics), None, depth=run.context)
    concurrency = run.concurrency
    if concurrency is None and run.request_rate is None:
        return replace(case, refused="the file says neither how many requests ran at once nor how often they came")
    try:
        name = engine_named(engine)
        device = _gpu(gpu)
        precision = precision_named(known.precision or "")
        server = MeasuredServer(
            model=find_model(model, precision, name),
            precision=precision,
            gpu=device.name,
            engine=name,
            isl=run.isl or 0.0,
            osl=run.osl or 0.0,
            concurrency=concurrency or 1.0,
            gpus=(known.tp or 1) * (known.dp or 1),
            tp=known.tp or 1,
            attention_dp=known.dp or 1,
            expert_parallel=known.ep or 1,
            era=era_before(name, run.engine_version or ""),
            settings=_defaults(name, run.engine_version or "", gpu),
            waves=max(1, round(run.requests / concurrency)) if run.requests and concurrency else None,
            request_rate=run.request_rate if concurrency is None else None,
        )
    except CapplanError as error:
        return replace(case, refused=error.message)
    return replace(case, server=server, batch=name in BATCH_ENGINES or not (run.isl and run.osl))


def _said(name: str, value: str | None, run: MeasuredRun) -> str:
    if value:
        return value
    title = "GPU" if name == "gpu" else name
    raise UsageError(
        f"which {title}? {run.where} does not say", where=f"--{name}", hint="give the flag: a result file holds no more"
    )


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)
