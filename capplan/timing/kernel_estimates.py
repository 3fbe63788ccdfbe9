"""Seconds of one kernel call by a fit of a profile: the law that belongs to its kind, its interval, and its domain.

An estimate says where its constants are from, whether they were stretched (a shape outside what was measured, a
kernel that stands in for another, constants carried from another GPU), and gives the interval that 80 % of
measurements fell in when the like was predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias

from capplan.describe.kernel_formats import kernel_format
from capplan.describe.profile import RatedHardware
from capplan.describe.profile_choice import Choice, KernelProfile, Wanted
from capplan.describe.profile_table import SIZE_BOUNDS, SIZES, KernelFit, KernelKey, Kind, Spread
from capplan.errors import UnsupportedError
from capplan.memory.kv_format import kv_format
from capplan.timing.kernel_laws import (
    KernelTime,
    Quantity,
    Rates,
    collective_time,
    decode_attention_time,
    expected_distinct_experts,
    gemm_time,
    grouped_gemm_time,
    mla_decode_time,
    mla_prefill_time,
    prefill_attention_time,
    recurrence_time,
    rows_time,
)
from capplan.timing.kernel_laws.mla import CACHED, LATENT
from capplan.timing.kernel_laws.terms import OVERLAP_EXPONENT, is_array, larger, smaller

EXTRAPOLATED = 2.0
"""Exponent that widens the interval of an extrapolated estimate: [low², high²] for [low, high].

