"""One iteration at a time: budgets, admission rules, who gives way; and what must hold in every state.

The batching demonstration (A of 500, B of 100 and C of 300 tokens; D waits) is from "The complete guide to LLM
inference optimisation" (Japanese, kept as plain text by the project's maintainers). Its scheduler calls a function
`_can_add_request` that it does not define; here that is a place in the batch and room in the pool.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.describe.batching import OutputShare
from capplan.serving.requests import Request
from capplan.serving.scheduler import Scheduler, SchedulerConfig
from capplan.serving.sequences import CacheModel, ServedSequence
from capplan.serving.step_plan import StepPlan
from tests.serving.clocks import ConstantClock, at_once, by_prompt, run


def scheduler(blocks: int = 1000, size: int = 16, need: Any = None, **settings: Any) -> Scheduler:
    cache = CacheModel(blocks, size, need) if need else CacheModel(blocks, size)
    return Scheduler(SchedulerConfig(**settings), cache)


def add(made: Scheduler, *lengths: tuple[int, int]) -> list[ServedSequence]:
    """Let requests of (isl, osl) wait."""
    added = [ServedSequence(index, Request(0.0, *pair), pair[0]) for index, pair in enumerate(lengths)]
    made.waiting.extend(added)
    return added


def step(made: Scheduler) -> StepPlan:
    """One iteration, after which the ended ones are gone."""
    plan = made.plan()
    assert plan is not None
    made.release(made.complete(plan)[1])
    return plan


def shape(plan: StepPlan) -> tuple[int, list[tuple[int, int]]]:
    return plan.decode, [(chunk.tokens, chunk.prefix) for chunk in plan.chunks]


def test_continuous_batching_fills_a_place_as_soon_as_it_is_free() -> None:
    """The demonstration: with static batching D starts when A ends, with continuous batching when B does."""
    lengths = ((1, 500), (2, 100), (3, 300), (4, 10))
    started = {}
    for policy in ("static", "decode_first", "prefill_first"):
        done = run(at_once(*lengths), ConstantClock(1.0), scheduler={"policy": policy, "max_num_seqs": 3})
        started[policy] = by_prompt(done, "queue")[4]
        assert by_prompt(done, "e2e")[2] == 100
    assert started == {"static": 500, "decode_first": 100, "prefill_first": 100}


def test_decoding_comes_first_and_prompts_share_what_is_left() -> None:
    made = scheduler(step_tokens=100)
    add(made, (30, 50), (30, 50), (150, 50), (30, 50))
    assert shape(step(made)) == (0, [(30, 0), (30, 0), (40, 0)])
    assert shape(step(made)) == (2, [(98, 40)])
    assert shape(step(made)) == (2, [(12, 138), (30, 0)])
    assert shape(step(made)) == (4, [])


def test_without_chunks_a_prompt_waits_for_a_step_that_it_fits_in() -> None:
    made = scheduler(step_tokens=100, chunked_prefill=False)
    add(made, (30, 3), (90, 3), (30, 3))
    assert [shape(step(made)) for _ in range(4)] == [(0, [(30, 0)]), (1, [(90, 0)]), (2, [(30, 0)]), (2, [])]


def test_prefill_first_stops_decoding() -> None:
    made = scheduler(step_tokens=100, policy="prefill_first")
    add(made, (30, 3), (150, 3))
    assert [shape(step(made)) for _ in range(3)] == [(0, [(30, 0), (70, 0)]), (0, [(80, 70)]), (2, [])]
    add(made, (10, 3))
    assert [shape(step(made)) for _ in range(2)] == [(0, [(10, 0)]), (3, [])]


def test_static_batches_are_padded_and_end_with_the_longest() -> None:
    made = scheduler(policy="static", pad_prompts=True, max_num_seqs=2)
    add(made, (10, 4), (30, 2), (20, 2))
    shapes = [shape(step(made)) for _ in range(6)]
    assert shapes == [(0, [(30, 0), (30, 0)]), (2, []), (2, []), (2, []), (0, [(20, 0)]), (1, [])]
    assert made.plan() is None


def test_context_counts_the_new_positions() -> None:
    made = scheduler()
    add(made, (30, 4), (50, 2))
    plans = [step(made) for _ in range(4)]
    assert [plan.context for plan in plans] == [0, 31 + 51, 32, 33]


@pytest.mark.parametrize(("rule", "admitted"), [("chunk", 3), ("prompt", 2), ("whole", 1)])
def test_admission_rules(rule: str, admitted: int) -> None:
    """10 blocks of 16; prompts of 5, outputs of 5 blocks; a step computes half of a prompt for the third."""
    made = scheduler(10, 16, admission=rule, step_tokens=180)
    add(made, (80, 80), (80, 80), (80, 80))
    if rule == "chunk":
        made = scheduler(12, 16, admission=rule, step_tokens=180)
        add(made, (80, 80), (80, 80), (80, 80))
    step(made)
    assert len(made.running) == admitted


def test_whole_admission_never_lets_one_give_way() -> None:
    done = run(
        at_once(*((40, 200),) * 30), ConstantClock(), blocks=40, scheduler={"admission": "whole", "preemption": "none"}
    )
    assert done.preemptions == 0
    assert done.peak_running == 2  # of 15 blocks each


def test_the_expected_share_of_outputs_falls_and_jumps() -> None:
    """SGLang's rule: 0.7 at first, 0.7·0.14 after 600 steps, (outputs + 20·B)/allowed after a retraction."""
    made = scheduler(100, 16, admission="output_share", output_share=OutputShare(), policy="prefill_first")
    expected = made._expected
    assert expected is not None
    add(made, (16, 1000))
    for _ in range(601):
        step(made)
    assert expected.share == pytest.approx(0.7 * 0.14)
    expected.retracted(made.running, made.decoding)
    assert expected.share == pytest.approx((601 + 20) / 1000)


