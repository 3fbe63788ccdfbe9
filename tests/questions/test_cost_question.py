"""``cost`` as it is asked: the seed's case, whole instances, intervals, loads, and questions that are not whole."""

from __future__ import annotations

import datetime
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

import capplan
from capplan.cost.load_profile import parse_load
from capplan.errors import CapplanError, NotFoundError, UsageError
from capplan.questions.advise import advise
from capplan.questions.cost import CostResult, serving_cost
from capplan.questions.cost_request import CostRequest, Pricing
from capplan.questions.estimate import LoadRequest
from capplan.questions.plan_request import Folders
from capplan.questions.sweep import deployments
from capplan.questions.sweep_request import SweepRequest
from capplan.report.views.cost import cost_chart

ON = datetime.date(2026, 11, 29)
THREE = Pricing(price_per_gpu_hour=Decimal(3))
LOAD = LoadRequest(isl=2000, osl=500, concurrency=64)


def deployed(request: CostRequest, load: LoadRequest = LOAD) -> CostResult:
    return serving_cost("llama3.1-70b-fp8", "h100", load=load, request=request, tensor_parallel_size=4).result


def test_the_seeds_case() -> None:
    request = CostRequest(throughput=100, tokens_per_request=500, requests_per_day=Fraction(10_000), pricing=THREE)
    answer = serving_cost(request=request)
    result = answer.result
    assert round(result.gpu_hours_per_day, 2) == 13.89
    assert round(result.cost_per_day, 2) == Decimal("41.67")
    assert round(result.cost_per_1k_tokens, 4) == Decimal("0.0083")
    assert result.cost_per_month == Decimal("1267.36111111")
    assert result.cost_per_day_low == result.cost_per_day_high == result.cost_per_day
    assert answer.provenance["cost_per_day"] == "exact"
    ruled = serving_cost(request=replace(request, throughput=None, throughput_rule=True, parameters=7e9))
    assert ruled.result == replace(result, basis="rule of thumb")
    assert ruled.provenance["cost_per_day"] == "assumed"


def test_a_load_on_whole_instances() -> None:
    """10 million requests of 500 tokens a day want 579 tokens/s, so 6 replicas of 100: 18 GPUs of 3 each, always."""
    load = Fraction(100_000)
    asked = CostRequest(
        throughput=100, tokens_per_request=500, requests_per_day=load, gpus=3, billing="always", pricing=THREE
    )
    result = serving_cost(request=asked).result
    assert (result.replicas, result.gpus, result.gpu_hours_per_day) == (6, 18, 432)
    assert result.cost_per_day == 1296
    assert result.utilisation == pytest.approx(100_000 * 500 / 86400 / 600)


def test_a_deployment_fills_its_instances() -> None:
    one = deployed(CostRequest(pricing=Pricing(provider="lambda", on=ON)))
    assert (one.replicas, one.instances, one.gpus, one.gpu_hours_per_day) == (2, 1, 8, 192)
    assert one.cost_per_day == 192 * one.price_per_gpu_hour
    rate = 8 * one.price_per_gpu_hour / 3600 / Decimal(2 * one.total_token_throughput)
    assert float(one.cost_per_1k_tokens) == pytest.approx(float(1000 * rate))


def test_intervals_are_those_of_the_throughput() -> None:
    result = deployed(CostRequest(pricing=THREE))
    assert result.cost_per_1k_tokens_low < result.cost_per_1k_tokens < result.cost_per_1k_tokens_high
    ratio = result.total_token_throughput / result.total_token_throughput_low
    assert float(result.cost_per_1k_tokens_high / result.cost_per_1k_tokens) == pytest.approx(ratio)
    assert result.cost_per_day_low == result.cost_per_day_high


def test_input_and_output_add_up_to_a_request() -> None:
    result = deployed(CostRequest(pricing=THREE))
    assert result.cost_per_1m_input_tokens is not None
    assert result.cost_per_1m_output_tokens is not None
    assert result.cost_per_request is not None
    parts = result.cost_per_1m_input_tokens * 2000 + result.cost_per_1m_output_tokens * 500
    assert float(parts / 10**6) == pytest.approx(float(result.cost_per_request))
    assert result.cost_per_1m_output_tokens > result.cost_per_1m_input_tokens


def test_cost_is_proportional_to_price() -> None:
    load = parse_load("8-20:5,20-8:0.5")
    once, twice = (
        deployed(CostRequest(load_profile=load, pricing=Pricing(price_per_gpu_hour=price)))
        for price in (Decimal(3), Decimal(6))
    )
    for name in (
        "cost_per_1k_tokens",
        "cost_per_1m_output_tokens",
        "cost_per_request",
        "cost_per_day",
        "cost_per_month",
    ):
        assert float(getattr(twice, name)) == pytest.approx(2 * float(getattr(once, name)), rel=1e-10)


