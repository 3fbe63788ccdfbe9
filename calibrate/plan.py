"""In which order to measure: what tells most about the constants first, every kernel in turn.

Within a group of cases that share constants, cases are chosen one after the other so that the determinant of the
information matrix grows most (a D-optimal design, greedily): a case's row is the gradient of ln t by the logarithms of
the law's constants, at typical values of them, beside its place on the axes. Groups take turns, so that whenever the
time is up all of them have about as many points.

Source: V. V. Fedorov, Theory of Optimal Experiments (1972), chapter 3 (sequential D-optimal designs).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from calibrate.device import Device
from calibrate.hardware import PRODUCTS
from calibrate.kernel_fit import Law, law_of
from calibrate.kernel_groups import Group
from calibrate.kernels import KERNELS
from calibrate.kernels.decode_attention import STACKS_BACKEND as DECODE_BACKEND
from calibrate.kernels.kernel import Case, Kernel
from calibrate.kernels.prefill_attention import STACKS_BACKEND as PREFILL_BACKEND
from calibrate.measure import too_large
from calibrate.sample_groups import MEANINGS, groups_of
from calibrate.samples import Sample
from capplan.describe.kernel_constants import constants_of
from capplan.describe.profile import RatedHardware
from capplan.errors import UnsupportedError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

FIRST_ROUNDS, SECOND_ROUNDS = 14, 8
"""Points of every group that the stacks run before the others get any, and of the others before the first get more."""

COMPILED = ("flex",)
"""Backends that are compiled anew for every shape, which takes longer than measuring: one case of a group comes early,
the others when all other groups have had theirs."""

HELD_OUT_EVERY = 5
"""One case of this many, in the order of measuring, is kept away from the fits."""

NEVER_HELD_OUT = 8
"""The most informative cases of a group, which no fit can do without."""

GEMM_TURNS = 2
"""Points that the main format's GEMM takes when it is its turn: more depends on it than on anything."""

WARM_TOO, WARM_CASES = ("gemm", "decode_attention"), 4
"""Kernels of which some cases are measured with a warm cache as well, and how many of each group."""

BESIDE_SHARE = 0.25
"""Share of the time of a call that one of a kernel beside those of the stacks may take: it is to be known, and a
profile does without it."""

PROBE_ROWS, PROBE_COLUMNS = 256, 4096
"""A product of at least so many rows and at most so many columns is bound by arithmetic and soon over."""

NOMINAL: dict[str, RatedHardware] = {
    kind: RatedHardware(
        architecture="other",
        dense_rates=dict.fromkeys(("fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4"), rate),
        bandwidth=bandwidth,
        compute_units=units,
    )
    for kind, rate, bandwidth, units in (("cpu", 2e11, 2e10, 4), ("cuda", 4e14, 2e12, 120))
}
"""Round figures of each kind of device: what tells most about the constants is worked out with them, so that the order
of measuring does not depend on what the first measurements happened to say."""

REGULAR = 1e-3
"""Ridge of the information matrix before anything is measured."""

AXIS_WEIGHT = 0.5
"""Weight of a case's place on the axes beside its sensitivity to the constants."""


@dataclass(frozen=True)
class Planned:
    """A case to be measured.

    Args:
        kernel: the kernel.
        case: the case.
        held_out: whether it is to be kept away from the fits.
    """

    kernel: Kernel
    case: Case
    held_out: bool = False


def probes(device: Device) -> list[Planned]:
    """The cases that tell the device's own rates: reading, copying, and a large product of every format that runs."""
    largest = [max(KERNELS[name].cases(device), key=lambda case: case.shape["bytes"]) for name in ("read", "copy")]
    found = [Planned(KERNELS[case.kernel], case) for case in largest]
    for name in PRODUCTS:
        kernel = KERNELS[name]
        products: dict[str, Case] = {}
        for case in kernel.cases(device):
            form = str(case.key["format"])
            cubic = case.shape["m"] >= PROBE_ROWS and case.shape["n"] <= PROBE_COLUMNS
            if cubic and (form not in products or _size(case) > _size(products[form])):
                products[form] = case
        found += [Planned(kernel, case) for case in products.values() if not kernel.missing(device, case)]
    return found


