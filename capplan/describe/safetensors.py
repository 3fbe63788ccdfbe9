"""What a safetensors file holds, from its header alone: names, number formats, shapes and exact bytes.

A file is an unsigned 64-bit little-endian length N, a JSON header of N bytes, and the tensors' bytes without holes:

    file bytes = 8 + N + Σ_tensors elements · bits / 8

Source: the safetensors format description (github.com/huggingface/safetensors, README "Format").
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from capplan.describe.byte_source import ByteSource
from capplan.describe.formats import NumberFormat, safetensors_format
from capplan.describe.json_cursor import JsonCursor
from capplan.errors import InvalidFileError

LENGTH_BYTES = 8
FIRST_READ = 64 << 10
MAX_HEADER_BYTES = 16 << 20
MAX_TENSORS = 100_000
MAX_UNUSUAL = 30_000
MAX_DIMENSIONS = 16
MAX_ELEMENTS = 1 << 50
MAX_NAME = 1000
MAX_METADATA = 10_000

# An entry as every writer writes it, at once; headers have up to a hundred thousand. Others are read key by key.
_INTEGER = r"(?:0|[1-9][0-9]{0,18})"
_USUAL_ENTRY = re.compile(
    r'\s*\{"dtype":\s?"([A-Z0-9_]{1,20})",\s?'
    rf'"shape":\s?\[((?:{_INTEGER}(?:,\s?{_INTEGER}){{0,15}})?)\],\s?'
    rf'"data_offsets":\s?\[({_INTEGER}),\s?({_INTEGER})\]\}}'
)


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor of a header.

    Args:
        name: its name.
        format: the number format of its elements.
        shape: its dimensions; empty for a scalar.
        begin: offset of its first byte behind the header.
    """

    name: str
    format: NumberFormat
    shape: tuple[int, ...]
    begin: int

    @property
    def elements(self) -> int:
        """Elements = the product of the shape."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes = elements · bits / 8."""
        return self.format.bytes_for(self.elements)


@dataclass(frozen=True)
class SafetensorsFile:
    """The header of one file.

    Args:
        name: the file, for errors and for display.
        tensors: in the order of their bytes.
        metadata: the free text that the writer left.
        header_bytes: 8 + N.
    """

    name: str
    tensors: tuple[TensorEntry, ...]
    metadata: dict[str, str]
    header_bytes: int

    @property
    def data_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.bytes for tensor in self.tensors)


def read_safetensors(source: ByteSource) -> SafetensorsFile:
    """The header of a file, checked against the file's length.

    Raises:
        InvalidFileError: not a safetensors file, or one whose header contradicts itself or the file: overlaps, holes,
            sizes that don't match format and shape, duplicate names, lengths beyond the file.
        UnsupportedError: a number format that the format description doesn't know.
    """
    where = source.name
    first = source.read(0, min(source.size, FIRST_READ))
    if len(first) < LENGTH_BYTES:
        raise InvalidFileError("too short for a safetensors file", where=where)
    length = int.from_bytes(first[:LENGTH_BYTES], "little")
    if length > source.size - LENGTH_BYTES:
        raise InvalidFileError(f"the header says that it has {length} bytes, more than the file", where=where)
    if length > MAX_HEADER_BYTES:
        raise InvalidFileError(f"a header of {length} bytes is longer than {MAX_HEADER_BYTES}", where=where)
    end = LENGTH_BYTES + length
    header = first[LENGTH_BYTES:end]
    if end > len(first):
        header += source.read(len(first), end - len(first))
    try:
        text = header.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidFileError(f"the header is not UTF-8 text: {error.reason}", where=where) from None
    tensors, metadata = _parse_header(text, where)
    _check_offsets(tensors, source.size - end, where)
    return SafetensorsFile(where, tuple(tensors), metadata, end)


