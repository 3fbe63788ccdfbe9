"""A deployment's parallel sizes, against the layouts that the engines' manuals describe."""

from __future__ import annotations

import pytest

from capplan.describe.deployment import Deployment, Parallel
from capplan.describe.parts import hydrated, validated


def test_experts_are_divided_over_all_ranks_of_a_stage() -> None:
    deepseek = Parallel(tp=1, dp=8, ep=8)
    assert (deepseek.gpus, deepseek.moe_tp) == (8, 1)
    mixed = Parallel(tp=8, ep=4, pp=2)
    assert (mixed.gpus, mixed.moe_tp) == (16, 2)


@pytest.mark.parametrize("sizes", [{"tp": 4, "ep": 3}, {"tp": 4, "cp": 3}, {"pp": 2, "stage_layers": (10, 10, 12)}])
def test_sizes_that_do_not_divide_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"must divide|stages"):
        Parallel(**sizes)  # type: ignore[arg-type]


def test_a_file_reads_the_same_with_and_without_pydantic() -> None:
    data = {"engine": "sglang", "parallel": {"tp": 4, "ep": 4}, "kv_cache_dtype": "fp8", "max_num_seqs": 64}
    assert hydrated(Deployment, data) == validated(Deployment, data)


def test_utilisation_is_a_fraction() -> None:
    with pytest.raises(ValueError, match="gpu_memory_utilization"):
        Deployment(gpu_memory_utilization=92)
