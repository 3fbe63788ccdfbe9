"""Samples grouped into what shares one set of constants, in the axes of the kernel laws; needs no torch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from calibrate.kernel_groups import Group
from calibrate.samples import Sample
from capplan.describe.profile_table import KINDS, KernelKey, Kind
from capplan.errors import InvalidFileError
from capplan.timing.kernel_laws import expected_distinct_experts

ENGINE = "torch"
"""The engine's name under which what torch runs stands in a profile."""

LEAST_POINTS = 6
"""Samples below which a group is not fitted: with fewer, laws of four constants would have nothing left to err."""

_KEYS = {field.name for field in fields(KernelKey)} | {"backend", "layout", "library"}
"""What may tell the samples of one kernel apart."""

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")

Axes = Mapping[str, float]


@dataclass(frozen=True)
class _Meaning:
    """How the samples of one kernel become points of a law.

    Args:
        kind: of the law.
        axes: a sample's axes.
        configuration: what stays the same while a server runs.
    """

    kind: Kind
    axes: Callable[[Sample], Axes]
    configuration: tuple[str, ...]


@dataclass(frozen=True)
class SampleGroup:
    """A group of samples as the fitter sees it, with the samples themselves in the same order."""

    group: Group
    samples: tuple[Sample, ...]


def as_measured(sample: Sample) -> Axes:
    """The axes that were recorded."""
    return sample.shape


def _experts(sample: Sample) -> Axes:
    tokens, experts, top_k = (sample.shape[axis] for axis in ("tokens", "experts", "top_k"))
    if not 0 < top_k <= experts:
        raise InvalidFileError(f"{top_k:g} of {experts:g} experts cannot be chosen", where=sample.identity)
    return {**sample.shape, "distinct_experts": float(expected_distinct_experts(tokens, experts, top_k))}


def _rows(sample: Sample) -> Axes:
    return {"bytes": sample.bytes}


def _recurrence(sample: Sample) -> Axes:
    return {"tokens": sample.shape["tokens"], "flops": sample.flops, "bytes": sample.bytes}


_HEADS = ("heads", "kv_heads")

MEANINGS: dict[str, _Meaning] = {
    **dict.fromkeys(
        ("gemm", "gemm_fp8", "gemm_int8", "gemm_int4", "gemm_block_scaled"), _Meaning("gemm", as_measured, ("n", "k"))
    ),
    "prefill_attention": _Meaning("prefill_attention", as_measured, _HEADS),
    "windowed_attention": _Meaning("prefill_attention", as_measured, (*_HEADS, "window")),
    "decode_attention": _Meaning("decode_attention", as_measured, _HEADS),
    "experts": _Meaning("grouped_gemm", _experts, ("hidden", "width", "top_k", "experts")),
    "latent_prefill": _Meaning("mla_prefill", as_measured, ("heads",)),
    "latent_decode": _Meaning("mla_decode", as_measured, ("heads",)),
    "delta_rule": _Meaning("recurrence", _recurrence, ("batch", "heads")),
    **dict.fromkeys(
        ("norm", "rotary_embedding", "activation", "cache_write", "embedding", "sampling", "top_k"),
        _Meaning("rows", _rows, ("width",)),
    ),
    **dict.fromkeys(COLLECTIVES, _Meaning("collective", lambda sample: {"bytes": sample.shape["bytes"]}, ("bytes",))),
}
"""Every kernel that a law fits; what is not here is measured to be known."""

_NATURAL_WARM = ("norm", "rotary_embedding", "activation", "cache_write", "embedding", "sampling", "top_k")
"""Kernels whose samples are those of a warm cache, as in a step."""


def is_fitted(sample: Sample) -> bool:
    """Whether a sample may go into a fit or a test of one: right, and in the state of the cache that a step has."""
    if sample.name not in MEANINGS or not sample.usable or sample.kind == "phase":
        return False
    return sample.kind == "collective" or sample.cache == ("warm" if sample.name in _NATURAL_WARM else "cold")


def groups_of(samples: Iterable[Sample], version: str, *, least: int = LEAST_POINTS) -> list[SampleGroup]:
    """The groups that have samples enough, by key.

    Args:
        samples: of one device.
        version: of torch.
        least: samples of a group.
    """
    found: dict[tuple[Kind, KernelKey], list[Sample]] = defaultdict(list)
    for sample in samples:
        if is_fitted(sample):
            found[MEANINGS[sample.name].kind, key_of(sample, version)].append(sample)
    return [
        _group(kind, key, members) for (kind, key), members in sorted(found.items(), key=str) if len(members) >= least
    ]


def key_of(sample: Sample, version: str) -> KernelKey:
    """The key under which a sample's kernel stands in a profile."""
    parts: dict[str, Any] = dict(sample.key)
    if strange := sorted(set(parts) - _KEYS):
        raise InvalidFileError(f"a sample of {sample.name} has an unknown key, {strange[0]}", where=sample.identity)
    backend = parts.pop("backend", None)
    parts.pop("layout", None)
    kernel = f"{sample.name}_{backend}" if backend else sample.name
    engine = str(parts.pop("library", ENGINE))
    return KernelKey(engine=engine, version=version, kernel=kernel, **parts)


def _axes(sample: Sample) -> Axes:
    """A sample's axes.

    Raises:
        InvalidFileError: it lacks one that its law or its configuration has.
    """
    meaning = MEANINGS[sample.name]
    needed = [*KINDS[meaning.kind].shape, *meaning.configuration]
    try:
        found = meaning.axes(sample)
    except KeyError as error:
        needed, found = [str(error.args[0])], {}
    if lacking := [axis for axis in needed if axis not in found and axis not in sample.shape]:
        raise InvalidFileError(f"a sample of {sample.name} has no {lacking[0]}", where=sample.identity)
    return found


def _group(kind: Kind, key: KernelKey, members: Sequence[Sample]) -> SampleGroup:
    import numpy as np

    axes = [_axes(sample) for sample in members]
    names = sorted(set.intersection(*(set(one) for one in axes)))
    shape = {axis: np.array([one[axis] for one in axes], dtype=float) for axis in names}
    numbers: dict[tuple[float, ...], int] = {}
    configurations = [
        numbers.setdefault(tuple(sample.shape[axis] for axis in MEANINGS[sample.name].configuration), len(numbers))
        for sample in members
    ]
    seconds = np.array([sample.seconds for sample in members])
    return SampleGroup(Group(kind, key, shape, seconds, np.array(configurations)), tuple(members))
