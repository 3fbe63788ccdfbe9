"""What measured kernels of one GPU come to: fitted constants, how good they are, and where they hold.

A profile is a file of ``hardware/profiles/``. Its efficiencies are shares of the datasheet figures that stand in it,
so that a GPU without a profile can take a relative's constants with figures of its own (`capplan.describe.
profile_choice`); how far that went wrong where it could be tried stands in the profile as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from capplan.describe.catalog import data_folder, find_entry, list_entries
from capplan.describe.closed_loop import ClosedLoop
from capplan.describe.engine_times import EngineTimes
from capplan.describe.gpu import Architecture, Count, EntryName, Format, GpuSpec, Matching, Positive, Source, Text
from capplan.describe.parts import Part, hydrated
from capplan.describe.profile_table import KINDS, KernelFit, Kind, Spread, TableError, parse_table
from capplan.describe.yaml_file import Document, read_yaml, validate
from capplan.errors import InvalidFileError, NotFoundError

LinkKind = Literal["scale_up", "pcie"]
Relation = Literal["same_architecture", "other_architecture", "other_vendor"]
KindName = Literal[
    "gemm", "grouped_gemm", "prefill_attention", "decode_attention", "mla_prefill", "mla_decode", "collective",
    "rows", "recurrence",
]  # fmt: skip


@dataclass(frozen=True)
class TableText:
    """The text of a table: as long as it must be."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.str_schema(strict=True)


@dataclass(frozen=True, kw_only=True)
class RatedHardware(Part):
    """The datasheet figures that a profile's efficiencies are shares of."""

    architecture: Architecture
    compute_capability: Annotated[str, Matching(r"[0-9]+\.[0-9]")] | None = None
    dense_rates: dict[Format, Positive]
    """FLOP/s by operand format."""
    bandwidth: Positive
    """B/s of device memory."""
    compute_units: Count
    """Streaming multiprocessors."""
    link: Positive | None = None
    """B/s of one GPU's links in one direction."""
    link_kind: LinkKind | None = None
    overlap: Positive | None = None
    """How far arithmetic and memory hide each other in a product: 1 not at all; None: as on GPUs (`gemm_time`)."""


@dataclass(frozen=True, kw_only=True)
class CarriedError(Part):
    """What carrying the constants of one kind of kernel cost on GPUs that have measurements of their own."""

    kind: KindName
    relation: Relation
    tried_on: tuple[EntryName, ...]
    points: Count
    median: Positive
    """Of |predicted/measured − 1|."""
    p90: Positive
    low: Positive
    """10th percentile of measured/predicted."""
    high: Positive
    """90th percentile of measured/predicted."""

    @property
    def spread(self) -> Spread:
        """The error in the form of a fit's residuals."""
        return Spread(self.median, self.p90, self.low, self.high)


@dataclass(frozen=True, kw_only=True)
class Profile(Part):
    """One GPU's measured kernels, as a file of ``hardware/profiles/`` has them."""

    schema: Literal[1] = 1
    name: EntryName
    """The GPU's name in ``hardware/``."""
    title: Text
    aliases: tuple[Text, ...] = ()
    fitted: Annotated[str, Matching(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")]
    source: Source
    """Of the measurements."""
    hardware: RatedHardware
    notes: Text | None = None
    carried_errors: tuple[CarriedError, ...] = ()
    tables: dict[KindName, Annotated[str, TableText()]]
    """A table a kind of kernel; see `capplan.describe.profile_table`."""
    engine_times: dict[EntryName, EngineTimes] = field(default_factory=dict)
    """What an engine adds to its kernels on this device, where that was measured too."""
    closed_loop: ClosedLoop | None = None
    """Whole models predicted by this profile and then measured; None: not tried."""
    provenance: dict[EntryName, Text] = field(default_factory=dict)
    """Driver, software, clocks: whatever the measurements hang on."""

    def fits(self, kind: Kind) -> tuple[KernelFit, ...]:
        """The fits of one kind of kernel; none where the profile has no such table.

        Raises:
            TableError: a line of the table is wrong (`load_profile` has checked a user's file for that).
        """
        return parse_table(kind, self.tables.get(kind, ""))

    def all_fits(self) -> tuple[KernelFit, ...]:
        """Every fit of every kind."""
        return tuple(fit for kind in KINDS.values() for fit in self.fits(kind.name))


def rated_hardware(gpu: GpuSpec) -> RatedHardware | None:
    """The figures of a GPU that laws refer to, or None where its description lacks the number of multiprocessors."""
    if gpu.compute_units is None:
        return None
    link = gpu.link.per_direction if gpu.link else gpu.pcie.per_direction if gpu.pcie else None
    return RatedHardware(
        architecture=gpu.architecture,
        compute_capability=gpu.compute_capability,
        dense_rates=dict(gpu.dense_rates),
        bandwidth=gpu.memory.bandwidth,
        compute_units=gpu.compute_units,
        link=link,
        link_kind=None if link is None else "scale_up" if gpu.link else "pcie",
    )


def load_profile(name: str, profile_dirs: Sequence[Path] = ()) -> Profile:
    """The profile of this name (a GPU's name or alias) or of this YAML file.

    Raises:
        NotFoundError: no such profile or file.
        InvalidFileError: the file is not a valid profile.
    """
    if name.endswith((".yaml", ".yml")):
        return read_profile(Path(name))
    return read_profile(find_entry("profiles", name, profile_dirs))


def list_profiles(profile_dirs: Sequence[Path] = ()) -> list[Profile]:
    """Every profile, by name; one of an earlier folder hides one of the same name."""
    return [read_profile(path) for path in list_entries("profiles", profile_dirs)]


def read_profile(path: Path) -> Profile:
    """The profile of one YAML file; one that ships with capplan is validated by the test suite.

    Raises:
        NotFoundError: no such file.
        InvalidFileError: not a valid profile; the place is the line of the table that is wrong.
    """
    try:
        modified = path.stat().st_mtime_ns
    except OSError:
        modified = 0
    return _read_once(path, modified)


@lru_cache(maxsize=64)
def _read_once(path: Path, _modified: int) -> Profile:
    document = read_yaml(path)
    if _ships(path):
        try:
            return hydrated(Profile, document.data)
        except ValueError:
            pass
    profile = validate(Profile, document)
    for kind in profile.tables:
        _check_table(profile, kind, document)
    return profile


def _ships(path: Path) -> bool:
    try:
        return path.parent == data_folder("profiles")
    except NotFoundError:
        return False


def _check_table(profile: Profile, kind: KindName, document: Document) -> None:
    try:
        profile.fits(kind)
    except TableError as error:
        line, _ = document.marks[("tables", kind)]
        where = f"{document.path}:{line + 1 + error.line}:1"
        raise InvalidFileError(str(error), where=where, hint="`capplan profiles show` prints a valid table") from None
