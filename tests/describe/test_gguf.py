"""Files that the gguf package wrote are read exactly; malformed ones are refused."""

import contextlib
import struct
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.describe.byte_source import LocalFile
from capplan.describe.gguf import GgufFile, read_gguf, read_gguf_model
from capplan.describe.remote import Hub, RemoteFile
from capplan.errors import CapplanError, InvalidFileError, NotFoundError, UnsupportedError


class Bytes:
    """A file in memory that knows how far it was read."""

    name = "memory.gguf"

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)
        self.read_bytes = 0

    def read(self, offset: int, length: int) -> bytes:
        assert offset >= 0
        assert offset + length <= self.size
        self.read_bytes += length
        return self.data[offset : offset + length]


def write(path: Path, tensors: dict[str, np.ndarray[Any, Any]], **metadata: Any) -> bytes:
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in metadata.items():
        add: Callable[[str, Any], None] = {
            bool: writer.add_bool,
            int: writer.add_uint32,
            float: writer.add_float32,
            str: writer.add_string,
            list: writer.add_array,
        }[type(value)]
        add(key.replace("__", "."), value)
    for name, array in tensors.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


def test_what_the_package_writes_is_read_exactly(tmp_path: Path) -> None:
    tensors = {
        "token_embd.weight": np.zeros((100, 64), np.float16),
        "blk.0.attn_norm.weight": np.zeros(64, np.float32),
        "blk.0.ffn_gate_exps.weight": np.zeros((4, 96, 64), np.float32),
    }
    vocabulary = [f"token{number}" for number in range(1000)]
    data = write(
        tmp_path / "m.gguf",
        tensors,
        llama__block_count=3,
        llama__rope__freq_base=500000.0,
        general__name="a model",
        general__flag=True,
        tokenizer__ggml__tokens=vocabulary,
        tokenizer__ggml__scores=[0.5] * 10_000,
        llama__attention__head_count_kv=[8, 0, 8],
    )
    source = Bytes(data)
    file = read_gguf(source)
    assert file.metadata == {
        "general.architecture": "llama",
        "llama.block_count": 3,
        "llama.rope.freq_base": 500000.0,
        "general.name": "a model",
        "general.flag": True,
        "llama.attention.head_count_kv": (8, 0, 8),
    }
    assert file.array_lengths["tokenizer.ggml.tokens"] == 1000
    assert file.array_lengths["tokenizer.ggml.scores"] == 10_000
    assert {entry.name: (entry.shape[::-1], entry.bytes) for entry in file.tensors} == {
        name: (array.shape, array.nbytes) for name, array in tensors.items()
    }
    assert file.bits_per_weight == Fraction(8 * 111_360, sum(array.size for array in tensors.values()))
    assert file.bytes_by_type() == {"F16": 12_800, "F32": 256 + 98_304}


@pytest.mark.parametrize("quantised", [t for t, (block, _) in gguf.GGML_QUANT_SIZES.items() if block > 1])
def test_quantised_types_have_the_packages_sizes(tmp_path: Path, quantised: gguf.GGMLQuantizationType) -> None:
    block, size = gguf.GGML_QUANT_SIZES[quantised]
    writer = gguf.GGUFWriter(tmp_path / "q.gguf", "llama")
    array = np.zeros((5, 3 * size), np.uint8)
    writer.add_tensor("w", array, raw_dtype=quantised)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with LocalFile(tmp_path / "q.gguf") as source:
        entry = read_gguf(source).tensors[0]
    assert (entry.type.name, entry.shape, entry.bytes) == (quantised.name, (3 * block, 5), array.nbytes)


def test_weights_are_not_read(tmp_path: Path) -> None:
    source = Bytes(write(tmp_path / "m.gguf", {"w": np.zeros(4_000_000, np.float32)}))
    read_gguf(source)
    assert source.read_bytes <= 2 << 20


def test_a_vocabulary_of_many_windows(tmp_path: Path) -> None:
    vocabulary = ["x" * 40 + str(number) for number in range(60_000)]
    source = Bytes(write(tmp_path / "m.gguf", {"w": np.zeros(4, np.float32)}, tokenizer__ggml__tokens=vocabulary))
    assert read_gguf(source).array_lengths == {"tokenizer.ggml.tokens": 60_000}


def test_over_http(tmp_path: Path, server: Any) -> None:
    server.files["/m.gguf"] = write(tmp_path / "m.gguf", {"w": np.zeros(1_000_000, np.float32)})
    file = read_gguf(RemoteFile(Hub(server.address), f"{server.address}/m.gguf", 64 << 10))
    assert file.data_bytes == 4_000_000
    assert len(server.seen) == 1


def shard_names(count: int) -> list[str]:
    return [f"m-{number:05d}-of-{count:05d}.gguf" for number in range(1, count + 1)]


def write_shards(folder: Path, wrong: str = "") -> Path:
    for number, name in enumerate(shard_names(2)):
        tensor = "w0" if wrong == "twice" else f"w{number}"
        split = {"split__no": 1 - number if wrong == "order" else number, "split__count": 2}
        write(
            folder / name,
            {tensor: np.zeros(32, np.float32)},
            **split,
            split__tensors__count=3 if wrong == "count" else 2,
        )
    return folder / shard_names(2)[0]


def test_shards_are_one_model(tmp_path: Path) -> None:
    file = read_gguf_model(write_shards(tmp_path))
    assert [entry.name for entry in file.tensors] == ["w0", "w1"]
    assert file.data_bytes == 256


