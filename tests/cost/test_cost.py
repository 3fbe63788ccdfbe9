"""Money: the seed's figures, a published day of DeepSeek's, public worked examples, and what must always hold."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.cost.amounts import Amount, shown_usd, usd
from capplan.cost.breakeven import OwnCost, api_price_per_request, break_even
from capplan.cost.cost import DAYS_PER_MONTH, Throughput, daily_bill, prefill_time_share, seed_throughput, token_prices
from capplan.cost.energy import Power, energy_kwh
from capplan.cost.hire import Hire, cheapest_hire
from capplan.cost.load_profile import LoadProfile, flat_load, load_of_arrivals, parse_load, read_load
from capplan.errors import InvalidFileError, NotFoundError, UsageError

CASES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "cost_cases.jsonl").read_text(encoding="utf-8").splitlines()
]

positive = st.fractions(min_value=Fraction(1, 1000), max_value=1000, max_denominator=1000)


def steady(tokens: float, per_request: float) -> Throughput:
    return Throughput(Amount.of(tokens), Amount.of(Fraction(tokens) / Fraction(per_request)))


def test_the_seeds_example() -> None:
    """7B: 100 tokens/s; 10,000 requests of 500 tokens: 13.89 hours, $41.67, $0.0083 for 1,000 tokens."""
    assert seed_throughput(7e9) == pytest.approx(100)
    assert seed_throughput(70e9) == pytest.approx(25.12, abs=0.005)  # the seed's comment says about 20
    done = steady(100, 500)
    bill = daily_bill(flat_load(Fraction(10_000)), done.requests, Hire.at(Decimal(3), 1), "busy")
    assert bill.gpu_hours.value == Fraction(5_000_000, 360_000)
    assert round(float(bill.gpu_hours.value), 2) == 13.89
    assert shown_usd(bill.cost.value) == "$41.67"
    assert shown_usd(bill.cost.value / 5000) == "$0.008333"
    assert token_prices(Fraction(3), done).blended.value == bill.cost.value / 5_000_000


def test_a_day_of_deepseeks() -> None:
    """Published for 27 to 28 February 2025: 226.75 nodes of 8 H800 on average at $2 an hour: $87,072.

    608 billion input tokens (342 of them cached) and 168 billion output tokens would have brought $562,027 at the
    prices of R1 ($0.14, $0.55, $2.19), which they call a margin of 545 %; the figures behind are rounded.
    """
    nodes = Fraction("226.75")
    tokens, requests = 608 * 10**9 + 168 * 10**9, 10**9
    rate = Amount.of(Fraction(requests, 86400))
    hire = Hire(int(nodes * 8), nodes * 8, nodes * 8 * 2)
    bill = daily_bill(None, rate, hire, "always")
    assert usd(bill.cost.value) == Decimal(87072)
    assert bill.gpu_hours.value == nodes * 8 * 24
    per_million = bill.cost.value / tokens * 10**6
    assert float(per_million) == pytest.approx(0.1122, abs=5e-5)
    revenue = api_price_per_request(
        Fraction(608), Fraction(168), Fraction("0.55"), Fraction("2.19"), Fraction(342, 608), Fraction("0.14")
    )
    assert float(revenue * 10**9) == pytest.approx(562_027, rel=2e-4)
    assert float(revenue * 10**9 / bill.cost.value - 1) == pytest.approx(5.45, abs=0.01)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_public_worked_examples(case: dict[str, object]) -> None:
    for row in case["rows"]:  # type: ignore[attr-defined]
        price = token_prices(Fraction(row["usd_per_hour"]), steady(float(row["tokens_per_second"]), 1)).blended.value
        assert float(price * 10**6) == pytest.approx(row["usd_per_1m"], abs=5e-5)


def test_prefill_and_decode_share_the_time_of_the_gpu() -> None:
    """100 ms of prefill, and 500 steps of 20 ms shared by 50 requests: 0.1 s against 0.2 s."""
    share = prefill_time_share(0.1, 0.02, 500, 50)
    assert float(share) == pytest.approx(1 / 3)
    done = Throughput(Amount.of(2500), Amount.of(1), Amount.of(2000), Amount.of(500), share)
    prices = token_prices(Fraction(36), done)
    assert prices.input is not None
    assert prices.output is not None
    together = prices.input.value * 2000 + prices.output.value * 500
    assert together == prices.request.value == Fraction(36, 3600)


def test_intervals_come_through() -> None:
    prices = token_prices(
        Fraction(36), Throughput(Amount.of(100, 80, 125), Amount.of(1, Fraction(4, 5), Fraction(5, 4)))
    )
    assert (prices.blended.low, prices.blended.value, prices.blended.high) == (
        Fraction(1, 12500),
        Fraction(1, 10000),
        Fraction(1, 8000),
    )
    bill = daily_bill(flat_load(Fraction(86400)), Amount.of(Fraction(1, 4), 0.2, 0.3), Hire.at(Decimal(1), 2), "always")
    assert (bill.replicas.low, bill.replicas.value, bill.replicas.high) == (4, 4, 5)
    assert bill.cost.high == 5 * 2 * 24
    with pytest.raises(UsageError, match="above 0"):
        token_prices(Fraction(1), steady(0, 1))


def test_what_is_paid_for() -> None:
    """Twelve hours of 3 requests/s, twelve of 1, on replicas of 2 GPUs that answer 2 a second."""
    load = parse_load("8-20:3,20-8:1")
    assert (load.mean, load.peak, load.requests_per_day) == (2, 3, 2 * 86400)
    capacity, hire = Amount.of(2), Hire.at(Decimal(1), 2)
    costs = {kind: daily_bill(load, capacity, hire, kind) for kind in ("busy", "hourly", "always")}  # type: ignore[arg-type]
    assert {kind: bill.gpu_hours.value for kind, bill in costs.items()} == {"busy": 48, "hourly": 72, "always": 96}
    assert [bill.utilisation for bill in costs.values()] == [1, Fraction(2, 3), Fraction(1, 2)]
    assert daily_bill(load, capacity, hire, "always", spare=1).gpu_hours.value == 144


@pytest.mark.parametrize(
    ("gpus", "replicas", "instances"), [(4, 1, 1), (4, 2, 1), (4, 3, 2), (3, 3, 2), (8, 3, 3), (16, 2, 4), (12, 1, 2)]
)
def test_whole_instances(gpus: int, replicas: int, instances: int) -> None:
    """Instances of 8 GPUs; two replicas of 3 stand on one, and none straddles two that it fits in."""
    hire = Hire(gpus, Fraction(8), Fraction(80))
    assert hire.instances(replicas) == instances
    assert hire.usd_per_hour(replicas) == 80 * instances
    assert hire.gpus(replicas) == 8 * instances


def test_a_sixth_of_a_gpu_is_never_hired() -> None:
    assert cheapest_hire("a10", 1).gpus_per_instance >= 1
    hire = cheapest_hire("h100", 4, 3, "aws")
    assert hire.gpus_per_instance in (1, 8)
    with pytest.raises(NotFoundError):
        cheapest_hire("h100", 4, provider="no-such-cloud")


def test_more_replicas_may_stand_on_other_instances() -> None:
    one, many = cheapest_hire("h100", 1, 1, "aws", same_host=1), cheapest_hire("h100", 1, 8, "aws", same_host=1)
    assert many.usd_per_hour(8) <= one.usd_per_hour(8)


def test_energy() -> None:
    """10 GPU-hours of 700 W at 70 % and a PUE of 1.3, half of them idle at 15 %."""
    assert energy_kwh(Fraction(10), 700, Fraction(1), Power()) == Fraction("6.37")
    half = energy_kwh(Fraction(10), 700, Fraction(1, 2), Power())
    assert half == Fraction(7) * (Fraction("0.35") + Fraction("0.075")) * Fraction("1.3")


@pytest.mark.parametrize("text", ["8-20", "8-20:-1", "25-26:1", "8-20:1,10-12:2", "0-24:0", "", "8-20:1e3"])
def test_bad_load_profiles(text: str) -> None:
    with pytest.raises(UsageError):
        parse_load(text)


def test_load_from_arrivals(tmp_path: Path) -> None:
    assert load_of_arrivals([0, 10, 3599, 3600, 10800]).rates == tuple(Fraction(n, 3600) for n in (3, 1, 0, 1))
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival,isl,osl\n0,1,1\n7,1,1\n", encoding="utf-8")
    assert parse_load(str(trace)).rates == (Fraction(2, 3600),)
    trace.write_text("arrival\n", encoding="utf-8")
    with pytest.raises(InvalidFileError, match="no requests"):
        read_load(trace)
    trace.write_text("when\n1\n", encoding="utf-8")
    with pytest.raises(InvalidFileError, match="arrival"):
        read_load(trace)
    trace.write_text("arrival\nnan\n", encoding="utf-8")
    with pytest.raises(InvalidFileError, match="nan"):
        read_load(trace)
    with pytest.raises(NotFoundError):
        read_load(tmp_path / "missing.csv")


@given(price=positive, factor=positive, rate=positive)
def test_cost_is_proportional_to_price(price: Fraction, factor: Fraction, rate: Fraction) -> None:
    load = LoadProfile((rate, rate / 3))
    for billing in ("busy", "hourly", "always"):
        once = daily_bill(load, Amount.of(1), Hire.at(price, 2), billing)  # type: ignore[arg-type]
        more = daily_bill(load, Amount.of(1), Hire.at(price * factor, 2), billing)  # type: ignore[arg-type]
        assert more.cost.value == once.cost.value * factor


@given(rate=positive, capacity=positive)
def test_a_bill_for_more_is_never_smaller(rate: Fraction, capacity: Fraction) -> None:
    load, hire = LoadProfile((rate, rate / 7, Fraction(0))), Hire(3, Fraction(8), Fraction(5))
    busy, hourly, always = (daily_bill(load, Amount.of(capacity), hire, kind) for kind in ("busy", "hourly", "always"))  # type: ignore[arg-type]
    assert busy.cost.value <= hourly.cost.value <= always.cost.value
    assert always.utilisation <= hourly.utilisation <= 1


@given(
    replica=positive,
    capacity=st.integers(1, 50).map(Fraction),
    fixed=st.one_of(st.just(Fraction(0)), positive),
    least=st.integers(1, 3),
    api=positive,
)
def test_break_even_is_where_the_lines_cross(
    replica: Fraction, capacity: Fraction, fixed: Fraction, least: int, api: Fraction
) -> None:
    """By hand: the two lines meet there, before it the API is cheaper, and beyond `always_from` never again."""
    own = OwnCost(replica, capacity, fixed, least)
    found = break_even(own, api)
    if found.requests is None:
        assert all(own.cost(v) > api * v for v in (capacity * n for n in range(1, 60)))
        return
    assert own.cost(found.requests) == api * found.requests
    volumes = [found.requests * n / 200 for n in range(200)]
    assert all(own.cost(v) > api * v for v in volumes)
    if found.always_from is not None:
        start = found.always_from
        assert own.cost(start) == api * start
        assert all(own.cost(start + capacity * n / 7) <= api * (start + capacity * n / 7) for n in range(200))


def test_break_even_by_hand() -> None:
    """$1,000 a month for 1,000 requests, against $1.25 each: crossed at 800, again while the second fills up."""
    found = break_even(OwnCost(Fraction(1000), Fraction(1000)), Fraction(5, 4))
    assert (found.requests, found.replicas, found.utilisation) == (800, 1, Fraction(4, 5))
    assert found.always_from == 3200  # with 4 replicas: 4000 · 1.25 pays the fifth
    assert break_even(OwnCost(Fraction(1000), Fraction(1000)), Fraction(9, 10)).requests is None


@given(st.fractions(min_value=0, max_value=10**9))
def test_money_keeps_twelve_digits(amount: Fraction) -> None:
    shown = usd(amount)
    assert abs(Fraction(shown) - amount) <= amount / 10**11
    assert "E" not in f"{shown:f}"


def test_money_as_text() -> None:
    assert str(usd(Fraction(10**40 + 1))) == "1" + 40 * "0", "as large as it may be, and without an exponent"
    assert str(usd(Fraction(100))) == "100"
    assert str(usd(Fraction(1, 3))) == "0.333333333333"
    assert shown_usd(Fraction(1267360, 1000)) == "$1,267.36"
    assert DAYS_PER_MONTH * 24 == 730
