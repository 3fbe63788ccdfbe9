"""A checkpoint's tensors, from its index and the headers of its shards: exact bytes, and no weight is read.

A checkpoint is one ``model.safetensors``, or shards that ``model.safetensors.index.json`` lists; a folder on disk, or a
repository on a hub. Without an index, all ``*.safetensors`` files of a folder are its shards.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from capplan.describe.byte_source import ByteSource, LocalFile
from capplan.describe.json_cursor import JsonCursor
from capplan.describe.remote import Hub, MissingFileError, RemoteFile, read_remote_text
from capplan.describe.safetensors import FIRST_READ, SafetensorsFile, TensorEntry, read_safetensors
from capplan.describe.tensor_names import component_of
from capplan.errors import InvalidFileError, NotFoundError

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
MAX_INDEX_BYTES = 32 << 20
MAX_INDEX_ENTRIES = 500_000
MAX_SHARDS = 2000
PARALLEL_REQUESTS = 8


class CheckpointFiles(Protocol):
    """Where the files of a checkpoint are."""

    @property
    def name(self) -> str:
        """What to call it in an error."""

    def text(self, file: str, most_bytes: int) -> str | None:
        """A text file, or None where there is none."""

    def shards(self) -> Sequence[str]:
        """The safetensors files of a checkpoint without an index."""

    def headers(self, files: Sequence[str]) -> list[SafetensorsFile]:
        """The headers of these files, in this order."""


@dataclass(frozen=True)
class LocalCheckpoint:
    """A checkpoint's folder on disk."""

    folder: Path

    @property
    def name(self) -> str:
        """The folder."""
        return str(self.folder)

    def text(self, file: str, most_bytes: int) -> str | None:
        """A text file of the folder."""
        try:
            with LocalFile(self.folder / file) as source:
                return _decoded(source, most_bytes)
        except NotFoundError:
            return None

    def shards(self) -> Sequence[str]:
        """All safetensors files of the folder; ``consolidated`` copies only where there is nothing else."""
        try:
            names = sorted(path.name for path in self.folder.glob("*.safetensors"))
        except OSError as error:
            raise InvalidFileError(f"the folder cannot be read: {error.strerror}", where=self.name) from None
        return [name for name in names if not name.startswith("consolidated")] or names

    def headers(self, files: Sequence[str]) -> list[SafetensorsFile]:
        """The headers of files of the folder."""
        found = []
        for file in files:
            with LocalFile(self.folder / file) as source:
                found.append(read_safetensors(source))
        return found


@dataclass(frozen=True)
class HubCheckpoint:
    """A repository on a hub, at a revision."""

    hub: Hub
    repository: str
    revision: str = "main"

    @property
    def name(self) -> str:
        """The repository."""
        return self.repository

    def text(self, file: str, most_bytes: int) -> str | None:
        """A text file of the repository."""
        try:
            return read_remote_text(self.hub, self._address(file), most_bytes)
        except MissingFileError:
            return None

    def shards(self) -> Sequence[str]:
        """The one file that a repository without an index has."""
        return [SINGLE]

    def headers(self, files: Sequence[str]) -> list[SafetensorsFile]:
        """The headers of files of the repository, several at a time."""
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
            return list(pool.map(self._header, files))

    def _header(self, file: str) -> SafetensorsFile:
        return read_safetensors(RemoteFile(self.hub, self._address(file), FIRST_READ))

    def _address(self, file: str) -> str:
        return self.hub.address(self.repository, file, self.revision)


@dataclass(frozen=True)
class Checkpoint:
    """The tensors of a checkpoint.

    Args:
        name: where it is.
        files: the headers of its shards.
        tensors: all tensors.
        total_size: the bytes that the index claims; None without an index.
        notes: what is odd about it, though not wrong.
    """

    name: str
    files: tuple[SafetensorsFile, ...]
    tensors: tuple[TensorEntry, ...]
    total_size: int | None
    notes: tuple[str, ...] = ()

    @property
    def data_bytes(self) -> int:
        """Bytes of all tensors, without headers."""
        return sum(tensor.bytes for tensor in self.tensors)

    @property
    def file_bytes(self) -> int:
        """Bytes of all files, headers included."""
        return sum(file.header_bytes + file.data_bytes for file in self.files)

    def bytes_by_format(self) -> dict[str, int]:
        """Bytes of the tensors in each number format."""
        return self._sum(lambda tensor: tensor.format.name)

    def bytes_by_component(self) -> dict[str, int]:
        """Bytes of the tensors of each component, scales with the weights that they belong to."""
        return self._sum(lambda tensor: component_of(tensor.name))

    def _sum(self, key: _Key) -> dict[str, int]:
        sums: defaultdict[str, int] = defaultdict(int)
        for tensor in self.tensors:
            sums[key(tensor)] += tensor.bytes
        return dict(sums)


class _Key(Protocol):
    def __call__(self, tensor: TensorEntry, /) -> str: ...


