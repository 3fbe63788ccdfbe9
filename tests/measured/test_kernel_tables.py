"""The importer on tiny parquet files made here: units, names, every rule of distrust, versions and broken files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from capplan.errors import InvalidFileError, NotFoundError
from capplan.measured.distrust import RULES, Where
from capplan.measured.kernel_rows import CollectiveRow, DecodeAttentionRow, GemmRow, GroupedGemmRow, PrefillAttentionRow
from capplan.measured.kernel_tables import TableFile, find_tables, newest, read_table, version_key

GEMM = {"kernel_source": "cublas", "gemm_dtype": "bfloat16", "m": 8, "n": 512, "k": 1024, "latency": 0.02}
MOE = {
    "kernel_source": "fused", "moe_dtype": "fp8_block", "num_tokens": 4, "hidden_size": 2048, "inter_size": 768,
    "topk": 8, "num_experts": 128, "moe_tp_size": 2, "moe_ep_size": 1, "distribution": "balanced", "latency": 0.1,
}  # fmt: skip
ATTENTION = {
    "kernel_source": "fa3", "attn_dtype": "bfloat16", "kv_cache_dtype": "fp8", "head_dim": 128, "batch_size": 2,
    "isl": 1, "step": 4095, "num_heads": 32, "num_key_value_heads": 8, "window_size": 0, "latency": 0.05,
}  # fmt: skip
MLA = {
    "kernel_source": "x", "kv_cache_dtype": "bfloat16", "batch_size": 2, "isl": 1, "step": 127, "num_heads": 16,
    "tp_size": 8, "latency": 0.03,
}  # fmt: skip
NCCL = {
    "kernel_source": "NCCL",
    "nccl_dtype": "half",
    "op_name": "all_reduce",
    "num_gpus": 8,
    "message_size": 1024,
    "latency": 0.01,
}


def table(
    root: Path,
    family: str,
    stem: str,
    *records: dict[str, Any],
    gpu: str = "h100_sxm",
    engine: str = "vllm",
    version: str = "1.0",
) -> TableFile:
    path = root / gpu / family / engine / version / f"{stem}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(records)), path)
    kind = {"gemm_perf": "gemm", "moe_perf": "grouped_gemm", "generation_attention_perf": "decode_attention",
            "context_attention_perf": "prefill_attention", "generation_mla_perf": "mla_decode",
            "context_mla_perf": "mla_prefill"}.get(stem, "collective")  # fmt: skip
    return TableFile(path, gpu, kind, engine, version)


def test_times_become_seconds_and_names_capplans(tmp_path: Path) -> None:
    (row,) = read_table(table(tmp_path, "gemm", "gemm_perf", GEMM)).rows
    assert row == GemmRow("cublas", "bf16", 8, 512, 1024, pytest.approx(20e-6))
    (row,) = read_table(table(tmp_path, "moe", "moe_perf", MOE)).rows
    assert row == GroupedGemmRow("fused", "fp8_block", 4, 2048, 768, 8, 128, 2, 1, "balanced", pytest.approx(1e-4))


def test_a_decode_sees_its_own_token_too(tmp_path: Path) -> None:
    (row,) = read_table(table(tmp_path, "attention", "generation_attention_perf", ATTENTION)).rows
    assert row == DecodeAttentionRow("fa3", "bf16", "fp8", 128, 2, 4096, 32, 8, 0, pytest.approx(50e-6))


def test_no_kv_heads_means_one_for_each_query_head_and_no_window_column_none(tmp_path: Path) -> None:
    record = {**ATTENTION, "step": 0, "isl": 64, "num_key_value_heads": 0}
    del record["window_size"]
    (row,) = read_table(table(tmp_path, "attention", "context_attention_perf", record)).rows
    assert isinstance(row, PrefillAttentionRow)
    assert (row.tokens, row.prefix, row.heads, row.kv_heads, row.window) == (64, 0, 32, 32, 0)


def test_message_sizes_are_elements_of_16_bits(tmp_path: Path) -> None:
    found = read_table(
        table(tmp_path, "comm", "nccl_perf", NCCL, {**NCCL, "nccl_dtype": "int8"}, {**NCCL, "op_name": "alltoall"})
    )
    assert found.rows == (
        CollectiveRow("NCCL", "all_reduce", 8, 2048, pytest.approx(1e-5)),
        CollectiveRow("NCCL", "all_to_all", 8, 2048, pytest.approx(1e-5)),
    )


def test_calls_measured_again_count_by_their_median(tmp_path: Path) -> None:
    found = read_table(table(tmp_path, "gemm", "gemm_perf", *({**GEMM, "latency": t} for t in (0.02, 0.05, 0.03))))
    assert found.rows[0].seconds == pytest.approx(30e-6)
    assert found.left_out == {"measured_again": 2}


@pytest.mark.parametrize(
    ("rule", "family", "stem", "record", "gpu", "engine"),
    [
        ("not_a_time", "gemm", "gemm_perf", {**GEMM, "latency": 0.0}, "h100_sxm", "vllm"),
        ("not_a_time", "gemm", "gemm_perf", {**GEMM, "latency": float("inf")}, "h100_sxm", "vllm"),
        ("not_a_time", "gemm", "gemm_perf", {**GEMM, "latency": None}, "h100_sxm", "vllm"),
        ("unknown_format", "gemm", "gemm_perf", {**GEMM, "gemm_dtype": "fp3"}, "h100_sxm", "vllm"),
        ("small_side", "gemm", "gemm_perf", {**GEMM, "n": 128}, "h100_sxm", "vllm"),
        ("host_launch", "gemm", "gemm_perf", {**GEMM, "gemm_dtype": "fp8_block"}, "h100_sxm", "vllm"),
        ("expert_parallel", "moe", "moe_perf", {**MOE, "moe_ep_size": 4}, "h100_sxm", "sglang"),
        ("no_gate", "moe", "moe_perf", {**MOE, "kernel_source": "moe_nongated"}, "h100_sxm", "trtllm"),
        ("above_bandwidth", "attention", "generation_attention_perf", ATTENTION, "a100_sxm", "trtllm"),
        (
            "unknown_cache_format",
            "attention",
            "generation_attention_perf",
            {**ATTENTION, "kv_cache_dtype": "int3"},
            "l40s",
            "vllm",
        ),
        ("cached_prefix", "attention", "context_attention_perf", ATTENTION, "h100_sxm", "vllm"),
        ("cached_prefix", "mla", "context_mla_perf", MLA, "h100_sxm", "vllm"),
        (
            "decode_kernel",
            "attention",
            "context_attention_perf",
            {**ATTENTION, "step": 0, "kernel_source": "flashinfer_trtllmdecode"},
            "b200_sxm",
            "vllm",
        ),
    ],
)
def test_what_is_not_to_be_trusted_is_left_out_and_counted(
    tmp_path: Path, rule: str, family: str, stem: str, record: dict[str, Any], gpu: str, engine: str
) -> None:
    found = read_table(
        table(tmp_path, family, stem, record, {**record, "latency": record["latency"]}, gpu=gpu, engine=engine)
    )
    assert not found.rows
    assert found.left_out == {rule: 2}


@pytest.mark.parametrize(
    ("family", "stem", "record", "gpu", "engine"),
    [
        ("gemm", "gemm_perf", {**GEMM, "gemm_dtype": "fp8_block"}, "h100_sxm", "sglang"),
        ("attention", "generation_attention_perf", ATTENTION, "a100_sxm", "vllm"),
        ("attention", "generation_attention_perf", {**ATTENTION, "num_key_value_heads": 32}, "a100_sxm", "trtllm"),
    ],
)
def test_a_rule_does_not_reach_beyond_its_reason(
    tmp_path: Path, family: str, stem: str, record: dict[str, Any], gpu: str, engine: str
) -> None:
    assert len(read_table(table(tmp_path, family, stem, record, gpu=gpu, engine=engine)).rows) == 1


def test_every_rule_says_why() -> None:
    for rules in RULES.values():
        for rule in rules:
            assert len(rule.reason) > 40
    assert Where("h100_sxm", "vllm").engine == "vllm"


def test_versions_sort_as_releases_do() -> None:
    order = [
        "0.1.dev19262",
        "0.5.6.post2",
        "0.5.9",
        "0.5.10",
        "1.0.0",
        "1.2.0rc5",
        "1.3.0rc10",
        "1.3.0rc20",
        "1.3.0",
        "2.23",
        "2.27.3",
    ]
    shuffled = [order[7 * index % len(order)] for index in range(len(order))]
    assert sorted(shuffled, key=version_key) == order


def test_the_newest_version_with_trusted_rows_is_taken(tmp_path: Path) -> None:
    table(tmp_path, "moe", "moe_perf", MOE, version="1.3.0rc10")
    table(tmp_path, "moe", "moe_perf", MOE, version="1.3.0rc20")
    table(tmp_path, "moe", "moe_perf", {**MOE, "kernel_source": "nongated"}, version="1.3.0rc23")
    assert [found.file.version for found in newest(find_tables(tmp_path, "h100-sxm"))] == ["1.3.0rc20"]


def test_a_version_collected_in_part_supersedes_no_whole_one(tmp_path: Path) -> None:
    whole = [{**GEMM, "m": m} for m in range(1, 11)]
    table(tmp_path, "gemm", "gemm_perf", *whole, version="1.3.0rc20")
    table(tmp_path, "gemm", "gemm_perf", GEMM, version="1.3.0rc23")
    assert [found.file.version for found in newest(find_tables(tmp_path, "h100-sxm"))] == ["1.3.0rc20"]
    table(tmp_path, "gemm", "gemm_perf", *whole[:2], version="1.3.0rc23")
    assert [found.file.version for found in newest(find_tables(tmp_path, "h100-sxm"))] == ["1.3.0rc23"]


def test_the_folder_may_be_the_package_or_its_data(tmp_path: Path) -> None:
    data = tmp_path / "aiconfigurator_core" / "systems" / "data"
    table(data, "gemm", "gemm_perf", GEMM)
    assert find_tables(tmp_path, "h100_sxm") == find_tables(data, "h100_sxm") != []


def test_no_tables_and_no_such_gpu_are_told(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no kernel tables in"):
        find_tables(tmp_path, "h100_sxm")
    table(tmp_path, "gemm", "gemm_perf", GEMM)
    with pytest.raises(NotFoundError) as caught:
        find_tables(tmp_path, "h100_sx")
    assert "h100_sxm" in caught.value.hint


def test_a_file_that_is_no_table_is_told_with_its_path(tmp_path: Path) -> None:
    file = table(tmp_path, "gemm", "gemm_perf", GEMM)
    file.path.write_bytes(b"not parquet")
    with pytest.raises(InvalidFileError) as caught:
        read_table(file)
    assert str(file.path) in caught.value.where


def test_a_table_without_a_column_is_told(tmp_path: Path) -> None:
    file = table(tmp_path, "gemm", "gemm_perf", {key: value for key, value in GEMM.items() if key != "k"})
    with pytest.raises(InvalidFileError, match="no column 'k'"):
        read_table(file)
