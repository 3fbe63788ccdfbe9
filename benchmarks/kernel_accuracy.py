"""How well the kernel laws predict measured kernels: prints the table of errors and writes docs/kernel_accuracy.md.

    python benchmarks/kernel_accuracy.py DIR

DIR holds the public kernel tables (``pip install aiconfigurator-core==0.12.0 --no-deps --target DIR``). Everything is
fitted anew: random halves, whole configurations left out, the slowest tenth from the rest, and every profile carried to
every other GPU. ``--profiles OUT`` also writes the profiles that come of it, as ``python -m calibrate.profiles`` does.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from calibrate.accuracy import ALLOWED, Score, read_references, scores
from calibrate.carrying import Measured, carried_errors
from calibrate.profiles import SHIPPED, Imported, build_profile, build_tables, write_profile
from capplan.describe.gpu_catalog import load_gpu
from capplan.describe.profile import CarriedError
from capplan.describe.profile_table import KINDS
from capplan.measured.distrust import RULES
from capplan.measured.kernel_tables import find_tables

ROOT = Path(__file__).parents[1]
REFERENCES = ROOT / "benchmarks" / "data" / "kernel_reference.csv"
LAWS = (*KINDS, "gemm_from_few_points", "carried_prefill_attention", "linear_collective")


def measure(
    tables: Path, names: Sequence[str]
) -> tuple[list[Imported], list[Score], dict[str, tuple[CarriedError, ...]]]:
    """Fit and score every GPU's tables, and carry every profile to the others."""
    references = read_references(REFERENCES)
    built: list[Imported] = []
    found: list[Score] = []
    for name in names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        imported = build_profile(tables, name, load_gpu(name))
        hardware = imported.profile.hardware
        found += scores(name, imported.groups, imported.profile.all_fits(), hardware, references)
        taken: set[tuple[str, str, str]] = {
            (group.kind, group.key.engine, group.key.version) for group in imported.groups
        }
        older = [file for file in find_tables(tables, name) if _is_older_reference(file, taken, references)]
        groups, fits = build_tables(older, hardware)
        found += scores(name, groups, fits, hardware, references)
        built.append(imported)
    measured = [Measured(one.profile, one.groups) for one in built]
    carried = {one.profile.name: carried_errors(one.profile, measured) for one in built}
    built = [replace(one, profile=replace(one.profile, carried_errors=carried[one.profile.name])) for one in built]
    return built, found, carried


def _is_older_reference(file: Any, taken: set[tuple[str, str, str]], references: dict[Any, Any]) -> bool:
    """Whether a table was superseded and yet has reference fits."""
    if file.kind == "collective" or (file.kind, file.engine, file.version) in taken:
        return False
    return any(
        key[:3] == (file.kind, file.gpu, file.engine) and reference.version == file.version
        for key, reference in references.items()
    )


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows as a Markdown table."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def middle(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def summary(found: Sequence[Score]) -> str:
    """One line a law: medians over its groups."""
    rows = []
    for law in LAWS:
        mine = [score for score in found if score.law == law]
        if not mine:
            continue
        ratios = [score.ratio for score in mine if score.ratio is not None]
        within = sum(ratio <= ALLOWED for ratio in ratios)
        rows.append([
            law.replace("_", " "), str(len(mine)), f"{sum(score.points for score in mine):,}",
            percent(middle(score.half_median for score in mine)), percent(middle(score.half_p90 for score in mine)),
            percent(middle(score.unseen_median for score in mine)), percent(middle(score.unseen_p90 for score in mine)),
            percent(middle(score.slowest_p90 for score in mine)),
            "–" if not ratios else f"{median(ratios):.2f}", "–" if not ratios else f"{within} of {len(ratios)}",
        ])  # fmt: skip
    heading = [
        "law", "fits", "points", "half: median %", "p90 %", "unseen configuration: median %", "p90 %",
        "slowest tenth: p90 %", "ratio to reference", f"within {ALLOWED:g}",
    ]  # fmt: skip
    return table(heading, rows)


def by_gpu(found: Sequence[Score]) -> str:
    """One line a law, GPU, engine and format."""
    groups: dict[tuple[str, ...], list[Score]] = defaultdict(list)
    for score in found:
        key = score.key
        formats = "/".join(part for part in (key.format, key.kv_format) if part) or key.collective
        groups[score.law, score.gpu, key.engine, formats].append(score)
    order = {law: index for index, law in enumerate(LAWS)}
    gpus = {name: index for index, name in enumerate(SHIPPED)}
    rows = []
    for names, mine in sorted(groups.items(), key=lambda item: (order[item[0][0]], gpus[item[0][1]], item[0][2:])):
        ratios = [score.ratio for score in mine if score.ratio is not None]
        rows.append([
            *(name.replace("_", " ") if index == 0 else name for index, name in enumerate(names)), str(len(mine)),
            percent(middle(score.half_median for score in mine)), percent(max(score.half_median for score in mine)),
            percent(middle(score.half_p90 for score in mine)), percent(middle(score.unseen_median for score in mine)),
            "–" if not ratios else f"{median(ratios):.2f}", "–" if not ratios else f"{max(ratios):.2f}",
        ])  # fmt: skip
    heading = [
        "law", "GPU", "engine", "format", "fits", "half: median %", "worst %", "p90 %", "unseen: median %",
        "ratio", "worst ratio",
    ]  # fmt: skip
    return table(heading, rows)