def test_admission_by_the_share_of_outputs() -> None:
    """90 blocks of 16: 350 + 600 tokens fit into the 83 beside the first; a third needs 2·350 + 600 > 76·16."""
    made = scheduler(90, 16, admission="output_share", output_share=OutputShare(), policy="prefill_first")
    add(made, (100, 500), (100, 500), (100, 500))
    step(made)
    assert len(made.running) == 2


def test_the_newest_gives_way_and_comes_back_first() -> None:
    """8 blocks of 4: both hold 4 (16 positions); the next position needs a fifth block for each."""
    made = scheduler(8, 4, admission="prompt")
    first, second, third = add(made, (16, 9), (16, 9), (4, 1))
    assert shape(step(made)) == (0, [(16, 0), (16, 0)])
    plan = step(made)
    assert plan.preempted == [second]
    assert list(made.running) == [first]
    assert list(made.waiting) == [second, third]
    assert made.recomputed_tokens == 16
    while first in made.running:
        step(made)
    assert not made.leaving
    assert shape(step(made)) == (0, [(17, 0), (4, 0)])  # its prompt and the token that it had been given
    assert second.preemptions == 1


def test_the_one_that_has_written_least_gives_way() -> None:
    made = scheduler(9, 4, victim="fewest_outputs", policy="prefill_first")
    first, second = add(made, (12, 30), (11, 30))
    step(made)
    made.decoding.leave(first)
    first.generated = 1  # the first has written less
    made.decoding.join(first)
    second.generated += 3
    for _ in range(8):
        plan = step(made)
        if plan.preempted:
            break
    assert plan.preempted == [first]
    assert list(made.waiting) == [first]


def test_swapped_blocks_go_out_and_come_back() -> None:
    made = scheduler(8, 4, preemption="swap")
    first, second = add(made, (16, 5), (16, 5))
    step(made)
    plan = step(made)
    assert plan.moved_blocks == 4
    assert list(made.swapped) == [second]
    while first in made.running:
        step(made)
    plan = step(made)
    assert (plan.moved_blocks, plan.decode, plan.context) == (5, 1, 17)
    assert made.recomputed_tokens == 0


def test_prompts_are_held_back_for_company() -> None:
    made = scheduler(step_tokens=100, batch_wait_steps=3, batch_wait_tokens=80)
    add(made, (30, 20))
    assert shape(step(made)) == (0, [(30, 0)])  # nobody decodes: no wait
    add(made, (20, 5))
    assert [shape(step(made)) for _ in range(4)] == [(1, []), (1, []), (1, []), (1, [(20, 0)])]
    add(made, (20, 5))
    step(made)
    add(made, (60, 5))
    assert shape(step(made)) == (2, [(20, 0), (60, 0)])  # enough came


def test_a_windowed_cache_stops_growing() -> None:
    """Blocks that a request takes are the cache's own function of its length."""
    made = scheduler(20, 4, need=lambda filled: min(filled, 3) + 1)
    (only,) = add(made, (8, 40))
    held = []
    while made.waiting or made.running:
        step(made)
        held.append(len(only.table))
    assert max(held) == 4


def test_requests_that_can_never_run_are_told() -> None:
    made = scheduler(10, 16, chunked_prefill=False, step_tokens=100)
    fits = [made.fits(sequence) for sequence in add(made, (100, 61), (100, 62), (101, 1))]
    assert fits == [True, False, False]


