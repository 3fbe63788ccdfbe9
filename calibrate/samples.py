"""Samples on disk: one JSON object a line, appended as they come, so that nothing measured is ever lost.

The first line says what was measured where. A line that was cut off when the process died is dropped on resuming; a
sample that is there is not measured again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from capplan.errors import InvalidFileError, NotFoundError, UsageError

SCHEMA = 1

EXTENT = ("minutes", "points")
"""Settings that say how long a run goes on: one that is resumed may go on for longer."""

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
        spent: seconds that it took with preparation and check.
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
    if header.get("schema") != SCHEMA or not isinstance(header.get("provenance"), dict):
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
    try:
        sample = Sample(**data)
        sound = sample.seconds > 0 and 0 < sample.low <= sample.high and len(sample.repeats) > 0
        sample = replace(sample, repeats=tuple(sample.repeats), marked=tuple(sample.marked))
    except TypeError:
        sound = False
    if not sound:
        raise InvalidFileError("this line is no sample", where=f"{path}:{number}")
    return sample


def _plain(value: float | str) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
