"""What an accelerator is: its memory, its dense rates by number format, its links, and where each figure is from.

Units inside: bytes, B/s, FLOP/s (multiply and add counted as two). Rates are *dense*: no structured sparsity.
A figure that is not known is absent, never 0; one that sources disagree on stands under `doubtful` with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Literal

from capplan.describe.parts import Part, Whole
from capplan.errors import NotFoundError, did_you_mean

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

MIB = 2**20
GIB = 2**30


@dataclass(frozen=True)
class Real:
    """A number above 0 and at most `most`: no booleans, no strings."""

    most: float = 1e21

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.float_schema(strict=True, gt=0, le=self.most, allow_inf_nan=False)


@dataclass(frozen=True)
class Matching:
    """A text of at most 2000 characters that matches `pattern` as a whole."""

    pattern: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.str_schema(strict=True, pattern=rf"^(?:{self.pattern})$", max_length=2000)


Format = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4", "int4"]
Vendor = Literal["NVIDIA", "AMD", "Intel", "Google", "AWS", "Apple", "other"]
Architecture = Literal[
    "pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell", "blackwell_ultra",
    "cdna2", "cdna3", "cdna4", "gaudi2", "gaudi3", "xe2", "tpu_v5e", "tpu_v5p", "tpu_v6e", "tpu_v7",
    "neuron_v2", "neuron_v3", "neuron_v4", "apple_m1", "apple_m2", "apple_m3", "apple_m4", "other",
]  # fmt: skip

EntryName = Annotated[str, Matching(r"[a-z0-9]+([.-][a-z0-9]+){0,20}")]
Text = Annotated[str, Matching(r"[^\x00-\x08]+")]
Positive = Annotated[float, Real()]
Count = Annotated[int, Whole(1, 10**7)]
Share = Annotated[float, Real(1.0)]

MIG_MEMORY_SLICES = 8
"""A MIG GPU's memory, L2 and bandwidth are cut into eighths. Source: NVIDIA MIG User Guide, supported profiles."""


