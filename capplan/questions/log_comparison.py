"""A log's figures beside capplan's, line by line.

Three questions are kept apart, so that a difference shows where it comes from: what capplan's own budget gives; what
a pool of the size that the log prints holds; and what as many blocks or tokens as the log prints are worth. Each
answer is an interval: of the budget's estimates, or of the digits that the engine printed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from capplan.measured.engine_log import EngineLog, LogFigure, binding
from capplan.memory.pool import Capacity, PoolPart
from capplan.questions.fit import FitResult

Basis = Literal["exact", "budget", "pool", "tokens", "context"]

_MOST_POOL = 1 << 52


@dataclass(frozen=True)
class LogRow:
    """One figure of the log, and capplan's.

    Args:
        name: the figure; sizes end in ``_bytes``.
        basis: what capplan's figure follows from: ``exact``, the model alone; ``budget``, the device and the settings;
            ``pool``, the pool that the log prints; ``tokens``, the blocks or tokens that it prints; ``context``, the
            context that was asked for.
        unit: bytes, tokens, blocks, slots, or none.
        logged: as printed, in the base unit.
        predicted: capplan's; null: capplan has no figure for it.
        difference: ``predicted / logged - 1``.
        agrees: the log's digits lie in capplan's interval.
        rank: whose figure it is.
        line: its line in the log.
        text: the line.
    """

    name: str
    basis: Basis | None
    unit: str
    logged: int | float
    predicted: int | float | None
    predicted_low: int | float | None
    predicted_high: int | float | None
    difference: float | None
    agrees: bool | None
    rank: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Predicted:
    """A figure of capplan's: value, the interval that it may lie in, and what it follows from."""

    value: int | Fraction
    low: int | Fraction
    high: int | Fraction
    basis: Basis


Evaluate = Callable[[int], Capacity]
"""What a pool of so many bytes holds."""


def exactly(value: int | Fraction, basis: Basis) -> Predicted:
    """A figure without an interval."""
    return Predicted(value, value, value, basis)


def from_budget(result: FitResult) -> dict[str, Predicted]:
    """What capplan's own budget gives, by the log's names."""
    budget = result.budget
    found = {
        "weight_bytes": exactly(result.weight_bytes_per_rank, "exact"),
        "kv_pool_bytes": Predicted(
            result.kv_pool_bytes_per_rank,
            result.kv_pool_bytes_per_rank_low,
            result.kv_pool_bytes_per_rank_high,
            "budget",
        ),
        "kv_tokens": Predicted(result.kv_tokens, result.kv_tokens_low, result.kv_tokens_high, "budget"),
        "max_concurrency": Predicted(
            Fraction(result.max_concurrency),
            Fraction(result.max_concurrency_low),
            Fraction(result.max_concurrency_high),
            "budget",
        ),
    }
    if budget.device_bytes is not None:
        found["device_memory_bytes"] = exactly(budget.device_bytes, "budget")
    if budget.usable_bytes is not None:
        found["budget_bytes"] = exactly(budget.usable_bytes, "budget")
    for name, terms in _TERMS.items():
        parts = [term for term in budget.terms if term.name in terms]
        if parts:
            found[name] = Predicted(
                sum(part.bytes for part in parts),
                sum(part.bytes_low for part in parts),
                sum(part.bytes_high for part in parts),
                "budget",
            )
    return found


_TERMS = {
    "activation_bytes": ("activation peak", "multimodal encoder"),
    "non_torch_bytes": ("runtime", "collectives"),
    "graph_bytes": ("CUDA graphs",),
}


def from_pool(low: Capacity, high: Capacity) -> dict[str, Predicted]:
    """What a pool of the printed size holds; `low` and `high` are for the least and the most that was printed so."""
    blocks = Predicted(high.blocks, low.blocks, high.blocks, "pool")
    return {
        "kv_blocks": blocks,
        "state_blocks": blocks,
        "kv_tokens": Predicted(high.printed_tokens, low.printed_tokens, high.printed_tokens, "pool"),
        "max_concurrency": Predicted(high.concurrency, low.concurrency, high.concurrency, "pool"),
        "attention_block_size": exactly(low.block_size, "exact"),
        "needed_bytes": exactly(low.request_bytes, "exact"),
    }


_ROOM = ("kv_blocks", "kv_tokens", "full_tokens", "pool_tokens")
"""Figures that say how much a pool holds, the surest first."""


def room(log: EngineLog) -> LogFigure | None:
    """The figure that says how much the pool holds; None: the log has none."""
    return next((one for name in _ROOM if (one := log.binding(name)) is not None), None)


def pool_of(log: EngineLog, evaluate: Evaluate) -> tuple[int, int] | None:
    """(least, most) bytes of a pool that holds as many blocks, or tokens, as the log prints; None: no pool does."""
    figure = room(log)
    if figure is None or not 0 < figure.printed.value < _MOST_POOL:
        return None
    wanted = int(figure.printed.value)
    count = _blocks if figure.name == "kv_blocks" else _tokens
    least = _least_pool(evaluate, count, wanted)
    if least is None or count(evaluate(least)) != wanted:
        return None
    beyond = _least_pool(evaluate, count, wanted + 1)
    return least, least if beyond is None else beyond - 1


def from_tokens(log: EngineLog, low: Capacity, high: Capacity, pool: tuple[int, int]) -> dict[str, Predicted]:
    """What as many blocks or tokens as the log prints are worth; `low` and `high` are for the least and most `pool`."""
    found = {
        "max_concurrency": Predicted(low.concurrency, low.concurrency, high.concurrency, "tokens"),
        "kv_pool_bytes": Predicted(pool[0], *pool, "tokens"),
    }
    if log.binding("kv_blocks") is not None:
        found["kv_tokens"] = Predicted(low.printed_tokens, low.printed_tokens, high.printed_tokens, "tokens")
    return found


