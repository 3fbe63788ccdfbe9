"""Samples on disk: one JSON object a line, appended as they come, so that nothing measured is ever lost.

The first line says what was measured where. A line that was cut off when the process died is dropped on resuming; a
sample that is there is not measured again.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from capplan.errors import InvalidFileError, NotFoundError, UsageError

SCHEMA = 1

EXTENT = ("minutes", "points")
"""Settings that say how long a run goes on: one that is resumed may go on for longer."""

MOST = 1e30
"""Bound of every figure of a sample, far above FLOPs of a second."""

PHASE_AXES = ("batch", "prompt", "new", "layers")
"""Axes that every phase has."""

PHASE_KEYS = {
    "phase": ("prefill", "decode"), "mode": ("eager", "graphs", "compile"), "runner": ("stack", "transformers"),
    "format": ("bf16", "fp16", "fp32"),
}  # fmt: skip
"""What a phase may be, how it may be launched, by whom, and in which format."""

PHASE_FIGURES = ("cache_bytes", "expected_cache_bytes", "peak_bytes")
"""Figures that every phase has beside its seconds."""

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")

SampleKind = Literal["kernel", "phase", "collective"]


@dataclass(frozen=True)
class Sample:
    """One measured call, phase or collective.

    Args:
        kind: what was measured.
        name: the kernel, the model, or the collective.
        key: what tells fits apart: formats, backend, head dim.
        shape: the axes of its law.
        cache: whether what it reads lay in the cache.
        seconds: the median of the unmarked repeats.
        low: their 10th percentile.
        high: their 90th percentile.
        repeats: all of them, in order.
        marked: numbers of those that were disturbed.
        held_out: kept away from every fit.
        flops: FLOPs of the call.
        bytes: bytes that it must move.
        error: largest difference to the float64 reference, as a share of the tolerance; above 1 is wrong.
        problem: why the sample must not be used, or empty.
        figures: whatever else was measured, by name and in base units.
        conditions: the state of the device just before.
        started: UTC, when it began.
        spent: seconds that it took with preparation and check, by the clock that measures.
    """

    kind: SampleKind
    name: str
    key: Mapping[str, str | int]
    shape: Mapping[str, float]
    cache: str
    seconds: float
    low: float
    high: float
    repeats: tuple[float, ...]
    marked: tuple[int, ...] = ()
    held_out: bool = False
    flops: float = 0.0
    bytes: float = 0.0
    error: float = 0.0
    problem: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    conditions: Mapping[str, float] = field(default_factory=dict)
    started: str = ""
    spent: float = 0.0

    @property
    def identity(self) -> str:
        """What no other sample of the file has."""
        parts = [f"{name}={_plain(value)}" for name, value in (*sorted(self.key.items()), *sorted(self.shape.items()))]
        return " ".join((self.name, *parts, self.cache))

    @property
    def noise(self) -> float:
        """Half the distance of the 10th and 90th percentiles, as a share of the median."""
        return (self.high - self.low) / 2 / self.seconds

    @property
    def usable(self) -> bool:
        """Whether its result was right."""
        return not self.problem


@dataclass(frozen=True)
class Recording:
    """A file of samples.

    Args:
        provenance: device, driver and software.
        samples: in the order of measuring.
        settings: what a run must have in common with the one that it resumes.
    """

    provenance: Mapping[str, str]
    samples: tuple[Sample, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)


class Recorder:
    """A file that samples are appended to."""

    def __init__(self, path: Path, descriptor: int, known: Sequence[Sample]) -> None:
        self.path = path
        self.samples = list(known)
        self._descriptor = descriptor
        self._known = {sample.identity for sample in known}

    def has(self, identity: str) -> bool:
        """Whether such a sample is there already."""
        return identity in self._known

    def add(self, sample: Sample) -> None:
        """Append one sample and wait until it is on disk.

        Raises:
            InvalidFileError: it could not be written; the file ends with the last whole sample.
        """
        if self.has(sample.identity):
            return
        _append(self._descriptor, self.path, asdict(sample))
        self._known.add(sample.identity)
        self.samples.append(sample)


@contextmanager
def recording(
    path: Path, provenance: Mapping[str, str], settings: Mapping[str, Any], *, resume: bool
) -> Iterator[Recorder]:
    """Open a file of samples for appending: a new one, or with `resume` the one that is there.

    Raises:
        UsageError: the file is there and `resume` was not asked for, another run writes to it, or it was measured on
            something else.
        InvalidFileError: it cannot be written, or is no file of samples.
    """
    descriptor = _opened(path, resume)
    try:
        _lock(descriptor, path)
        known: tuple[Sample, ...] = ()
        if os.fstat(descriptor).st_size:
            known = _continued(path, descriptor, provenance, settings).samples
        if not os.fstat(descriptor).st_size:
            _append(descriptor, path, {"schema": SCHEMA, "provenance": dict(provenance), "settings": dict(settings)})
        yield Recorder(path, descriptor, known)
    finally:
        os.close(descriptor)


def read_samples(path: Path) -> Recording:
    """The samples of a file.

    Raises:
        NotFoundError: no such file.
        InvalidFileError: not a file of samples; the place is the line.
    """
    return parse_samples(_text(path), path)


def parse_samples(text: str, path: Path) -> Recording:
    """The samples of a text; a last line without its end is left out."""
    lines = text.split("\n")[:-1]
    if not lines:
        raise InvalidFileError("the file has no samples", where=str(path))
    header = _object(lines[0], path, 1)
    sound = _is_table(header.get("provenance"), _is_text) and isinstance(header.get("settings", {}), dict)
    if header.get("schema") != SCHEMA or not sound:
        raise InvalidFileError(
            "this is not a file of samples", where=f"{path}:1", hint="`capplan calibrate run` writes them"
        )
    samples = [_sample(_object(line, path, number), path, number) for number, line in enumerate(lines[1:], 2)]
    return Recording(header["provenance"], tuple(samples), header.get("settings", {}))


def _continued(path: Path, descriptor: int, provenance: Mapping[str, str], settings: Mapping[str, Any]) -> Recording:
    """What a file holds, cut off after its last whole line, if it was measured on the same."""
    text = _text(path)
    whole = len(text[: text.rfind("\n") + 1].encode())
    os.ftruncate(descriptor, whole)
    if not whole:
        return Recording(provenance, ())
    found = parse_samples(text, path)
    for name, before, now in _differences(found, provenance, settings):
        raise UsageError(
            f"{path} was measured with {name} {before}, and this is {now}",
            where="--resume",
            hint="resume it with the same, or choose another --samples",
        )
    return found


def _differences(
    found: Recording, provenance: Mapping[str, str], settings: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    for before, now in ((found.provenance, dict(provenance)), (found.settings, json.loads(json.dumps(dict(settings))))):
        for name in sorted({*before, *now} - set(EXTENT)):
            if before.get(name) != now.get(name):
                yield name, before.get(name), now.get(name)


def _opened(path: Path, resume: bool) -> int:
    try:
        if path.is_file() and path.stat().st_size and not resume:
            raise UsageError(f"{path} is there already", where="--samples", hint="--resume, or another file")
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as error:
        raise _unwritable(path, error) from None


def _lock(descriptor: int, path: Path) -> None:
    """Two runs must not write to one file."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(f"another run is writing to {path}", where="--samples", hint="choose another file") from None
    except OSError:
        return


