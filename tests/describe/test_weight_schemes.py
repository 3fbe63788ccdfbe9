"""Bytes of weight matrices against tensors that the libraries themselves wrote, and against numpy."""

import json
from pathlib import Path

import numpy as np
import pytest

from capplan.describe.formats import BF16, FP8_E4M3, FP32, INT8, UE8M0
from capplan.describe.weight_schemes import (
    Awq,
    BitsAndBytesFourBit,
    Gptq,
    Mxfp4,
    Nvfp4,
    PackQuantized,
    Plain,
    ScaledEightBit,
    WeightScheme,
    bits_per_weight,
    tensor_bytes,
)

DATA = json.loads((Path(__file__).parents[1] / "data" / "weight_formats.json").read_text())

WHOLE_MODEL: dict[str, WeightScheme] = {
    "bf16": Plain(BF16),
    "fp8_tensor": ScaledEightBit(FP8_E4M3, "tensor"),
    "fp8_tensor_static": ScaledEightBit(FP8_E4M3, "tensor", activation_scale=FP32),
    "fp8_channel": ScaledEightBit(FP8_E4M3, "channel"),
    "fp8_block128_f32": ScaledEightBit(FP8_E4M3, "block"),
    "fp8_block128_bf16": ScaledEightBit(FP8_E4M3, "block", BF16),
    "fp8_block128_ue8m0": ScaledEightBit(FP8_E4M3, "block", UE8M0),
    "int8_channel": ScaledEightBit(INT8, "channel"),
    "gptq4_g128": Gptq(4, 128),
    "gptq4_g128_nogidx": Gptq(4, 128, group_index=False),
    "gptq8_g128": Gptq(8, 128),
    "gptq3_g128": Gptq(3, 128),
    "awq4_g128": Awq(4, 128),
    "awq4_g64": Awq(4, 64),
    "ct_w4a16_g128_sym": PackQuantized(4, 128),
    "ct_w4a16_g32_sym": PackQuantized(4, 32),
    "mxfp4": Mxfp4(),
    "nvfp4": Nvfp4(),
    "nvfp4_act": Nvfp4(static_activation=True),
    "bnb_nf4": BitsAndBytesFourBit(),
    "bnb_nf4_dq": BitsAndBytesFourBit(double_quant=True),
}

COMPRESSED_TENSORS: dict[str, WeightScheme] = {
    "w4a16_g128_sym": PackQuantized(4, 128),
    "w4a16_g32_sym": PackQuantized(4, 32),
    "w4a16_g128_asym": PackQuantized(4, 128, symmetric=False),
    "w8a16_channel": ScaledEightBit(INT8, "channel", BF16),
    "fp8_tensor": ScaledEightBit(FP8_E4M3, "tensor", BF16),
    "fp8_channel": ScaledEightBit(FP8_E4M3, "channel", BF16),
    "fp8_block128": ScaledEightBit(FP8_E4M3, "block", BF16),
    "nvfp4": Nvfp4(),
    "mxfp4": Mxfp4(),
}


def llama_linears(hidden: int, kv: int, intermediate: int, layers: int = 32) -> list[tuple[int, int]]:
    layer = [(hidden, hidden)] * 2 + [(kv, hidden)] * 2 + [(intermediate, hidden)] * 2 + [(hidden, intermediate)]
    return layer * layers


@pytest.mark.parametrize(
    ("model", "vocab", "shape"),
    [("llama2_7b", 32000, (4096, 4096, 11008)), ("llama31_8b", 128256, (4096, 1024, 14336))],
)
@pytest.mark.parametrize("name", WHOLE_MODEL)
def test_whole_model(model: str, vocab: int, shape: tuple[int, int, int], name: str) -> None:
    unquantised = 2 * (2 * vocab * shape[0] + 65 * shape[0])
    total = unquantised + sum(tensor_bytes(WHOLE_MODEL[name], n, k).total for n, k in llama_linears(*shape))
    # The reference takes the quantisation state's text at its length for 4096 x 4096; the 96 matrices with a
    # side of five digits have one character more, as the measured tensors below do.
    longer_text = 96 if name.startswith("bnb") else 0
    assert total - longer_text == DATA[model][name]


@pytest.mark.parametrize("name", DATA["compressed_tensors"]["measured"])
def test_compressed_tensors_writes_these_tensors(name: str) -> None:
    n, k = DATA["compressed_tensors"]["shape"]
    measured = DATA["compressed_tensors"]["measured"][name]
    ours = tensor_bytes(COMPRESSED_TENSORS[name], n, k)
    assert ours.total == measured["total"]
    assert sorted((list(t.shape), t.bytes) for t in ours.terms) == sorted(
        (shape, size) for shape, _, size in measured["tensors"].values()
    )


@pytest.mark.parametrize("name", [name for name in DATA["bitsandbytes"] if "dq" in name])
def test_bitsandbytes_writes_these_tensors(name: str) -> None:
    quant_type, double, shape = name.split("_")
    n, k = map(int, shape.split("x"))
    measured = DATA["bitsandbytes"][name]
    ours = tensor_bytes(BitsAndBytesFourBit(quant_type, double == "dq1"), n, k)  # type: ignore[arg-type]
    for term in ours.terms:
        key = term.name.removeprefix("weight.")
        if key.startswith("quant_state"):
            # The nested offset is a measured float: its digits vary by one or two.
            assert abs(term.bytes - measured["state"][key][2]) <= (2 if double == "dq1" else 0)
        else:
            assert term.bytes == (measured["packed"] if key == "weight" else measured["state"][key][2])


def test_bitsandbytes_int8() -> None:
    assert (
        tensor_bytes(ScaledEightBit(INT8, "channel", FP32), 1024, 4096).total
        == DATA["bitsandbytes"]["int8_vectorwise_1024x4096"]["total"]
    )


def test_shapes_that_do_not_divide_are_rounded_up() -> None:
    scales = tensor_bytes(ScaledEightBit(FP8_E4M3, "block"), 129, 300).terms[1]
    assert scales.shape == (2, 3)
    assert tensor_bytes(PackQuantized(4, 128), 10, 130).terms[0].shape == (10, 17)


def test_gptq_options_add_what_they_name() -> None:
    plain = tensor_bytes(Gptq(4, 128, group_index=False), 4096, 11008).total
    assert tensor_bytes(Gptq(4, 128), 4096, 11008).total - plain == np.zeros(11008, np.int32).nbytes
    with_bias = tensor_bytes(Gptq(4, 128, group_index=False, zero_bias=True), 4096, 11008).total
    assert with_bias - plain == np.zeros(4096, np.float16).nbytes


def test_zero_biases_of_an_old_gptq_mixtral() -> None:
    """The Hub's element total of TheBloke/Mixtral-8x7B-v0.1-GPTQ exceeds the parameters by one N a linear layer."""
    layer = [(4096, 4096), (1024, 4096), (1024, 4096), (4096, 4096)]
    layer += 8 * [(14336, 4096), (14336, 4096), (4096, 14336)]
    biases = sum(
        term.elements
        for n, k in layer * 32
        for term in tensor_bytes(Gptq(4, 128, zero_bias=True), n, k).terms
        if term.name == "bias"
    )
    assert biases == 46_711_508_992 - 46_702_792_704


def test_bits_per_weight_of_the_microscaling_formats() -> None:
    assert bits_per_weight(Mxfp4(), 2880, 2880) == 4.25
    assert bits_per_weight(ScaledEightBit(FP8_E4M3, "group", UE8M0, block=32), 64, 64) == 8.25
