"""What a GGUF file holds, from its header alone: metadata, the tensor table, exact bytes and bits per weight.

A file is the magic ``GGUF``, a version, the numbers of tensors and of metadata entries, the entries, the tensor table,
and, from the next multiple of the alignment on, the tensors, each padded to the alignment:

    bits per weight = 8 · Σ bytes / Σ elements

Source: the GGUF specification (ggml, docs/gguf.md), versions 2 and 3.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import TypeAlias

from capplan.describe.byte_source import ByteSource, LocalFile
from capplan.describe.formats import GgmlType, ggml_type_of_code
from capplan.describe.gguf_cursor import GgufCursor
from capplan.errors import InvalidFileError, NotFoundError, UnsupportedError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_ALIGNMENT = 1 << 20
MAX_ENTRIES = 4096
MAX_TENSORS = 100_000
MAX_DIMENSIONS = 4
MAX_ELEMENTS = 1 << 50
MAX_NAME_BYTES = 256
MAX_KEPT_TEXT = 64 << 10
MAX_KEPT_ARRAY = 4096
MAX_SHARDS = 999

Scalar: TypeAlias = int | float | bool | str
Value: TypeAlias = Scalar | tuple[int | float | bool, ...]

_STRING, _ARRAY = 8, 9
_NUMBERS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_SHARD_NAME = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")


@dataclass(frozen=True, slots=True)
class GgufEntry:
    """One tensor of the table.

    Args:
        name: its name.
        type: its ggml type.
        shape: its dimensions, the columns of a row first.
        offset: of its first byte behind the header.
        bytes: its bytes.
    """

    name: str
    type: GgmlType
    shape: tuple[int, ...]
    offset: int
    bytes: int

    @property
    def elements(self) -> int:
        """Elements = the product of the shape."""
        return prod(self.shape)


@dataclass(frozen=True)
class GgufFile:
    """One file, or all shards of a model together.

    Args:
        name: the (first) file.
        version: of the format.
        metadata: single values, and short arrays of numbers.
        array_lengths: the length of every array, those that were not kept included.
        tensors: in the order of the table.
    """

    name: str
    version: int
    metadata: dict[str, Value]
    array_lengths: dict[str, int]
    tensors: tuple[GgufEntry, ...]

    @property
    def data_bytes(self) -> int:
        """Bytes of all tensors, without headers and padding."""
        return sum(tensor.bytes for tensor in self.tensors)

    @property
    def elements(self) -> int:
        """Elements of all tensors: what llama.cpp prints as the model's parameters."""
        return sum(tensor.elements for tensor in self.tensors)

    @property
    def bits_per_weight(self) -> Fraction:
        """Bits per weight = 8 · bytes / elements, 0 for a file without tensors."""
        return Fraction(8 * self.data_bytes, self.elements) if self.elements else Fraction(0)

    def bytes_by_type(self) -> dict[str, int]:
        """Bytes of the tensors in each ggml type."""
        sums: defaultdict[str, int] = defaultdict(int)
        for tensor in self.tensors:
            sums[tensor.type.name] += tensor.bytes
        return dict(sums)


