"""What an engine's start-up log says, beside what capplan says for the same settings."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from capplan.describe.files import suffix_of
from capplan.errors import NotFoundError, UsageError
from capplan.measured.engine_log import EngineLog
from capplan.measured.engine_logs import read_engine_log
from capplan.measured.log_lines import LogLine
from capplan.memory.budget import MemoryBudget, memory_budget
from capplan.memory.pool import Capacity, PoolKind, longest_context
from capplan.memory.pool_kinds import open_pool
from capplan.questions.answer import Answer, Provenance
from capplan.questions.fit import FitResult, fit_result
from capplan.questions.fit_plan import Resolved, resolve_plan
from capplan.questions.fit_request import FitRequest
from capplan.questions.log_comparison import (
    LogRow,
    Predicted,
    cache_predictions,
    exactly,
    from_budget,
    from_pool,
    from_tokens,
    pool_of,
    room,
    rows,
    windowed_predictions,
)
from capplan.questions.log_request import check_ranks, log_settings, model_reference, stage_pools

_MOST_LENGTH = 1 << 24


@dataclass(frozen=True)
class ToldSetting:
    """A setting that the log tells.

    Args:
        name: its name here.
        value: as read.
        line: its line in the log.
        text: how the log writes it.
    """

    name: str
    value: int | float | str | bool
    line: int
    text: str


@dataclass(frozen=True)
class RefusedStart:
    """The line by which the engine gave up starting."""

    line: int
    text: str


@dataclass(frozen=True)
class LogComparison:
    """A start-up log's figures beside capplan's.

    Args:
        engine: whose log it is.
        engine_version: as the log prints it; null: it doesn't.
        first_line: where the start begins in the log.
        settings: what the log tells of the settings.
        rows: each figure, and capplan's.
        compared: figures for which capplan has one of its own.
        agreeing: those that agree to the digits printed, or lie in the interval.
        refused: the engine's own refusal; null: it started.
        fits: capplan's verdict; null: no device is known to give one for.
    """

    engine: str
    engine_version: str | None
    first_line: int
    settings: tuple[ToldSetting, ...]
    rows: tuple[LogRow, ...]
    compared: int
    agreeing: int
    refused: RefusedStart | None
    fits: bool | None


def import_log(
    file: Path,
    *,
    model: str | None = None,
    gpu: str | None = None,
    engine: str | None = None,
    start: int | None = None,
    models_dirs: Sequence[Path] = (),
    hardware_dirs: Sequence[Path] = (),
    ignore_keys: Collection[str] = (),
    online: bool = False,
    **settings: Any,
) -> Answer[LogComparison]:
    """A start-up log's figures beside capplan's for the same settings, line by line, with the difference.

    Args:
        file: the log of vLLM, SGLang, TensorRT-LLM or llama.cpp.
        model: a reference as for ``--model``; None: as the log names it.
        gpu: a reference as for ``--gpu``; None: a device of the memory that the log prints, if it does.
        engine: whose log it is; None: whichever engine's words stand in it.
        start: which start of the log, when it holds several.
        models_dirs: further folders of models.
        hardware_dirs: further folders of GPUs.
        ignore_keys: keys of a ``config.json`` that are known to change no size.
        online: look a Hugging Face id up on the hub.
        settings: the fields of `capplan.questions.fit_request.FitRequest`; those given override the log.

    Raises:
        CapplanError: a log that cannot be read with certainty, or settings that make no question.
    """
    log = read_engine_log(Path(file), engine=engine, start=start)
    told = log_settings(log)
    given = {name: value for name, value in settings.items() if value is not None}
    check_ranks(log, {**told, **given})
    asked = {**told, **given, "model": model or told.get("model")}
    asked |= {"gpu": gpu} if gpu is not None else {}
    look = _Look(tuple(models_dirs), tuple(hardware_dirs), ignore_keys, online)
    device = _device(log, asked)
    resolved = _resolve(log, {**asked, **device, **({} if device else {"available_kv_bytes": 0})}, look)
    budget = memory_budget(resolved.plan)
    result = fit_result(resolved, budget) if device else None
    compared = tuple(rows(log, _predictions(log, budget, result), _by_line(log, budget)))
    agreeing = sum(row.agrees is True for row in compared)
    return Answer(
        command="import-log",
        inputs={**resolved.inputs, "file": str(file), "start": start},
        result=LogComparison(
            engine=log.engine,
            engine_version=log.version,
            first_line=log.first_line,
            settings=tuple(ToldSetting(one.name, one.value, one.line, one.text) for one in log.settings.values()),
            rows=compared,
            compared=sum(row.agrees is not None for row in compared),
            agreeing=agreeing,
            refused=_refusal(log.refusal),
            fits=budget.fits if device else None,
        ),
        assumptions=(*resolved.assumptions, *_assumptions(log, asked, device)),
        warnings=(*resolved.warnings, *_warnings(log, given), *_unheld(log, budget)),
        sources=(str(file), *resolved.sources),
        provenance=_provenance(),
    )


@dataclass(frozen=True)
class _Look:
    """Where descriptions are looked up."""

    models_dirs: tuple[Path, ...]
    hardware_dirs: tuple[Path, ...]
    ignore_keys: Collection[str]
    online: bool


def _device(log: EngineLog, asked: dict[str, Any]) -> dict[str, Any]:
    """The device that is asked for, or one of the memory that the log prints; nothing when neither is there."""
    if asked.get("gpu") is not None or asked.get("gpu_memory") is not None:
        return {name: asked[name] for name in ("gpu", "gpu_memory") if asked.get(name) is not None}
    printed = log.binding("device_memory_bytes")
    return {"gpu_memory": int(printed.printed.value)} if printed is not None else {}


def _resolve(log: EngineLog, asked: dict[str, Any], look: _Look) -> Resolved:
    """The serving plan of the settings.

    Raises:
        UsageError: the log doesn't say which model it is of.
        NotFoundError: the log's model is not on this machine, and none was given.
        CapplanError: as `fit` does.
    """
    model, told = asked.get("model"), log.settings.get("model")
    if model is None:
        raise UsageError("the log doesn't say which model it is of", where="--model", hint="give --model")
    own = told is not None and model == model_reference(str(told.value))
    where = f"{log.path}:{told.line}" if told is not None else ""
    if own and _is_path(model) and not Path(model).exists():
        raise NotFoundError(f"the log's model, {model[:200]}, is not on this machine", where=where, hint=_WHICH)
    known = {entry.name for entry in fields(FitRequest)}
    request = FitRequest.of(**{name: value for name, value in asked.items() if name in known})
    try:
        return resolve_plan(
            request,
            models_dirs=look.models_dirs,
            hardware_dirs=look.hardware_dirs,
            ignore_keys=look.ignore_keys,
            online=look.online,
        )
    except NotFoundError as error:
        if own and error.where == "--model":
            raise NotFoundError(error.message, where=where, hint=_WHICH) from None
        raise


_WHICH = "--model says which model the log is of"


def _is_path(model: str) -> bool:
    return model.startswith(("/", "./", "../", "~")) or "\\" in model or suffix_of(model) in (".gguf", ".safetensors")


def _predictions(log: EngineLog, budget: MemoryBudget, result: FitResult | None) -> list[dict[str, Predicted]]:
    """Every figure of capplan's that the log may have, by what it follows from."""
    stages = budget.plan.parallel.pp
    if log.all_of("window_blocks"):
        return [{name: one for name, one in (from_budget(result) if result else {}).items() if name not in _ROOM}]
    known = from_budget(result) if result else {"weight_bytes": exactly(budget.binding.weight_bytes, "exact")}
    pools = stage_pools(log, stages)
    low, high = pools or ((Fraction(0),), (Fraction(0),))
    held = from_pool(_holds(budget, low), _holds(budget, high))
    offered = [known, held if pools else {name: held[name] for name in ("attention_block_size", "needed_bytes")}]
    pool = pool_of(log, lambda size: _holds(budget, (size,))) if stages == 1 else None
    if pool is not None:
        least = _holds(budget, (pool[0],))
        offered += [from_tokens(log, least, _holds(budget, (pool[1],)), pool), windowed_predictions(least)]
    return [*offered, _longest(log, budget)]


