"""Start-up logs of inference engines: what the engine was told, and what it printed of its memory.

A figure stands for one line of the log and keeps its number and its words. What can't be read with certainty is an
error: a log of no known engine, of two engines, of several starts, without figures, or with figures that contradict
each other.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from capplan.errors import InvalidFileError, UsageError, did_you_mean
from capplan.measured.engine_log import EngineLog, LogFigure
from capplan.measured.llama_cpp_log import LLAMA_CPP
from capplan.measured.log_checks import checked
from capplan.measured.log_engine import Line, LogEngine
from capplan.measured.log_lines import LogLine, read_lines
from capplan.measured.log_settings import LogSetting, plain_value
from capplan.measured.log_template import Printed
from capplan.measured.sglang_log import SGLANG
from capplan.measured.trtllm_log import TRTLLM
from capplan.measured.vllm_log import VLLM

LOG_ENGINES: dict[str, LogEngine] = {engine.name: engine for engine in (VLLM, SGLANG, TRTLLM, LLAMA_CPP)}

_MOST_TEXT = 300


@dataclass
class _Start:
    """What was read of one start so far."""

    first_line: int
    version: str | None = None
    settings: dict[str, LogSetting] = field(default_factory=dict)
    figures: list[LogFigure] = field(default_factory=list)
    refusal: LogLine | None = None
    begun: set[tuple[str, str]] = field(default_factory=set)
    speakers: set[str] = field(default_factory=set)

    @property
    def says_nothing(self) -> bool:
        return not self.figures and self.refusal is None


def read_engine_log(path: Path, *, engine: str | None = None, start: int | None = None) -> EngineLog:
    """Read one start of an engine from its log.

    Args:
        path: of the log.
        engine: whose log it is; None: whichever engine's words stand in it.
        start: which start, counted from 1, when the log holds several.

    Raises:
        NotFoundError: no such file.
        UsageError: an engine without a reader, or a start that the log doesn't hold.
        InvalidFileError: a log that cannot be read with certainty.
    """
    if engine is not None and engine not in LOG_ENGINES:
        message = f"{engine!r} has no reader of logs; there are {', '.join(LOG_ENGINES)}"
        raise UsageError(message, where="--engine", hint=did_you_mean(engine, LOG_ENGINES))
    engines = [LOG_ENGINES[engine]] if engine is not None else list(LOG_ENGINES.values())
    starts = _starts(read_lines(path), engines)
    whose = _whose(starts, path)
    chosen = _chosen(starts[whose], start, path)
    return checked(EngineLog(
        path=path,
        engine=LOG_ENGINES[whose].name,
        version=chosen.version,
        first_line=chosen.first_line,
        settings=chosen.settings,
        figures=_settled(chosen, path),
        refusal=chosen.refusal,
    ))  # fmt: skip


_BLOCK = 64
"""Lines that are searched for words together; most of a log's blocks hold none and are passed over at once."""

_Watch = list[tuple[str, list[tuple[LogEngine, Line | None]]]]
"""What may stand in a line, and whose it is: the line of an engine, or something else that the engine tells."""


def _starts(lines: Iterable[LogLine], engines: list[LogEngine]) -> dict[str, list[_Start]]:
    """What each engine's reader found, start by start."""
    found: dict[str, list[_Start]] = {engine.name: [] for engine in engines}
    watch = _watch(engines)
    lines = iter(lines)
    while block := list(islice(lines, _BLOCK)):
        together = "\n".join(line.text for line in block)
        present = [(needle, owners) for needle, owners in watch if needle in together]
        for text_line in block if present else ():
            heard: dict[str, tuple[LogEngine, list[Line]]] = {}
            for needle, owners in present:
                if needle in text_line.text:
                    for engine, line in owners:
                        _, candidates = heard.setdefault(engine.name, (engine, []))
                        candidates += [line] if line is not None else []
            for engine, candidates in heard.values():
                _take(engine, candidates, text_line, found[engine.name])
    return found


def _watch(engines: list[LogEngine]) -> _Watch:
    owners: defaultdict[str, list[tuple[LogEngine, Line | None]]] = defaultdict(list)
    for engine in engines:
        for line in engine.lines:
            owners[line.template.needle].append((engine, line))
        for needle in (*engine.tells, *engine.starts, *engine.refusals):
            owners[needle].append((engine, None))
    return list(owners.items())


def _take(engine: LogEngine, candidates: list[Line], text_line: LogLine, starts: list[_Start]) -> None:
    """Put what `text_line` says to the start that it belongs to."""
    number, text = text_line.number, text_line.text
    settings = engine.settings(text, number) if any(needle in text for needle in engine.tells) else []
    marks = [needle for needle in engine.starts if needle in text]
    readings = [(line, read) for line in candidates if (read := line.template.read(text)) is not None]
    refused = any(needle in text for needle in engine.refusals)
    if not (settings or marks or readings or refused):
        return
    speaker = engine.speaker_of(text)
    begins = {(needle, re.sub(r"\bpid=\d+", "", speaker)) for needle in marks}
    if not starts or (begins & starts[-1].begun):
        starts.append(_Start(number))
    current = starts[-1]
    current.begun |= begins
    current.speakers.add(speaker)
    for setting in settings:
        if setting.name != "generation" or setting.name not in current.settings:
            current.settings[setting.name] = setting
    for line, (figures, words) in readings:
        _note(current, line, figures, words, speaker, text_line)
    if refused and current.refusal is None:
        current.refusal = LogLine(number, text.strip()[:_MOST_TEXT])