def _append(descriptor: int, path: Path, data: Mapping[str, Any]) -> None:
    line = (json.dumps(data, allow_nan=False, separators=(",", ":")) + "\n").encode()
    before = os.fstat(descriptor).st_size
    try:
        written = os.write(descriptor, line)
        if written < len(line):
            os.write(descriptor, line[written:])
        os.fsync(descriptor)
    except OSError as error:
        _cut(descriptor, before)
        raise _unwritable(path, error) from None


def _cut(descriptor: int, size: int) -> None:
    """Take a half-written line back, where the file lets itself be cut."""
    try:
        os.ftruncate(descriptor, size)
    except OSError:
        return


def _unwritable(path: Path, error: OSError) -> InvalidFileError:
    return InvalidFileError(
        f"samples cannot be written: {error.strerror or error}",
        where=str(path),
        hint="make room or choose another --samples, then --resume: what was measured is kept",
    )


def _text(path: Path) -> str:
    try:
        if path.is_char_device() or path.is_block_device():
            raise InvalidFileError("a device is no file of samples", where=str(path))
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {path}", where=str(path)) from None
    except UnicodeDecodeError:
        raise InvalidFileError("this is not a file of samples", where=str(path)) from None
    except OSError as error:
        raise InvalidFileError(f"the file cannot be read: {error.strerror}", where=str(path)) from None