@pytest.mark.parametrize(
    ("wrong", "message"), [("order", "not the one"), ("twice", "same tensor"), ("count", "2 tensors, not 3")]
)
def test_shards_that_do_not_belong_together(tmp_path: Path, wrong: str, message: str) -> None:
    with pytest.raises(InvalidFileError, match=message):
        read_gguf_model(write_shards(tmp_path, wrong))


def test_a_missing_shard(tmp_path: Path) -> None:
    first = write_shards(tmp_path)
    (tmp_path / shard_names(2)[1]).unlink()
    with pytest.raises(NotFoundError, match="missing"):
        read_gguf_model(first)
    with pytest.raises(InvalidFileError, match="can't be"):
        read_gguf_model(tmp_path / "m-00003-of-00002.gguf")
    with pytest.raises(NotFoundError):
        read_gguf_model(tmp_path / "none.gguf")


def string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def entry(key: bytes, kind: int, value: bytes) -> bytes:
    return string(key) + struct.pack("<I", kind) + value


def info(name: bytes, shape: list[int], kind: int = 0, offset: int = 0) -> bytes:
    return string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def build(
    entries: list[bytes] | None = None, infos: list[bytes] | None = None, data: bytes = b"", version: int = 3
) -> bytes:
    entries, infos = entries or [], infos or []
    head = b"GGUF" + struct.pack("<IQQ", version, len(infos), len(entries)) + b"".join(entries + infos)
    return head + b"\0" * (-len(head) % 32) + data


def read(data: bytes) -> GgufFile:
    return read_gguf(Bytes(data))


def test_version_two_and_three_and_no_tensors() -> None:
    assert read(build(version=2)).version == 2
    assert read(build()).bits_per_weight == 0


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (b"", InvalidFileError, "not a GGUF"),
        (b"GGML" + b"\0" * 20, InvalidFileError, "not a GGUF"),
        (b"GGUF", InvalidFileError, "ends within"),
        (build(version=1), UnsupportedError, "version 1"),
        (build(version=4), UnsupportedError, "version 4"),
        (b"GGUF" + struct.pack(">I", 3) + b"\0" * 16, UnsupportedError, "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 40, 0), InvalidFileError, "tensors"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 40), InvalidFileError, "metadata entries"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2, 0) + info(b"a", [4]), InvalidFileError, "ends within"),
        (build([string(b"k" * 300)]), InvalidFileError, "300 bytes"),
        (build([string(b"\xff")]), InvalidFileError, "UTF-8"),
        (build([entry(b"k", 13, b"")]), InvalidFileError, "unknown type 13"),
        (build([entry(b"k", 0, b"\1")] * 2), InvalidFileError, "stands twice"),
        (build([entry(b"k", 8, struct.pack("<Q", 1 << 62))]), InvalidFileError, "a text of"),
        (build([entry(b"k", 9, struct.pack("<IQ", 9, 1))]), InvalidFileError, "unknown type 9"),
        (build([entry(b"k", 9, struct.pack("<IQ", 8, 1 << 40))]), InvalidFileError, "strings"),
        (build([entry(b"k", 9, struct.pack("<IQ", 10, 1 << 60))]), InvalidFileError, "ends within"),
        (build([entry(b"general.alignment", 4, struct.pack("<I", 0))]), InvalidFileError, "power of two"),
        (build([entry(b"general.alignment", 4, struct.pack("<I", 48))]), InvalidFileError, "power of two"),
        (build([entry(b"general.alignment", 8, string(b"32"))]), InvalidFileError, "power of two"),
        (build(infos=[info(b"w", [1] * 5)]), InvalidFileError, "5 dimensions"),
        (build(infos=[info(b"w", [1 << 40, 1 << 40])]), InvalidFileError, "impossible"),
        (build(infos=[info(b"w", [0, 4])]), InvalidFileError, "impossible"),
        (build(infos=[info(b"w", [100], kind=12)]), InvalidFileError, "whole number of Q4_K"),
        (build(infos=[info(b"w", [4], kind=4)]), UnsupportedError, "type number 4"),
        (build(infos=[info(b"w", [4])]), InvalidFileError, "beyond the file"),
        (build(infos=[info(b"w", [4], offset=8)], data=b"\0" * 64), InvalidFileError, "aligned"),
        (build(infos=[info(b"v", [16]), info(b"w", [4], offset=32)], data=b"\0" * 96), InvalidFileError, "overlaps"),
        (build(infos=[info(b"w", [4]), info(b"w", [4], offset=32)], data=b"\0" * 96), InvalidFileError, "stands twice"),
    ],
)
def test_malformed_files_are_refused(data: bytes, error: type[CapplanError], message: str) -> None:
    with pytest.raises(error, match=message):
        read(data)


def test_a_long_text_is_passed_over() -> None:
    assert read(build([entry(b"tokenizer.chat_template", 8, string(b"x" * 100_000))])).metadata == {}


@settings(max_examples=200)
@given(st.data())
def test_damaged_files_are_read_or_refused(data: st.DataObject) -> None:
    whole = bytearray(
        build([entry(b"a", 4, b"\1\0\0\0"), entry(b"b", 9, struct.pack("<IQ", 4, 2) + b"\0" * 8)], [info(b"w", [8])])
        + b"\0" * 32
    )
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CapplanError):
        read(bytes(whole[: data.draw(st.integers(0, len(whole)))]))
