"""Public tables of measured kernels: parquet files, one for each GPU, family, engine and version.

The layout is that of ``aiconfigurator-core`` (Apache-2.0): ``systems/data/<gpu>/<family>/<engine>/<version>/``.
Times stand in milliseconds, message sizes in elements, cached tokens of a decode without the new one; rows of this
module are in seconds, bytes, and with the new token. The rows that are not to be trusted are left out by the rules of
`capplan.measured.distrust`. Needs pyarrow (the ``fit`` extra).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from capplan.describe.kernel_formats import table_format
from capplan.errors import InvalidFileError, NotFoundError, UsageError, did_you_mean
from capplan.measured.distrust import RULES, Where
from capplan.measured.kernel_rows import (
    CollectiveRow,
    DecodeAttentionRow,
    GemmRow,
    GroupedGemmRow,
    KernelRow,
    MlaDecodeRow,
    MlaPrefillRow,
    PrefillAttentionRow,
)

WHOLE = 0.2
"""Share of the rows of the fullest version of a table that a version has if it was collected as a whole."""

_MILLI = 1e-3
_CACHE_FORMATS = {"bfloat16": "bf16", "float16": "bf16", "fp8": "fp8"}
_MESSAGE_BYTES = {"half": 2, "bfloat16": 2, "float16": 2}
_COLLECTIVES = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
}


@dataclass(frozen=True)
class TableFile:
    """One file of the tables.

    Args:
        path: of the file.
        gpu: the tables' name of the GPU.
        kind: of the kernel.
        engine: whose kernels these are, or the library of a collective.
        version: of the engine.
    """

    path: Path
    gpu: str
    kind: str
    engine: str
    version: str


@dataclass(frozen=True)
class KernelTable:
    """The trusted rows of one file.

    Args:
        file: where they come from.
        rows: one for each distinct call; where a call was measured more than once, its median.
        left_out: rows left out, by the name of the rule.
    """

    file: TableFile
    rows: tuple[KernelRow, ...]
    left_out: Mapping[str, int]


@dataclass(frozen=True)
class _Layout:
    """Where a kind's tables lie and how a record becomes a row."""

    kind: str
    family: str
    row: Callable[[Mapping[str, Any]], KernelRow | None]


def find_tables(folder: Path, gpu: str) -> list[TableFile]:
    """Every table of one GPU that capplan reads, by kind, engine and version.

    Args:
        folder: the installed package, its ``systems/`` or its ``systems/data/``.
        gpu: the tables' name, such as ``h100_sxm``; ``-`` is ``_``.

    Raises:
        NotFoundError: no such folder, or no tables of that GPU in it.
    """
    data = data_folder(folder)
    name = gpu.strip().lower().replace("-", "_")
    known = gpus_of(data)
    if name not in known:
        raise NotFoundError(
            f"there are no kernel tables of {gpu!r} in {data}", where="--gpu", hint=did_you_mean(name, known)
        )
    found = [
        TableFile(path, name, layout.kind, path.parts[-3], path.parts[-2])
        for stem, layout in _LAYOUTS.items()
        for path in sorted((data / name / layout.family).glob(f"*/*/{stem}.parquet"))
    ]
    return sorted(found, key=lambda file: (file.kind, file.engine, version_key(file.version)))


def data_folder(folder: Path) -> Path:
    """The folder that holds one folder a GPU.

    Raises:
        NotFoundError: there is none at or below `folder`.
    """
    tails = ("", "data", "systems/data", "aiconfigurator_core/systems/data")
    for candidate in (folder / tail for tail in tails):
        if candidate.is_dir() and gpus_of(candidate):
            return candidate
    raise NotFoundError(
        f"there are no kernel tables in {folder}",
        where="DIR",
        hint="pip install aiconfigurator-core==0.12.0 --no-deps --target DIR",
    )


def gpus_of(data: Path) -> list[str]:
    """The GPUs that have tables under `data`, by the tables' names."""
    families = {layout.family for layout in _LAYOUTS.values()}
    return sorted(path.name for path in data.iterdir() if any((path / family).is_dir() for family in families))


def newest(files: Iterable[TableFile]) -> Iterator[KernelTable]:
    """For each sort of file and engine the table of the newest version, leaving out versions collected in part.

    A version counts that has at least a fifth of the trusted rows of the fullest one: some versions hold a single
    kernel that was added to an earlier collection, and don't supersede it.
    """
    versions: dict[tuple[str, str], list[TableFile]] = defaultdict(list)
    for file in files:
        versions[file.path.stem, file.engine].append(file)
    for group in versions.values():
        tables = [read_table(file) for file in sorted(group, key=lambda file: version_key(file.version))]
        most = max(len(table.rows) for table in tables)
        full = [table for table in tables if len(table.rows) >= max(1, most * WHOLE)]
        if full:
            yield full[-1]


def version_key(version: str) -> tuple[tuple[int, ...], int, int]:
    """Sorts ``0.5.6.post2`` < ``0.5.10`` < ``1.3.0rc10`` < ``1.3.0rc20`` < ``1.3.0``."""
    release = tuple(int(part) for part in re.findall(r"\d+", re.split(r"[a-z]", version, maxsplit=1)[0]))
    suffix = re.search(r"(dev|rc|post)(\d*)", version)
    if suffix is None:
        return (release, 0, 0)
    return (release, {"dev": -2, "rc": -1, "post": 1}[suffix[1]], int(suffix[2] or 0))


