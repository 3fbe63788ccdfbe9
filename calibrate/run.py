"""Measures a device's kernels, the most informative first, until the time is up; whatever was measured is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrate.device import Device, provenance
from calibrate.hardware import described_device, rated
from calibrate.measure import measure, sample_identity
from calibrate.plan import NOMINAL, Planned, in_stacks, make_plan, probes
from calibrate.sample_groups import LEAST_POINTS
from calibrate.samples import Recorder, Recording, Sample, recording

REPEATED_SECONDS = 0.25
"""Seconds of timed repeats of one case, but for the least number of repeats."""

CALLS_IN_BUDGET = 1500
"""A case may take this share of the time for one call, so that a few hundred cases have their turn."""

LEAST_CALL_SECONDS = 0.02


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Args:
        done: cases measured, those of an earlier run included.
        share: of the time (or of the cases, where no time was set), from 0 to 1.
        doing: what is measured now.
    """

    done: int
    share: float
    doing: str


Report = Callable[[Progress], None]


def run_kernels(
    device: Device,
    path: Path,
    *,
    minutes: float = 5.0,
    points: int | None = None,
    resume: bool = False,
    seed: int = 0,
    report: Report = lambda progress: None,
) -> Recording:
    """Measure kernels into a file of samples.

    Args:
        device: where.
        path: the file.
        minutes: time to spend, that of an interrupted run included; of the processor where its clock measures.
        points: cases to measure at most, instead of a time.
        resume: go on with a file that is there.
        seed: of random inputs.
        report: told before each case.

    Raises:
        UsageError: the file is there and `resume` is not given, or was measured on something else. How long it was
            measured may differ: it goes on for longer.
        InvalidFileError: the file cannot be written.
    """
    facts, settings = provenance(device), {"minutes": minutes, "points": points, "seed": seed}
    with recording(path, facts, settings, resume=resume) as recorder:
        for planned in _until_time_is_up(recorder, device, facts, minutes, points, report):
            held_out = planned.held_out
            recorder.add(
                measure(planned.kernel, planned.case, device, budget=REPEATED_SECONDS, seed=seed, held_out=held_out)
            )
        return Recording(facts, tuple(recorder.samples), settings)


def _until_time_is_up(
    recorder: Recorder, device: Device, facts: Mapping[str, str], minutes: float, points: int | None, report: Report
) -> Iterator[Planned]:
    """The cases that are still to be measured, as long as there is time."""
    begin = device.spent_seconds()
    reasons: dict[str, str] = {}
    before = sum(sample.spent for sample in recorder.samples if sample.kind == "kernel")
    for planned in plan_for(recorder, device, facts, minutes):
        if recorder.has(sample_identity(planned.case)) or _is_missing(planned, device, reasons):
            continue
        done = sum(sample.kind == "kernel" for sample in recorder.samples)
        share = done / points if points else (before + device.spent_seconds() - begin) / (60 * minutes)
        if share >= 1:
            return
        report(Progress(done, share, planned.case.identity))
        yield planned


def _is_missing(planned: Planned, device: Device, reasons: dict[str, str]) -> bool:
    """Whether a case cannot run here; asked once for each kernel and key, since asking may mean compiling."""
    name = f"{planned.kernel.name} {sorted(planned.case.key.items())}"
    if name not in reasons:
        reasons[name] = planned.kernel.missing(device, planned.case)
    return bool(reasons[name])


def plan_for(recorder: Recorder, device: Device, facts: Mapping[str, str], minutes: float) -> Iterator[Planned]:
    """The probes, then the plan that follows from the rates that they found: the same whenever they are the same."""
    first = probes(device)
    yield from first
    found = [sample for sample in recorder.samples if sample.identity in {sample_identity(p.case) for p in first}]
    hardware = rated(described_device(Recording(facts, tuple(found))))
    most_seconds = max(60 * minutes / CALLS_IN_BUDGET, LEAST_CALL_SECONDS)
    yield from make_plan(device, hardware, most_seconds=most_seconds)


def cases_for_a_profile(device: Device) -> int:
    """Cases after which every kernel that models run has points enough for a fit."""
    left: dict[str, int] = {}
    places: dict[str, int] = {}
    planned = make_plan(device, NOMINAL[device.kind], most_seconds=LEAST_CALL_SECONDS)
    for place, one in enumerate(planned, 1):
        name = f"{one.kernel.name} {sorted(one.case.key.items())}"
        if in_stacks(one.case, device) and not one.held_out and left.setdefault(name, LEAST_POINTS) > 0:
            left[name] -= 1
            places[name] = place
    return max(places.values())


def failures(samples: Sequence[Sample]) -> list[str]:
    """What was measured wrong, in words."""
    return [f"{sample.identity}: {sample.problem}" for sample in samples if sample.problem]


def summary(samples: Sequence[Sample]) -> dict[str, Any]:
    """How many samples of each kernel there are, and how noisy they were."""
    names = dict.fromkeys(sample.name for sample in samples if sample.kind == "kernel")
    return {name: sum(sample.name == name for sample in samples) for name in names}