_ROOM = ("kv_blocks", "kv_tokens", "max_concurrency")
"""What a pool holds; capplan has no figure for it where windows of several sizes share a pool of TensorRT-LLM's."""


def _opened(budget: MemoryBudget, pools: Sequence[int | Fraction]) -> PoolKind:
    """Pools of these sizes instead of the budget's: one for all stages, or one a stage."""
    sizes = [max(0, int(pool)) for pool in pools]
    stages = len(budget.request.pools)
    return open_pool(replace(budget.request, pools=tuple(sizes * stages if len(sizes) == 1 else sizes)))


def _holds(budget: MemoryBudget, pools: Sequence[int | Fraction]) -> Capacity:
    return _opened(budget, pools).capacity()


def _longest(log: EngineLog, budget: MemoryBudget) -> dict[str, Predicted]:
    """The longest request that the printed memory is enough for, where the engine estimates it."""
    available, estimated = log.binding("available_bytes"), log.binding("estimated_max_model_len")
    if available is None or estimated is None:
        return {}
    low, high = (
        longest_context(_opened(budget, (edge,)), 1, _MOST_LENGTH)
        for edge in (available.printed.low, available.printed.high)
    )
    return {"estimated_max_model_len": Predicted(high, low, high, "pool")}


def _by_line(log: EngineLog, budget: MemoryBudget) -> dict[int, dict[str, Predicted]]:
    """Capplan's figures for lines that print one cache, or one device, each."""
    if log.engine == "sglang":
        pool = pool_of(log, lambda size: _holds(budget, (size,)))
        return cache_predictions(log, _holds(budget, (pool[0],)), "tokens") if pool is not None else {}
    if log.engine != "llama.cpp":
        return {}
    found = cache_predictions(log, _holds(budget, (0,)), "context")
    devices = [one for one in log.all_of("weight_bytes") if not one.rank.startswith("CPU") and "Host" not in one.rank]
    if len(devices) == 1:
        found.setdefault(devices[0].line, {})["weight_bytes"] = exactly(budget.binding.weight_bytes, "exact")
    return found