@dataclass(frozen=True, kw_only=True)
class Source(Part):
    """Where a figure came from, and the date it was read or collected."""

    source: Text
    date: Annotated[str, Matching(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")]


@dataclass(frozen=True, kw_only=True)
class Memory(Part):
    """Device memory: the label on the box, what the driver shows, and what an engine is given."""

    label_gb: Positive
    """The number in the product's name; in which unit is for the vendor to know."""
    usable_mib: Count | None = None
    """Total as nvidia-smi or rocm-smi show it, in MiB; on Apple the default limit of memory wired for the GPU."""
    cuda_visible_mib: Count | None = None
    """Total as CUDA (or HIP) reports it to an engine, in MiB: up to 2 % under `usable_mib`, by driver version."""
    type: Text
    bandwidth: Positive
    """Peak of the datasheet, B/s."""

    def __post_init__(self) -> None:
        if self.usable_mib and not 0.7 <= self.usable_mib * MIB / (self.label_gb * GIB) <= 1.01:
            raise ValueError(f"usable_mib {self.usable_mib} does not go with a label of {self.label_gb:g} GB")
        if self.usable_mib and self.cuda_visible_mib and not 0.95 <= self.cuda_visible_mib / self.usable_mib <= 1:
            raise ValueError(f"cuda_visible_mib {self.cuda_visible_mib} must be at most 5 % under usable_mib")

    @property
    def engine_bytes(self) -> int:
        """The total that an engine works with: what CUDA reports, else what the driver shows, else the label."""
        mib = self.cuda_visible_mib or self.usable_mib
        return mib * MIB if mib else int(Fraction(str(self.label_gb)) * GIB)

    @property
    def engine_bytes_basis(self) -> Literal["cuda_visible_mib", "usable_mib", "label_gb"]:
        """The field that `engine_bytes` was taken from; only the first is what the engine itself would print."""
        if self.cuda_visible_mib:
            return "cuda_visible_mib"
        return "usable_mib" if self.usable_mib else "label_gb"


@dataclass(frozen=True, kw_only=True)
class Link(Part):
    """The scale-up network between devices, as the datasheet's total over all links of one device."""

    kind: Text
    per_direction: Positive
    """B/s out of one device."""
    total: Positive
    """B/s of both directions together: the figure that datasheets print for NVLink."""
    domain_size: Count
    """Devices that this network joins, at most: 2 for a bridge, 8 in an HGX node, 72 in an NVL72 rack."""
    per_peer: Positive | None = None
    """B/s to one other device, where no switch stands between them and every pair has links of its own."""

    def among(self, ranks: float) -> float:
        """B/s that one of so many devices sends to the others: ``min(per direction, (ranks - 1) · per peer)``."""
        return self.per_direction if self.per_peer is None else min(self.per_direction, (ranks - 1) * self.per_peer)


@dataclass(frozen=True, kw_only=True)
class Pcie(Part):
    """The host link."""

    generation: Count
    per_direction: Positive
    """B/s."""


@dataclass(frozen=True, kw_only=True)
class BusBandwidth(Part):
    """What an all-reduce of large messages reached."""

    ranks: Annotated[int, Whole(2, 1024)]
    bandwidth: Positive
    """B/s of the bus: bytes · 2(n - 1)/n over the time."""


@dataclass(frozen=True, kw_only=True)
class Measured(Part):
    """What micro-benchmarks reached of the datasheet's figures.

    By them one vendor's constants are carried to another's device (`capplan.describe.profile_scaling`).
    """

    products: dict[Format, Share]
    """Share of the dense rate that the best shape of a product reached, by operand format."""
    bandwidth: Share
    """Share of the memory bandwidth that the best of BabelStream's kernels reached."""
    all_reduce: tuple[BusBandwidth, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MigSlice(Part):
    """One MIG profile of a GPU."""

    profile: Annotated[str, Matching(r"[1-7]g\.[0-9]{1,4}gb")]
    sms: Count
    memory_slices: Annotated[int, Whole(1, MIG_MEMORY_SLICES)]
    usable_mib: Count
    """As `nvidia-smi mig -lgip` lists it; CUDA reports the same to the engine."""
    most: Count
    """Instances of this profile that fit on one GPU."""


@dataclass(frozen=True, kw_only=True)
class GpuSpec(Part):
    """One accelerator, as a file of ``hardware/`` describes it."""

    schema: Literal[1] = 1
    name: EntryName
    title: Text
    aliases: tuple[Text, ...] = ()
    device_names: tuple[Text, ...] = ()
    """What the driver calls it (``nvidia-smi --query-gpu=name``)."""
    vendor: Vendor
    architecture: Architecture
    compute_capability: Annotated[str, Matching(r"[0-9]+\.[0-9]")] | None = None
    """CUDA's version of the hardware (NVIDIA)."""
    release_year: Annotated[int, Whole(2000, 2100)] | None = None
    memory: Memory
    dense_rates: dict[Format, Positive]
    """FLOP/s by operand format, accumulating in fp32 (in int32 for integers)."""
    compute_units: Count | None = None
    """Streaming multiprocessors (NVIDIA), compute units (AMD), tensor cores (Gaudi), GPU cores (Apple)."""
    boost_mhz: Count | None = None
    l2_mib: Positive | None = None
    tdp_w: Positive | None = None
    link: Link | None = None
    pcie: Pcie | None = None
    gpus_per_node: Count | None = None
    """Devices under one host, at most, in common servers and cloud instances."""
    measured: Measured | None = None
    confidence: Literal["high", "medium", "low"] | None = None
    halved_from_sparse: Text | None = None
    """Whether the dense rates were halved from a sheet that prints sparse ones, in words."""
    notes: Text | None = None
    doubtful: dict[str, Text] = field(default_factory=dict)
    """Figures that sources disagree on or that were derived, by field, with the reason."""
    sources: dict[str, Source] = field(default_factory=dict)
    """By field; ``all`` for whatever has no source of its own."""
    mig: tuple[MigSlice, ...] = ()

    def __post_init__(self) -> None:
        known = {path for path in _paths(asdict(self)) if not path.startswith(("sources", "doubtful"))}
        for map_name, keys in (("sources", self.sources), ("doubtful", self.doubtful)):
            for key in keys:
                if key != "all" and key not in known:
                    raise ValueError(f"{map_name}: {key!r} is not a field of this entry. {did_you_mean(key, known)}")
        for form in self.measured.products if self.measured else ():
            if form not in self.dense_rates:
                raise ValueError(f"measured.products: there is no dense rate of {form} to be a share of")
        for mig in self.mig:
            if not self.compute_units or mig.sms > self.compute_units:
                raise ValueError(f"mig: {mig.profile} has more SMs than the GPU")

    @property
    def engine_memory(self) -> int:
        """Bytes of device memory that an engine works with; see `Memory.engine_bytes`."""
        return self.memory.engine_bytes

    def dense_rate(self, number_format: str) -> float | None:
        """Peak dense FLOP/s on operands of this format, or None where the hardware has no such units."""
        return self.dense_rates.get(number_format)  # type: ignore[call-overload, no-any-return]

    def source_of(self, field: str) -> Source | None:
        """The source of a field: its own, its parent's, or that of the whole entry."""
        while field:
            if field in self.sources:
                return self.sources[field]
            field = field.rpartition(".")[0]
        return self.sources.get("all")

    def mig_device(self, profile: str) -> GpuSpec:
        """A MIG slice as a device of its own; see `slice_device`.

        Raises:
            NotFoundError: this GPU has no such profile.
        """
        wanted = profile.lower().replace("-", ".")
        for mig in self.mig:
            if mig.profile == wanted:
                return slice_device(self, mig)
        profiles = [mig.profile for mig in self.mig]
        hint = did_you_mean(wanted, profiles) or (f"it has {', '.join(profiles)}" if profiles else "")
        message = f"{self.name} has no MIG profile {profile!r}" if profiles else f"{self.name} has no MIG profiles"
        raise NotFoundError(message, where="--gpu", hint=hint)


def slice_device(gpu: GpuSpec, mig: MigSlice) -> GpuSpec:
    """A MIG slice as a device of its own.

    ``rate = rate_gpu x sms / sms_gpu``, ``bandwidth = bandwidth_gpu x memory_slices / 8``, L2 likewise.
    The power is the SMs' share of the board's (assumed). Slices reach no other device (P2P is off), so that
    there is no link; the host link is shared.

    Source: NVIDIA MIG User Guide, "Supported MIG Profiles" (fractions of memory, L2 and SMs).
    """
    sm_share = Fraction(mig.sms, gpu.compute_units or mig.sms)
    memory_share = Fraction(mig.memory_slices, MIG_MEMORY_SLICES)
    label = float(mig.profile.removesuffix("gb").partition(".")[2])
    memory = replace(
        gpu.memory,
        label_gb=label,
        usable_mib=mig.usable_mib,
        cuda_visible_mib=mig.usable_mib,
        bandwidth=gpu.memory.bandwidth * memory_share,
    )
    changes: dict[str, Any] = {
        "name": f"{gpu.name}-mig-{mig.profile}",
        "title": f"{gpu.title} MIG {mig.profile}",
        "aliases": (),
        "device_names": tuple(f"{name} MIG {mig.profile}" for name in gpu.device_names),
        "memory": memory,
        "dense_rates": {key: rate * sm_share for key, rate in gpu.dense_rates.items()},
        "compute_units": mig.sms,
        "l2_mib": float(gpu.l2_mib * memory_share) if gpu.l2_mib else None,
        "tdp_w": float(gpu.tdp_w * sm_share) if gpu.tdp_w else None,
        "link": None,
        "measured": None,
        "gpus_per_node": gpu.gpus_per_node * mig.most if gpu.gpus_per_node else None,
        "notes": f"derived: {mig.sms} of {gpu.compute_units} SMs, {mig.memory_slices}/8 of memory and bandwidth",
        "doubtful": _without(gpu.doubtful, "link", "mig", "memory", "measured")
        | ({"memory.usable_mib": gpu.doubtful["mig"]} if "mig" in gpu.doubtful else {})
        | ({"tdp_w": "share of the board's power by SMs (assumed)"} if gpu.tdp_w else {}),
        "sources": _without(gpu.sources, "link", "mig", "memory", "measured")
        | ({"memory": gpu.sources["mig"]} if "mig" in gpu.sources else {}),
        "mig": (),
    }
    return replace(gpu, **changes)


def _without(fields: dict[str, Any], *sections: str) -> dict[str, Any]:
    """The entries that don't belong to the named sections."""
    return {key: value for key, value in fields.items() if key.partition(".")[0] not in sections}


def _paths(data: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Dotted paths of everything present in nested dictionaries."""
    for key, value in data.items():
        if value is None or value == ():
            continue
        yield prefix + key
        if isinstance(value, dict):
            yield from _paths(value, f"{prefix}{key}.")


def split_mig_name(name: str) -> tuple[str, str | None]:
    """``h100-mig-1g.10gb`` as ``("h100", "1g.10gb")``; a name without a MIG part as ``(name, None)``.

    ``h100:1g.10gb`` and ``h100-1g.10gb`` are read as well.
    """
    match = re.fullmatch(r"(.+?)(?:[-_ ]mig)?[-_: ]([1-7]g[.-][0-9]+gb)", name.strip(), re.IGNORECASE)
    return (match.group(1), match.group(2)) if match else (name, None)
