"""The rates that a profile's constants are shares of: the catalog's for a known GPU, else measured peaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

from calibrate.samples import Recording, Sample
from capplan.describe.catalog import list_entries
from capplan.describe.gpu import GpuSpec, Link, Memory, Source
from capplan.describe.gpu_catalog import match_device, read_gpu
from capplan.describe.local_gpu import LocalDevice
from capplan.describe.profile import RatedHardware, rated_hardware
from capplan.errors import InvalidFileError, NotFoundError
from capplan.timing.kernel_laws import bus_share

LARGE_BYTES = 1 << 26
"""Reads and copies below this say something about the cache."""

FORMATS = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4")

PRODUCTS = ("gemm", "gemm_fp8", "gemm_int8")
"""Kernels that multiply in the format that they are named by."""


def described_device(recording: Recording) -> GpuSpec:
    """The device of a recording: the catalog's entry where it has one, else what was measured.

    Args:
        recording: samples, with reading, copying and large products among them.

    Raises:
        InvalidFileError: too little was measured.
    """
    known = catalog_entry(recording.provenance)
    if known is not None:
        return known
    facts = recording.provenance
    _check_facts(facts)
    bandwidth, rates = measured_rates(recording.samples)
    memory_bytes = int(facts["memory_bytes"])
    title = facts.get("device", "this device")
    source = Source(source=f"measured by capplan calibrate on {title}", date=last_day(recording))
    checked: Any = rates
    return GpuSpec(
        name=facts["slug"],
        title=f"{title} ({facts['compute_units']} compute units)",
        vendor="other",
        architecture="other",
        memory=Memory(
            label_gb=memory_bytes / 2**30, usable_mib=memory_bytes >> 20, type="measured", bandwidth=bandwidth
        ),
        dense_rates=checked,
        compute_units=int(facts["compute_units"]),
        link=measured_link(recording.samples),
        notes="bandwidth and rates are the best that torch reached here, not a datasheet's",
        sources={"all": source},
    )


def _check_facts(facts: Mapping[str, str]) -> None:
    """Return if a recording says what a device's description needs.

    Raises:
        InvalidFileError: something is not there, or is no number.
    """
    for name in ("slug", "torch"):
        if not facts.get(name):
            raise InvalidFileError(f"the samples don't say the device's {name}", where="provenance")
    for name in ("memory_bytes", "compute_units"):
        if not facts.get(name, "").isdigit() or not 0 < int(facts[name]) < 1 << 60:
            raise InvalidFileError(f"the samples don't say the device's {name}", where="provenance")


def catalog_entry(facts: Mapping[str, str]) -> GpuSpec | None:
    """The catalog's entry of a recording's GPU, found by the driver's name for it; None for what it does not have."""
    if "cuda" not in facts:
        return None
    device = LocalDevice(0, "", facts["device"], int(facts["memory_bytes"]) >> 20)
    try:
        return match_device(device, [read_gpu(path) for path in list_entries("hardware")])
    except NotFoundError:
        return None


def rated(gpu: GpuSpec, overlap: float | None = None) -> RatedHardware:
    """The figures of a described device that the laws refer to.

    Raises:
        InvalidFileError: its description lacks the number of compute units.
    """
    hardware = rated_hardware(gpu)
    if hardware is None:
        raise InvalidFileError(f"the description of {gpu.name} lacks compute_units", where=gpu.name)
    return replace(hardware, overlap=overlap)


def measured_rates(samples: Sequence[Sample]) -> tuple[float, dict[str, float]]:
    """(B/s, FLOP/s by format): the fastest read or copy, and the fastest product of each format.

    Raises:
        InvalidFileError: nothing was read, or nothing multiplied.
    """
    usable = [sample for sample in samples if sample.usable]
    moved = [sample.bytes / sample.seconds for sample in usable if _moves(sample)]
    rates: dict[str, float] = {}
    for sample in usable:
        name = str(sample.key.get("format", ""))
        if sample.name in PRODUCTS and name in FORMATS:
            rates[name] = max(rates.get(name, 0.0), sample.flops / sample.seconds)
    if not moved or not rates:
        raise InvalidFileError(
            "the samples have no large read or copy, or no product", hint="go on measuring: run with --resume"
        )
    return max(moved), rates


def measured_link(samples: Sequence[Sample]) -> Link | None:
    """The fastest that a collective sent over one rank's link, where any was measured."""
    found = [sample for sample in samples if sample.kind == "collective" and sample.usable]
    if not found:
        return None
    rate = max(_bus_rate(sample) for sample in found)
    ranks = max(int(sample.key["gpus"]) for sample in found)
    return Link(kind=f"measured ({found[0].key['library']})", per_direction=rate, total=2 * rate, domain_size=ranks)


def _bus_rate(sample: Sample) -> float:
    collective: Any = sample.key["collective"]
    return sample.shape["bytes"] * float(bus_share(collective, int(sample.key["gpus"]))) / sample.seconds


def _moves(sample: Sample) -> bool:
    """Whether a sample moves far more bytes than a cache holds, and the cache was cold."""
    large = sample.name in ("read", "copy") and sample.shape["bytes"] >= LARGE_BYTES
    return sample.cache == "cold" and large


def last_day(recording: Recording) -> str:
    """The day of the last sample."""
    return max((sample.started[:10] for sample in recording.samples), default="") or date.today().isoformat()
