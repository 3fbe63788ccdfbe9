"""What must be true between the figures of one log; a log where it isn't was damaged, or is read wrongly."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from fractions import Fraction

from capplan.errors import InvalidFileError
from capplan.measured.engine_log import EngineLog, LogFigure
from capplan.measured.log_template import Printed

_SUMS = (
    ("kv_bytes", ("k_bytes", "v_bytes")),
    ("state_bytes", ("conv_state_bytes", "ssm_state_bytes")),
)
"""Figures that one line prints beside their parts."""


def checked(log: EngineLog) -> EngineLog:
    """The log, once the figures that depend on each other do agree.

    Raises:
        InvalidFileError: parts that don't add up, tokens that aren't blocks, a budget that isn't its share.
    """
    lines: defaultdict[int, dict[str, LogFigure]] = defaultdict(dict)
    for figure in log.figures:
        lines[figure.line][figure.name] = figure
    for found in lines.values():
        for whole, parts in _SUMS:
            if whole in found and all(part in found for part in parts):
                _equal(log, found[whole], _total([found[part].printed for part in parts]), " + ".join(parts))
        if {"device_memory_bytes", "utilization", "budget_bytes"} <= found.keys():
            share, whole_device = found["utilization"].printed, found["device_memory_bytes"].printed
            product = Printed(
                share.value * whole_device.value,
                share.half_digit * whole_device.value + share.value * whole_device.half_digit,
                "B",
            )
            _equal(log, found["budget_bytes"], product, "utilization · device memory")
    return _with_windows(log) if log.engine == "trtllm" else log


def _with_windows(log: EngineLog) -> EngineLog:
    """TensorRT-LLM's blocks: of the last pool only, and those of its only window as the pool's own.

    Of several windows each keeps its ``window_blocks``; the pool's tokens are the sum.
    """
    tokens, size = log.binding("kv_tokens"), log.setting("block_size")
    whole = log.binding("kv_blocks")
    windows: dict[str, LogFigure] = {}
    for figure in reversed(log.all_of("window_blocks")):
        earlier_pool = figure.rank in windows and windows[figure.rank].printed != figure.printed
        if earlier_pool or (tokens is not None and _blocks(windows) * _whole(size) == tokens.printed.value):
            break
        windows.setdefault(figure.rank, figure)
    if len(windows) == 1:
        whole = replace(next(iter(windows.values())), name="kv_blocks", rank="", repeat="last")
    blocks = whole.printed.value if whole is not None else _blocks(windows)
    if tokens is not None and blocks and _whole(size):
        derived = replace(tokens.printed, value=blocks * _whole(size))
        _equal(log, tokens, derived, "blocks · tokens per block")
    kept = [figure for figure in log.figures if figure.name not in ("kv_blocks", "window_blocks")]
    kept += [whole] if whole is not None else windows.values()
    return replace(log, figures=tuple(sorted(kept, key=lambda figure: figure.line)))


def _blocks(windows: dict[str, LogFigure]) -> Fraction:
    return sum((figure.printed.value for figure in windows.values()), Fraction(0))


def _whole(size: object) -> int:
    return size if isinstance(size, int) else 0


def _total(parts: list[Printed]) -> Printed:
    return Printed(sum((part.value for part in parts), start=parts[0].value * 0),
                   sum((part.half_digit for part in parts), start=parts[0].half_digit * 0), "B")  # fmt: skip


def _equal(log: EngineLog, figure: LogFigure, derived: Printed, formula: str) -> None:
    if not figure.printed.overlaps(derived):
        raise InvalidFileError(
            f"the log's {figure.name} is {float(figure.printed.value):,.0f} {figure.printed.unit} where"
            f" {formula} is {float(derived.value):,.0f}",
            where=f"{log.path}:{figure.line}",
            hint="the line is damaged, or of a version that capplan reads wrongly",
        )
