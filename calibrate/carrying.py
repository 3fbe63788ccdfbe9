"""What it costs to use one GPU's constants for another: tried on GPUs that have measurements of their own.

A profile's constants are put, with the other GPU's datasheet figures, beside the other GPU's measurements, choosing
fits as a user's question would. Every group of measurements counts alike, however many points it has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from calibrate.kernel_fit import spread
from calibrate.kernel_groups import Group
from capplan.describe.profile import CarriedError, Profile, Relation
from capplan.describe.profile_choice import KernelProfile, Wanted, relation_of
from capplan.describe.profile_table import KINDS, Kind
from capplan.errors import UnsupportedError
from capplan.timing.kernel_estimates import as_wanted, kernel_time

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

POINTS_A_GROUP = 200
"""Points of a group that count at most, so that great tables don't outvote small ones."""


@dataclass(frozen=True)
class Measured:
    """A GPU with its profile and the measurements that it was fitted to."""

    profile: Profile
    groups: Sequence[Group]


def carried_errors(source: Profile, others: Iterable[Measured]) -> tuple[CarriedError, ...]:
    """What carrying a profile to other GPUs costs, by kind of kernel and by whether the architecture is the same."""
    import numpy as np

    ratios: dict[tuple[Kind, Relation], list[Array]] = defaultdict(list)
    tried: dict[tuple[Kind, Relation], list[str]] = defaultdict(list)
    for other in others:
        if other.profile.name == source.name:
            continue
        relation = relation_of(source.hardware, other.profile.hardware)
        for kind, found in carried_ratios(source, other, relation).items():
            ratios[kind, relation].append(found)
            tried[kind, relation].append(other.profile.name)
    relations: tuple[Relation, ...] = ("same_architecture", "other_architecture")
    keys = [(described.name, relation) for described in KINDS.values() for relation in relations]
    return tuple(_error(key, tried[key], np.concatenate(ratios[key])) for key in keys if ratios[key])


def carried_ratios(source: Profile, other: Measured, relation: Relation) -> Mapping[Kind, Array]:
    """measured/predicted of another GPU's calls by this profile's constants, by kind."""
    import numpy as np

    carried = KernelProfile(source, other.profile.hardware, relation)
    found: dict[Kind, list[Array]] = defaultdict(list)
    for group in other.groups:
        ratios = group_ratios(carried, group)
        if ratios is not None:
            found[group.kind].append(ratios)
    return {kind: np.concatenate(parts) for kind, parts in found.items()}


def group_ratios(carried: KernelProfile, group: Group) -> Array | None:
    """measured/predicted of some of a group's calls, or None where the profile has nothing of the like."""
    import numpy as np

    wanted = wanted_kernel(group)
    choices = carried.candidates(group.kind, wanted)
    if not choices:
        return None
    order = np.random.default_rng(0).permutation(group.points)[:POINTS_A_GROUP]
    some = group.take(np.sort(order))
    fit = choices[0].fit
    try:
        time = kernel_time(group.kind, as_wanted(fit.key, wanted), fit.constants, some.shape, carried.hardware)
    except UnsupportedError:
        return None
    return np.asarray(some.seconds / time.total)


def wanted_kernel(group: Group) -> Wanted:
    """What a user would ask for to get this group: everything but the version and, but for collectives, the kernel.

    An engine's collectives inside CUDA graphs and outside have the same formats and differ by their kernel alone.
    """
    key = group.key
    return Wanted(
        engine=key.engine,
        kernel=key.kernel if group.kind == "collective" else None,
        format=key.format or None,
        kv_format=key.kv_format or None,
        head_dim=key.head_dim or None,
        heads=key.heads or None,
        window=key.window or None,
        collective=key.collective or None,
        gpus=key.gpus or None,
    )


def _error(key: tuple[Kind, Relation], tried: list[str], ratios: Array) -> CarriedError:
    found = spread(ratios)
    kind, relation = key
    return CarriedError(
        kind=kind,
        relation=relation,
        tried_on=tuple(tried),
        points=len(ratios),
        median=found.median,
        p90=found.p90,
        low=found.low,
        high=found.high,
    )
