"""A deployment's own names give the formats that its step works in."""

from __future__ import annotations

import pytest

from capplan.describe.deployment import Deployment
from capplan.describe.resolve import resolve_model
from capplan.errors import UsageError
from capplan.work.deployed import deployment_formats
from capplan.work.step import Decode, Step, ledger
from tests.work.models import published


@pytest.mark.parametrize(
    ("weight_dtype", "kernel"),
    [
        (None, "bf16"),
        ("fp8-block", "fp8_block"),
        ("awq-int4-g128", "int4_weight_only"),
        ("nvfp4", "nvfp4"),
        ("gguf:Q8_0", "q8_0_weight_only"),
    ],
)
def test_weight_dtypes(weight_dtype: str | None, kernel: str) -> None:
    spec = published("Qwen--Qwen2.5-7B")
    formats = deployment_formats(spec, Deployment(weight_dtype=weight_dtype, kv_cache_dtype="fp8"))
    book = ledger(spec, Step(decode=(Decode(1, 100),)), formats=formats)
    assert {op.weight_format for op in book.operators if op.name == "gate_up_proj"} == {kernel}
    assert book.totals.traffic.kv_read == 100 * 28 * 2 * 4 * 128


@pytest.mark.parametrize(
    ("model", "weight_dtype", "kv_cache_dtype", "item_bytes"),
    [
        ("llama3.1-70b-fp8", None, "auto", 1),
        ("llama3.1-70b-fp8", None, "bf16", 2),
        ("llama3.1-70b-fp8", "bf16", "auto", 2),
        ("llama3.1-70b", None, "auto", 2),
    ],
)
def test_a_checkpoint_that_asks_for_a_format_of_its_cache_gets_it(
    model: str, weight_dtype: str | None, kv_cache_dtype: str, item_bytes: int
) -> None:
    """80 layers of 8 heads of 128, keys and values; what `fit` reserves for them has the same format."""
    spec = resolve_model(model).spec
    formats = deployment_formats(spec, Deployment(weight_dtype=weight_dtype, kv_cache_dtype=kv_cache_dtype))
    book = ledger(spec, Step(decode=(Decode(1, 100),)), formats=formats)
    assert book.totals.traffic.kv_read == 100 * 80 * 2 * 8 * 128 * item_bytes
    assert formats.kv_name == ("fp8" if item_bytes == 1 else "bf16")


def test_a_device_without_fp8_units_multiplies_in_sixteen_bits() -> None:
    spec = published("Qwen--Qwen2.5-7B")
    formats = deployment_formats(spec, Deployment(weight_dtype="fp8"), math=frozenset({"int8"}))
    book = ledger(spec, Step(decode=(Decode(1, 100),)), formats=formats)
    assert {op.activation_format for op in book.of_kind("gemm")} == {"bf16"}


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UsageError):
        deployment_formats(published("Qwen--Qwen2.5-7B"), Deployment(weight_dtype="fp9"))
