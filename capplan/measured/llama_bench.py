"""Results of llama-bench: JSON, JSON lines, CSV, and the Markdown table that it prints.

A test processes a prompt (``pp512``), generates tokens one by one for a single sequence (``tg128``), or both
(``pp512+tg128``), after so many tokens that are in the cache already (``@ d4096``). Rates are means over repetitions.
A generation's TPOT is one over its rate; a prompt's time is not a TTFT, for nothing is sampled, and is kept as a rate.

Source: tools/llama-bench/llama-bench.cpp and its README.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from capplan.errors import InvalidFileError
from capplan.measured.json_documents import Table
from capplan.measured.log_lines import LogLine
from capplan.measured.measured_run import MeasuredRun, count, figure, scalars, shown

_TEST = re.compile(r"(?:pp ?(\d{1,9}))?\+?(?:tg ?(\d{1,9}))?(?: ?@ ?d(\d{1,9}))?")
_RATE = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)(?: ± (\d{1,12}(?:\.\d{1,9})?|-?nan))?")
_KEPT = frozenset({"avg_ts", "stddev_ts", "avg_ns", "stddev_ns", "n_prompt", "n_gen", "n_depth", "samples_ns"})


def is_llama_bench_result(table: Table) -> bool:
    """Whether an object is one test of llama-bench."""
    return "avg_ts" in table.data and "n_prompt" in table.data and "n_gen" in table.data


def llama_bench_run(table: Table) -> MeasuredRun:
    """One test.

    Raises:
        InvalidFileError: a figure that is none, or a test without tokens.
    """
    build = table.get("build_number")
    return _run(
        where=table.where,
        prompt=table.count("n_prompt") or 0,
        generated=table.count("n_gen") or 0,
        depth=table.count("n_depth") or 0,
        rate=table.figure("avg_ts"),
        deviation=table.figure("stddev_ts"),
        model=_name(table),
        version=None if build is None else str(build)[:40],
        settings=scalars(table.data, without=_KEPT),
    )


def _name(table: Table) -> str | None:
    file, kind = table.text("model_filename"), table.text("model_type")
    return file or kind


def _run(
    *,
    where: str,
    prompt: int,
    generated: int,
    depth: int,
    rate: float | None,
    deviation: float | None,
    model: str | None,
    version: str | None,
    settings: Mapping[str, Any],
) -> MeasuredRun:
    if prompt + generated == 0:
        raise InvalidFileError("a test has tokens to process or to generate", where=where)
    if not rate:
        raise InvalidFileError("the test has no rate", where=where)
    name = "total_token_throughput" if prompt and generated else "prefill_throughput" if prompt else "decode_throughput"
    metrics = {name: rate}
    if deviation is not None:
        metrics[f"std_{name}"] = deviation
    if generated and not prompt:
        metrics["mean_tpot_ms"] = 1e3 / rate
    return MeasuredRun(
        tool="llama-bench",
        where=where,
        metrics=metrics,
        model=model,
        engine="llama.cpp",
        engine_version=version,
        isl=float(prompt),
        osl=float(generated),
        concurrency=1.0,
        context=depth,
        settings=settings,
    )


def csv_runs(lines: Iterable[LogLine], path: str) -> Iterator[MeasuredRun]:
    """The tests of a CSV file.

    Raises:
        InvalidFileError: a row that is cut off, or a figure that is none.
    """
    header: list[str] | None = None
    for line in lines:
        if not line.text.strip():
            continue
        where = f"{path}:{line.number}"
        try:
            cells = next(csv.reader([line.text], strict=True))
        except csv.Error as error:
            raise InvalidFileError(f"this is no row of CSV: {error}", where=where) from None
        if "avg_ts" in cells and "n_prompt" in cells:
            header = cells
            continue
        if header is None:
            continue
        if len(cells) != len(header):
            raise InvalidFileError(f"the row has {len(cells)} cells, the header {len(header)}", where=where)
        yield llama_bench_run(Table(_typed(dict(zip(header, cells, strict=True)), where), where))


def _typed(row: dict[str, str], where: str) -> dict[str, Any]:
    """Cells as numbers where the column holds numbers."""
    typed: dict[str, Any] = dict(row)
    for key in ("avg_ts", "stddev_ts", "avg_ns", "stddev_ns", "n_prompt", "n_gen", "n_depth"):
        if key not in row:
            continue
        if not re.fullmatch(r"-?\d{1,20}(?:\.\d{1,12})?", row[key].strip()):
            raise InvalidFileError(f"expected a number, found {shown(row[key])}", where=f"{where}: {key}")
        typed[key] = float(row[key])
    return typed


def markdown_runs(lines: Iterable[LogLine], path: str) -> Iterator[MeasuredRun]:
    """The tests of Markdown tables inside of a text.

    Raises:
        InvalidFileError: a row that has not the header's columns, or whose test or rate can't be read.
    """
    header: list[str] | None = None
    for line in lines:
        cells = _cells(line.text)
        if cells is None:
            header = None
            continue
        if "test" in cells and "t/s" in cells:
            header = cells
            continue
        if header is None or all(re.fullmatch(r":?-+:?", cell) for cell in cells):
            continue
        where = f"{path}:{line.number}"
        if len(cells) != len(header):
            raise InvalidFileError(f"the row has {len(cells)} cells, the header {len(header)}", where=where)
        yield _markdown_run(dict(zip(header, cells, strict=True)), where)


def _cells(text: str) -> list[str] | None:
    stripped = text.strip()
    if len(stripped) < 3 or not (stripped.startswith("|") and stripped.endswith("|")):
        return None
    return [cell.strip() for cell in stripped[1:-1].split("|")]


def _markdown_run(row: dict[str, str], where: str) -> MeasuredRun:
    test, rate = _TEST.fullmatch(row["test"]), _RATE.fullmatch(row["t/s"])
    if test is None or not (test[1] or test[2]):
        raise InvalidFileError(f"expected a test such as pp512 or tg128, found {shown(row['test'])}", where=where)
    if rate is None:
        raise InvalidFileError(f"expected a rate such as 120.60 ± 0.59, found {shown(row['t/s'])}", where=where)
    spread = rate[2] if rate[2] and "nan" not in rate[2] else None
    return _run(
        where=where,
        prompt=count(int(test[1] or 0), where) or 0,
        generated=count(int(test[2] or 0), where) or 0,
        depth=int(test[3] or 0),
        rate=figure(float(rate[1]), where),
        deviation=None if spread is None else float(spread),
        model=row.get("model") or None,
        version=None,
        settings=scalars({key: value for key, value in row.items() if key not in ("test", "t/s", "model")}),
    )
