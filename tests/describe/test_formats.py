"""Number formats and ggml types against numpy, the gguf package and safetensors' own names."""

import json
from pathlib import Path

import gguf
import numpy as np
import pytest

from capplan.describe.formats import (
    GGML_TYPES,
    NUMBER_FORMATS,
    element_bits,
    ggml_type,
    ggml_type_of_code,
    number_format,
    safetensors_format,
)
from capplan.errors import UnsupportedError, UsageError

DATA = json.loads((Path(__file__).parents[1] / "data" / "weight_formats.json").read_text())


def test_every_ggml_type_has_the_sizes_and_code_of_the_gguf_package() -> None:
    theirs = {t.name: (t.value, *size) for t, size in gguf.GGML_QUANT_SIZES.items()}
    assert {t.name: (t.code, t.block_elements, t.block_bytes) for t in GGML_TYPES} == theirs
    assert {t.name: [t.block_elements, t.block_bytes] for t in GGML_TYPES} == DATA["ggml_types"]


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"])
def test_bytes_are_numpys(name: str) -> None:
    assert number_format(name).bytes_for(37) == np.zeros(37, name).nbytes


def test_half_bytes_are_filled_up() -> None:
    assert number_format("int4").bytes_for(3) == 2


def test_names_are_unambiguous() -> None:
    names = [name for fmt in NUMBER_FORMATS for name in (fmt.name, *fmt.aliases)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(("name", "meant"), [("torch.bfloat16", "bf16"), ("FP8", "fp8_e4m3"), ("half", "fp16")])
def test_aliases(name: str, meant: str) -> None:
    assert number_format(name).name == meant


def test_unknown_names_are_refused_with_a_suggestion() -> None:
    with pytest.raises(UsageError) as caught:
        number_format("bfloat")
    assert "bf" in caught.value.hint
    with pytest.raises(UnsupportedError):
        safetensors_format("F7")
    with pytest.raises(UsageError):
        ggml_type("Q4_Q")
    with pytest.raises(UnsupportedError):
        ggml_type_of_code(4)


def test_rows_must_be_whole_blocks() -> None:
    with pytest.raises(UnsupportedError, match="whole number"):
        ggml_type("Q4_K").bytes_for(1, 300)


def test_element_bits_of_cache_types() -> None:
    assert [element_bits(name) for name in ("q8_0", "q4_0", "q5_1", "fp8", "bf16")] == [8.5, 4.5, 6, 8, 16]