def read_table(file: TableFile) -> KernelTable:
    """The trusted rows of one file.

    Raises:
        InvalidFileError: not a parquet file, or one without the columns of its kind.
        UsageError: pyarrow is not installed.
    """
    where = Where(file.gpu, file.engine)
    rules = RULES[file.kind]
    left_out: Counter[str] = Counter()
    times: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    kinds: dict[tuple[Any, ...], type[Any]] = {}
    for row in _rows(file):
        rule = next((rule for rule in rules if rule.applies(row, where)), None)
        if rule is not None:
            left_out[rule.name] += 1
            continue
        times[row[:-1]].append(row.seconds)
        kinds[row[:-1]] = type(row)
    left_out["measured_again"] = sum(len(values) - 1 for values in times.values())
    rows = tuple(kinds[call](*call, median(values)) for call, values in times.items())
    return KernelTable(file, rows, {name: count for name, count in left_out.items() if count})


def _rows(file: TableFile) -> Iterator[KernelRow]:
    layout = _LAYOUTS[file.path.stem]
    for record in _records(file.path):
        try:
            row = layout.row(record)
        except KeyError as error:
            message = f"the table has no column {error.args[0]!r}"
            raise InvalidFileError(message, where=str(file.path)) from None
        if row is not None:
            yield row


def _records(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a parquet file as mappings."""
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise UsageError(
            "reading kernel tables needs pyarrow", where="import-kernels", hint="pip install 'capplan[fit]'"
        ) from None
    try:
        table = parquet.read_table(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise InvalidFileError(f"this is not a readable parquet file: {error}", where=str(path)) from None
    names: Sequence[str] = table.column_names
    columns = [table.column(name).to_pylist() for name in names]
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def _seconds(record: Mapping[str, Any]) -> float:
    latency = record["latency"]
    return float("nan") if latency is None else float(latency) * _MILLI


def _format(name: str) -> str:
    known = table_format(name)
    return known.name if known else ""


def _gemm(record: Mapping[str, Any]) -> GemmRow:
    kernel, m, n, k = (record[name] for name in ("kernel_source", "m", "n", "k"))
    return GemmRow(kernel, _format(record["gemm_dtype"]), m, n, k, _seconds(record))


def _grouped_gemm(record: Mapping[str, Any]) -> GroupedGemmRow:
    return GroupedGemmRow(
        kernel=record["kernel_source"],
        format=_format(record["moe_dtype"]),
        tokens=record["num_tokens"],
        hidden=record["hidden_size"],
        intermediate=record["inter_size"],
        top_k=record["topk"],
        experts=record["num_experts"],
        tensor_parallel=record["moe_tp_size"],
        expert_parallel=record["moe_ep_size"],
        routing=record["distribution"],
        seconds=_seconds(record),
    )


def _attention_head(record: Mapping[str, Any]) -> tuple[str, str, str, int, int]:
    return (
        record["kernel_source"],
        _format(record["attn_dtype"]),
        _CACHE_FORMATS.get(record["kv_cache_dtype"], ""),
        record["head_dim"],
        record["batch_size"],
    )


def _attention_tail(record: Mapping[str, Any]) -> tuple[int, int, int, float]:
    heads = record["num_heads"]
    return heads, record["num_key_value_heads"] or heads, record.get("window_size") or 0, _seconds(record)


def _prefill(record: Mapping[str, Any]) -> PrefillAttentionRow:
    return PrefillAttentionRow(*_attention_head(record), record["isl"], record["step"] or 0, *_attention_tail(record))


def _decode(record: Mapping[str, Any]) -> DecodeAttentionRow:
    return DecodeAttentionRow(*_attention_head(record), record["step"] + record["isl"], *_attention_tail(record))


def _mla_prefill(record: Mapping[str, Any]) -> MlaPrefillRow:
    head = (record["kernel_source"], _CACHE_FORMATS.get(record["kv_cache_dtype"], ""))
    sizes = (record["batch_size"], record["isl"], record["step"] or 0, record["num_heads"])
    return MlaPrefillRow(*head, *sizes, _seconds(record))


def _mla_decode(record: Mapping[str, Any]) -> MlaDecodeRow:
    head = (record["kernel_source"], _CACHE_FORMATS.get(record["kv_cache_dtype"], ""))
    sizes = (record["batch_size"], record["step"] + record["isl"], record["num_heads"])
    return MlaDecodeRow(*head, *sizes, _seconds(record))


def _collective(record: Mapping[str, Any], format_column: str) -> CollectiveRow | None:
    """A row in 16 bits; other formats carry the same bytes a second and are read by nobody."""
    width = _MESSAGE_BYTES.get(record[format_column])
    collective = _COLLECTIVES.get(record["op_name"])
    if width is None or collective is None:
        return None
    size = record["message_size"] * width
    return CollectiveRow(record["kernel_source"], collective, record["num_gpus"], size, _seconds(record))


_LAYOUTS: dict[str, _Layout] = {
    "gemm_perf": _Layout("gemm", "gemm", _gemm),
    "moe_perf": _Layout("grouped_gemm", "moe", _grouped_gemm),
    "context_attention_perf": _Layout("prefill_attention", "attention", _prefill),
    "generation_attention_perf": _Layout("decode_attention", "attention", _decode),
    "context_mla_perf": _Layout("mla_prefill", "mla", _mla_prefill),
    "generation_mla_perf": _Layout("mla_decode", "mla", _mla_decode),
    "nccl_perf": _Layout("collective", "comm", lambda record: _collective(record, "nccl_dtype")),
    "custom_allreduce_perf": _Layout("collective", "comm", lambda record: _collective(record, "allreduce_dtype")),
}
"""By file name without its suffix."""