def _parse_header(text: str, where: str) -> tuple[list[TensorEntry], dict[str, str]]:
    cursor = JsonCursor(text, where)
    metadata: dict[str, str] | None = None
    tensors: dict[str, TensorEntry] = {}
    formats: dict[str, NumberFormat] = {}
    unusual = 0
    cursor.take("{")
    first = True
    while cursor.more("}", first=first):
        first = False
        name = cursor.string()
        cursor.take(":")
        if name in tensors or (name == "__metadata__" and metadata is not None):
            raise InvalidFileError(f"the name {name[:60]!r} stands twice in the header", where=where)
        if name == "__metadata__":
            metadata = _parse_metadata(cursor)
            continue
        if len(tensors) == MAX_TENSORS or len(name) > MAX_NAME:
            raise InvalidFileError(f"more than {MAX_TENSORS} tensors, or a name of {len(name)} characters", where=where)
        usual = _USUAL_ENTRY.match(cursor.text, cursor.at)
        unusual += usual is None
        if unusual > MAX_UNUSUAL:
            cursor.refuse("dtype, shape and data_offsets in this order")
        tensors[name] = _parse_entry(cursor, name, usual, formats)
    cursor.end()
    return sorted(tensors.values(), key=lambda tensor: (tensor.begin, tensor.bytes)), metadata or {}


def _parse_metadata(cursor: JsonCursor) -> dict[str, str]:
    metadata: dict[str, str] = {}
    cursor.take("{")
    while cursor.more("}", first=not metadata):
        key = cursor.string()
        cursor.take(":")
        if key in metadata or len(metadata) == MAX_METADATA:
            cursor.refuse("metadata with each key once")
        metadata[key] = cursor.string()
    return metadata


def _parse_entry(
    cursor: JsonCursor, name: str, usual: re.Match[str] | None, formats: dict[str, NumberFormat]
) -> TensorEntry:
    """One tensor's ``dtype``, ``shape`` and ``data_offsets``, in any order and each once."""
    if usual is not None:
        cursor.at = usual.end()
        shape = tuple(map(int, usual[2].split(","))) if usual[2].strip() else ()
        dtype, begin, end = usual[1], int(usual[3]), int(usual[4])
    else:
        dtype, shape, (begin, end) = _parse_any_entry(cursor, name)
    if dtype not in formats:
        formats[dtype] = safetensors_format(dtype, where=cursor.where)
    entry = TensorEntry(name, formats[dtype], shape, begin)
    _check_size(entry, end, cursor.where)
    return entry


def _parse_any_entry(cursor: JsonCursor, name: str) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    offsets: tuple[int, ...] | None = None
    cursor.take("{")
    first = True
    while cursor.more("}", first=first):
        first = False
        key = cursor.string()
        cursor.take(":")
        if key == "dtype" and dtype is None:
            dtype = cursor.string()
        elif key == "shape" and shape is None:
            shape = cursor.integers(MAX_DIMENSIONS)
        elif key == "data_offsets" and offsets is None:
            offsets = cursor.integers(2)
        else:
            cursor.refuse("dtype, shape and data_offsets, each once")
    if dtype is None or shape is None or offsets is None or len(offsets) != 2:
        cursor.refuse(f"dtype, shape and two data_offsets for {name[:60]!r}")
    return dtype, shape, offsets


def _check_size(entry: TensorEntry, end: int, where: str) -> None:
    if min(entry.shape, default=0) < 0 or entry.begin < 0 or entry.elements > MAX_ELEMENTS:
        raise InvalidFileError(f"the shape of {entry.name[:60]!r} is impossible", where=where)
    if entry.elements * entry.format.bits % 8:
        raise InvalidFileError(f"{entry.name[:60]!r} isn't a whole number of bytes", where=where)
    if end - entry.begin != entry.bytes:
        raise InvalidFileError(
            f"{entry.name[:60]!r} has {entry.bytes} bytes by its format and shape, and {end - entry.begin} by its "
            "offsets",
            where=where,
        )


def _check_offsets(tensors: list[TensorEntry], data_bytes: int, where: str) -> None:
    """The tensors follow one another from the end of the header to the end of the file."""
    position = 0
    for tensor in tensors:
        if tensor.begin != position:
            fault = "overlaps the tensor before it" if tensor.begin < position else "leaves a hole before it"
            raise InvalidFileError(f"{tensor.name[:60]!r} {fault}", where=where)
        position += tensor.bytes
    if position != data_bytes:
        fault = "is cut off" if position > data_bytes else "has bytes that belong to no tensor"
        raise InvalidFileError(f"the tensors have {position} bytes, the file {data_bytes}: it {fault}", where=where)
