"""Which of all divisions a sweep was asked for, and which of those a device cannot have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

from capplan.planner.rejections import Rejections
from capplan.planner.space import Shape
from capplan.questions.plan_option import Option
from capplan.questions.plan_space import unlaunchable
from capplan.questions.sweep_request import SweepRequest

Axis = tuple[str, tuple[int, ...], Callable[[Shape], int]]
"""What a size is called, the sizes that are wanted (none: any), and that of a division."""


def asked_for(options: Iterable[Option], request: SweepRequest, rejections: Rejections) -> Iterator[Option]:
    """Options whose parallel sizes were asked for and that an engine can be told.

    A wish that a device cannot grant a format is named once for both: a size that does not divide the model or the
    links, sizes that do not go together. Divisions that nobody asked for are passed over in silence.

    Args:
        options: device by device, format by format.
        request: the wishes.
        rejections: gets what was wished for in vain.
    """
    axes = _axes(request)
    for (gpu, form), group in groupby(options, key=lambda option: (option.gpu.name, option.format.label)):
        own = list(group)
        kept = [option for option in own if all(not sizes or size(option.shape) in sizes for _, sizes, size in axes)]
        lacking = _lacking(own, axes)
        for reason, detail in lacking:
            rejections.add(reason, f"{gpu} {form}", detail)
        if not kept and not lacking:
            rejections.add("parallel sizes that do not go together", f"{gpu} {form}")
        for option in kept:
            reason = unlaunchable(option)
            if reason:
                rejections.add(reason, option.label)
            else:
                yield option


def _axes(request: SweepRequest) -> tuple[Axis, ...]:
    experts = () if request.expert_parallel is None else (int(request.expert_parallel),)
    return (
        ("-tp", request.tensor_parallel, lambda shape: shape.tp),
        ("-pp", request.pipeline_parallel, lambda shape: shape.pp),
        ("-dp", request.data_parallel, lambda shape: shape.dp),
        ("-ep", experts, lambda shape: int(shape.ep)),
    )


def _lacking(own: list[Option], axes: tuple[Axis, ...]) -> list[tuple[str, str]]:
    """Sizes that none of these options has, each with those that there are."""
    found = []
    for flag, sizes, size in axes:
        there = sorted({size(option.shape) for option in own})
        for wanted in sorted(set(sizes) - set(there)):
            if flag == "-ep":
                found.append(("no experts to divide" if wanted else "experts are divided in any case", ""))
            else:
                found.append((f"no {flag} {wanted}", f"{flag} can be {', '.join(map(str, there))}"))
    return found
