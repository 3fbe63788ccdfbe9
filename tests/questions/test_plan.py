"""``plan``: its best is never beaten by trying everything, its plans hold what they promise, and what must always hold."""

from __future__ import annotations

import shlex
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

import capplan
from capplan.cli.app import run
from capplan.errors import CapplanError, UsageError
from capplan.planner.rejections import Rejections
from capplan.questions.cost_request import Pricing
from capplan.questions.drafting import DraftRequest
from capplan.questions.estimate import LoadRequest
from capplan.questions.plan import plan, plan_of
from capplan.questions.plan_formats import format_choices
from capplan.questions.plan_request import Folders, PlanRequest
from capplan.questions.plan_result import PlanRow
from capplan.questions.plan_search import PlanSearch
from capplan.questions.pools import PoolsChoice, PoolsRequest, parse_choices

ONE_DOLLAR = Pricing(price_per_gpu_hour=Decimal(1))
SMALL = PlanRequest(
    model="llama3.1-8b", isl=1000, osl=200, request_rate=30, ttft=1.0, tpot=0.03, gpus=("h100", "l40s", "a100-sxm-80gb"),
    max_nodes=1, pricing=ONE_DOLLAR, kv_formats=("auto",),
)  # fmt: skip
SPARSE = PlanRequest(
    model="deepseek-r1", isl=2000, osl=500, request_rate=4, ttft=3.0, tpot=0.06, gpus=("h200", "b200"), engines=("vllm",),
    max_nodes=1, pricing=ONE_DOLLAR,
)  # fmt: skip
DRAFTING = replace(
    SMALL, gpus=("h100", "h200"), engines=("vllm", "sglang"), request_rate=20, tpot=0.005, max_nodes=1,
    drafting=(DraftRequest(3, 0.8, "llama3.2-1b"), DraftRequest(5, 0.3, "llama3.2-1b")),
)  # fmt: skip
MTP = replace(SPARSE, gpus=("h200",), engines=("vllm", "trtllm"), tpot=0.03, drafting=(DraftRequest(2, 0.8),))
CLIENTS = replace(SMALL, request_rate=None, concurrency=150.0)
LOOSE = replace(SMALL, ttft=None, tpot=None, confidence=0.0)
APART = replace(
    SMALL, model="llama3.1-70b", isl=8000, request_rate=8, ttft=3.0, tpot=0.02, gpus=("h100", "h200"),
    engines=("vllm", "trtllm"), pools=(PoolsChoice(), PoolsChoice(1, 1), PoolsChoice(2, 1, 25e9)),
)  # fmt: skip
APART_EXPERTS = replace(SPARSE, isl=6000, request_rate=6, tpot=0.03, pools=(PoolsChoice(), PoolsChoice(1, 2)))
APART_CLIENTS = replace(APART, request_rate=None, concurrency=60.0)
APART_LOOSE = replace(APART, ttft=None, tpot=None, confidence=0.0, pools=(PoolsChoice(),))


def cheapest(request: PlanRequest) -> Decimal | None:
    rows = plan_of(request).result.plans
    return rows[0].cost_per_month if rows else None


@pytest.mark.parametrize(
    "request_",
    [SMALL, SPARSE, CLIENTS, LOOSE, DRAFTING, MTP, APART, APART_EXPERTS, APART_CLIENTS, APART_LOOSE],
    ids=[
        "rate", "experts", "clients", "no limits", "draft model", "MTP layers",
        "pools", "pools of experts", "pools for clients", "pools without limits",
    ],
)  # fmt: skip
def test_nothing_that_could_be_built_beats_the_best(request_: PlanRequest) -> None:
    """Every option worked out to the end, against the first plan of the search; and the best of each device."""
    everything = PlanSearch.of(request_).exhaustive()
    found = list(PlanSearch.of(request_).plans(1))
    assert found[0].cost == everything[0].cost
    best: dict[str, Any] = {}
    for item in everything:
        best.setdefault(item.family, item.cost)
    for item in found:
        assert item.cost == best[item.family]
    assert [item.cost for item in found] == sorted(item.cost for item in found)