def failures(found: Sequence[Score]) -> str:
    """The groups whose median error is above what is allowed, worst first."""
    bad = sorted((score for score in found if (score.ratio or 0) > ALLOWED), key=lambda score: -(score.ratio or 0))
    rows = [
        [
            score.law.replace("_", " "), score.gpu, described(score), str(score.points), percent(score.half_median),
            percent(score.reference.median if score.reference else None), f"{score.ratio:.2f}",
            percent(score.half_p90), percent(score.reference.p90 if score.reference else None),
        ]
        for score in bad
    ]  # fmt: skip
    heading = ["law", "GPU", "kernel", "points", "median %", "reference %", "ratio", "p90 %", "reference p90 %"]
    return table(heading, rows) if rows else "None.\n"


def described(score: Score) -> str:
    key = score.key
    parts = (
        key.engine, key.version, key.kernel, key.format, key.kv_format, str(key.head_dim or ""), key.heads, key.window,
        key.collective, str(key.gpus or ""),
    )  # fmt: skip
    return " ".join(part for part in parts if part)


def carrying(carried: dict[str, tuple[CarriedError, ...]]) -> str:
    """One line a kind of kernel: the error of carrying each profile, within and beyond its architecture."""
    rows = []
    for kind in KINDS:
        for relation in ("same_architecture", "other_architecture"):
            mine = [
                (name, error)
                for name, errors in carried.items()
                for error in errors
                if (error.kind, error.relation) == (kind, relation)
            ]
            if not mine:
                continue
            worst_name, worst = max(mine, key=lambda item: item[1].median)
            rows.append([
                kind.replace("_", " "), relation.replace("_", " "), str(len(mine)),
                percent(median(error.median for _, error in mine)), percent(median(error.p90 for _, error in mine)),
                f"{median(error.low for _, error in mine):.2f} to {median(error.high for _, error in mine):.2f}",
                f"{percent(worst.median)} ({worst_name})",
            ])  # fmt: skip
    heading = ["kernel", "carried to", "profiles", "median %", "p90 %", "80 % of measured/predicted", "worst median %"]
    return table(heading, rows)


def refused(built: Sequence[Imported]) -> str:
    """Groups that have no fit, with the reason."""
    rows = [[one.profile.name, *line.rsplit(": ", 1)] for one in built for line in one.refused]
    return table(["GPU", "group", "reason"], rows) if rows else "None.\n"


def left_out(built: Sequence[Imported]) -> str:
    """The rules of distrust, their reasons and how many rows they took."""
    reasons = {rule.name: rule.reason for rules in RULES.values() for rule in rules}
    counts: dict[str, int] = defaultdict(int)
    for one in built:
        for name, count in one.left_out.items():
            counts[name] += count
    again = "The call was measured more than once: its median counts."
    rows = [[name, f"{counts[name]:,}", reasons.get(name, again)] for name in sorted(counts)]
    return table(["rule", "rows", "why"], rows)


def document(built: Sequence[Imported], found: Sequence[Score], carried: dict[str, tuple[CarriedError, ...]]) -> str:
    """The page of the docs."""
    sections: list[tuple[str, Callable[[], str]]] = [
        ("## In short", lambda: summary(found)),
        ("## Above 1.1 times the reference", lambda: failures(found)),
        ("## Carrying constants to another GPU", lambda: carrying(carried)),
        ("## Not fitted", lambda: refused(built)),
        ("## Rows left out", lambda: left_out(built)),
        ("## By GPU, engine and format", lambda: by_gpu(found)),
    ]
    text = (ROOT / "benchmarks" / "data" / "kernel_accuracy_intro.md").read_text(encoding="utf-8")
    return text + "".join(f"\n{heading}\n\n{body()}" for heading, body in sections)


def write_csv(found: Sequence[Score], path: Path) -> None:
    """Every score, one line a law and group."""
    with path.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow([
            "law", "gpu", "kernel", "points", "configurations", "half_median", "half_p90", "unseen_median",
            "unseen_p90", "slowest_p90", "reference_median", "reference_p90", "reference_physical", "ratio",
        ])  # fmt: skip
        for score in found:
            reference = score.reference
            figures = [score.half_median, score.half_p90, score.unseen_median, score.unseen_p90, score.slowest_p90]
            against = [reference.median, reference.p90, reference.physical] if reference else ["", "", ""]
            writer.writerow([
                score.law, score.gpu, described(score), score.points, score.configurations,
                *("" if value is None else f"{value:.4f}" for value in figures), *against,
                "" if score.ratio is None else f"{score.ratio:.3f}",
            ])  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path)
    parser.add_argument("--gpu", action="append", choices=SHIPPED, help="only these; nothing is written")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    parser.add_argument("--profiles", type=Path, help="also write the profiles here")
    options = parser.parse_args()
    built, found, carried = measure(options.tables, options.gpu or SHIPPED)
    text = document(built, found, carried)
    print(text)
    if options.profiles:
        for one in built:
            write_profile(one.profile, options.profiles)
    if not options.gpu:
        (options.docs / "kernel_accuracy.md").write_text(text, encoding="utf-8")
        write_csv(found, options.docs / "kernel_accuracy.csv")
    return 0


if __name__ == "__main__":
    sys.exit(main())
