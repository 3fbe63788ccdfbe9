"""Load, list and check descriptions of GPUs: from the catalog, from a file, from this machine, or ad hoc."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from capplan.describe.catalog import data_folder, find_entry, list_entries, normalise_name
from capplan.describe.file_check import FileCheck, check_files
from capplan.describe.files import suffix_of
from capplan.describe.gpu import Format, GpuSpec, Memory, split_mig_name
from capplan.describe.local_gpu import LocalDevice, local_devices
from capplan.describe.parts import hydrated
from capplan.describe.quantities import parse_bandwidth, parse_bytes, parse_flops, shown
from capplan.describe.yaml_file import read_yaml, validate
from capplan.errors import NotFoundError, UsageError, did_you_mean

MIB = 2**20
_AD_HOC_FLAGS = "--gpu-memory, --memory-bandwidth, --tflops"


def load_gpu(name: str, hardware_dirs: Sequence[Path] = ()) -> GpuSpec:
    """The GPU that ``--gpu`` names: a catalog name or alias, a YAML file, a MIG slice, or ``auto``.

    ``h100-mig-1g.10gb`` is a slice of any name that the catalog knows.

    Raises:
        NotFoundError: no such entry, file, profile or local device.
        InvalidFileError: the file is not a valid description.
        UsageError: not a name.
    """
    if name.strip().lower() == "auto":
        return detect_gpu(hardware_dirs)
    if suffix_of(name) in (".yaml", ".yml"):
        return read_gpu(Path(name))
    whole, profile = split_mig_name(name)
    if profile is None:
        return read_gpu(find_entry("hardware", name, hardware_dirs))
    return read_gpu(find_entry("hardware", whole, hardware_dirs)).mig_device(profile)


def read_gpu(path: Path) -> GpuSpec:
    """The GPU that one YAML file describes; one that ships with capplan is validated by the test suite."""
    document = read_yaml(path)
    if path.parent == data_folder("hardware"):
        try:
            return hydrated(GpuSpec, document.data)
        except ValueError:
            pass
    return validate(GpuSpec, document)


def detect_gpu(hardware_dirs: Sequence[Path] = ()) -> GpuSpec:
    """The first visible device of this machine, found in the catalog by the driver's name for it.

    Where the driver shows another amount of memory than the catalog, the machine is right.

    Raises:
        NotFoundError: no device, or one that the catalog does not have.
    """
    device = local_devices()[0]
    spec = match_device(device, [read_gpu(path) for path in list_entries("hardware", hardware_dirs)])
    if device.mig_profile:
        return spec.mig_device(device.mig_profile)
    if device.memory_mib is None or device.memory_mib == spec.memory.usable_mib:
        return spec
    memory = replace(spec.memory, usable_mib=device.memory_mib, cuda_visible_mib=None)
    known = {field: source for field, source in spec.sources.items() if not field.startswith("memory.")}
    return replace(spec, memory=memory, sources=known, notes="usable_mib is what nvidia-smi shows on this machine")


def match_device(device: LocalDevice, specs: Sequence[GpuSpec]) -> GpuSpec:
    """The description of a local device: the driver's name decides, its memory among equal names.

    Raises:
        NotFoundError: no description has this name.
    """
    wanted = normalise_name(device.name)
    same = [spec for spec in specs if wanted in map(normalise_name, spec.device_names)]
    if same:
        return min(same, key=lambda spec: abs((spec.memory.usable_mib or 0) - (device.memory_mib or 0)))
    memory = f" with {device.memory_mib} MiB" if device.memory_mib else ""
    names = [name for spec in specs for name in spec.device_names]
    raise NotFoundError(
        f"this machine's {device.name}{memory} is not in the catalog",
        where="--gpu auto",
        hint=did_you_mean(device.name, names) or f"describe it by {_AD_HOC_FLAGS}, or in a YAML file",
    )


def ad_hoc_gpu(
    memory: str | None, bandwidth: str | None, tflops: str | None, *, base: GpuSpec | None = None
) -> GpuSpec:
    """A device from ``--gpu-memory 24GiB --memory-bandwidth 1008GB/s --tflops 165``.

    ``--tflops`` is the dense 16-bit rate, or a rate per format: ``bf16=165,fp8=330``. With a `base`, the flags
    replace its figures; without one all three are needed.

    Raises:
        UsageError: a flag is missing or cannot be read.
    """
    given = {"--gpu-memory": memory, "--memory-bandwidth": bandwidth, "--tflops": tflops}
    missing = [flag for flag, value in given.items() if value is None]
    if base is None and missing:
        raise UsageError(
            f"a device without a name needs {', '.join(missing)}", where="--gpu", hint=f"give {_AD_HOC_FLAGS}"
        )
    changes: dict[str, Any] = {}
    if memory is not None:
        size = parse_bytes(memory, "--gpu-memory", unit="GiB", least=16 * MIB)
        changes |= {"label_gb": size / 2**30, "usable_mib": size // MIB, "cuda_visible_mib": size // MIB}
    if bandwidth is not None:
        changes["bandwidth"] = parse_bandwidth(bandwidth, "--memory-bandwidth")
    rates = parse_rates(tflops) if tflops is not None else {}
    if base is None:
        return GpuSpec(
            name="ad-hoc",
            title="ad hoc device",
            vendor="other",
            architecture="other",
            memory=Memory(type="unknown", **changes),
            dense_rates=rates,
        )
    return replace(base, memory=replace(base.memory, **changes), dense_rates=base.dense_rates | rates)


def parse_rates(text: str) -> dict[Format, float]:
    """``165`` as the rate of both 16-bit formats; ``bf16=165,fp8=330`` one by one; in TFLOPS unless a unit is given."""
    rates: dict[str, float] = {}
    for item in text.split(","):
        name, equals, value = item.partition("=")
        if not equals:
            if len(text.split(",")) > 1:
                raise UsageError(f"{shown(text)} mixes rates", where="--tflops", hint="write bf16=165,fp8=330")
            rate = parse_flops(item, "--tflops")
            return {"fp16": rate, "bf16": rate}
        number_format = name.strip().lower()
        formats = Format.__args__  # type: ignore[attr-defined]
        if number_format not in formats:
            hint = did_you_mean(number_format, formats) or f"one of {', '.join(formats)}"
            raise UsageError(f"{shown(name)} is not a number format", where="--tflops", hint=hint)
        rates[number_format] = parse_flops(value, "--tflops")
    return rates  # type: ignore[return-value]


@dataclass(frozen=True)
class GpuSummary:
    """One line of ``capplan gpus list``."""

    name: str
    title: str
    vendor: str
    architecture: str
    memory_gib: float
    bandwidth: float
    bf16: float | None
    fp8: float | None
    tdp_w: float | None
    confidence: str | None
    aliases: tuple[str, ...]


def summarise(spec: GpuSpec) -> GpuSummary:
    """The figures of a GPU that a list has room for."""
    return GpuSummary(
        name=spec.name,
        title=spec.title,
        vendor=spec.vendor,
        architecture=spec.architecture,
        memory_gib=spec.engine_memory / 2**30,
        bandwidth=spec.memory.bandwidth,
        bf16=spec.dense_rate("bf16"),
        fp8=spec.dense_rate("fp8"),
        tdp_w=spec.tdp_w,
        confidence=spec.confidence,
        aliases=spec.aliases,
    )


def list_gpus(hardware_dirs: Sequence[Path] = (), *, mig: bool = False) -> list[GpuSummary]:
    """Every GPU of the catalog, by name; with `mig` also every slice."""
    summaries = []
    for path in list_entries("hardware", hardware_dirs):
        spec = read_gpu(path)
        summaries.append(summarise(spec))
        if mig:
            summaries += [summarise(spec.mig_device(part.profile)) for part in spec.mig]
    return summaries


def validate_gpus(files: Sequence[Path]) -> list[FileCheck]:
    """Whether each file is a valid description, and what is wrong with the first thing that is not."""
    return check_files(files, read_gpu)
