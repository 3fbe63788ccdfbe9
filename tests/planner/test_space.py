"""What may be built: every shape obeys the rules, and none that does is left out."""

from __future__ import annotations

from itertools import product

import pytest

from capplan.describe.gpu_catalog import load_gpu
from capplan.describe.resolve import resolve_model
from capplan.planner.space import Shape, Traits, has_units, link_domain, shapes

SIZES = [1, 2, 4, 8, 16, 32]


@pytest.mark.parametrize(
    ("model", "gpu", "most"),
    [
        ("llama3.1-70b", "h100-sxm-80gb", 16),
        ("deepseek-r1", "h200-sxm-141gb", 32),
        ("qwen3-30b-a3b", "l40s", 8),
        ("gemma-3-27b", "h100-pcie-80gb", 8),
        ("deepseek-v3", "gb200-nvl72-186gb", 16),
    ],
)
def test_shapes_are_those_that_the_rules_allow(model: str, gpu: str, most: int) -> None:
    traits, device = Traits.of(resolve_model(model).spec), load_gpu(gpu)
    domain = min(link_domain(device), most)
    allowed = set()
    for tp, pp, dp, ep in product(SIZES, SIZES, SIZES, (False, True)):
        ranks = tp * dp
        if any(heads % tp for heads in traits.heads) or ranks > domain or ranks * pp > most or pp > 8:
            continue
        if (dp > 1 or ep) and not (traits.experts >= ranks > 1 and ep):
            continue
        if pp > 1 and ranks * 2 <= domain:
            continue
        allowed.add(Shape(tp, pp, dp, ep))
    assert set(shapes(traits, device, most)) == allowed


def test_bridged_cards_share_layers_in_pairs_only() -> None:
    traits = Traits.of(resolve_model("llama3.1-70b").spec)
    found = list(shapes(traits, load_gpu("h100-pcie-80gb"), 8))
    assert max(shape.tp for shape in found) == 2
    assert Shape(2, 4) in found


def test_formats_want_units() -> None:
    assert has_units(load_gpu("h100"), "fp8")
    assert not has_units(load_gpu("a100-sxm-80gb"), "fp8")
    assert not has_units(load_gpu("h200"), "fp4")
    assert has_units(load_gpu("a100-sxm-80gb"), "int4")