configs = st.fixed_dictionaries(
    {
        "policy": st.sampled_from(["decode_first", "prefill_first", "static"]),
        "step_tokens": st.integers(12, 60),
        "max_num_seqs": st.integers(1, 8),
        "chunked_prefill": st.booleans(),
        "admission": st.sampled_from(["chunk", "prompt", "whole", "output_share"]),
        "watermark_blocks": st.integers(0, 2),
        "preemption": st.sampled_from(["recompute", "swap"]),
        "victim": st.sampled_from(["newest", "fewest_outputs"]),
        "prefix_caching": st.booleans(),
        "pad_prompts": st.booleans(),
        "batch_wait_steps": st.integers(0, 3),
        "batch_wait_tokens": st.integers(0, 40),
    }
)
lengths = st.tuples(st.integers(1, 70), st.integers(1, 40), st.sampled_from([None, "a", "b"]), st.integers(1, 40))


@settings(max_examples=250, deadline=None)
@given(configs, st.lists(lengths, min_size=1, max_size=25), st.integers(20, 60), st.integers(1, 7), st.booleans())
def test_what_must_hold_in_every_state(
    config: dict[str, Any], asked: list[tuple[int, int, str | None, int]], blocks: int, size: int, ahead: bool
) -> None:
    """Blocks, references, budgets and counts in every step; every request gets exactly its tokens, and no more."""
    config["output_share"] = OutputShare() if config["admission"] == "output_share" else None
    if config["policy"] == "static":
        config |= {"admission": "whole", "preemption": "none"}
        ahead = False
    made = Scheduler(SchedulerConfig(**config), CacheModel(blocks, size))
    tokens: Counter[int] = Counter()
    wanted = {}
    for index, (isl, osl, prefix, shared) in enumerate(asked):
        request = Request(0.0, isl, osl, prefix, min(shared, isl) if prefix else 0)
        sequence = ServedSequence(index, request, isl)
        if made.fits(sequence):
            made.waiting.append(sequence)
            wanted[index] = osl
    computed = decoded = 0
    held: list[ServedSequence] = []  # where steps are planned ahead, what ended is given back a step later
    for _ in range(5000):
        plan = made.plan()
        if plan is None and held:
            made.release(held)
            held = []
            plan = made.plan()
        if plan is None:
            break
        check_state(made, plan, size)
        computed += sum(chunk.tokens for chunk in plan.chunks)
        decoding = [sequence for sequence in made.running if sequence.joined >= 0] if plan.decode else []
        done = {id(sequence) for sequence in made._batch_done}
        for sequence in decoding:
            if id(sequence) not in done:
                tokens[sequence.index] += 1
                decoded += 1
        assert plan.decode == len(decoding)
        prompted, ended = made.complete(plan)
        for sequence in prompted:
            tokens[sequence.index] += 1
        if ahead:
            held, ended = ended, held
        made.release(ended)
    assert made.plan() is None
    assert not made.waiting
    assert not made.swapped
    assert not made.running
    assert dict(tokens) == wanted
    assert made.blocks.used == 0
    assert made.blocks.promised == 0
    if config["policy"] != "static":
        final = sum(asked[index][0] + osl - 1 for index, osl in wanted.items())
        found = made.blocks.prefixes.hit_tokens
        assert computed + decoded + found == final + made.recomputed_tokens


def check_state(made: Scheduler, plan: StepPlan, size: int) -> None:
    """Everything that is kept twice agrees, and no limit is exceeded."""
    config, manager = made.config, made.blocks.prefixes.manager
    holding = [*made.running, *made.leaving]
    held = Counter(block for sequence in holding for block in sequence.table)
    assert made.blocks.used == len(held)
    assert all(manager.references(block) == count for block, count in held.items())
    assert manager.free_blocks + len(held) == manager.blocks
    decoding = [sequence for sequence in made.running if sequence.joined >= 0]
    assert made.decoding.count == len(decoding)
    assert made.decoding.context == sum(
        sequence.computed + made.decoding.steps - sequence.joined for sequence in decoding
    )
    assert len(holding) <= config.max_num_seqs
    assert set(made.partial) | set(decoding) == set(made.running)
    for sequence in decoding if plan.decode else []:
        assert len(sequence.table) * size >= made.decoding.position(sequence)
    for chunk in plan.chunks:
        assert len(chunk.sequence.table) * size >= chunk.prefix + chunk.tokens
        assert chunk.prefix == chunk.sequence.computed
    if config.policy != "static":
        scheduled = sum(chunk.tokens for chunk in plan.chunks) + plan.decode
        lone = not config.chunked_prefill and len(plan.chunks) == 1
        assert scheduled <= max(config.step_tokens, plan.decode) or lone
    assert made.blocks.promised == sum(made.blocks.most(one) - len(one.table) for one in holding)
