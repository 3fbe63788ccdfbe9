"""An engine's own terms from benchmark files of a user's own servers.

What kernels take is known from the profile; what an engine adds to them is fitted to what was measured, term by term as
far as the runs tell them apart:

- ``kernel_share`` from times per token, and from rates of prefill or decode alone;
- ``per_sequence`` with it, where runs have at least three loads;
- ``first_token`` from times to the first token.

Residuals are ``ln(predicted/measured)`` under a soft L1 loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from capplan.describe.engine_times import EngineTimes, engine_times
from capplan.errors import CapplanError, UsageError
from capplan.measured.measured_run import MeasuredRun
from capplan.serving.measured_server import MeasuredServer, server_replica, server_workload
from capplan.serving.replica import Replica
from capplan.serving.steady_state import load_of, operating_point
from capplan.timing.machine import Machine

RANGES: dict[str, tuple[float, float]] = {
    "kernel_share": (0.3, 3.0),
    "per_sequence": (0.0, 200e-6),
    "first_token": (0.0, 200e-3),
}
"""The terms that are fitted, with their physical range."""

LOADS_FOR_SEQUENCES = 3
"""Different loads without which what a sequence costs is not told from what a kernel costs."""

LIMIT_SHARE = 0.01
"""Share of a term's range within which of its end the term counts as pressed against it."""

LOSS_SCALE = 0.1
BOOTSTRAPS = 40

Predict = Callable[[EngineTimes], float]


@dataclass(frozen=True)
class Observation:
    """One measured time.

    Args:
        run: the run that it is of.
        metric: its name.
        terms: the terms that it depends on.
        seconds: measured.
        predict: seconds by an engine's terms.
    """

    run: MeasuredRun
    metric: str
    terms: frozenset[str]
    seconds: float
    predict: Predict


@dataclass(frozen=True)
class Deployment:
    """What a benchmark's file does not say of the server.

    Args:
        gpu: its device.
        model: its model; None: as the file names it.
        engine: its engine; None: as the file names it, else vLLM.
        tp: tensor-parallel size.
        weight_dtype: format of the weights; None: the checkpoint's own.
        kv: format of the cache; None: by the checkpoint.
        machine: the device with its profile, by GPU and engine.
    """

    gpu: str
    model: str | None = None
    engine: str | None = None
    tp: int = 1
    weight_dtype: str | None = None
    kv: str | None = None
    machine: Callable[[str, str], Machine] | None = None

    def engine_of(self, run: MeasuredRun) -> str:
        """The engine of a run."""
        return self.engine or run.engine or "vllm"


@dataclass(frozen=True)
class Fitted:
    """An engine's terms, and how well they do.

    Args:
        engine: whose.
        times: all its terms, with the fitted ones in their place.
        intervals: value, low and high of each fitted term.
        observations: what they were fitted to.
        unused: runs that could not be used, with the reason.
    """

    engine: str
    times: EngineTimes
    intervals: Mapping[str, tuple[float, float, float]]
    observations: tuple[Observation, ...]
    unused: tuple[str, ...]

    @property
    def median_error(self) -> float:
        """Median of |predicted/measured − 1|."""
        return median(abs(one.predict(self.times) / one.seconds - 1) for one in self.observations)


def fit_runs(runs: Sequence[MeasuredRun], deployment: Deployment) -> Fitted:
    """The terms of the engine that the runs are of.

    Raises:
        UsageError: runs of several engines, or none that can be used.
        CapplanError: a model or device that is not known.
    """
    engines = {deployment.engine_of(run) for run in runs}
    if len(engines) != 1:
        raise UsageError(
            f"the files are of several engines: {', '.join(sorted(engines))}",
            where="FILES",
            hint="import one engine's files at a time, or say which by --engine",
        )
    engine = engines.pop()
    observations: list[Observation] = []
    unused: list[str] = []
    for run in runs:
        found = observe(run, deployment)
        observations += found if isinstance(found, list) else []
        unused += [f"{run.where}: {found}"] if isinstance(found, str) else []
    if not observations:
        raise UsageError("no run can be used", where="FILES", hint="; ".join(unused[:3]))
    start = engine_times(engine)
    times = fit_terms(observations, start)
    return Fitted(engine, times, _intervals(observations, start, times), tuple(observations), tuple(unused))


def observe(run: MeasuredRun, deployment: Deployment) -> list[Observation] | str:
    """The times of one run that the terms can be fitted to, or why there are none."""
    try:
        if "prefill_throughput" in run.metrics or "decode_throughput" in run.metrics:
            return _phases(run, deployment)
        return _served(run, deployment)
    except CapplanError as error:
        return error.message


def _server(run: MeasuredRun, deployment: Deployment, isl: float, osl: float, concurrency: float) -> MeasuredServer:
    model = deployment.model or run.model
    if model is None:
        raise UsageError("the file does not name the model", where=run.where, hint="give --model")
    return MeasuredServer(
        model=model,
        precision=deployment.weight_dtype,
        gpu=deployment.gpu,
        engine=deployment.engine_of(run),
        isl=isl,
        osl=osl,
        concurrency=concurrency,
        gpus=deployment.tp,
        tp=deployment.tp,
        kv=deployment.kv,
        waves=None,
    )