def _object(line: str, path: Path, number: int) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise InvalidFileError("this line is no JSON object", where=f"{path}:{number}")
    return data


def _sample(data: dict[str, Any], path: Path, number: int) -> Sample:
    wrong = next((name for name, value in data.items() if not _IS_SOUND.get(name, _is_nothing)(value)), "")
    lacking = [name for name in ("kind", "name", "key", "shape", "cache", *_TIMES) if name not in data]
    if wrong or lacking or data["low"] > data["high"]:
        reason = f": {wrong} cannot be read" if wrong else f": it has no {lacking[0]}" if lacking else ""
        raise InvalidFileError(f"this line is no sample{reason}", where=f"{path}:{number}")
    sample = replace(Sample(**data), repeats=tuple(data["repeats"]), marked=tuple(data.get("marked", ())))
    if lack := _lack_of_its_kind(sample):
        raise InvalidFileError(f"this line is no sample of a {sample.kind}: it has {lack}", where=f"{path}:{number}")
    return sample


def _lack_of_its_kind(sample: Sample) -> str:
    """What a phase or a collective must say of itself and does not; empty where it says it."""
    if sample.kind == "phase":
        axes = [axis for axis in PHASE_AXES if not (sample.shape.get(axis, 0.5) % 1 == 0 < sample.shape[axis])]
        keys = [name for name, known in PHASE_KEYS.items() if sample.key.get(name) not in known]
        figures = [name for name in PHASE_FIGURES if name not in sample.figures]
        words = {"whole": axes, "known": keys, "figure": figures}
        return " and ".join(f"no {kind} {name}" for kind, names in words.items() for name in names)
    if sample.kind == "collective":
        ranks = sample.key.get("gpus", 0)
        sound = isinstance(ranks, int) and ranks > 1 and sample.shape.get("bytes", 0) > 0 and "library" in sample.key
        return "" if sound and sample.key.get("collective") == sample.name else "no library, ranks or bytes"
    return ""


def _is_number(value: Any, least: float = 0.0) -> bool:
    """Whether a finite number of a size that seconds, bytes and FLOPs may have."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= MOST


def _is_time(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_table(value: Any, sound: Callable[[Any], bool]) -> bool:
    return isinstance(value, dict) and all(map(sound, value.values()))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_key(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 1 << 20)


def _is_nothing(value: Any) -> bool:
    return False


_TIMES = ("seconds", "low", "high", "repeats")

_IS_SOUND: dict[str, Callable[[Any], bool]] = {
    "kind": lambda value: value in ("kernel", "phase", "collective"),
    "name": lambda value: isinstance(value, str) and value != "",
    "key": lambda value: _is_table(value, _is_key),
    "shape": lambda value: _is_table(value, _is_number),
    "cache": lambda value: value in ("cold", "warm"),
    "seconds": _is_time,
    "low": _is_time,
    "high": _is_time,
    "repeats": lambda value: isinstance(value, list) and value != [] and all(map(_is_time, value)),
    "marked": lambda value: isinstance(value, list) and all(map(_is_number, value)),
    "held_out": lambda value: isinstance(value, bool),
    "flops": _is_number,
    "bytes": _is_number,
    "error": _is_number,
    "problem": _is_text,
    "figures": lambda value: _is_table(value, _is_number),
    "conditions": lambda value: _is_table(value, lambda figure: _is_number(figure, -MOST)),
    "started": lambda value: isinstance(value, str) and (value == "" or _DAY.match(value) is not None),
    "spent": _is_number,
}
"""What each field of a line may be; there are no others."""


def _plain(value: float | str) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
