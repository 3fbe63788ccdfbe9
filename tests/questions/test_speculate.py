"""Speculative decoding against draws, the textbook's table, counts by hand, and what must hold at both ends."""

from __future__ import annotations

import random

import pytest

from capplan.describe.resolve import resolve_model
from capplan.errors import UnsupportedError, UsageError
from capplan.questions.drafting import DraftRequest
from capplan.questions.estimate import EstimateResult, LoadRequest, estimate
from capplan.questions.speculate import SpeculateResult, speculate
from capplan.work.medusa import medusa_ledger

GPU = "h100-sxm-80gb"


def drafted(model: str, *acceptance: float, **options: object) -> SpeculateResult:
    return speculate(model, GPU, acceptance=acceptance, **options).result  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("chance", "tokens", "speedup"),
    [(0.5, 1.94, 1.38), (0.6, 2.31, 1.65), (0.7, 2.77, 1.98), (0.8, 3.36, 2.40), (0.9, 4.10, 2.93), (0.95, 4.52, 3.23)],
)
def test_the_guide_s_table(chance: float, tokens: float, speedup: float) -> None:
    """K = 4, a draft model of a tenth: (1 - a^5) / (1 - a) tokens, and that over 1.4."""
    row = speculate(acceptance=[chance], draft_tokens=4, draft_ratio=0.1).result.rows[0]
    assert row.tokens_per_round == pytest.approx((1 - chance**5) / (1 - chance))
    assert round(row.tokens_per_round, 2) == tokens
    assert round(row.memory_bound_speedup, 2) == pytest.approx(speedup, abs=0.011)
    assert row.compute_bound_speedup < 1


@pytest.mark.parametrize(("chance", "drafts"), [(0.6, 3), (0.9, 5), (0.0, 4), (1.0, 4)])
def test_tokens_a_round_by_drawing(chance: float, drafts: int) -> None:
    source = random.Random(11)

    def one() -> int:
        accepted = 0
        while accepted < drafts and source.random() < chance:
            accepted += 1
        return accepted + 1

    row = speculate(acceptance=[chance], draft_tokens=drafts, draft_ratio=0).result.rows[0]
    assert row.tokens_per_round == pytest.approx(sum(one() for _ in range(40_000)) / 40_000, rel=0.01)


def test_small_batches_gain_as_the_textbook_says_and_large_ones_lose() -> None:
    result = drafted("llama3.1-70b", 0.6, draft_model="llama3.2-1b", tensor_parallel_size=4, batch=[1, 256])
    small, large = result.batches
    assert small.verify_ms == pytest.approx(small.step_ms, rel=0.1)
    assert small.gains[0] == pytest.approx(result.rows[0].memory_bound_speedup, rel=0.1)
    assert large.gains[0] < 1
    assert 1 < (result.turning_batches[0] or 0) < 256


def test_the_batch_where_it_turns_parts_gain_from_loss() -> None:
    options: dict[str, object] = {"draft_model": "llama3.2-1b", "tensor_parallel_size": 4}
    turn = drafted("llama3.1-70b", 0.6, **options).turning_batches[0]
    assert turn is not None
    before, after = drafted("llama3.1-70b", 0.6, batch=[int(turn / 1.1), turn], **options).batches
    assert before.gains[0] > 1 >= after.gains[0]


def test_more_acceptance_gains_more_and_none_loses() -> None:
    gains = drafted("deepseek-v3", 0.0, 0.4, 0.8, 1.0, tensor_parallel_size=8, draft_tokens=1).batches[0].gains
    assert list(gains) == sorted(gains)
    assert gains[0] < 1 < gains[-1] <= 2


def test_verifying_touches_more_experts_than_it_does_weights_of_a_dense_model() -> None:
    dense = drafted("llama3.1-70b", 0.8, draft_model="llama3.2-1b", tensor_parallel_size=4, batch=[8]).batches[0]
    sparse = drafted("deepseek-v3", 0.8, tensor_parallel_size=8, draft_tokens=4, batch=[8]).batches[0]
    assert sparse.verify_ms / sparse.step_ms > dense.verify_ms / dense.step_ms


def test_medusa_heads_have_weights_of_their_own() -> None:
    """Each reads a block of H by H and a head of H by V; copies of one list entry would share a single layer."""
    spec = resolve_model("llama3.1-8b").spec
    work = medusa_ledger(spec, 4, 1)
    hidden, vocabulary = 4096, 128_256
    assert work.totals.traffic.weights == 4 * (hidden**2 + hidden * vocabulary) * 2
    assert work.totals.flops == 2 * 4 * (hidden**2 + hidden * vocabulary)


def test_a_list_times_n_shares_one_layer() -> None:
    torch = pytest.importorskip("torch")
    layers = [torch.nn.Linear(8, 8, bias=False), torch.nn.SiLU()] * 3
    assert sum(parameter.numel() for parameter in torch.nn.Sequential(*layers).parameters()) == 8 * 8


def served(drafting: DraftRequest | None, concurrency: float) -> EstimateResult:
    load = LoadRequest(512, 512, concurrency)
    return estimate("llama3.1-8b", GPU, load=load, drafting=drafting).result


def test_drafting_in_an_estimate_helps_few_clients_and_takes_from_the_pool() -> None:
    plain, drafting = (served(how, 4) for how in (None, DraftRequest(4, 0.7, "llama3.2-1b")))
    assert drafting.mean_tpot_ms < 0.8 * plain.mean_tpot_ms
    assert drafting.mean_ttft_ms > plain.mean_ttft_ms
    assert (drafting.kv_capacity_tokens or 0) < (plain.kv_capacity_tokens or 0)


def test_an_estimate_warns_where_drafting_slows() -> None:
    answer = estimate("llama3.1-8b", GPU, load=LoadRequest(512, 512, 400), drafting=DraftRequest(4, 0.3, "llama3.2-1b"))
    assert any("slows" in warning for warning in answer.warnings)
    assert answer.result.mean_tpot_ms > served(None, 400).mean_tpot_ms


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"acceptance": [1.2]}, "chance"),
        ({"acceptance": []}, "at least one"),
        ({"acceptance": [0.5], "draft_tokens": 100}, "1 to 64"),
        ({"acceptance": [0.5], "model": "llama3.1-8b", "gpu": GPU}, "no MTP layers"),
        ({"acceptance": [0.5], "model": "llama3.1-8b", "gpu": GPU, "draft_model": "qwen3-0.6b"}, "vocabulary"),
    ],
)
def test_what_cannot_draft_says_so(options: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        speculate(**options)  # type: ignore[arg-type]


def test_no_profile_no_gain() -> None:
    with pytest.raises(UnsupportedError, match="profile"):
        speculate("llama3.1-8b", "mi250x", acceptance=[0.5], medusa_heads=4)