def test_the_lines_add_up() -> None:
    request = CostRequest(
        pricing=THREE,
        requests_per_day=Fraction(100_000),
        electricity_price=Decimal("0.1"),
        storage_gb=Decimal(500),
        storage_price=Decimal("0.08"),
        egress_gb=Decimal(100),
        egress_price=Decimal("0.09"),
    )
    result = deployed(request)
    *lines, total = result.lines
    assert [line.section for line in lines] == ["baseline", "usage", "usage", "usage"]
    assert sum(line.cost_per_month for line in lines) == pytest.approx(total.cost_per_month)
    assert total.cost_per_month == result.cost_per_month
    assert [line.cost_per_month for line in lines[2:]] == [40, 9]
    assert result.energy is not None
    assert result.energy.cost_per_month == lines[1].cost_per_month
    assert lines[1].quantity == pytest.approx(result.energy.kwh_per_day * 365 / 12)


def test_a_rate_takes_as_many_replicas_as_its_limits_want() -> None:
    loose = LoadRequest(isl=2000, osl=500, request_rate=20, ttft=5.0, tpot=0.1)
    tight = replace(loose, tpot=0.015)
    relaxed, strict = (deployed(CostRequest(pricing=THREE), load) for load in (loose, tight))
    assert strict.replicas > relaxed.replicas
    assert strict.cost_per_month > relaxed.cost_per_month
    assert relaxed.requests_per_day == pytest.approx(20 * 86400)
    assert 0 < relaxed.utilisation <= 1


def test_break_even_is_where_both_cost_the_same() -> None:
    request = CostRequest(pricing=THREE, api_input_price=Decimal("0.9"), api_output_price=Decimal("0.9"))
    row = deployed(request).break_even[0]
    volume = row.break_even_requests_per_month
    assert volume is not None
    load = CostRequest(
        pricing=THREE,
        requests_per_day=Fraction(volume) * 12 / 365,
        api_input_price=Decimal("0.9"),
        api_output_price=Decimal("0.9"),
    )
    there = deployed(load)
    assert float(there.cost_per_month) == pytest.approx(volume * 2500 * 0.9e-6)
    assert there.break_even[0].cost_per_month is not None
    assert float(there.break_even[0].cost_per_month) == pytest.approx(float(there.cost_per_month))
    assert row.break_even_utilisation == pytest.approx(there.utilisation)


def test_apis_are_found_by_the_models_other_names() -> None:
    rows = deployed(CostRequest(pricing=replace(THREE, on=ON))).break_even
    assert len(rows) > 5
    assert all("70B" in row.model for row in rows)
    assert [row.cost_per_1m_tokens for row in rows] == sorted(row.cost_per_1m_tokens for row in rows)


def test_an_api_has_one_price_the_newest_whoever_is_asked_about() -> None:
    """The table has $0.88 of July 2025 twice and $1.04 of August 2026 under one name of Together's."""

    def asked(provider: str | None) -> list[tuple[str, Decimal, str]]:
        request = CostRequest(pricing=replace(THREE, on=ON), api_provider=provider)
        answer = serving_cost("llama3.3-70b", "h100", load=LOAD, request=request, tensor_parallel_size=4)
        rows = [row for row in answer.result.break_even if row.provider == "Together"]
        assert provider is None or len(rows) == len(answer.result.break_even)
        return [(row.model, row.usd_per_1m_output, row.date) for row in rows]

    assert asked("Together") == asked("together") == asked(None)
    assert [row for row in asked("Together") if "3.3" in row[0]] == [
        ("Llama-3.3-70B-Instruct", Decimal("1.04"), "2026-08-18")
    ]


