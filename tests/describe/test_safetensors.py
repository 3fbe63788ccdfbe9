"""Headers that the safetensors package wrote are read exactly; malformed ones are refused."""

import contextlib
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save, save_file

from capplan.describe.byte_source import LocalFile
from capplan.describe.checkpoint import LocalCheckpoint, parse_index, read_checkpoint
from capplan.describe.safetensors import SafetensorsFile, read_safetensors
from capplan.describe.tensor_names import component_of
from capplan.errors import CapplanError, InvalidFileError, NotFoundError, UnsupportedError


class Bytes:
    """A file in memory."""

    name = "memory.safetensors"

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)
        self.most_read = 0

    def read(self, offset: int, length: int) -> bytes:
        assert offset >= 0
        assert offset + length <= self.size
        self.most_read = max(self.most_read, offset + length)
        return self.data[offset : offset + length]


def read(data: bytes) -> SafetensorsFile:
    return read_safetensors(Bytes(data))


def build(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


DTYPES = ["float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool", "uint16"]


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=20).filter(lambda name: name != "__metadata__"),
        st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 5), max_size=4)),
        max_size=8,
    )
)
def test_what_the_package_writes_is_read_exactly(tensors: dict[str, tuple[str, list[int]]]) -> None:
    arrays = {name: np.zeros(shape, dtype) for name, (dtype, shape) in tensors.items()}
    file = read(save(arrays, metadata={"format": "np"}))
    assert {tensor.name: (tensor.shape, tensor.bytes) for tensor in file.tensors} == {
        name: (array.shape, array.nbytes) for name, array in arrays.items()
    }
    assert file.metadata == {"format": "np"}
    assert file.data_bytes == sum(array.nbytes for array in arrays.values())


def test_no_weight_is_read() -> None:
    source = Bytes(save({"w": np.zeros(1_000_000, np.float32)}))
    read_safetensors(source)
    assert source.most_read <= 64 << 10


def test_a_header_longer_than_the_first_read(tmp_path: Path) -> None:
    arrays = {f"model.layers.{index}.mlp.experts.{index}.up_proj.weight": np.zeros(2, np.int8) for index in range(3000)}
    save_file(arrays, tmp_path / "model.safetensors")
    with LocalFile(tmp_path / "model.safetensors") as source:
        assert len(read_safetensors(source).tensors) == 3000


