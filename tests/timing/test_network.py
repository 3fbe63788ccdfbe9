"""Messages beyond one link domain, against the two levels done rank by rank."""

from __future__ import annotations

from dataclasses import replace

import pytest

from capplan.describe.gpu_catalog import ad_hoc_gpu
from capplan.questions.setting import resolve_setting
from capplan.timing.network import NETWORK_BANDWIDTH, Network, across_bytes, across_seconds, inside, network_of
from capplan.timing.operator_time import operator_parts, operator_time
from capplan.timing.step_time import step_time
from capplan.work.operators import Message, Operator
from capplan.work.sharding import Sharding
from capplan.work.step import Decode, Step, ledger
from tests.timing.machines import device, machine, model

NET = Network(50e9, 8, 16)


def message(collective: str, ranks: int, size: int, apart: int = 1, stage: int = 0) -> Operator:
    shape = Message(collective, ranks, size, apart)  # type: ignore[arg-type]
    return Operator("collective", "x", "communication", shape, stage=stage)


def sent_beyond(collective: str, ranks: int, joined: int, size: int) -> float:
    """Bytes that rank 0 sends to ranks of other domains, in a ring of its counterparts, or to each rank."""
    domains = ranks // joined
    if collective == "all_to_all":
        return sum(size / ranks for rank in range(ranks) if rank // joined != 0)
    slice_bytes = size / joined  # after the domain has scattered the vector among its ranks
    steps = domains - 1  # a ring over the domains passes on 1/domains of the slice in each step
    once = sum(slice_bytes / domains for _ in range(steps))
    return 2 * once if collective == "all_reduce" else once


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
@pytest.mark.parametrize(("ranks", "joined"), [(16, 8), (32, 8), (8, 2), (4, 1), (72, 8)])
def test_bytes_across(collective: str, ranks: int, joined: int) -> None:
    found = across_bytes(Message(collective, ranks, 7 * 2**20), joined)  # type: ignore[arg-type]
    assert found == pytest.approx(sent_beyond(collective, ranks, joined, 7 * 2**20))


def test_one_domain_has_no_network() -> None:
    operator = message("all_reduce", 8, 10**6)
    assert inside(operator, NET) is operator
    assert across_seconds(operator, NET) == 0
    assert inside(operator, None) is operator


def test_what_stays_inside() -> None:
    assert inside(message("all_reduce", 16, 10**6), NET).shape == Message("all_reduce", 8, 10**6)
    assert inside(message("all_to_all", 16, 10**6), NET).shape == Message("all_to_all", 8, 5 * 10**5)


def test_groups_that_lie_apart_cross_with_few_ranks() -> None:
    """Four data-parallel groups of eight ranks: each of a message's ranks is alone in its domain."""
    spread = message("all_gather", 4, 10**6, apart=8)
    assert NET.crosses(spread)
    assert across_bytes(spread.shape, NET.joined(spread.shape)) == 750_000  # type: ignore[arg-type]
    assert not NET.crosses(message("all_gather", 4, 10**6, apart=2))
    names = {
        op.name: op.shape
        for op in ledger(model("qwen3-30b-a3b"), Step(decode=(Decode(8, 100),)), Sharding(tp=8, dp=4)).of_kind(
            "collective"
        )
    }
    assert names["gather tokens for experts"].apart == 8  # type: ignore[union-attr]
    assert names["all-reduce after o_proj"].apart == 1  # type: ignore[union-attr]


@pytest.mark.parametrize(("stage_ranks", "crossing"), [(8, [0, 1, 2]), (4, [1]), (2, [3]), (16, [0, 1, 2])])
def test_stages_send_over_the_network_where_a_domain_ends(stage_ranks: int, crossing: list[int]) -> None:
    network = Network(50e9, 8, stage_ranks)
    found = [stage for stage in range(4) if network.crosses(message("send", 2, 10**6, stage=stage))]
    assert [stage for stage in found if stage in crossing] == crossing
    assert all((stage + 1) * stage_ranks % 8 == 0 or stage_ranks > 8 for stage in found)


def test_which_network() -> None:
    h100, l40s, nvl, rack = (device(name) for name in ("h100-sxm-80gb", "l40s", "h100-nvl-94gb", "gb200-nvl72-186gb"))
    assert network_of(h100, 8, 1) is None
    assert network_of(h100, 8, 2) == Network(NETWORK_BANDWIDTH, 8, 8)
    assert network_of(h100, 8, 1, 25e9, 4) == Network(25e9, 4, 8)
    assert network_of(l40s, 8, 1) is None  # PCIe joins a node, and its collectives were measured
    assert network_of(nvl, 4, 1) == Network(64e9, 2, 4, "PCIe")  # bridges join pairs
    assert network_of(rack, 72, 1) is None
    assert network_of(ad_hoc_gpu("24GiB", "1TB/s", "100"), 64, 1) is None  # nothing known, nothing added


def test_times_across_are_latency_and_bytes_on_top_of_one_domain() -> None:
    near = machine()
    far = replace(near, network=NET)
    wide, narrow = message("all_reduce", 16, 10**7), message("all_reduce", 8, 10**7)
    one, both = operator_time(narrow, near), operator_time(wide, far)
    assert both.seconds == pytest.approx(one.seconds + 15e-6 + 2 * 0.5 * 10**7 / 8 / (0.85 * 50e9))
    assert both.basis == "assumed"
    assert both.low < both.seconds < both.high
    parts = operator_parts(wide, far)
    assert parts.launch + parts.body == pytest.approx(both.seconds)


def test_a_slower_network_is_never_faster() -> None:
    work = ledger(model("deepseek-v3"), Step(decode=(Decode(16, 1000),)), Sharding(tp=16, ep=16))
    times = [
        step_time(work, replace(machine(), network=Network(rate, 8, 16)), sequences=16).seconds
        for rate in (400e9, 50e9, 10e9)
    ]
    assert times == sorted(times)


def test_a_setting_says_what_it_assumes() -> None:
    options = {"tensor_parallel_size": 8, "pipeline_parallel_size": 2}
    assumed = resolve_setting("llama3.1-70b", "h100", **options).assumptions[-1]  # type: ignore[arg-type]
    assert "50 GB/s a device, assumed" in assumed
    given = resolve_setting("llama3.1-70b", "h100", network_bandwidth="200Gbit/s", **options)  # type: ignore[arg-type]
    assert given.machine.network == Network(25e9, 8, 8)
    assert "25 GB/s a device, as given" in given.assumptions[-1]
    assert resolve_setting("llama3.1-70b", "h100", tensor_parallel_size=8).machine.network is None