def _refusal(line: LogLine | None) -> RefusedStart | None:
    return None if line is None else RefusedStart(line.number, line.text)


def _assumptions(log: EngineLog, asked: dict[str, Any], device: dict[str, Any]) -> list[str]:
    notes = []
    if asked.get("engine_version") is None:
        notes.append("the log prints no version: the newest rules are taken; --engine-version says which")
    elif log.version is None and asked["engine_version"] == log.setting("generation"):
        notes.append(f"the log prints no version: the rules are those of the {asked['engine_version']} engine")
    if "gpu" not in device and device:
        notes.append("the device has the memory that the log prints; --gpu says which it is")
    return notes


def _warnings(log: EngineLog, given: dict[str, Any]) -> list[str]:
    notes = []
    if log.all_of("window_blocks"):
        notes.append("the log divides its pool among windows of several sizes, capplan doesn't: no tokens are compared")
    quantisation = log.setting("quantization")
    if quantisation is not None and "weight_dtype" not in given:
        notes.append(
            f"the log says quantization={quantisation}: capplan takes the formats that the model's own files say"
        )
    if log.setting("speculative_config") is not None and not log.setting("num_speculative_tokens"):
        notes.append("the log speaks of speculative decoding; --num-speculative-tokens and --draft-model say which")
    return notes


def _unheld(log: EngineLog, budget: MemoryBudget) -> list[str]:
    """A warning where no pool of this model holds what the log prints."""
    figure = room(log)
    if figure is None or budget.plan.parallel.pp > 1 or log.engine == "llama.cpp" or log.all_of("window_blocks"):
        return []
    if figure.printed.value <= 0 or pool_of(log, lambda size: _holds(budget, (size,))) is not None:
        return []
    told = f"{int(figure.printed.value):,} {figure.printed.unit}"
    return [f"no pool of this model has just {told}: is it another model, block size or engine version?"]


def _provenance() -> dict[str, Provenance]:
    return {"rows.logged": "measured", "rows.predicted": "exact", "fits": "fitted"}