def entry(begin: int, end: int, dtype: str = "F32", shape: list[int] | None = None) -> dict[str, object]:
    return {"dtype": dtype, "shape": [(end - begin) // 4] if shape is None else shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "too short"),
        (b"\x00" * 7, "too short"),
        (struct.pack("<Q", 1 << 63) + b"{}", "more than the file"),
        (struct.pack("<Q", 3) + b"{}", "more than the file"),
        (build(b""), "'{'"),
        (build(b"{}", b"data"), "belong to no tensor"),
        (build(b"{}x"), "end of the text"),
        (build(b"\xff\xfe{}"), "UTF-8"),
        (build({"a": entry(0, 8)}, b"\0" * 4), "cut off"),
        (build({"a": entry(0, 8)}, b"\0" * 12), "belong to no tensor"),
        (build({"a": entry(0, 8), "b": entry(4, 12)}, b"\0" * 12), "overlaps"),
        (build({"a": entry(0, 8), "b": entry(12, 16)}, b"\0" * 16), "hole"),
        (build({"a": entry(4, 8)}, b"\0" * 8), "hole"),
        (build({"a": entry(0, 8, shape=[3])}, b"\0" * 8), "12 bytes by its format"),
        (build({"a": entry(8, 0, shape=[0])}, b"\0" * 8), "by its"),
        (build({"a": entry(0, 8, shape=[-1, -2])}, b"\0" * 8), "impossible"),
        (build({"a": entry(0, 8, shape=[1 << 60] * 5)}, b"\0" * 8), "impossible"),
        (build({"a": entry(0, 1, "F4", [3])}, b"\0"), "whole number of bytes"),
        (build(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}}', b"0"), "twice"),
        (build(b'{"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"0"), "each once"),
        (build(b'{"a":{"dtype":"U8","shape":[1]}}', b"0"), "two data_offsets"),
        (build(b'{"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}}', b"0"), "whole number"),
        (build(b'{"a":{"dtype":"U8","shape":[99999999999999999999999],"data_offsets":[0,1]}}', b"0"), "whole number"),
        (build(b'{"a":' + b"[" * 10_000 + b"}"), "'{'"),
        (build({"__metadata__": {"k": 1}}), "a string"),
        (build(b'{"__metadata__":{"k":"1","k":"2"}}'), "each key once"),
        (build(b'{"a": "unclosed'), "'{'"),
    ],
)  # fmt: skip
def test_malformed_headers_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(InvalidFileError, match=message):
        read(data)


def test_unknown_formats_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="F7"):
        read(build({"a": entry(0, 8, "F7")}, b"\0" * 8))


def test_sub_byte_formats() -> None:
    file = read(build({"a": {"dtype": "F4", "shape": [2, 3], "data_offsets": [0, 3]}}, b"\0" * 3))
    assert file.tensors[0].bytes == 3


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for candidate in (data, build(data)):
        with contextlib.suppress(CapplanError):
            read(candidate)


def write_shards(folder: Path) -> None:
    save_file(
        {
            "model.embed_tokens.weight": np.zeros((10, 4), np.float16),
            "model.layers.0.self_attn.q_proj.weight": np.zeros((4, 4), np.float16),
        },
        folder / "model-00001-of-00002.safetensors",
    )
    save_file(
        {"model.layers.0.mlp.experts.0.up_proj.weight_scale": np.zeros((4, 1), np.float32)},
        folder / "model-00002-of-00002.safetensors",
    )
    index = {
        "metadata": {"total_size": 80 + 32 + 16},
        "weight_map": {
            "model.embed_tokens.weight": "model-00001-of-00002.safetensors",
            "model.layers.0.self_attn.q_proj.weight": "model-00001-of-00002.safetensors",
            "model.layers.0.mlp.experts.0.up_proj.weight_scale": "model-00002-of-00002.safetensors",
        },
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def test_shards_and_index(tmp_path: Path) -> None:
    write_shards(tmp_path)
    checkpoint = read_checkpoint(LocalCheckpoint(tmp_path))
    assert checkpoint.data_bytes == checkpoint.total_size == 128
    assert checkpoint.file_bytes == sum(path.stat().st_size for path in tmp_path.glob("*.safetensors"))
    assert checkpoint.bytes_by_format() == {"fp16": 112, "fp32": 16}
    assert checkpoint.bytes_by_component() == {"embedding": 80, "attention": 32, "experts_routed": 16}
    assert checkpoint.notes == ()


def test_without_an_index_all_files_are_shards(tmp_path: Path) -> None:
    write_shards(tmp_path)
    (tmp_path / "model.safetensors.index.json").unlink()
    save_file({"other": np.zeros(100, np.int8)}, tmp_path / "consolidated.safetensors")
    assert read_checkpoint(LocalCheckpoint(tmp_path)).data_bytes == 128


def test_what_index_and_shards_disagree_about(tmp_path: Path) -> None:
    write_shards(tmp_path)
    index_path = tmp_path / "model.safetensors.index.json"
    index = json.loads(index_path.read_text())
    del index["weight_map"]["model.embed_tokens.weight"]
    index["metadata"]["total_size"] = 5
    index_path.write_text(json.dumps(index))
    notes = read_checkpoint(LocalCheckpoint(tmp_path)).notes
    assert "1 tensors" in notes[0]
    assert "5 bytes" in notes[1]
    index["weight_map"]["model.norm.weight"] = "model-00002-of-00002.safetensors"
    index_path.write_text(json.dumps(index))
    with pytest.raises(InvalidFileError, match="it has not"):
        read_checkpoint(LocalCheckpoint(tmp_path))


@pytest.mark.parametrize("name", ["../x.safetensors", "/etc/x.safetensors", "a/../../x.safetensors", "x.bin", "c:x.safetensors", "a\\..\\..\\x.safetensors"])  # fmt: skip
def test_a_shard_outside_the_folder_is_refused(name: str) -> None:
    with pytest.raises(InvalidFileError, match="same folder"):
        parse_index(json.dumps({"weight_map": {"a": name}}), "index.json")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": []}', '{"weight_map": {"a": 1}}', '{"weight_map": {}}', '{"weight_map": {"a": "x.safetensors"}} x', '{"metadata": ' + "[" * 1000])  # fmt: skip
def test_malformed_indexes_are_refused(text: str) -> None:
    with pytest.raises(InvalidFileError):
        parse_index(text, "index.json")


def test_a_duplicate_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    for number in (1, 2):
        save_file({"w": np.zeros(1, np.int8)}, tmp_path / f"{number}.safetensors")
    with pytest.raises(InvalidFileError, match="two shards"):
        read_checkpoint(LocalCheckpoint(tmp_path))


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        LocalFile(tmp_path / "nothing")
    with pytest.raises(InvalidFileError):
        LocalFile(tmp_path)
    with pytest.raises(NotFoundError, match="no safetensors"):
        read_checkpoint(LocalCheckpoint(tmp_path))


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os_mkfifo = getattr(__import__("os"), "mkfifo", None)
    if os_mkfifo is None:
        pytest.skip("no pipes here")
    os_mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidFileError, match="regular file"):
        LocalFile(tmp_path / "pipe")


@pytest.mark.parametrize(
    ("name", "component"),
    [
        ("model.embed_tokens.weight", "embedding"),
        ("lm_head.weight", "head"),
        ("model.layers.3.mlp.gate.e_score_correction_bias", "router"),
        ("model.layers.3.mlp.gate_proj.weight_scale_inv", "mlp"),
        ("model.layers.3.block_sparse_moe.experts.7.w1.weight", "experts_routed"),
        ("model.layers.3.mlp.shared_experts.up_proj.weight", "experts_shared"),
        ("model.layers.3.self_attn.indexer.wk.weight", "indexer"),
        ("backbone.layers.3.mixer.in_proj.weight", "linear_mixer"),
        ("model.layers.3.input_layernorm.weight", "norms"),
        ("model.visual.blocks.0.attn.qkv.weight", "tower"),
        ("mtp.layers.0.mlp.up_proj.weight", "mtp"),
        ("something.else", "other"),
    ],
)
def test_components(name: str, component: str) -> None:
    assert component_of(name) == component
