"""How far is capplan from what you measured: predictions beside measurements, and an error table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from capplan.errors import UsageError, did_you_mean
from capplan.measured.table_mapping import read_mapping
from capplan.questions.answer import Answer, Explained, Provenance
from capplan.questions.validate_cases import Case, Known, read_cases
from capplan.questions.validate_out import write_predictions
from capplan.questions.validate_rows import ValidatedFigure, ValidatedRow, server_key, validated_rows
from capplan.questions.validate_scores import Score, score

TPOT = ("tpot_ms", "mean_tpot_ms", "median_tpot_ms")
"""Figures that count as time per output token: means and medians."""

TTFT = ("ttft_ms", "mean_ttft_ms", "median_ttft_ms")
"""Figures that count as time to the first token."""

DEFAULT_GROUPS = ("model", "gpu", "engine")


@dataclass(frozen=True)
class Refusal:
    """Why some rows have no prediction.

    Args:
        reason: in words.
        rows: how many.
        ids: which; the first few.
    """

    reason: str
    rows: int
    ids: tuple[str, ...]


@dataclass(frozen=True)
class GroupScore:
    """The scores of the rows that share some labels.

    Args:
        group: label: value.
        rows: rows of the group.
        refused: of them without a prediction.
        tpot: of means and medians of the time per output token.
        ttft: of means and medians of the time to the first token.
        metrics: of every measured figure.
    """

    group: dict[str, str]
    rows: int
    refused: int
    tpot: Score
    ttft: Score
    metrics: dict[str, Score]


@dataclass(frozen=True)
class ValidateResult:
    """Predictions and their errors.

    Args:
        rows: rows of the file.
        scored: of them those that count.
        refused: of all rows those without a prediction.
        tpot: of means and medians of the time per output token.
        ttft: of means and medians of the time to the first token, of steady rows.
        metrics: of every measured figure.
        aside: of rows that are scored apart, by reason and figure.
        groups: the same by the labels that were asked for.
        refusals: why rows have no prediction.
        predictions: every row.
    """

    rows: int
    scored: int
    refused: int
    tpot: Score
    ttft: Score
    metrics: dict[str, Score]
    aside: dict[str, dict[str, Score]]
    groups: tuple[GroupScore, ...]
    refusals: tuple[Refusal, ...]
    predictions: tuple[ValidatedRow, ...]


def validate(
    file: str | Path,
    *,
    by: Sequence[str] = DEFAULT_GROUPS,
    out: str | Path | None = None,
    probe: str | Path | None = None,
    mapping: str | Path | None = None,
    model: str | None = None,
    gpu: str | None = None,
    engine: str | None = None,
    precision: str | None = None,
    tensor_parallel_size: int | None = None,
    data_parallel_size: int | None = None,
    expert_parallel_size: int | None = None,
) -> Answer[ValidateResult]:
    """Predict every measured row and say how far it is: ``error = predicted/measured − 1``.

    Args:
        file: a table with one row a configuration or one row a metric, or the result file of a benchmark tool.
        by: labels to group the errors by: columns of the table.
        out: a CSV file to write every prediction into.
        probe: one or two measured points of a server, in a file of the same kinds, which correct the rest of it.
        mapping: a YAML file that says what a table calls its columns.
        model: where the file does not say.
        gpu: where the file does not say.
        engine: where the file does not say.
        precision: of the checkpoint, where the file does not say.
        tensor_parallel_size: where the file does not say.
        data_parallel_size: groups of attention, where the file does not say.
        expert_parallel_size: where the file does not say.

    Raises:
        CapplanError: a file that cannot be read, or a label that no row has.
    """
    known = Known(model, gpu, engine, precision, tensor_parallel_size, data_parallel_size, expert_parallel_size)
    table = read_mapping(Path(mapping)) if mapping is not None else None
    cases = list(read_cases(Path(file), table, known))
    probes = list(read_cases(Path(probe), table, known)) if probe is not None else []
    check_labels(by, cases)
    check_probes(probes, cases, str(probe))
    rows = validated_rows(cases, probes)
    if out is not None:
        write_predictions(Path(out), rows)
    result = scored_result(rows, by)
    return Answer(
        command="validate",
        inputs={
            "file": str(file),
            "by": list(by),
            "out": str(out) if out else None,
            "probe": str(probe) if probe else None,
            "mapping": str(mapping) if mapping else None,
            **vars(known),
        },
        result=result,
        explanation=EXPLANATION,
        assumptions=_assumptions(cases),
        warnings=tuple(_warnings(result)),
        provenance=FIGURES,
    )


EXPLANATION = (
    Explained("error", "predicted/measured − 1", "", 0.0, "", ""),
    Explained("mape", "mean |error| of the predicted", "", 0.0, "", ""),
    Explained("within_10", "rows with |error| ≤ 0.1 over all that count; a refusal is a miss", "", 0.0, "", ""),
)

FIGURES: dict[str, Provenance] = {"predictions.figures.predicted": "fitted", "predictions.admitted_batch": "fitted"}


def scored_result(rows: Sequence[ValidatedRow], by: Sequence[str]) -> ValidateResult:
    """The scores of all rows and of each group."""
    groups: dict[tuple[str, ...], list[ValidatedRow]] = {}
    for row in rows:
        groups.setdefault(tuple(row.labels.get(name, "") for name in by), []).append(row)
    figures = [figure for row in rows for figure in row.figures]
    return ValidateResult(
        rows=len(rows),
        scored=sum(any(figure.scored for figure in row.figures) for row in rows),
        refused=sum(bool(row.refused) for row in rows),
        tpot=_of(figures, TPOT),
        ttft=_of(figures, TTFT),
        metrics=_each(figures),
        aside=_aside(rows),
        groups=tuple(_group(dict(zip(by, key, strict=True)), members) for key, members in sorted(groups.items())),
        refusals=_refusals(rows),
        predictions=tuple(rows),
    )


def check_labels(by: Sequence[str], cases: Sequence[Case]) -> None:
    """Refuse a label that no row has.

    Raises:
        UsageError: which.
    """
    known = dict.fromkeys(name for case in cases for name in case.labels)
    for name in by:
        if name not in known:
            hint = did_you_mean(name, known) or f"it has {', '.join(known)}"
            raise UsageError(f"no row has a column {name[:60]!r}", where="--by", hint=hint)


def check_probes(probes: Sequence[Case], cases: Sequence[Case], name: str) -> None:
    """Refuse probes of servers that the file does not have: they would correct nothing.

    Raises:
        UsageError: none of them is of a server in the file.
    """
    servers = {server_key(case) for case in cases if case.server is not None}
    if probes and not any(probe.server is not None and server_key(probe) in servers for probe in probes):
        reasons = [probe.refused for probe in probes if probe.refused]
        raise UsageError(
            f"no server in {name} is one of the file's",
            where="--probe",
            hint=reasons[0] if reasons else "the model, GPU, engine, version, parallel sizes and settings must agree",
        )


def _of(figures: Sequence[ValidatedFigure], names: Sequence[str]) -> Score:
    return score(figure for figure in figures if figure.metric in names)


def _each(figures: Sequence[ValidatedFigure]) -> dict[str, Score]:
    """The score of every figure that was measured at all."""
    named: dict[str, list[ValidatedFigure]] = {}
    for figure in figures:
        if figure.scored:
            named.setdefault(figure.metric, []).append(figure)
    return {name: score(members) for name, members in named.items()}


def _aside(rows: Sequence[ValidatedRow]) -> dict[str, dict[str, Score]]:
    """The scores of rows that are scored apart, as if they counted."""
    from dataclasses import replace

    reasons: dict[str, list[ValidatedFigure]] = {}
    for row in rows:
        if row.aside:
            counted = [replace(figure, scored=bool(figure.measured)) for figure in row.figures]
            reasons.setdefault(row.aside, []).extend(counted)
    return {reason: _each(figures) for reason, figures in reasons.items()}


def _group(group: dict[str, str], rows: Sequence[ValidatedRow]) -> GroupScore:
    figures = [figure for row in rows for figure in row.figures]
    refused = sum(bool(row.refused) for row in rows)
    return GroupScore(group, len(rows), refused, _of(figures, TPOT), _of(figures, TTFT), _each(figures))


def _refusals(rows: Sequence[ValidatedRow]) -> tuple[Refusal, ...]:
    """The reasons, the commonest first, with the first rows of each."""
    counted = Counter(row.refused for row in rows if row.refused)
    ids = {reason: [row.id for row in rows if row.refused == reason][:10] for reason in counted}
    return tuple(Refusal(reason, count, tuple(ids[reason])) for reason, count in counted.most_common())


def _assumptions(cases: Sequence[Case]) -> tuple[str, ...]:
    said = ["each client sends ten requests, the first of which come at once, where a file says nothing else"]
    if any(case.server is not None and case.server.kv is None for case in cases):
        said.append("KV caches are in fp8 on TensorRT-LLM and on Blackwell for quantised checkpoints, else in 16 bits")
    return tuple(said)


def _warnings(result: ValidateResult) -> list[str]:
    warnings = []
    if result.refused:
        warnings.append(f"{result.refused} of {result.rows} rows have no prediction and count as misses")
    for reason, scores in result.aside.items():
        rows = sum(score.n for score in scores.values())
        warnings.append(f"{rows} figures are scored apart: {reason}")
    return warnings
