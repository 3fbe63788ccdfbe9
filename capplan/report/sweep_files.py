"""Write a sweep's rows to CSV, JSON lines or Parquet as they come; a run that was cut off goes on where it was.

Beside the file stands ``NAME.progress`` until the sweep is done: which sweep it is, how many chunks are in the file,
and what was kept of their rows. CSV and JSON lines are cut back to the last whole chunk; Parquet, to which nothing can
be added once it is closed, is put together from one part a chunk.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from capplan.describe.files import suffix_of, writing
from capplan.errors import InvalidFileError, UsageError
from capplan.planner.sweep import FIGURES
from capplan.questions.sweep import DEPLOYMENT, Scheduler, SweepChunk, SweepSummary, one_after_the_other, sweep_chunks
from capplan.questions.sweep_request import SweepRequest

COLUMN_TYPES: dict[str, str] = (
    dict.fromkeys((*DEPLOYMENT, *FIGURES), "real")
    | dict.fromkeys(("model", "gpu", "engine", "weights", "weight_dtype", "kv_cache_dtype"), "text")
    | dict.fromkeys(("deployment", "gpus", "tp", "pp", "dp", "max_num_batched_tokens", "max_num_seqs"), "integer")
    | dict.fromkeys(("kv_tokens", "weight_bytes_per_rank", "isl", "osl", "concurrency"), "integer")
    | {"ep": "flag", "queued": "flag"}
)
"""What a column of a Parquet file holds."""

DIGITS = ".9g"
"""Significant digits of real numbers in text files."""


class RowFile(Protocol):
    """Where rows go."""

    def go_on(self, chunks: int, size: int) -> None:
        """Keep the first `chunks` chunks, which end at `size`, and add to them; 0: begin anew."""

    def add(self, chunk: SweepChunk) -> int:
        """Write a chunk and return how long the file is now."""

    def finish(self) -> None:
        """Close the file."""


class TextRows:
    """Rows as lines of text."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = _csv_lines if suffix_of(path) == ".csv" else _json_lines
        self._file: Any = None

    def go_on(self, chunks: int, size: int) -> None:
        """Cut the file back to its last whole chunk, or begin it with its header."""
        if chunks and (not self._path.exists() or self._path.stat().st_size < size):
            raise _not_what_was_written(self._path)
        self._file = self._path.open("r+b" if chunks else "wb")
        if chunks:
            self._file.truncate(size)
            self._file.seek(0, os.SEEK_END)
        elif suffix_of(self._path) == ".csv":
            self._file.write((",".join((*DEPLOYMENT, *FIGURES)) + "\n").encode())

    def add(self, chunk: SweepChunk) -> int:
        """Write the rows of a chunk."""
        self._file.write("".join(self._lines(chunk)).encode())
        self._file.flush()
        return int(self._file.tell())

    def finish(self) -> None:
        """Close the file."""
        self._file.close()


class ParquetRows:
    """Rows as a Parquet file, one row group a chunk."""

    def __init__(self, path: Path) -> None:
        try:
            import pyarrow.parquet as parquet
        except ImportError:
            raise UsageError(
                "pyarrow is not installed", where="--out", hint="pip install 'capplan[sweep]', or name a .csv"
            ) from None
        self._parquet: Any = parquet
        self._path, self._parts = path, path.with_name(f"{path.name}.parts")

    def go_on(self, chunks: int, size: int) -> None:
        """Keep the parts of the first chunks."""
        if not chunks:
            shutil.rmtree(self._parts, ignore_errors=True)
        self._parts.mkdir(parents=True, exist_ok=True)
        for part in self._parts.iterdir():
            if part.suffix != ".parquet" or int(part.stem) >= chunks:
                part.unlink()
        if len(list(self._parts.iterdir())) != chunks:
            raise _not_what_was_written(self._parts)

    def add(self, chunk: SweepChunk) -> int:
        """Write a chunk as a part of its own."""
        part = self._parts / f"{chunk.index:08d}.parquet"
        self._parquet.write_table(_arrow(chunk), f"{part}.tmp")
        os.replace(f"{part}.tmp", part)
        return chunk.index + 1

    def finish(self) -> None:
        """Put the parts together, one after the other."""
        parts = sorted(self._parts.glob("*.parquet"))
        with self._parquet.ParquetWriter(f"{self._path}.tmp", _arrow_schema()) as writer:
            for part in parts:
                writer.write_table(self._parquet.read_table(part))
        os.replace(f"{self._path}.tmp", self._path)
        shutil.rmtree(self._parts, ignore_errors=True)