The slowest tenth of a table, predicted from the rest of it, lay about as far off as unseen configurations do, and for
nine fits in ten at most 1.8 times as far (latent decode: 3.5 times): docs/kernel_accuracy.csv.
"""

Shape = Mapping[str, Quantity]

Mask: TypeAlias = Any
"""A boolean, or an array of them."""


@dataclass(frozen=True)
class KernelEstimate:
    """Seconds of a kernel call, with what they rest on.

    Args:
        time: by terms.
        low: lower end of the 80 % interval, seconds.
        high: its upper end.
        fit: the constants used.
        extrapolated: axes outside the domain, substitutions and carrying, in words; empty: within what was measured.
    """

    time: KernelTime
    low: Quantity
    high: Quantity
    fit: KernelFit
    extrapolated: tuple[str, ...]

    @property
    def total(self) -> Quantity:
        """Seconds of the call."""
        return self.time.total


def estimate(profile: KernelProfile, kind: Kind, wanted: Wanted, shape: Shape) -> KernelEstimate | None:
    """Seconds of a kernel call by the nearest fit, or None where nothing was measured that could stand for it.

    Args:
        profile: the constants that stand for the GPU.
        kind: of the kernel.
        wanted: which kernel; see `Wanted`.
        shape: the axes of the law, numbers or arrays; see `kernel_time`.
    """
    choices = profile.candidates(kind, wanted)
    return estimate_choice(profile, kind, wanted, choices[0], shape) if choices else None


def estimate_choice(profile: KernelProfile, kind: Kind, wanted: Wanted, choice: Choice, shape: Shape) -> KernelEstimate:
    """Seconds of a kernel call by one fit; arguments as for `estimate`."""
    fit, substitutions = choice.fit, choice.substitutions
    time = choice_time(profile, kind, wanted, choice, shape)
    outside = outside_by_axis(fit, shape)
    notes = [f"{axis} outside {_text(fit.domain[axis])}" for axis, mask in outside.items() if _anywhere(mask)]
    notes += substitutions
    carried = profile.carried_error(kind)
    if profile.carried:
        notes.append(f"constants carried from {profile.profile.name} ({profile.carried.replace('_', ' ')})")
    stretched: Mask = bool(substitutions)
    for mask in outside.values():
        stretched = stretched | mask
    low, high = interval(fit, time.total, stretched=stretched, carried=carried)
    return KernelEstimate(time, time.total * low, time.total * high, fit, tuple(notes))


def choice_time(profile: KernelProfile, kind: Kind, wanted: Wanted, choice: Choice, shape: Shape) -> KernelTime:
    """As `estimate_choice`, without the interval: what a sum over many steps asks for."""
    return kernel_time(kind, as_wanted(choice.fit.key, wanted), choice.fit.constants, shape, profile.hardware)


def faster(one: KernelEstimate, other: KernelEstimate) -> KernelEstimate:
    """The faster of two kernels that do the same; where a sweep passes arrays, the faster at each of its points."""
    if not (is_array(one.total) or is_array(other.total)):
        return one if one.total <= other.total else other
    import numpy as np

    first = np.asarray(one.total <= other.total)
    return KernelEstimate(
        faster_time([one.time, other.time]),
        np.where(first, one.low, other.low),
        np.where(first, one.high, other.high),
        one.fit if first.all() or not (~first).all() else other.fit,
        tuple(dict.fromkeys((*one.extrapolated, *other.extrapolated))),
    )


def faster_time(times: Sequence[KernelTime]) -> KernelTime:
    """At each point of a sweep the time of the fastest kernel, the first of equals, as a launch and a body."""
    import numpy as np

    total, launch = times[0].total, times[0].serial.get("launch", 0.0)
    for time in times[1:]:
        first = total <= time.total
        launch = np.where(first, launch, time.serial.get("launch", 0.0))
        total = np.where(first, total, time.total)
    return KernelTime({"launch": launch, "body": total - launch}, {}, 1.0)


@lru_cache(maxsize=4096)
def as_wanted(measured: KernelKey, wanted: Wanted) -> KernelKey:
    """The kernel whose work is to be counted: the wanted sizes and cache format, with the measured kernel's nature.

    Latent attention that must be absorbed (on keys that a scorer chose) is; otherwise an engine that was measured with
    an absorbed kernel runs that one.
    """
    asked: dict[str, Any] = {name: getattr(wanted, name) for name in ("kv_format", "head_dim", "gpus")}
    if wanted.absorbed == "yes":
        asked["absorbed"] = "yes"
    return replace(measured, **{name: value for name, value in asked.items() if value is not None})


def interval(
    fit: KernelFit, seconds: Quantity, *, stretched: Mask, carried: Spread | None
) -> tuple[Quantity, Quantity]:
    """Factors of a prediction between which 80 % of measurements lie.

    They are the 10th and 90th percentile of measured/predicted on configurations that the fit had not seen, of the
    size class that the prediction falls in; for carried constants those of carrying, where they are wider. An
    extrapolation squares them.

    Args:
        fit: whose residuals.
        seconds: the prediction.
        stretched: whether it is an extrapolation.
        carried: the error of carrying, for carried constants.
    """
    low = _by_size(seconds, [fit.residuals.sizes.get(size, fit.residuals.unseen).low for size in SIZES])
    high = _by_size(seconds, [fit.residuals.sizes.get(size, fit.residuals.unseen).high for size in SIZES])
    if carried is not None:
        low, high = smaller(low, carried.low), larger(high, carried.high)
    low, high = smaller(low, 1.0), larger(high, 1.0)
    exponent: Any = 1.0 + (EXTRAPOLATED - 1.0) * stretched
    return low**exponent, high**exponent


def outside_by_axis(fit: KernelFit, shape: Shape) -> dict[str, Mask]:
    """For each axis of a shape, where it leaves the domain of a fit; an axis that the domain lacks is not looked at."""
    return {axis: _leaves(fit.domain[axis], value) for axis, value in shape.items() if axis in fit.domain}


def kernel_time(kind: Kind, key: KernelKey, constants: Any, shape: Shape, hardware: RatedHardware) -> KernelTime:
    """Seconds of a kernel call by the law of its kind.

    Args:
        kind: of the kernel.
        key: its formats and sizes that are no axis: ``format``, ``kv_format``, ``head_dim``, ``absorbed``, ...
        constants: of the law.
        shape: the axes. ``gemm``: m, n, k. ``grouped_gemm``: tokens, hidden, width (of one expert on this rank),
            top_k, experts (all of them), and distinct_experts or expert_parallel. ``prefill_attention``: batch,
            tokens, heads, kv_heads, prefix, window, pairs. ``decode_attention``: batch, context, heads, kv_heads,
            window. ``mla_prefill``: batch, tokens, heads, prefix, limit, pairs, and key_dim and value_dim of the kernel
            that `absorbed` names. ``mla_decode``: batch, context, heads, latent, cached. ``collective``: bytes, and
            gpus where they aren't those measured. ``rows``: bytes. ``recurrence``: tokens (of one sequence), flops and
            bytes (of all).
        hardware: the figures that the constants are shares of.

    Raises:
        UnsupportedError: the hardware has no rate for the format.
    """
    return _LAWS[kind](key, constants, shape, hardware)


def rates_for(hardware: RatedHardware, number_format: str) -> Rates:
    """The figures of a law that multiplies in this kernel format.

    Raises:
        UnsupportedError: the hardware has no units for it, or the format is not known.
    """
    math = kernel_format(number_format).math
    rate = hardware.dense_rates.get(math)
    if rate is None and math == "bf16":
        rate = hardware.dense_rates.get("fp16")
    if rate is None:
        raise UnsupportedError(f"this GPU ({hardware.architecture}) has no {math} units", where="--gpu")
    return Rates(rate, hardware.bandwidth, hardware.compute_units, hardware.overlap or OVERLAP_EXPONENT)


@lru_cache(maxsize=64)
def cache_bytes(name: str) -> float:
    """Bytes of an element of a KV cache in a format: the mean of keys and values."""
    found = kv_format(name, "bf16")
    return float(found.key_bits + found.value_bits) / 16


def _gemm(key: KernelKey, constants: Any, shape: Shape, hardware: RatedHardware) -> KernelTime:
    stored = kernel_format(key.format)
    return gemm_time(
        shape["m"],
        shape["n"],
        shape["k"],
        weight_bytes=float(stored.weight_bytes),
        activation_bytes=float(stored.activation_bytes),
        constants=constants,
        rates=rates_for(hardware, key.format),
    )


def _grouped_gemm(key: KernelKey, constants: Any, shape: Shape, hardware: RatedHardware) -> KernelTime:
    tokens, experts, top_k = shape["tokens"], shape["experts"], shape["top_k"]
    distinct = shape.get("distinct_experts")
    if distinct is None:
        distinct = expected_distinct_experts(tokens, experts, top_k) / shape.get("expert_parallel", 1)
    return grouped_gemm_time(
        tokens / shape.get("expert_parallel", 1),
        shape["hidden"],
        shape["width"],
        top_k,
        distinct,
        weight_bytes=float(kernel_format(key.format).weight_bytes),
        constants=constants,
        rates=rates_for(hardware, key.format),
    )


def _prefill(key: KernelKey, constants: Any, shape: Shape, hardware: RatedHardware) -> KernelTime:
    return prefill_attention_time(
        shape["batch"],
        shape["tokens"],
        shape["heads"],
        shape["kv_heads"],
        key.head_dim,
        prefix=shape.get("prefix", 0),
        window=shape.get("window", 0),
        pairs=shape.get("pairs"),
        kv_bytes=cache_bytes(key.kv_format),
        constants=constants,
        rates=rates_for(hardware, key.format),
    )


def _decode(key: KernelKey, constants: Any, shape: Shape, hardware: RatedHardware) -> KernelTime:
    return decode_attention_time(
        shape["batch"],
        shape["context"],
        shape["heads"],
        shape["kv_heads"],
        key.head_dim,
        window=shape.get("window", 0),
        kv_bytes=cache_bytes(key.kv_format),
        constants=constants,
        rates=rates_for(hardware, key.format),
    )


def _mla_prefill(key: KernelKey, constants: Any, shape: Shape, hardware: RatedHardware) -> KernelTime:
    absorbed = key.absorbed == "yes"
    as_counted = absorbed == shape.get("absorbed")
    return mla_prefill_time(
        shape["batch"],
        shape["tokens"],
        shape["heads"],
        prefix=shape.get("prefix", 0),
        limit=shape.get("limit", 0),
        pairs=shape.get("pairs"),
        absorbed=absorbed,
        key_dim=shape.get("key_dim") if as_counted else None,
        value_dim=shape.get("value_dim") if as_counted else None,
        kv_bytes=cache_bytes(key.kv_format),
        constants=constants,
        rates=rates_for(hardware, "bf16"),
    )


def _mla_decode(key: KernelKey, constants: Any, shape: Shape, hardware: RatedHardware) -> KernelTime:
    return mla_decode_time(
        shape["batch"],
        shape["context"],
        shape["heads"],
        latent=shape.get("latent", LATENT),
        cached=shape.get("cached", CACHED),
        kv_bytes=cache_bytes(key.kv_format),
        constants=constants,
        rates=rates_for(hardware, "bf16"),
    )


def _collective(key: KernelKey, constants: Any, shape: Shape, hardware: RatedHardware) -> KernelTime:
    if hardware.link is None:
        raise UnsupportedError("this GPU's links are not known", where="--gpu")
    collective: Any = key.collective
    return collective_time(
        shape["bytes"], shape.get("gpus", key.gpus), collective, link_bandwidth=hardware.link, constants=constants
    )


def _rows(key: KernelKey, constants: Any, shape: Shape, hardware: RatedHardware) -> KernelTime:
    return rows_time(shape["bytes"], bandwidth=hardware.bandwidth, constants=constants)


def _recurrence(key: KernelKey, constants: Any, shape: Shape, hardware: RatedHardware) -> KernelTime:
    rates = rates_for(hardware, "bf16")
    return recurrence_time(shape["tokens"], shape["flops"], shape["bytes"], constants=constants, rates=rates)


_LAWS: dict[str, Callable[[KernelKey, Any, Shape, RatedHardware], KernelTime]] = {
    "gemm": _gemm,
    "grouped_gemm": _grouped_gemm,
    "prefill_attention": _prefill,
    "decode_attention": _decode,
    "mla_prefill": _mla_prefill,
    "mla_decode": _mla_decode,
    "collective": _collective,
    "rows": _rows,
    "recurrence": _recurrence,
}


def _text(domain: tuple[float, float]) -> str:
    return f"{domain[0]:g} to {domain[1]:g}"


def _leaves(domain: tuple[float, float], value: Quantity) -> Mask:
    low, high = domain
    return (value < low) | (value > high)


def _anywhere(mask: Mask) -> bool:
    return bool(mask.any()) if is_array(mask) else bool(mask)


def _by_size(seconds: Quantity, values: list[float]) -> Quantity:
    """The value of the size class that each prediction falls in."""
    if is_array(seconds):
        import numpy as np

        return np.asarray(values)[np.searchsorted(SIZE_BOUNDS, seconds, side="right")]
    return values[sum(seconds >= bound for bound in SIZE_BOUNDS)]