def _size(case: Case) -> int:
    return case.shape["m"] * case.shape["n"] * case.shape["k"]


def make_plan(device: Device, hardware: RatedHardware, *, most_seconds: float) -> list[Planned]:
    """Everything worth measuring that takes at most `most_seconds` a call, in order.

    Args:
        device: where.
        hardware: its rates, measured or of the datasheet: only how long a call takes is worked out with them.
        most_seconds: of one call, by the roofline.
    """
    first: list[list[Planned]] = []
    later: list[list[Planned]] = []
    compiled: list[list[Planned]] = []
    for kernel in KERNELS.values():
        for members in _groups(kernel, device, hardware, most_seconds):
            ordered = with_held_out(kernel, _ordered(members, NOMINAL[device.kind]))
            _queue(members[0], device, first, later, compiled).append(ordered)
    later.append(_warm(first))
    head = _turns([group[: FIRST_ROUNDS * _turn(group)] for group in first])
    once = _turns([group[:1] for group in (*later, *compiled)])
    middle = _turns([group[1:SECOND_ROUNDS] for group in later])
    tail = _turns(
        [group[FIRST_ROUNDS * _turn(group) :] for group in first]
        + [group[SECOND_ROUNDS:] for group in later]
        + [group[1:] for group in compiled]
    )
    known: dict[str, Planned] = {}
    for planned in (*probes(device), *head, *once, *middle, *tail):
        known.setdefault(planned.case.identity, planned)
    return list(known.values())


def _queue(
    case: Case, device: Device, first: list[list[Planned]], later: list[list[Planned]], compiled: list[list[Planned]]
) -> list[list[Planned]]:
    """Where the group of a case waits for its turn."""
    if case.key.get("backend") in COMPILED:
        return compiled
    return first if in_stacks(case, device) else later


def _warm(groups: Sequence[Sequence[Planned]]) -> list[Planned]:
    """A few cases of the kernels that read weights and caches once more, with what they read in the cache already."""
    return [
        Planned(planned.kernel, replace(planned.case, cache="warm"))
        for group in groups
        if group and group[0].kernel.name in WARM_TOO
        for planned in group[:WARM_CASES]
    ]


def _turn(group: Sequence[Planned]) -> int:
    return GEMM_TURNS if group and group[0].kernel.name == "gemm" else 1


def _turns(groups: Sequence[Sequence[Planned]]) -> list[Planned]:
    """One case of each group after the other, until all are through."""
    found: list[Planned] = []
    places = [0] * len(groups)
    while any(place < len(group) for place, group in zip(places, groups, strict=True)):
        for number, group in enumerate(groups):
            step = _turn(group)
            found += group[places[number] : places[number] + step]
            places[number] += step
    return found


def _groups(kernel: Kernel, device: Device, hardware: RatedHardware, most_seconds: float) -> list[list[Case]]:
    """The cases of a kernel that can run, by what shares constants."""
    found: dict[str, list[Case]] = {}
    for case in kernel.cases(device):
        work = kernel.work(case)
        seconds = work.flops / max(hardware.dense_rates.values()) + work.bytes / hardware.bandwidth
        most = most_seconds * (1 if in_stacks(case, device) else BESIDE_SHARE)
        if seconds > most or too_large(kernel, case, device):
            continue
        found.setdefault(str(sorted(case.key.items())), []).append(case)
    return list(found.values())


def in_stacks(case: Case, device: Device) -> bool:
    """Whether the stacks run this kernel, so that a profile cannot do without it."""
    if case.kernel in ("prefill_attention", "decode_attention"):
        own = PREFILL_BACKEND if case.kernel == "prefill_attention" else DECODE_BACKEND[device.kind]
        return case.key["backend"] == own
    if case.kernel == "gemm":
        return case.key["format"] == "bf16"
    return case.kernel in MEANINGS and not case.kernel.startswith(("gemm_", "windowed"))