@pytest.mark.parametrize(
    "request_",
    [SMALL, SPARSE, DRAFTING, MTP, replace(APART, gpus=("h100",), top=3), APART_EXPERTS],
    ids=["dense", "experts", "draft model", "MTP layers", "pools", "pools of experts"],
)
def test_every_plan_passes_fit_and_estimate_again(request_: PlanRequest, capsys: pytest.CaptureFixture[str]) -> None:
    """By the very commands that are printed beside it."""
    for row in plan_of(request_).result.plans:
        for command in row.check:
            program, *words = shlex.split(command)
            assert program == "capplan"
            assert run(words) == 0, command
        capsys.readouterr()
        parallel = row.parallel
        answer = capplan.estimate(
            row.formats.model,
            row.gpu,
            load=capplan_load(request_, row.pools.units if row.pools else row.replicas),
            engine=row.engine,
            tensor_parallel_size=parallel.tensor_parallel_size,
            pipeline_parallel_size=parallel.pipeline_parallel_size,
            data_parallel_size=parallel.data_parallel_size,
            enable_expert_parallel=parallel.expert_parallel,
            kv_cache_dtype=row.formats.kv_cache_dtype,
            drafting=draft_of(row),
            pools=pools_of(row),
        )
        result = answer.result
        assert result.mean_ttft_ms == pytest.approx(row.ttft_ms, rel=0.05)
        assert result.mean_tpot_ms == pytest.approx(row.tpot_ms, rel=0.05)
        assert request_.ttft is not None
        assert request_.tpot is not None
        assert result.mean_ttft_ms_high <= 1e3 * request_.ttft * 1.01
        assert result.mean_tpot_ms_high <= 1e3 * request_.tpot * 1.01


def test_stages_in_several_link_domains_send_over_the_network_as_the_estimate_has_it() -> None:
    """A plan counts whole clients and an estimate parts of one, of some 70 here."""
    request = replace(SPARSE, gpus=("h100",), max_nodes=2, request_rate=3, tpot=0.1, ttft=5.0, top=1)
    row = plan_of(request).result.plans[0]
    assert row.gpus_per_replica > row.gpus_per_node
    result = capplan.estimate(
        row.formats.model,
        row.gpu,
        load=capplan_load(request, row.replicas),
        engine=row.engine,
        tensor_parallel_size=row.parallel.tensor_parallel_size,
        pipeline_parallel_size=row.parallel.pipeline_parallel_size,
        data_parallel_size=row.parallel.data_parallel_size,
        enable_expert_parallel=row.parallel.expert_parallel,
        kv_cache_dtype=row.formats.kv_cache_dtype,
    ).result
    assert result.mean_ttft_ms == pytest.approx(row.ttft_ms, rel=1e-2)
    assert result.mean_tpot_ms == pytest.approx(row.tpot_ms, rel=1e-2)


def draft_of(row: PlanRow) -> DraftRequest | None:
    drafts = row.drafting
    return DraftRequest(drafts.speculative_tokens, drafts.acceptance, drafts.draft_model) if drafts else None


def pools_of(row: PlanRow) -> PoolsRequest | None:
    if row.pools is None:
        return None
    given = "--kv-transfer-bandwidth 25GB/s" in row.check[1]
    return PoolsRequest(row.pools.prefill_replicas, row.pools.decode_replicas, 25e9 if given else None)


@pytest.mark.parametrize(
    "request_",
    [SMALL, SPARSE, CLIENTS, LOOSE, APART, APART_CLIENTS],
    ids=["rate", "experts", "clients", "no limits", "long prompts", "long prompts of clients"],
)
def test_pools_never_make_the_best_dearer(request_: PlanRequest) -> None:
    without = cheapest(replace(request_, pools=()))
    with_pools = cheapest(replace(request_, pools=(PoolsChoice(), PoolsChoice(1, 3))))
    assert with_pools is not None
    assert without is None or with_pools <= without


def test_pools_are_cheaper_where_prompts_are_long_and_tokens_must_be_fast() -> None:
    """Every token of a replica that does both waits for the others' prompts."""
    apart = plan_of(APART).result.plans[0]
    together = plan_of(replace(APART, pools=())).result.plans[0]
    assert apart.pools is not None
    assert together.pools is None
    assert apart.cost_per_month < together.cost_per_month
    assert apart.replicas == apart.pools.units * (apart.pools.prefill_replicas + apart.pools.decode_replicas)
    assert 0 < apart.pools.prefill_utilisation < 1
    assert apart.request_capacity >= 8