def _note(
    start: _Start, line: Line, figures: dict[str, Printed], words: dict[str, str], speaker: str, text_line: LogLine
) -> None:
    text = text_line.text.strip()[:_MOST_TEXT]
    rank = words.pop("rank", speaker)
    start.version = words.pop("version", start.version)
    for name, word in words.items():
        plain = plain_value(word.replace(",", "") if re.fullmatch(r"[\d,]+", word) else word)
        start.settings[name] = LogSetting(name, word if plain is None else plain, text_line.number, text)
    for name, number in figures.items():
        same = (name, rank, text_line.number)
        if not any((known.name, known.rank, known.line) == same for known in start.figures[-8:]):
            start.figures.append(LogFigure(name, number, rank, text_line.number, text, line.repeat))


def _whose(starts: dict[str, list[_Start]], path: Path) -> str:
    """The one engine that the log has figures of."""
    speaking = {name: [start for start in found if not start.says_nothing] for name, found in starts.items()}
    names = [name for name, found in speaking.items() if found]
    if not names:
        wanted = ", ".join(LOG_ENGINES[name].title for name in starts)
        raise InvalidFileError(
            f"the log holds no figure that an engine prints at its start (known are those of {wanted})",
            where=str(path),
            hint="give the log from the engine's start to the line that says it is ready",
        )
    if len(names) > 1:
        told = "; ".join(f"{LOG_ENGINES[name].title}, line {_first_figure(speaking[name][0])}" for name in names)
        raise InvalidFileError(
            f"the log holds figures of more than one engine: {told}", where=str(path), hint=f"--engine {names[0]}"
        )
    return names[0]


def _first_figure(start: _Start) -> int:
    if start.figures:
        return start.figures[0].line
    return start.refusal.number if start.refusal else start.first_line


def _chosen(starts: list[_Start], wanted: int | None, path: Path) -> _Start:
    """The start that is wanted, or the only one that says something."""
    speaking = [start for start in starts if not start.says_nothing]
    if wanted is None and len(speaking) == 1:
        return speaking[0]
    told = ", ".join(f"line {start.first_line}" for start in speaking[:9]) + (", ..." if len(speaking) > 9 else "")
    if wanted is None:
        message = f"the log holds {len(speaking)} starts ({told})"
        raise InvalidFileError(message, where=str(path), hint=f"--start 1 ... {len(speaking)} chooses one")
    if not 1 <= wanted <= len(speaking):
        raise UsageError(f"there is no start {wanted}; the log holds {len(speaking)} ({told})", where="--start")
    return speaking[wanted - 1]


def _settled(start: _Start, path: Path) -> tuple[LogFigure, ...]:
    """The figures that count, once repeated ones are held against each other."""
    groups: defaultdict[tuple[str, str], list[LogFigure]] = defaultdict(list)
    for figure in start.figures:
        groups[figure.name, figure.rank].append(figure)
    several = _several_ranks(start)
    kept = [figure for group in groups.values() for figure in _settle(group, several, start.settings, path)]
    return tuple(sorted(kept, key=lambda figure: figure.line))


def _several_ranks(start: _Start) -> bool:
    sizes = (start.settings.get(f"{axis}_parallel_size") for axis in ("tensor", "pipeline", "data"))
    if any(size is not None and size.value != 1 for size in sizes):
        return True
    return len({speaker for speaker in start.speakers if re.search(r"TP|PP|DP|Worker|rank", speaker)}) > 1


def _settle(group: list[LogFigure], several: bool, settings: dict[str, LogSetting], path: Path) -> Iterator[LogFigure]:
    if any(figure.repeat == "last" for figure in group):
        yield group[-1]
        return
    drafting = "speculative_config" in settings or "draft_model" in settings
    least = greatest = group[0]  # intervals overlap pair by pair where the greatest low is not above the least high
    for figure in group:
        if figure.repeat == "each" or (figure.repeat == "ranks" and several) or figure.printed is greatest.printed:
            yield figure
            continue
        other = next((known for known in (least, greatest) if not known.printed.overlaps(figure.printed)), None)
        if figure.printed.high < least.printed.high:
            least = figure
        if figure.printed.low > greatest.printed.low:
            greatest = figure
        if other is not None and not (drafting and figure.name == "weight_bytes"):
            raise InvalidFileError(
                f"the log contradicts itself on {figure.name}: line {other.line} says {_quoted(other.text)}",
                where=f"{path}:{figure.line}",
                hint=f"this line says {_quoted(figure.text)}; give the log of one start",
            )
        yield figure


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 120 else "..." + text[-117:])
