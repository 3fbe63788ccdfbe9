"""The names of weight dtypes, against the keys of the reference table of whole models."""

import json
from pathlib import Path

import pytest

from capplan.describe.catalog import find_entry
from capplan.describe.formats import BF16
from capplan.describe.gguf_mix import GgufMix
from capplan.describe.model_plan import weight_plan
from capplan.describe.resolve import load_model
from capplan.describe.weight_dtype import WeightDtype, known_names, parse_weight_dtype
from capplan.describe.weight_schemes import Awq, Gptq, Mxfp4, Nvfp4, PackQuantized, Plain, tensor_bytes
from capplan.errors import UsageError

DATA = json.loads((Path(__file__).parents[1] / "data" / "weight_formats.json").read_text())


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("bf16", Plain(BF16)),
        ("torch.bfloat16".removeprefix("torch."), Plain(BF16)),
        ("awq-int4-g128", Awq(4, 128)),
        ("AWQ", Awq(4, 128)),
        ("gptq-int3-g64-nogidx", Gptq(3, 64, group_index=False)),
        ("gptq-int8-channel-bias", Gptq(8, None, zero_bias=True)),
        ("w4a16-g32-asym", PackQuantized(4, 32, symmetric=False)),
        ("w8a16-channel", PackQuantized(8, None)),
        ("MXFP4", Mxfp4()),
        ("nvfp4", Nvfp4()),
        ("gguf:Q4_K_M", GgufMix("Q4_K_M")),
        ("gguf:mxfp4", GgufMix("MXFP4_MOE")),
        ("q4_k_m", GgufMix("Q4_K_M")),
        ("iq4-xs+imatrix", GgufMix("IQ4_XS", importance_matrix=True)),
    ],
)
def test_names(text: str, meant: WeightDtype) -> None:
    assert parse_weight_dtype(text) == meant


@pytest.mark.parametrize("name", DATA["llama2_7b"])
def test_every_key_of_the_reference_table_is_understood(name: str) -> None:
    scheme = parse_weight_dtype(name)
    assert not isinstance(scheme, GgufMix)
    layer = [(4096, 4096)] * 4 + [(11008, 4096)] * 2 + [(4096, 11008)]
    total = 32 * sum(tensor_bytes(scheme, n, k).total for n, k in layer) + 2 * (2 * 32000 + 65) * 4096
    # The quantisation state's text of bitsandbytes has a character more for sizes of five digits.
    assert total - DATA["llama2_7b"][name] == (96 if name.startswith("bnb") else 0)


def test_every_suggested_name_is_understood() -> None:
    for name in known_names():
        parse_weight_dtype(name)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("awq-int4-g12x", "awq-int4-g128"),
        ("nvpf4", "nvfp4"),
        ("fp8-blok", "fp8-block"),
        ("int4", "differ by library"),
        ("gguf:Q4_K_L", "q4_k_m"),
        ("gptq-int5-g128", "gptq-int4-g128"),
        ("w4a16-g0", "w4a16"),
        ("", "for example"),
    ],
)
def test_unknown_names_get_the_nearest_ones(text: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_weight_dtype(text)
    assert hint in caught.value.hint
    assert caught.value.where == "--weight-dtype"


def test_an_error_names_the_option_that_the_name_was_given_to() -> None:
    spec = load_model(find_entry("models", "llama3.1-8b"))
    for where in ("--weight-dtype", "--weight-formats"):
        with pytest.raises(UsageError) as caught:
            weight_plan(spec, "q3", where=where)
        assert caught.value.where == where
        with pytest.raises(UsageError) as caught:
            weight_plan(spec, "gguf:q3x", where=where)
        assert caught.value.where == where