def row_file(path: Path) -> RowFile:
    """Where rows go, by the name of the file.

    Raises:
        UsageError: none of the formats, or Parquet without pyarrow.
    """
    suffix = suffix_of(path)
    if suffix in (".csv", ".jsonl"):
        return TextRows(path)
    if suffix == ".parquet":
        return ParquetRows(path)
    raise UsageError(f"{path.name[:60]!r} is no .csv, .jsonl or .parquet", where="--out")


def write_sweep(
    request: SweepRequest,
    path: Path,
    *,
    scheduler: Scheduler = one_after_the_other,
    restart: bool = False,
    told: Callable[[int], None] = lambda chunks: None,
) -> SweepSummary:
    """Compute a sweep into a file, going on where one that was cut off ended.

    Args:
        request: the sweep.
        path: a ``.csv``, ``.jsonl`` or ``.parquet``.
        scheduler: who computes the chunks.
        restart: begin anew whatever is there.
        told: hears how many chunks are done after each.

    Raises:
        UsageError: the file cannot be written, or another sweep's progress stands beside it.
    """
    rows, note = row_file(path), path.with_name(f"{path.name}.progress")
    with writing(path, "--out"):
        fresh = SweepSummary(request.grid.mixes)
        done, size, summary = (0, 0, fresh) if restart or not note.exists() else _progress(note, request)
        rows.go_on(done, size)
        for chunk in sweep_chunks(request, done, scheduler):
            size = rows.add(chunk)
            summary.add(chunk)
            _write_progress(note, request, chunk.index + 1, size, summary)
            told(chunk.index + 1)
        rows.finish()
        note.unlink(missing_ok=True)
    return summary


def _progress(note: Path, request: SweepRequest) -> tuple[int, int, SweepSummary]:
    """(chunks, size, what was kept) of a run that was cut off."""
    try:
        data = json.loads(note.read_text(encoding="utf-8"))
        found = str(data["fingerprint"]), int(data["chunks"]), int(data["size"]), SweepSummary(**data["summary"])
    except (ValueError, KeyError, TypeError, UnicodeDecodeError):
        raise InvalidFileError("this is no progress of a sweep", where=str(note), hint="add --restart") from None
    if found[0] != request.fingerprint:
        raise UsageError(
            "another sweep into this file was cut off", where=str(note), hint="add --restart, or name another file"
        )
    return found[1:]


def _not_what_was_written(path: Path) -> UsageError:
    return UsageError("less is here than the sweep had written", where=str(path), hint="add --restart")


def _write_progress(note: Path, request: SweepRequest, chunks: int, size: int, summary: SweepSummary) -> None:
    data = {"fingerprint": request.fingerprint, "chunks": chunks, "size": size, "summary": vars(summary)}
    partial = note.with_name(f"{note.name}.tmp")
    partial.write_text(json.dumps(data), encoding="utf-8")
    os.replace(partial, note)


def _cells(chunk: SweepChunk) -> Iterator[list[str]]:
    """Each column of a chunk's figures as text."""
    for name in FIGURES:
        values = chunk.columns[name]
        if values.dtype.kind == "b":
            yield ["true" if value else "false" for value in values.tolist()]
        elif values.dtype.kind == "i":
            yield list(map(str, values.tolist()))
        else:
            yield [format(value, DIGITS) for value in values.tolist()]


def _plain(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return format(value, DIGITS) if isinstance(value, float) else str(value)


def _csv_lines(chunk: SweepChunk) -> Iterator[str]:
    head = ",".join(map(_plain, chunk.constants))
    for cells in zip(*_cells(chunk), strict=True):
        yield f"{head},{','.join(cells)}\n"


def _json_lines(chunk: SweepChunk) -> Iterator[str]:
    pairs = zip(DEPLOYMENT, chunk.constants, strict=True)
    texts = (f'"{name}":{_plain(value) if isinstance(value, float) else json.dumps(value)}' for name, value in pairs)
    head = ",".join(texts)
    keys = [f'"{name}":' for name in FIGURES]
    for cells in zip(*_cells(chunk), strict=True):
        yield f"{{{head},{','.join(map(''.join, zip(keys, cells, strict=True)))}}}\n"


def _arrow(chunk: SweepChunk) -> Any:
    import pyarrow as arrow

    schema = _arrow_schema()
    columns = [
        arrow.repeat(arrow.scalar(value, type=schema.field(name).type), chunk.rows)
        for name, value in zip(DEPLOYMENT, chunk.constants, strict=True)
    ]
    columns += [arrow.array(chunk.columns[name], type=schema.field(name).type) for name in FIGURES]
    return arrow.table(columns, schema=schema)


def _arrow_schema() -> Any:
    import pyarrow as arrow

    types = {"text": arrow.string(), "integer": arrow.int64(), "real": arrow.float64(), "flag": arrow.bool_()}
    return arrow.schema([(name, types[COLUMN_TYPES[name]]) for name in (*DEPLOYMENT, *FIGURES)])
