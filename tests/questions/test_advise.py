"""The checklist: every item has a figure or a reason, each equals two estimates side by side, and the order is by gain."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from decimal import Decimal

import pytest

from capplan.cli import estimate as estimate_command
from capplan.cli import fit as fit_command
from capplan.cli.app import run
from capplan.cli.quick import spelled
from capplan.errors import NotFoundError, UsageError
from capplan.questions.advise import Advice, advise
from capplan.questions.advise_items import CHECKLIST
from capplan.questions.cost import serving_cost
from capplan.questions.cost_request import CostRequest, Pricing
from capplan.questions.estimate import EstimateResult, LoadRequest, estimate

LOAD = LoadRequest(2000, 500, 32)
MODEL, GPU = "llama3.1-70b", "h100-sxm-80gb"

SEED = {
    "16-bit weights",
    "flash attention",
    "GQA or MQA model",
    "prefix caching",
    "continuous batching",
    "4-bit weights (AWQ)",
    "speculative decoding",
    "tensor parallel",
    "CUDA graphs",
}
"""Items of the checklist that introductions print, each with a claim."""


@pytest.fixture(scope="module")
def advice() -> dict[str, Advice]:
    return {item.item: item for item in advise(MODEL, GPU, load=LOAD, tensor_parallel_size=4).result.items}


def estimated(**options: object) -> EstimateResult:
    return estimate(MODEL, GPU, load=LOAD, **{"tensor_parallel_size": 4, **options}).result  # type: ignore[arg-type]


def test_every_item_of_the_list_has_a_figure_beside_its_claim(advice: dict[str, Advice]) -> None:
    assert SEED <= set(advice) == {item.item for item in CHECKLIST}
    for name in SEED:
        assert advice[name].claim
        assert (advice[name].gain or 0) > 0


def test_items_are_ranked_by_what_they_gain() -> None:
    items = advise(MODEL, GPU, load=LOAD, tensor_parallel_size=4).result.items
    states = [item.state for item in items]
    assert states == sorted(states, key=("possible", "in place", "not possible").index)
    possible = [item.gain or 0 for item in items if item.state == "possible"]
    assert possible == sorted(possible, reverse=True)


def test_a_gain_is_that_of_two_estimates(advice: dict[str, Advice]) -> None:
    now, then = estimated(), estimated(weight_dtype="awq-int4-g128")
    assert advice["4-bit weights (AWQ)"].gain == pytest.approx(now.mean_tpot_ms / then.mean_tpot_ms)
    eager = estimated(enforce_eager=True)
    assert advice["CUDA graphs"].gain == pytest.approx(eager.mean_tpot_ms / now.mean_tpot_ms)
    assert advice["CUDA graphs"].state == "in place"


def test_twice_the_devices_cost_twice_as_much(advice: dict[str, Advice]) -> None:
    for name in ("tensor parallel", "more replicas"):
        assert advice[name].cost_gain == pytest.approx((advice[name].throughput_gain or 0) / 2)
    assert advice["8-bit KV cache"].cost_gain == advice["8-bit KV cache"].throughput_gain


@pytest.mark.parametrize("terms", [Pricing(), Pricing(provider="nebius"), Pricing(price_per_gpu_hour=Decimal("2.10"))])
def test_a_larger_device_costs_what_cost_says(terms: Pricing) -> None:
    """Of four devices that one host holds; a price that is given is that of the device at hand, not of another."""
    items = {
        item.item: item for item in advise(MODEL, GPU, load=LOAD, tensor_parallel_size=4, pricing=terms).result.items
    }
    item = items["larger GPU"]
    larger = item.change.removeprefix("--gpu ")
    there = replace(terms, price_per_gpu_hour=None)
    hours = [
        serving_cost(MODEL, name, load=LOAD, request=CostRequest(pricing=own), tensor_parallel_size=4).result
        for name, own in ((GPU, terms), (larger, there))
    ]
    now, then = (result.price_per_gpu_hour for result in hours)
    assert all(f"${price:.2f}" in item.remark for price in (now, then))
    ratio = float(then / now)
    assert item.cost_gain == pytest.approx((item.throughput_gain or 0) / ratio)


def test_weights_of_four_bits_leave_the_format_of_the_cache_alone() -> None:
    """This checkpoint's cache is fp8 by default; smaller weights leave it more room, not less."""
    items = {
        item.item: item for item in advise("llama3.1-70b-fp8", GPU, load=LOAD, tensor_parallel_size=4).result.items
    }
    assert (items["4-bit weights (AWQ)"].memory_gain or 0) > 1
    assert "--kv-cache-dtype fp8" in items["4-bit weights (AWQ)"].change


def test_figures_that_can_be_counted_by_hand(advice: dict[str, Advice]) -> None:
    assert advice["16-bit weights"].gain == pytest.approx(2)
    assert advice["8-bit KV cache"].gain == pytest.approx(2, rel=0.01)
    assert advice["tensor parallel"].throughput_gain is not None
    assert 1 < advice["tensor parallel"].throughput_gain < 2
    assert 1 < (advice["more replicas"].gain or 0) <= 2


def test_gqa_saves_as_many_caches_as_it_has_query_heads_to_a_kv_head() -> None:
    """Llama-3.1-8B has 32 query heads and 8 KV heads; the pool beside it is the same size to a block."""
    items = {item.item: item for item in advise("llama3.1-8b", GPU, load=LOAD).result.items}
    assert items["GQA or MQA model"].state == "in place"
    assert 4 <= (items["GQA or MQA model"].gain or 0) < 5


def test_what_cannot_be_done_says_why() -> None:
    items = {item.item: item for item in advise("deepseek-v3", "h200", load=LOAD, tensor_parallel_size=8).result.items}
    assert items["GQA or MQA model"].state == "not possible"
    assert items["GQA or MQA model"].remark
    assert "MTP" in items["speculative decoding"].remark


def test_at_a_rate_throughput_is_the_most_that_can_be_served() -> None:
    load = LoadRequest(2000, 500, request_rate=1.0)
    items = {item.item: item for item in advise(MODEL, GPU, load=load, tensor_parallel_size=4).result.items}
    assert items["more replicas"].gain == pytest.approx(2, rel=0.05)


def test_changes_name_flags_that_there_are(advice: dict[str, Advice]) -> None:
    commands = (estimate_command.command, fit_command.command)
    known = {
        spelling
        for command in commands
        for parameter in inspect.signature(command).parameters.values()
        for spelling in spelled(parameter.annotation.__metadata__[0])
    }
    for item in advice.values():
        assert set(re.findall(r"--[a-z-]+", f"{item.change} {item.remark}")) <= known, item


def test_the_command_takes_the_terms_of_prices(capsys: pytest.CaptureFixture[str]) -> None:
    words = f"advise --model {MODEL} --gpu {GPU} -tp 4 --isl 2000 --osl 500 --concurrency 32".split()
    assert run([*words, "--provider", "lambada"]) == 3
    assert "did you mean lambda" in capsys.readouterr().err
    assert run([*words, "--price-per-gpu-hour", "$2.10", "--on", "2026-11-29"]) == 0
    assert "beside $2.10" in capsys.readouterr().out


def test_a_provider_that_is_not_there_is_refused() -> None:
    with pytest.raises(NotFoundError):
        advise(MODEL, GPU, load=LOAD, pricing=Pricing(provider="xx"), tensor_parallel_size=4)


def test_a_share_beyond_one_is_refused() -> None:
    with pytest.raises(UsageError, match="share"):
        advise(MODEL, GPU, load=LOAD, cached=1.5, tensor_parallel_size=4)
