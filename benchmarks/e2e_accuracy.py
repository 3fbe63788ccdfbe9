"""capplan beside public end-to-end measurements: the error table by source, engine, GPU and metric, failures included.

Run: python benchmarks/e2e_accuracy.py [--write] [FILE]

Reads benchmarks/data/e2e_dev.csv, or another table with one metric a row, as ``capplan validate`` does. With ``--write``
the tables go to docs/serving_accuracy_e2e.md.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

from capplan.describe.gpu_catalog import load_gpu
from capplan.describe.model_file import write_text
from capplan.describe.profile_choice import KernelProfile, profile_for
from capplan.questions.validate_cases import Case, read_cases
from capplan.questions.validate_rows import ValidatedFigure, ValidatedRow, validated_rows
from capplan.questions.validate_scores import Score, score

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "benchmarks" / "data" / "e2e_dev.csv"
NOTES = ROOT / "benchmarks" / "data" / "e2e_accuracy_notes.md"
REPORT = ROOT / "docs" / "serving_accuracy_e2e.md"

TARGET = 0.25
"""Median error that is aimed at."""

STEADY = (
    "request_throughput", "output_throughput", "total_token_throughput", "prefill_throughput", "decode_throughput",
    "tpot_ms", "mean_tpot_ms", "median_tpot_ms", "mean_itl_ms", "median_itl_ms",
)  # fmt: skip
"""Figures of the target: rates, and means and medians of the time per output token."""

FITTED_ENGINES = ("vllm", "sglang", "trtllm")
"""Engines whose kernels were measured, and whose own constants are fitted."""

OWN = "GPU and engine measured"
OTHER_ENGINE = "GPU measured, engine not"
CARRIED = "GPU not measured: constants carried"
ACROSS = "GPU of another vendor: constants carried"
NONE = "no prediction"

Row = tuple[Case, ValidatedRow, ValidatedFigure]


def measured_rows(path: Path) -> list[Row]:
    """Every row with its one measured figure."""
    cases = list(read_cases(path))
    pairs = zip(cases, validated_rows(cases), strict=True)
    return [(case, row, figure) for case, row in pairs for figure in row.figures if figure.measured is not None]


def standing(case: Case) -> str:
    """On what the prediction of a row stands."""
    kernels = kernels_of(case.server.gpu) if case.server else None
    if case.server is None or kernels is None:
        return NONE
    if kernels.carried is not None:
        return ACROSS if kernels.carried == "other_vendor" else CARRIED
    return OWN if case.server.engine in FITTED_ENGINES else OTHER_ENGINE


@cache
def kernels_of(gpu: str) -> KernelProfile | None:
    """The constants that stand for a GPU."""
    return profile_for(load_gpu(gpu))


def family(source: str) -> str:
    """A source without the file or version of each measurement."""
    first, *rest = source.split()
    return " ".join([first, *(word for word in rest[:1] if "/" not in word)])


def cells(found: Score) -> str:
    """A score as cells of a table."""

    def share(value: float | None) -> str:
        return "–" if value is None else f"{value:.0%}"

    parts = (found.mape, found.median_ape, found.p90_ape, found.bias, found.within_10, found.within_20, found.within_30)
    return " | ".join([str(found.n), str(found.refused), *map(share, (*parts, found.interval_coverage))])


HEAD = "n | refused | MAPE | median | p90 | bias | ≤ 10 % | ≤ 20 % | ≤ 30 % | in 80 %"


def table(rows: Iterable[Row], titles: Sequence[str], key: Callable[[Row], tuple[str, ...]]) -> list[str]:
    """One line a group."""
    groups: dict[tuple[str, ...], list[ValidatedFigure]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row[2])
    lines = [f"| {' | '.join(titles)} | {HEAD} |", "|" + "---|" * len(titles) + "--:|" * 10]
    return [*lines, *(f"| {' | '.join(group)} | {cells(score(found))} |" for group, found in sorted(groups.items()))]


def apart(row: Row) -> str:
    """Why a row is tabled apart; empty: it is not."""
    _, whole, figure = row
    if whole.aside:
        return whole.aside
    return "" if figure.metric in STEADY else "other figures"


def counted(row: Row) -> Row:
    """The row with its figure counted, though it is scored apart."""
    from dataclasses import replace

    return row[0], row[1], replace(row[2], scored=True)


def refusals(rows: Sequence[Row]) -> list[str]:
    """Reasons, the commonest first."""
    counts = Counter(row.refused for _, row, _ in rows if row.refused)
    return ["| rows | reason |", "|--:|---|", *(f"| {count} | {reason} |" for reason, count in counts.most_common())]


def report(path: Path) -> list[str]:
    """The page."""
    rows = measured_rows(path)
    main = [row for row in rows if not apart(row)]
    others = [counted(row) for row in rows if apart(row)]
    own = score(figure for case, _, figure in main if standing(case) == OWN)
    verdict = "met" if own.median_ape is not None and own.median_ape <= TARGET else "not met"
    labels = ("source", "engine", "GPU", "metric")

    def by(row: Row) -> tuple[str, ...]:
        names = row[1].labels
        return family(names["source"]), names["engine"], names["gpu"], row[2].metric

    return [
        "# capplan beside public end-to-end measurements",
        "",
        f"Written by `python benchmarks/e2e_accuracy.py --write` from {len(rows):,} figures of `{path.name}`",
        "(`benchmarks/data/`), as `capplan validate` reads and predicts them. Names map through",
        "`capplan/measured/public_names.yaml`; what the notes of a row say (parallel sizes, static batches, request rates)",
        "is read by `capplan/measured/table_notes.py`. Refusals count as misses in the shares, and have no error.",
        "",
        f"Rates and means or medians of TPOT where GPU and engine were measured: median error {own.median_ape:.1%}",
        f"(aimed at {TARGET:.0%} at most: {verdict}).",
        "",
        *table(main, ("prediction stands on",), lambda row: (standing(row[0]),)),
        "",
        *NOTES.read_text(encoding="utf-8").splitlines(),
        "",
        "## Rates, and means and medians of TPOT",
        "",
        *table(main, labels, by),
        "",
        "## Tabled apart",
        "",
        "TTFT, E2E latency and percentiles (no closed form gives those of TPOT); rows that ran prefill and decode on",
        "devices of their own; speculation, whose acceptance no row tells; figures that no device can reach.",
        "",
        *table(others, ("why", *labels), lambda row: (apart(row), *by(row))),
        "",
        "## Refused",
        "",
        *refusals(rows),
        "",
    ]


def main() -> None:
    files = [Path(word) for word in sys.argv[1:] if not word.startswith("--")]
    lines = report(files[0] if files else TABLE)
    print("\n".join(lines))
    if "--write" in sys.argv:
        write_text(REPORT, "\n".join(lines))


if __name__ == "__main__":
    main()