def test_pools_for_clients_serve_them_in_time() -> None:
    """By the estimate of the same pools with as many clients."""
    for row in plan_of(APART_CLIENTS).result.plans:
        if row.pools is None:
            continue
        result = capplan.estimate(
            row.formats.model,
            row.gpu,
            load=LoadRequest(8000, 200, concurrency=60.0 / row.pools.units),
            engine=row.engine,
            tensor_parallel_size=row.parallel.tensor_parallel_size,
            pipeline_parallel_size=row.parallel.pipeline_parallel_size,
            kv_cache_dtype=row.formats.kv_cache_dtype,
            pools=pools_of(row),
        ).result
        assert result.mean_ttft_ms == pytest.approx(row.ttft_ms, rel=0.03)
        assert result.mean_tpot_ms == pytest.approx(row.tpot_ms, rel=0.03)
        assert result.mean_ttft_ms_high <= 3000 * 1.01
        assert result.mean_tpot_ms_high <= 20 * 1.01
        assert 0 < row.utilisation <= 1


def test_pools_are_counted_and_do_not_draft() -> None:
    plain, apart = plan_of(replace(APART, pools=())).result, plan_of(APART).result
    assert apart.options == 4 * plain.options
    asked = replace(DRAFTING, gpus=("h100",), pools=(PoolsChoice(),))
    reasons = {row.reason: row.options for row in plan_of(asked).result.rejected}
    assert reasons["no drafts where prefill and decode are apart"] > 0
    with pytest.raises(UsageError, match="nothing to decode"):
        replace(APART, osl=1)


def test_pools_as_they_are_named() -> None:
    assert parse_choices("none") == ()
    assert parse_choices("auto, 2P4D,auto", 1e9) == (PoolsChoice(0, 0, 1e9), PoolsChoice(2, 4, 1e9))
    assert [choice.label for choice in parse_choices("1p2d,auto")] == ["1P2D", "auto"]
    for text in ("2P", "0P1D", "both"):
        with pytest.raises(UsageError):
            parse_choices(text)


def test_drafts_are_taken_where_they_win_and_left_where_they_do_not() -> None:
    """The second way to draft costs more rounds than it saves: it never comes out."""
    rows = plan_of(DRAFTING).result.plans
    assert {row.drafting.speculative_tokens for row in rows if row.drafting} == {3}
    without = plan_of(replace(DRAFTING, drafting=())).result.plans
    assert rows[0].cost_per_month < without[0].cost_per_month
    assert '"model": "meta-llama/Llama-3.2-1B"' in rows[0].launch or "STANDALONE" in rows[0].launch


def test_what_cannot_draft_says_so() -> None:
    asked = replace(DRAFTING, engines=("trtllm",), drafting=(DraftRequest(2, 0.8), DraftRequest(2, 0.8, "llama3.2-1b")))
    reasons = {row.reason: row.options for row in plan_of(asked).result.rejected}
    assert reasons["no MTP layers to draft with"] == reasons["no draft models are started in trtllm"] > 0


def capplan_load(request: PlanRequest, replicas: int) -> Any:
    assert request.request_rate is not None
    return LoadRequest(request.isl, request.osl, request_rate=request.request_rate / replicas)


def test_cost_is_proportional_to_price() -> None:
    twice = plan_of(replace(SMALL, pricing=Pricing(price_per_gpu_hour=Decimal(2)))).result.plans
    once = plan_of(SMALL).result.plans
    assert [row.cost_per_month for row in twice] == [2 * row.cost_per_month for row in once]
    assert [row.launch for row in twice] == [row.launch for row in once]


@pytest.mark.parametrize("tighter", [{"ttft": 0.4}, {"tpot": 0.015}, {"confidence": 0.95}, {"request_rate": 60.0}])
def test_asking_more_is_never_cheaper(tighter: dict[str, float]) -> None:
    more, less = cheapest(replace(SMALL, **tighter)), cheapest(SMALL)  # type: ignore[arg-type]
    assert less is not None
    assert more is None or more >= less


def test_another_device_never_makes_the_best_dearer() -> None:
    prices = Pricing(on=None)
    fewer = replace(SMALL, gpus=("a100-sxm-80gb",), pricing=prices)
    more = replace(SMALL, gpus=("a100-sxm-80gb", "h100", "l40s"), pricing=prices)
    before, after = cheapest(fewer), cheapest(more)
    assert before is not None
    assert after is not None
    assert after <= before


def test_whole_replicas_carry_the_load() -> None:
    for row in plan_of(SMALL).result.plans:
        assert row.request_capacity >= 30
        assert row.request_capacity * (row.replicas - 1) / row.replicas < 30
        assert row.utilisation == pytest.approx(30 / row.request_capacity)
        assert row.gpus == row.replicas * row.gpus_per_replica
        assert row.cost_per_hour == row.gpus
        tokens = 30 * 1200 * 3600 / 1e6
        assert float(row.cost_per_1m_tokens) == pytest.approx(row.gpus / tokens)
        assert row.ttft_margin is not None
        assert row.ttft_margin == pytest.approx(1 - row.ttft_ms / 1000)