def _blocks(capacity: Capacity) -> int:
    return capacity.blocks


def _tokens(capacity: Capacity) -> int:
    return capacity.printed_tokens


def _least_pool(evaluate: Evaluate, count: Callable[[Capacity], int], wanted: int) -> int | None:
    """The smallest pool that holds so many, by doubling and halving; None: no pool does."""
    low, high = 0, 1 << 30
    while count(evaluate(high)) < wanted:
        low, high = high, 2 * high
        if high > _MOST_POOL:
            return None
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if count(evaluate(middle)) < wanted else (low, middle)
    return high


def rows(
    log: EngineLog, predictions: Iterable[dict[str, Predicted]], by_line: Mapping[int, dict[str, Predicted]]
) -> Iterator[LogRow]:
    """Every figure of the log in its order, once for each of capplan's figures for it.

    Of figures that every rank prints, the rank that binds stands for all; llama.cpp's devices and TensorRT-LLM's
    windows stand for themselves.

    Args:
        log: the log.
        predictions: capplan's figures by name.
        by_line: capplan's figures for one line of the log, by name.
    """
    offered = list(predictions)
    apart = log.engine == "llama.cpp"
    groups: dict[tuple[str, int, str], list[LogFigure]] = {}
    for figure, place in _placed(log):
        rank = figure.rank if apart or figure.name == "window_blocks" else ""
        groups.setdefault((figure.name, place, rank), []).append(figure)
    for (name, place, _), alike in groups.items():
        stands = binding(name, alike)
        own = by_line.get(stands.line, {}).get(name)
        first = place == 0 and not (apart and stands.repeat == "each")
        found = [own] if own is not None else _named(name, offered) if first else []
        for predicted in found or [None]:
            yield row(stands, predicted)


def _placed(log: EngineLog) -> Iterator[tuple[LogFigure, int]]:
    """The figures, and which of its rank's figures of this name each is, where several count."""
    seen: Counter[tuple[str, str]] = Counter()
    lines: dict[tuple[str, str], int] = {}
    for figure in log.figures:
        key = (figure.name, figure.rank)
        if figure.repeat == "each" and lines.get(key) not in (None, figure.line):
            seen[key] += 1
        lines[key] = figure.line
        yield figure, seen[key]


def _named(name: str, offered: list[dict[str, Predicted]]) -> list[Predicted | None]:
    return [prediction[name] for prediction in offered if name in prediction]


def row(figure: LogFigure, predicted: Predicted | None) -> LogRow:
    """One figure beside one of capplan's, or beside nothing."""
    printed = figure.printed
    difference = agrees = None
    if predicted is not None:
        agrees = printed.low <= predicted.high and predicted.low <= printed.high
        difference = float(predicted.value / printed.value - 1) if printed.value else None
    return LogRow(
        name=figure.name,
        basis=predicted.basis if predicted else None,
        unit=printed.unit,
        logged=_plain(printed.value),
        predicted=_plain(predicted.value) if predicted else None,
        predicted_low=_plain(predicted.low) if predicted else None,
        predicted_high=_plain(predicted.high) if predicted else None,
        difference=difference,
        agrees=agrees,
        rank=figure.rank,
        line=figure.line,
        text=figure.text,
    )


def _plain(value: int | Fraction) -> int | float:
    exact = Fraction(value)
    return exact.numerator if exact.denominator == 1 else float(exact)


_CACHE_FIGURES = {
    "kv_bytes": ("key_bytes", "value_bytes"),
    "k_bytes": ("key_bytes",),
    "v_bytes": ("value_bytes",),
    "cells": ("places",),
    "pool_tokens": ("places",),
}
_STATE_FIGURES = {
    "state_bytes": ("state_bytes",),
    "state_cells": ("places",),
    "state_slots": ("places",),
    "conv_state_bytes": ("convolution_bytes",),
    "ssm_state_bytes": ("state_bytes", "-convolution_bytes"),
}


def cache_predictions(log: EngineLog, capacity: Capacity, basis: Basis) -> dict[int, dict[str, Predicted]]:
    """Caches that an engine prints one by one, by their lines: the parts of the pool in the same order.

    Where the log prints more caches than the pool has parts (a draft model's), capplan has no figure for the rest.
    """
    caches = [part for part in capacity.parts if part.name != "state"]
    states = [part for part in capacity.parts if part.name == "state"]
    if log.engine == "sglang":
        caches.sort(key=lambda part: ("draft" in part.name, "window" not in part.name))
    found: dict[int, dict[str, Predicted]] = {}
    for figures, parts in ((_CACHE_FIGURES, caches), (_STATE_FIGURES, states)):
        for name, fields in figures.items():
            seen: dict[str, int] = {}
            for figure in log.all_of(name):
                index = seen.get(figure.rank, 0)
                seen[figure.rank] = index + 1
                if index < len(parts):
                    value = sum(_signed(parts[index], field) for field in fields)
                    found.setdefault(figure.line, {})[name] = exactly(value, basis)
    return found


def _signed(part: PoolPart, field: str) -> int:
    value: int = getattr(part, field.lstrip("-"))
    return -value if field.startswith("-") else value


def windowed_predictions(capacity: Capacity) -> dict[str, Predicted]:
    """What SGLang says of a pool of full and one of windowed layers together, beside their own lines."""
    own = {part.name: part for part in capacity.parts if part.name in ("full", "window")}
    if len(own) < 2:
        return {}
    return {
        "full_tokens": exactly(own["full"].places, "tokens"),
        "windowed_tokens": exactly(own["window"].places, "tokens"),
        "windowed_pools_bytes": exactly(sum(part.bytes for part in own.values()), "tokens"),
    }