def read_gguf(source: ByteSource) -> GgufFile:
    """The header of one file, checked against the file's length.

    Raises:
        InvalidFileError: not a GGUF file, or one that is cut off, whose counts or lengths are impossible, or whose
            tensors overlap or lie beyond its end.
        UnsupportedError: another version or byte order, or a ggml type that isn't known.
    """
    cursor = GgufCursor(source)
    if source.size < len(MAGIC) or cursor.take(len(MAGIC)) != MAGIC:
        raise InvalidFileError("this is not a GGUF file", where=source.name)
    version = cursor.unsigned(4)
    if version not in VERSIONS:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS
        reason = "the file is big-endian" if swapped else f"version {version} of the format"
        raise UnsupportedError(f"{reason}, which is not supported", where=source.name)
    tensor_count = cursor.count(MAX_TENSORS, "tensors")
    entry_count = cursor.count(MAX_ENTRIES, "metadata entries")
    metadata: dict[str, Value] = {}
    lengths: dict[str, int] = {}
    seen: set[str] = set()
    for _ in range(entry_count):
        key = cursor.text(MAX_NAME_BYTES)
        if key in seen:
            cursor.refuse(f"the key {key[:60]!r} stands twice")
        seen.add(key)
        _read_value(cursor, key, metadata, lengths)
    infos = [_read_info(cursor) for _ in range(tensor_count)]
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(alignment) is not int or not 1 <= alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        cursor.refuse("general.alignment is not a power of two")
    start = -(-cursor.position // alignment) * alignment
    _check_places(infos, source.size - start, alignment, source.name)
    return GgufFile(source.name, version, metadata, lengths, tuple(infos))


def _read_value(cursor: GgufCursor, key: str, metadata: dict[str, Value], lengths: dict[str, int]) -> None:
    kind = cursor.unsigned(4)
    if kind == _STRING:
        text = cursor.text_or_skip(MAX_KEPT_TEXT)
        if text is not None:
            metadata[key] = text
    elif kind == _ARRAY:
        inner, length = cursor.unsigned(4), cursor.unsigned(8)
        lengths[key] = length
        if inner == _STRING:
            cursor.skip_texts(length)
        elif inner in _NUMBERS:
            number = _NUMBERS[inner]
            if length <= MAX_KEPT_ARRAY:
                metadata[key] = tuple(value for (value,) in number.iter_unpack(cursor.take(length * number.size)))
            else:
                cursor.skip(length * number.size)
        else:
            cursor.refuse(f"{key[:60]!r} is an array of the unknown type {inner}")
    elif kind in _NUMBERS:
        (metadata[key],) = _NUMBERS[kind].unpack(cursor.take(_NUMBERS[kind].size))
    else:
        cursor.refuse(f"{key[:60]!r} has the unknown type {kind}")


def _read_info(cursor: GgufCursor) -> GgufEntry:
    name = cursor.text(MAX_NAME_BYTES)
    dimensions = cursor.unsigned(4)
    if dimensions > MAX_DIMENSIONS:
        cursor.refuse(f"{name[:60]!r} has {dimensions} dimensions")
    shape = tuple(cursor.unsigned(8) for _ in range(dimensions))
    elements = prod(shape)
    if elements > MAX_ELEMENTS or 0 in shape:
        cursor.refuse(f"the shape of {name[:60]!r} is impossible")
    ggml = ggml_type_of_code(cursor.unsigned(4), where=f"{cursor.source.name}: {name[:60]}")
    columns = shape[0] if shape else 1
    try:
        size = ggml.bytes_for(elements // columns, columns)
    except UnsupportedError as error:
        cursor.refuse(f"{name[:60]!r}: {error.message}")
    return GgufEntry(name, ggml, shape, cursor.unsigned(8), size)


def _check_places(infos: Sequence[GgufEntry], data_bytes: int, alignment: int, where: str) -> None:
    """Every tensor lies at a multiple of the alignment, within the file, and behind the one before it."""
    names: set[str] = set()
    end = 0
    for tensor in sorted(infos, key=lambda tensor: (tensor.offset, tensor.bytes)):
        if tensor.name in names:
            raise InvalidFileError(f"the tensor {tensor.name[:60]!r} stands twice", where=where)
        names.add(tensor.name)
        if tensor.offset % alignment:
            raise InvalidFileError(f"{tensor.name[:60]!r} is not aligned to {alignment} bytes", where=where)
        if tensor.offset < end:
            raise InvalidFileError(f"{tensor.name[:60]!r} overlaps the tensor before it", where=where)
        end = tensor.offset + tensor.bytes
        if end > data_bytes:
            raise InvalidFileError(f"{tensor.name[:60]!r} ends beyond the file, which is cut off", where=where)


def read_gguf_model(path: Path) -> GgufFile:
    """A model from its file, or from all its shards when `path` is one of them (``name-00001-of-00003.gguf``).

    Raises:
        NotFoundError: there is no such file, or a shard is missing.
        InvalidFileError: a malformed file, or shards that don't belong together.
        UnsupportedError: see `read_gguf`.
    """
    match = _SHARD_NAME.fullmatch(path.name)
    if match is None:
        with LocalFile(path) as source:
            return read_gguf(source)
    count = int(match[3])
    if not 1 <= int(match[2]) <= count <= MAX_SHARDS:
        raise InvalidFileError("the name says that it is a shard that can't be", where=str(path))
    paths = [path.with_name(f"{match[1]}-{number:05d}-of-{count:05d}.gguf") for number in range(1, count + 1)]
    for shard in paths:
        if not shard.is_file():
            raise NotFoundError(f"the shard {shard.name} is missing", where=str(path.parent))
    with ExitStack() as stack:
        return join_shards([read_gguf(stack.enter_context(LocalFile(shard))) for shard in paths])


def join_shards(shards: Sequence[GgufFile]) -> GgufFile:
    """One model out of its shards; the first one's metadata holds for all.

    Raises:
        InvalidFileError: a shard in the wrong place, a tensor in two of them, or fewer tensors than the first one says.
    """
    first = shards[0]
    for number, shard in enumerate(shards):
        if shard.metadata.get("split.no", number) != number or shard.metadata.get("split.count", len(shards)) != len(
            shards
        ):
            raise InvalidFileError("the shard is not the one that its name says", where=shard.name)
    tensors = tuple(tensor for shard in shards for tensor in shard.tensors)
    if len({tensor.name for tensor in tensors}) != len(tensors):
        raise InvalidFileError("two shards have the same tensor", where=first.name)
    expected = first.metadata.get("split.tensors.count", len(tensors))
    if expected != len(tensors):
        raise InvalidFileError(f"the shards have {len(tensors)} tensors, not {expected}", where=first.name)
    return GgufFile(first.name, first.version, first.metadata, first.array_lengths, tensors)