def test_spare_replicas_are_paid_for() -> None:
    plain, spare = plan_of(SMALL).result.plans, plan_of(replace(SMALL, spare_replicas=2)).result.plans
    by_gpu = {row.gpu: row for row in plain}
    for row in spare:
        loaded = row.replicas - 2
        assert row.request_capacity >= 30 > row.request_capacity * (loaded - 1) / loaded
    both = [(row, by_gpu[row.gpu]) for row in spare if row.gpu in by_gpu]
    assert both
    for row, least in both:
        assert row.cost_per_month > least.cost_per_month
        assert row.cost_per_month <= least.cost_per_month * (least.replicas + 2) / least.replicas


def test_the_pareto_front_is_marked() -> None:
    rows = plan_of(replace(SMALL, top=20)).result.plans
    assert any(row.pareto for row in rows if row.cost_per_month == rows[0].cost_per_month)
    for row in rows:
        beaten = any(
            other.cost_per_1m_tokens <= row.cost_per_1m_tokens
            and other.tpot_ms <= row.tpot_ms
            and other.ttft_ms <= row.ttft_ms
            and other is not row
            for other in rows
        )
        assert row.pareto != beaten


def test_why_not_is_said_in_counts_and_nearest_misses() -> None:
    result = plan(
        "deepseek-r1", isl=2000, osl=500, request_rate=1, tpot=0.003, gpus=("h200", "l4", "tpu-v6e", "t4")
    ).result
    assert not result.plans
    reasons = {row.reason: row for row in result.rejected}
    assert reasons["no measured profile"].nearest[0].option == "tpu-v6e"
    assert reasons["no units for fp8"].nearest[0].option == "t4"
    assert reasons["too slow a token"].nearest[0].gap > 0
    assert reasons["does not fit"].options > 0
    gaps = [miss.gap for miss in reasons["does not fit"].nearest]
    assert gaps == sorted(gaps)


def test_a_price_cap_is_kept() -> None:
    rows = plan_of(SMALL).result.plans
    cap = rows[0].cost_per_hour
    capped = plan_of(replace(SMALL, price_cap=cap)).result.plans
    assert {row.cost_per_hour for row in capped} == {cap}
    assert not plan_of(replace(SMALL, price_cap=cap - Decimal("0.01"))).result.plans


def test_formats_are_those_that_are_published() -> None:
    labels = {choice.label: choice for choice in format_choices("llama3.1-70b", (), Folders())}
    assert set(labels) == {"bf16", "fp8"}
    assert (labels["fp8"].reference, labels["fp8"].weight_dtype) == ("llama3.1-70b-fp8", None)
    assert {choice.label for choice in format_choices("llama3.1-70b-fp8", (), Folders())} == {"bf16", "fp8"}
    assert [choice.reference for choice in format_choices("llama3.1-70b-fp8", ("checkpoint",), Folders())] == [
        "llama3.1-70b-fp8"
    ]
    made = format_choices("llama2-7b", ("fp8",), Folders())[0]
    assert (made.label, made.weight_dtype) == ("fp8", "fp8")
    with pytest.raises(CapplanError):
        format_choices("llama3.1-8b", ("no-such-format",), Folders())


def test_weights_made_at_load_are_told_to_the_engine() -> None:
    rows = plan_of(replace(SMALL, model="llama2-7b", weight_formats=("fp8",), gpus=("h100",))).result.plans
    assert rows
    for row in rows:
        assert row.engine in ("vllm", "sglang")
        assert "--quantization fp8" in row.launch


def test_few_devices_get_several_plans() -> None:
    rows = plan_of(replace(SMALL, gpus=("h100",), top=5)).result.plans
    assert len(rows) == 5
    assert len({row.launch for row in rows}) > 1


@pytest.mark.parametrize(
    "fields",
    [
        {"request_rate": None},
        {"concurrency": 5.0},
        {"confidence": 1.0},
        {"tpot": 0.0},
        {"engines": ("llama.cpp",)},
        {"spare_replicas": -1},
        {"drafting": (DraftRequest(4, 0.5, medusa_heads=4),)},
    ],
)
def test_half_questions_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        replace(SMALL, **fields)


def test_a_search_without_options_says_so() -> None:
    answer = plan_of(replace(SMALL, gpus=("gaudi2",)))
    assert not answer.result.plans
    assert any("nothing" in text for text in answer.warnings)
    assert isinstance(PlanSearch.of(SMALL).rejections, Rejections)
