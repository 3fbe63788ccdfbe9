"""Checkpoints under names that the catalog lacks, and which format a precision means."""

from __future__ import annotations

import pytest

from capplan.describe.catalog import list_entries
from capplan.describe.checkpoint_names import find_checkpoint, without_format
from capplan.describe.formats import FP8_E4M3, INT8
from capplan.describe.model_plan import checkpoint_plan
from capplan.describe.precision import PRECISIONS, checkpoint_of, has_precision
from capplan.describe.resolve import load_model
from capplan.describe.weight_schemes import Mxfp4, Nvfp4, PackQuantized, ScaledEightBit
from capplan.errors import NotFoundError, UsageError


@pytest.mark.parametrize(
    ("name", "base", "precision"),
    [
        ("qwen3-32b-nvfp4", "qwen3-32b", "fp4"),
        ("kimi-k2.5-nvfp4-v2", "kimi-k2.5", "fp4"),
        ("llama-3.1-8b-instruct-fp8-dynamic", "llama-3.1-8b-instruct", "fp8"),
        ("llama-3.3-70b-instruct-fp8-kv", "llama-3.3-70b-instruct", "fp8"),
        ("deepseek-r1-0528-fp4-v2", "deepseek-r1-0528", "fp4"),
        ("deepseek-r1-0528-mxfp4-preview", "deepseek-r1-0528", "fp4"),
        ("llama-3.1-70b-instruct-quantized.w8a8", "llama-3.1-70b-instruct", "int8"),
        ("qwen2.5-0.5b-instruct-gptq-int4", "qwen2.5-0.5b-instruct", "int4"),
        ("mistral-7b-awq", "mistral-7b", "int4"),
        ("falcon-7b-hf", "falcon-7b", ""),
        ("fp8", "fp8", ""),
        ("gpt-oss-120b", "gpt-oss-120b", ""),
    ],
)
def test_names_are_divided_from_their_formats(name: str, base: str, precision: str) -> None:
    assert without_format(name) == (base, precision)


def test_another_publisher_and_format_of_a_known_model() -> None:
    found = find_checkpoint("nvidia/Qwen3-32B-NVFP4")
    assert (found.spec.name, found.precision) == ("qwen3-32b", "fp4")
    assert "Qwen/Qwen3-32B" in found.assumption


def test_a_known_name_is_itself() -> None:
    found = find_checkpoint("zhipuai/GLM-5")
    assert (found.spec.name, found.precision, found.assumption) == ("glm-5", "", "")


@pytest.mark.parametrize("name", ["nobody/Never-7B-FP8", "-fp8", "fp8"])
def test_unknown_names_stay_unknown(name: str) -> None:
    with pytest.raises(NotFoundError, match="no model named"):
        find_checkpoint(name)


@pytest.mark.parametrize(
    ("model", "precision", "scheme"),
    [
        ("deepseek-r1", "fp8", ScaledEightBit),
        ("gpt-oss-120b", "fp4", Mxfp4),
        ("llama3.1-8b", "fp4", Nvfp4),
        ("kimi-k2.5", "int4", PackQuantized),
        ("kimi-k2.5", "fp4", Nvfp4),
    ],
)
def test_a_precision_picks_the_checkpoint(model: str, precision: str, scheme: type) -> None:
    spec = find_checkpoint(model).spec
    same, plan = checkpoint_of(spec, precision)
    assert same is spec
    schemes = [plan.scheme, *(rule.scheme for rule in plan.rules)]
    assert any(isinstance(one, scheme) for one in schemes)


def test_eight_bits_are_integers_or_floats() -> None:
    spec = find_checkpoint("llama3.1-8b").spec
    for precision, element in (("int8", INT8), ("fp8", FP8_E4M3)):
        _, plan = checkpoint_of(spec, precision)
        assert isinstance(plan.scheme, ScaledEightBit)
        assert plan.scheme.format == element
        assert [name for name in ("int8", "fp8") if has_precision(plan, name)] == [precision]


def test_every_precision_has_a_plan() -> None:
    spec = find_checkpoint("qwen3-32b").spec
    for precision in PRECISIONS:
        checkpoint_of(spec, precision)
    with pytest.raises(UsageError, match="not a precision"):
        checkpoint_of(spec, "fp5")


def test_every_checkpoint_of_the_catalog_can_be_read() -> None:
    """One that cannot be would refuse its neighbours' precisions as well."""
    for path in list_entries("models"):
        checkpoint_plan(load_model(path))
