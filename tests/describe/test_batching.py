"""Schedulers as data: whole at every version, sourced, and the graph sizes that engines print."""

from __future__ import annotations

import pytest

from capplan.describe.batching import BatchingRules, GraphRange, batching_rules, check_scheduler_files, graph_sizes
from capplan.errors import UsageError


def test_every_scheduler_is_whole_at_every_version_and_each_rule_has_its_source() -> None:
    check_scheduler_files()


@pytest.mark.parametrize(
    ("engine", "version", "policy", "chunked", "admission", "ahead"),
    [
        ("vllm", "0.6.3", "prefill_first", False, "prompt", 0),
        ("vllm", "V1", "decode_first", True, "chunk", 0),
        ("vllm", "0.11.0", "decode_first", True, "chunk", 0),
        ("vllm", "0.15.0", "decode_first", True, "chunk", 1),
        ("vllm", None, "decode_first", True, "prompt", 1),
        ("sglang", None, "prefill_first", True, "output_share", 1),
        ("trtllm", None, "decode_first", False, "whole", 1),
        ("transformers", None, "static", False, "whole", 0),
        ("llama.cpp", None, "decode_first", True, "whole", 0),
    ],
)
def test_what_engines_do_by_version(
    engine: str, version: str | None, policy: str, chunked: bool, admission: str, ahead: int
) -> None:
    rules = batching_rules(engine, version).rules
    assert (rules.policy, rules.chunked_prefill, rules.admission, rules.steps_ahead) == (
        policy,
        chunked,
        admission,
        ahead,
    )


def test_graph_sizes_as_vllm_prints_them() -> None:
    """256 sequences: 1, 2, 4, then every 8 up to 256 and every 16 up to 512, as its start-up log lists."""
    rules = batching_rules("vllm", "0.11.2").rules
    sizes = graph_sizes(rules, max_num_seqs=256)
    assert sizes == (1, 2, 4, *range(8, 257, 8), *range(272, 513, 16))
    assert graph_sizes(rules, max_num_seqs=8) == (1, 2, 4, 8, 16)


def test_graph_sizes_of_sglang_follow_the_device() -> None:
    rules = batching_rules("sglang").rules
    assert max(graph_sizes(rules, max_num_seqs=2048, device_bytes=24 << 30, ranks=1)) == 24
    assert max(graph_sizes(rules, max_num_seqs=2048, device_bytes=80 << 30, ranks=1)) == 256
    assert max(graph_sizes(rules, max_num_seqs=2048, device_bytes=80 << 30, ranks=8)) == 512
    assert graph_sizes(rules, max_num_seqs=2048, device_bytes=24 << 30, ranks=1) == (1, 2, 4, 8, 12, 16, 24)


def test_without_ranges_there_are_no_graphs() -> None:
    assert graph_sizes(batching_rules("transformers").rules, max_num_seqs=8) == ()


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        GraphRange(start=8, stop=4)


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(UsageError, match="not an engine"):
        batching_rules("vlllm")


def test_defaults_need_no_more_than_a_policy() -> None:
    rules = BatchingRules(policy="static", admission="whole", preemption="none")
    assert graph_sizes(rules, max_num_seqs=4) == ()