def test_prices_of_a_folder_of_ones_own_are_those_that_cost_and_sweep_take(tmp_path: Path) -> None:
    (tmp_path / "prices").mkdir()
    (tmp_path / "prices" / "mine.csv").write_text(
        "provider,gpu,instance,gpus_per_instance,region,pricing_type,usd_per_instance_hour,usd_per_gpu_hour,date,"
        "date_quality,source,notes\nBasement,h100,rack,8,here,on-demand,4.00,0.50,2026-11-01,exact,own,\n"
    )
    own = Pricing(provider="basement", region="here", on=ON)
    result = serving_cost(
        "llama3.1-70b-fp8", "h100", load=LOAD, request=CostRequest(pricing=own), tensor_parallel_size=4,
        hardware_dirs=[tmp_path],
    ).result  # fmt: skip
    assert (result.provider, result.instance, result.price_per_gpu_hour) == ("basement", "rack", Decimal("0.5"))
    request = SweepRequest(
        model="llama3.1-8b", isl=(512,), osl=(64,), concurrency=(8,), gpus=("h100",), tensor_parallel=(2,),
        data_parallel=(1,), weight_formats=("checkpoint",), pricing=own, folders=Folders(hardware=(tmp_path,)),
    )  # fmt: skip
    assert [deployment.usd_per_hour for deployment in deployments(request).fitting] == [1.0]
    items = advise(
        "llama3.1-70b-fp8", "h100", load=LOAD, pricing=replace(own, provider=None, region=None),
        tensor_parallel_size=4, hardware_dirs=[tmp_path],
    ).result.items  # fmt: skip
    assert any("beside $0.50" in item.remark for item in items)
    with pytest.raises(NotFoundError):
        deployed(CostRequest(pricing=own))


def test_the_rule_of_thumb_stands_beside_an_estimate() -> None:
    result = deployed(CostRequest(pricing=THREE, throughput_rule=True))
    assert result.basis == "estimate"
    assert result.rule_of_thumb is not None
    assert result.rule_of_thumb.throughput == pytest.approx(100 * (70.55 / 7) ** -0.6, rel=1e-3)
    assert result.rule_of_thumb.times_the_answer > 100


@pytest.mark.parametrize(
    ("request_", "load", "said"),
    [
        ({"throughput": 100.0, "requests_per_day": Fraction(5), "pricing": THREE}, None, "tokens has a request"),
        ({"throughput": 100.0}, None, "what does a GPU cost"),
        ({"throughput_rule": True, "pricing": THREE}, None, "how many parameters"),
        ({"pricing": THREE}, None, "what is served"),
    ],
)
def test_half_a_question_is_refused(request_: dict[str, object], load: LoadRequest | None, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        serving_cost(load=load, request=CostRequest(**request_))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fields",
    [
        {"throughput": 0.0},
        {"requests_per_day": Fraction(-1)},
        {"storage_gb": Decimal(1)},
        {"api_input_price": Decimal(1)},
        {"spare_replicas": -1},
        {"requests_per_day": Fraction(1), "load_profile": parse_load("8-20:1")},
    ],
)
def test_contradictions_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(CapplanError):
        CostRequest(**fields)  # type: ignore[arg-type]


def test_deepseek_v3_does_not_fit_on_one_h100() -> None:
    """A page prices "DeepSeek-V3 INT4 on one H100": 671B parameters at 4.5 bits are about 352 GiB."""
    answer = capplan.fit("deepseek-v3", gpu="h100", weight_dtype="awq-int4-g128", max_model_len=4096)
    assert not answer.result.fits
    assert answer.result.weight_bytes_per_rank > 300 * 2**30


def test_the_curve_is_a_staircase_of_whole_servers() -> None:
    """100 tokens/s are 262,800,000 tokens in 730 hours, for 2,190 dollars at 3 an hour; and 262,800,001 are twice that."""
    request = CostRequest(throughput=100, tokens_per_request=500, pricing=THREE)
    for point in serving_cost(request=request).result.curve:
        servers = -(-point.tokens_per_month // 262_800_000)
        assert float(point.cost_per_month) == pytest.approx(2190 * servers)
        assert point.cost_per_month_low == point.cost_per_month == point.cost_per_month_high


def test_crossings_are_drawn_on_both_lines() -> None:
    apis = CostRequest(
        throughput=1000, requests_per_day=Fraction(50_000), pricing=THREE, api_input_price=Decimal(2),
        api_output_price=Decimal(4),
    )  # fmt: skip
    answer = serving_cost(load=LoadRequest(1000, 200), request=apis)
    own, api, crossings, here = cost_chart(answer).series
    ((tokens, dollars),) = crossings.points
    below = max(y for x, y in own.points if x <= tokens)
    assert dollars == pytest.approx(below) == pytest.approx(2190)
    slope = api.points[1][1] / api.points[1][0]
    assert dollars == pytest.approx(slope * tokens)
    assert slope * 1e6 == pytest.approx((1000 * 2 + 200 * 4) / 1200)
    ((tokens, dollars),) = here.points
    assert tokens == pytest.approx(50_000 * 1200 * 365 / 12)
    assert dollars == pytest.approx(float(answer.result.cost_per_month))