def _served(run: MeasuredRun, deployment: Deployment) -> list[Observation]:
    """TPOT and TTFT of a server under a load."""
    if run.isl is None or run.osl is None:
        raise UsageError("the run's lengths are not known")
    if run.concurrency is None:
        raise UsageError("requests came at a rate; a fit needs runs of a fixed concurrency")
    server = _server(run, deployment, run.isl, run.osl, run.concurrency)
    load = load_of(server_replica(server, deployment.machine), server_workload(server))
    found = []
    for metric, terms, attribute in (
        ("tpot", frozenset({"kernel_share", "per_sequence"}), "tpot"),
        ("ttft", frozenset({"first_token"}), "ttft"),
    ):
        milliseconds = run.metrics.get(f"mean_{metric}_ms", run.metrics.get(f"median_{metric}_ms"))
        if milliseconds:
            predict = _figure(load, attribute)
            found.append(Observation(run, metric, terms, milliseconds / 1e3, predict))
    if not found:
        raise UsageError("the run has neither TTFT nor TPOT")
    return found


def _figure(load: Any, attribute: str) -> Predict:
    return lambda times: float(getattr(operating_point(load, times), attribute))


def _phases(run: MeasuredRun, deployment: Deployment) -> list[Observation]:
    """Seconds of a prompt, or of a token, of a single sequence."""
    prompt, new = int(run.isl or 0), int(run.osl or 0)
    server = _server(run, deployment, max(prompt, 1), max(new, 1), 1.0)
    replica = server_replica(server, deployment.machine)
    terms = frozenset({"kernel_share"})
    if rate := run.metrics.get("prefill_throughput"):
        return [Observation(run, "prefill", terms, prompt / rate, _prefill(replica, prompt))]
    rate = run.metrics["decode_throughput"]
    return [Observation(run, "decode", terms, 1 / rate, _decode(replica, run.context + max(new // 2, 1)))]


def _prefill(replica: Replica, tokens: int) -> Predict:
    parts = replica.prefill(tokens)
    return lambda times: float(parts.seconds(times))


def _decode(replica: Replica, context: int) -> Predict:
    parts = replica.decode(1, context)
    return lambda times: float(parts.seconds(times))


def fit_terms(observations: Sequence[Observation], start: EngineTimes) -> EngineTimes:
    """The terms that the observations tell apart; the others stay."""
    steps = [one for one in observations if "kernel_share" in one.terms]
    times = start
    if steps:
        loads = {one.run.concurrency for one in steps if "per_sequence" in one.terms}
        names = ["kernel_share", "per_sequence"] if len(loads) >= LOADS_FOR_SEQUENCES else ["kernel_share"]
        times = _solved(steps, times, names)
    firsts = [one for one in observations if "first_token" in one.terms]
    return _solved(firsts, times, ["first_token"]) if firsts else times


def _solved(observations: Sequence[Observation], times: EngineTimes, names: Sequence[str]) -> EngineTimes:
    """Bounded least squares over some terms, in units of their ranges."""
    import numpy as np
    from scipy.optimize import least_squares

    low = np.array([RANGES[name][0] for name in names])
    span = np.array([RANGES[name][1] for name in names]) - low
    measured = np.log([one.seconds for one in observations])

    def trial(unit: Any) -> EngineTimes:
        values: dict[str, Any] = dict(zip(names, map(float, low + span * unit), strict=True))
        return replace(times, **values)

    def residuals(unit: Any) -> Any:
        candidate = trial(unit)
        return np.log([one.predict(candidate) for one in observations]) - measured

    begin = np.clip((np.array([getattr(times, name) for name in names]) - low) / span, 0.02, 0.98)
    found = least_squares(
        residuals, begin, bounds=(0, 1), loss="soft_l1", f_scale=LOSS_SCALE, diff_step=1e-4, max_nfev=200
    )
    return trial(found.x)


def _intervals(
    observations: Sequence[Observation], start: EngineTimes, times: EngineTimes
) -> dict[str, tuple[float, float, float]]:
    """Each term that moved, with the 10th and 90th percentile over fits to observations drawn again."""
    import numpy as np

    moved = [name for name in RANGES if getattr(times, name) != getattr(start, name)]
    random = np.random.default_rng(0)
    drawn: dict[str, list[float]] = {name: [] for name in moved}
    for _ in range(BOOTSTRAPS):
        chosen = [observations[index] for index in random.integers(0, len(observations), len(observations))]
        again = fit_terms(chosen, start)
        for name in moved:
            if any(name in one.terms for one in chosen):
                drawn[name].append(getattr(again, name))
    found = {}
    for name, values in drawn.items():
        low, high = np.quantile(values, [0.1, 0.9])
        value = float(getattr(times, name))
        found[name] = (value, min(float(low), value), max(float(high), value))
    return found


def at_their_limits(fitted: Fitted) -> list[str]:
    """The fitted terms that the measurements press against the end of their physical range; 0 is no such end."""
    names = []
    for name, (value, _, _) in fitted.intervals.items():
        low, high = RANGES[name]
        margin = LIMIT_SHARE * (high - low)
        if value > high - margin or (low > 0 and value < low + margin):
            names.append(f"{name} of {value:.3g}")
    return names