def _ordered(cases: Sequence[Case], hardware: RatedHardware) -> list[Case]:
    """The cases of one group, the most informative first."""
    import numpy as np

    features = [np.ones((len(cases), 1)), AXIS_WEIGHT * _places(cases)]
    sensitivity = _sensitivity(cases, hardware)
    if sensitivity is not None:
        features.append(sensitivity)
    return [cases[index] for index in greedy_order(np.hstack(features))]


def greedy_order(features: Array) -> list[int]:
    """All rows, each next one that with the largest xᵀM⁻¹x, M the information of those before and a small ridge."""
    import numpy as np

    left = list(range(len(features)))
    inverse = np.eye(features.shape[1]) / REGULAR
    order: list[int] = []
    while left:
        rows = features[left]
        gains = np.einsum("ij,jk,ik->i", rows, inverse, rows)
        index = left.pop(int(np.argmax(gains.round(9))))
        order.append(index)
        seen = inverse @ features[index]
        inverse = inverse - np.outer(seen, seen) / (1 + features[index] @ seen)
    return order


def with_held_out(kernel: Kernel, ordered: Sequence[Case]) -> list[Planned]:
    """The cases of a group, one in `HELD_OUT_EVERY` of them held out: drawn at random from the less informative."""
    import numpy as np

    rest = list(ordered[NEVER_HELD_OUT:])
    count = len(ordered) // HELD_OUT_EVERY if rest else 0
    drawn = {int(number) for number in np.random.default_rng(0).permutation(len(rest))[:count]}
    held_out = [Planned(kernel, rest[number], held_out=True) for number in sorted(drawn)]
    kept = [*ordered[:NEVER_HELD_OUT], *(case for number, case in enumerate(rest) if number not in drawn)]
    found: list[Planned] = []
    for number, case in enumerate(kept, 1):
        found.append(Planned(kernel, case))
        if number % (HELD_OUT_EVERY - 1) == 0 and held_out:
            found.append(held_out.pop(0))
    return found + held_out


def _places(cases: Sequence[Case]) -> Array:
    """Each case's place on the axes that vary: logarithms between −1 and 1."""
    import numpy as np

    axes = sorted({axis for case in cases for axis in case.shape})
    logs = np.log([[case.shape.get(axis, 0) + 1.0 for axis in axes] for case in cases])
    span = np.ptp(logs, axis=0)
    varied = logs[:, span > 0]
    if varied.shape[1] == 0:
        return np.zeros((len(cases), 1))
    places: Array = 2 * (varied - varied.min(0)) / np.ptp(varied, axis=0) - 1
    return places


def _sensitivity(cases: Sequence[Case], hardware: RatedHardware) -> Array | None:
    """∂ln t/∂ln θ of each case at typical constants, or None where no law fits them or a rate is not known."""
    import numpy as np

    kernel = KERNELS[cases[0].kernel]
    stand_ins = [_stand_in(kernel, case) for case in cases]
    groups = groups_of(stand_ins, "plan", least=1)
    if not groups:
        return None
    group, law = groups[0].group, law_of(groups[0].group)
    typical = {name: constant.start for name, constant in constants_of(law.constants).items()}
    try:
        base = _seconds(group, law, typical, hardware)
    except UnsupportedError:
        return None
    columns = [
        (np.log(_seconds(group, law, {**typical, name: value * 1.01}, hardware)) - np.log(base)) / np.log(1.01)
        for name, value in typical.items()
    ]
    return np.stack(columns, axis=1)


def _seconds(group: Group, law: Law, constants: dict[str, float], hardware: RatedHardware) -> Array:
    import numpy as np

    return np.asarray(law.predict(group, law.constants(**constants), hardware).total, dtype=float)


def _stand_in(kernel: Kernel, case: Case) -> Sample:
    """A sample of the case, before it is measured."""
    work = kernel.work(case)
    shape = {axis: float(size) for axis, size in case.shape.items()}
    sample = Sample("kernel", case.kernel, case.key, shape, case.cache, 1.0, 1.0, 1.0, (1.0,))
    return replace(sample, flops=work.flops, bytes=work.bytes)
