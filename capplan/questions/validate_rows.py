"""Predictions beside measurements, row by row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from capplan.errors import CapplanError
from capplan.questions.validate_cases import IMPOSSIBLE, Case
from capplan.serving.batch_run import BatchRun, batch_run
from capplan.serving.forecast import Forecast, carried_spread, forecast, known_replica
from capplan.serving.forecast_figures import Figure, batch_figure, served_figure
from capplan.serving.measured_server import MeasuredServer, replicas_of, server_workload
from capplan.serving.probe import Probe, corrected
from capplan.serving.spread import Interval, tpot_interval, ttft_interval

ALWAYS = ("ttft_ms", "tpot_ms")
"""Figures that a served row is predicted, measured or not."""

TOKEN_TIMES = ("tpot_ms", "mean_tpot_ms", "median_tpot_ms")

LEAST_OF_BOUND = 0.5
"""A time per output token under this share of a decode step's bound was not measured: the client lost tokens, or the
batch was another."""

ServerKey = tuple[MeasuredServer, str]


@dataclass(frozen=True)
class ValidatedFigure:
    """One figure of a row.

    Args:
        metric: its name, as in ``vllm bench serve``.
        measured: the table's value; None: predicted only.
        predicted: capplan's.
        error: predicted/measured − 1.
        inside: whether the measurement lies in the interval.
        scored: whether it counts.
    """

    metric: str
    measured: float | None
    predicted: float | None
    predicted_low: float | None
    predicted_high: float | None
    error: float | None
    inside: bool | None
    scored: bool


@dataclass(frozen=True)
class ValidatedRow:
    """One row of the file.

    Args:
        id: the table's own, or line or place.
        where: file and line, or place.
        labels: what it can be grouped by.
        admitted_batch: requests that run at once in the whole deployment; None where none is served.
        refused: why it has no prediction; empty: it has one.
        aside: why it is scored apart; empty: it is not.
        probe: whether it corrected the others, so that it does not count.
        figures: measured and predicted.
    """

    id: str
    where: str
    labels: dict[str, str]
    admitted_batch: float | None
    refused: str
    aside: str
    probe: bool
    figures: tuple[ValidatedFigure, ...]

    def figure(self, *names: str) -> ValidatedFigure | None:
        """The first figure with one of these names."""
        return next((figure for name in names for figure in self.figures if figure.metric == name), None)


def validated_rows(cases: Sequence[Case], probes: Sequence[Case] = ()) -> list[ValidatedRow]:
    """Every case with its prediction, corrected by the probes of its server.

    Args:
        cases: the rows.
        probes: measured rows of the same servers; one that is among the cases does not count there.
    """
    ratios = probe_ratios(probes)
    taken = {_point_key(probe) for probe in probes if probe.server is not None}
    return [_row(case, ratios, case.server is not None and _point_key(case) in taken) for case in cases]


def probe_ratios(probes: Iterable[Case]) -> dict[ServerKey, list[Probe]]:
    """Measured over predicted at each probe, by server."""
    found: dict[ServerKey, list[Probe]] = {}
    for case in probes:
        server = case.server
        if server is None or case.batch:
            continue
        prediction, load = _forecast(server), server_workload(server)
        values: dict[str, float | None] = {}
        for name in ("tpot", "ttft"):
            measured = _measured(case, name)
            figure = served_figure(f"mean_{name}_ms", prediction, load)
            values[name] = measured / figure.value if measured and figure is not None else None
        probe = Probe(server.isl, server.osl, server.concurrency, values["tpot"], values["ttft"])
        found.setdefault(server_key(case), []).append(probe)
    return found


def server_key(case: Case) -> ServerKey:
    """What tells one server from another: everything but its load."""
    assert case.server is not None
    server = replace(case.server, isl=1.0, osl=1.0, concurrency=1.0, mean_length=1.0, waves=None, request_rate=None)
    return server, case.labels.get("engine_version", "")


def _point_key(case: Case) -> tuple[MeasuredServer | None, str]:
    return case.server, case.labels.get("engine_version", "")


def _measured(case: Case, name: str) -> float | None:
    return next((case.measured[key] for key in (f"mean_{name}_ms", f"{name}_ms") if key in case.measured), None)


def _row(case: Case, ratios: Mapping[ServerKey, list[Probe]], is_probe: bool) -> ValidatedRow:
    refused, admitted = case.refused, None
    predicted: dict[str, Figure | None] = {}
    if case.server is not None:
        try:
            predicted, admitted = _predicted(case, case.server, ratios)
            if not case.aside and _is_impossible(case, case.server):
                case = replace(case, aside=IMPOSSIBLE)
        except CapplanError as error:
            refused = error.message
    unknown = [name for name in case.measured if predicted.get(name) is None]
    if not refused and unknown and len(unknown) == len(case.measured):
        refused = f"no closed form gives {unknown[0]}"
    names = dict.fromkeys((*case.measured, *(() if case.batch or refused else ALWAYS)))
    figures = tuple(_figure(case, name, predicted.get(name), is_probe) for name in names if not _doubled(name, case))
    return ValidatedRow(case.id, case.where, dict(case.labels), admitted, refused, case.aside, is_probe, figures)


def _is_impossible(case: Case, server: MeasuredServer) -> bool:
    """Whether a mean or median time per output token is far under the bound of the decode steps that it comes from.

    A table that judges its rows itself (``quality``) is believed.
    """
    measured = [case.measured[name] for name in TOKEN_TIMES if name in case.measured]
    if case.batch or not measured or case.labels.get("quality"):
        return False
    load, running = server_workload(server), _forecast(server).point.terms.admitted
    step = known_replica(server).decode(max(1, round(running)), round(load.isl + load.osl / 2))
    return min(measured) < LEAST_OF_BOUND * 1e3 * step.bound


def _doubled(name: str, case: Case) -> bool:
    """Whether a figure that is always predicted stands there under the name of its mean already."""
    return name not in case.measured and f"mean_{name}" in case.measured


def _figure(case: Case, name: str, figure: Figure | None, is_probe: bool) -> ValidatedFigure:
    measured = case.measured.get(name)
    counts = case.scores(name) and not is_probe and measured is not None and measured > 0
    if figure is None:
        return ValidatedFigure(name, measured, None, None, None, None, None, counts)
    error = figure.value / measured - 1 if measured else None
    inside = figure.low <= measured <= figure.high if measured is not None else None
    return ValidatedFigure(name, measured, figure.value, figure.low, figure.high, error, inside, counts)


def _predicted(
    case: Case, server: MeasuredServer, ratios: Mapping[ServerKey, list[Probe]]
) -> tuple[dict[str, Figure | None], float | None]:
    """Every figure of a row, and how many requests run at once."""
    if case.batch:
        run, replicas, spreads = _batch(server, case.depth)
        figures = {name: batch_figure(name, run, replicas, spreads["ttft" in name or "prefill" in name])
                   for name in case.measured}  # fmt: skip
        return figures, None
    prediction = _forecast(server)
    probes = ratios.get(server_key(case))
    if probes:
        prediction = corrected(prediction, probes, server.isl, server.osl, server.concurrency)
    load = server_workload(server)
    names = dict.fromkeys((*case.measured, *ALWAYS))
    served = {name: served_figure(name, prediction, load) for name in names}
    return served, min(prediction.admitted_batch, server.concurrency)


@lru_cache(maxsize=8192)
def _forecast(server: MeasuredServer) -> Forecast:
    return forecast(server)


@lru_cache(maxsize=4096)
def _batch(server: MeasuredServer, depth: int) -> tuple[BatchRun, int, dict[bool, Interval]]:
    """A batch on one replica, the replicas, and the intervals of a time: of first tokens (True) and of others."""
    replica, replicas = known_replica(server), replicas_of(server)
    groups = replicas * replica.sharding.dp
    each = max(1, round(server.concurrency / groups))
    run = batch_run(replica, each, round(server.isl), round(server.osl), depth)
    times, carried = replica.machine.times, carried_spread(replica)
    return run, groups, {True: ttft_interval(1.0, times, carried), False: tpot_interval(1.0, times, carried)}