def read_checkpoint(files: CheckpointFiles) -> Checkpoint:
    """The tensors of a checkpoint, from its index and headers.

    Raises:
        NotFoundError: it has no safetensors file.
        InvalidFileError: a malformed index or header, a tensor that its shard doesn't have or that two shards have.
        UnsupportedError: a number format that isn't known.
    """
    index = files.text(INDEX, MAX_INDEX_BYTES)
    if index is None:
        shards = files.shards()
        if not shards:
            raise NotFoundError("there is no safetensors file", where=files.name)
        if len(shards) > MAX_SHARDS:
            raise InvalidFileError(f"more than {MAX_SHARDS} shards", where=files.name)
        headers = files.headers(shards)
        return Checkpoint(files.name, tuple(headers), _all_once(headers, files.name), None)
    total_size, weight_map = parse_index(index, f"{files.name}/{INDEX}")
    shards = sorted(set(weight_map.values()))
    headers = files.headers(shards)
    tensors = _all_once(headers, files.name)
    return Checkpoint(
        files.name,
        tuple(headers),
        tensors,
        total_size,
        tuple(_compare(dict(zip(shards, headers, strict=True)), weight_map, total_size, files.name)),
    )


def _all_once(headers: Sequence[SafetensorsFile], where: str) -> tuple[TensorEntry, ...]:
    tensors: dict[str, TensorEntry] = {}
    for header in headers:
        for tensor in header.tensors:
            if tensor.name in tensors:
                raise InvalidFileError(f"two shards have the tensor {tensor.name[:60]!r}", where=where)
            tensors[tensor.name] = tensor
    return tuple(tensors.values())


def _compare(
    headers: dict[str, SafetensorsFile], weight_map: dict[str, str], total_size: int | None, where: str
) -> Iterator[str]:
    """What the index and the headers disagree about: a tensor that is missing is an error, the rest is noted."""
    held = {file: {tensor.name for tensor in header.tensors} for file, header in headers.items()}
    for name, file in weight_map.items():
        if name not in held[file]:
            raise InvalidFileError(f"the index says that {file} has {name[:60]!r}, and it has not", where=where)
    unlisted = sum(len(names) for names in held.values()) - len(weight_map)
    if unlisted:
        yield f"{unlisted} tensors of the shards are not in the index"
    found = sum(header.data_bytes for header in headers.values())
    if total_size is not None and total_size != found:
        yield f"the index says {total_size} bytes in all, the shards have {found}"


def parse_index(text: str, where: str) -> tuple[int | None, dict[str, str]]:
    """(the total size that it claims, the shard of each tensor) of an index file.

    Raises:
        InvalidFileError: malformed, a tensor twice, or a shard whose name leads out of the folder.
    """
    cursor = JsonCursor(text, where)
    total_size: int | None = None
    weight_map: dict[str, str] | None = None
    for key in _keys(cursor):
        if key == "weight_map" and weight_map is None:
            weight_map = _parse_weight_map(cursor)
        elif key == "metadata":
            for inner in _keys(cursor):
                if inner == "total_size" and cursor.peek().isdecimal():
                    total_size = _whole(cursor)
                else:
                    cursor.skip()
        else:
            cursor.skip()
    cursor.end()
    if not weight_map:
        raise InvalidFileError("the index has no weight_map", where=where)
    return total_size, weight_map


def _whole(cursor: JsonCursor) -> int:
    value = cursor.integer()
    if not 0 <= value < 1 << 63:
        cursor.refuse("a possible total_size")
    return value


def _keys(cursor: JsonCursor) -> Iterator[str]:
    """The keys of an object; the caller goes past each value."""
    cursor.take("{")
    first = True
    while cursor.more("}", first=first):
        first = False
        key = cursor.string()
        cursor.take(":")
        yield key


def _parse_weight_map(cursor: JsonCursor) -> dict[str, str]:
    weight_map: dict[str, str] = {}
    files: dict[str, str] = {}
    cursor.take("{")
    while cursor.more("}", first=not weight_map):
        name, file = cursor.pair_of_plain_strings() or _pair(cursor)
        if file not in files:
            _check_shard_name(file, cursor)
            files[file] = file
        if name in weight_map or len(weight_map) == MAX_INDEX_ENTRIES or len(files) > MAX_SHARDS:
            cursor.refuse("each tensor once, and not too many")
        weight_map[name] = files[file]
    return weight_map


def _pair(cursor: JsonCursor) -> tuple[str, str]:
    name = cursor.string()
    cursor.take(":")
    return name, cursor.string()


def _check_shard_name(file: str, cursor: JsonCursor) -> None:
    plain = file.replace("\\", "/")
    unsafe = plain.startswith("/") or ".." in plain.split("/") or ":" in plain or not plain.isprintable()
    if unsafe or not plain.endswith(".safetensors") or len(plain) > 200:
        cursor.refuse("the name of a shard in the same folder")


def _decoded(source: ByteSource, most_bytes: int) -> str:
    if source.size > most_bytes:
        raise InvalidFileError(f"the file is longer than {most_bytes} bytes", where=source.name)
    try:
        return source.read(0, source.size).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidFileError(f"the file is not UTF-8 text: {error.reason}", where=source.name) from None
