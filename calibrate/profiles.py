"""Builds profiles from the public kernel tables: one GPU (`import_kernels`), or all that ship (`rebuild`).

``python -m calibrate.profiles DIR`` rebuilds every profile of ``hardware/profiles/`` from the tables in DIR
(``pip install aiconfigurator-core==0.12.0 --no-deps --target DIR``). Needs the ``fit`` extra.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from calibrate.carrying import Measured, carried_errors
from calibrate.files import write_whole
from calibrate.fit import FitError
from calibrate.kept import tables_of, with_what_was_there
from calibrate.kernel_fit import fit_group
from calibrate.kernel_groups import Group, groups_of
from calibrate.profile_text import hardware_lines, local_lines, quoted
from capplan.describe.gpu import GpuSpec, Source
from capplan.describe.gpu_catalog import load_gpu
from capplan.describe.profile import Profile, RatedHardware, rated_hardware
from capplan.describe.profile_table import KINDS, KernelFit
from capplan.errors import UnsupportedError, UsageError
from capplan.measured.kernel_tables import TableFile, data_folder, find_tables, gpus_of, newest, read_table

SHIPPED = (
    "a100_sxm",
    "h100_sxm",
    "h200_sxm",
    "b200_sxm",
    "b300_sxm",
    "gb200",
    "gb300",
    "l40s",
    "rtx_pro_6000_server",
)
"""The GPUs whose profiles ship, by the tables' names."""


@dataclass(frozen=True)
class Imported:
    """What came of a GPU's tables.

    Args:
        profile: the profile.
        groups: the measurements, as they were fitted.
        left_out: rows that were not trusted, by rule.
        refused: groups that have no fit, with the reason.
    """

    profile: Profile
    groups: tuple[Group, ...]
    left_out: dict[str, int]
    refused: tuple[str, ...]


def import_kernels(
    tables: Path, gpu: str, out: Path, *, hardware_dirs: Sequence[Path] = (), fitted: str | None = None
) -> tuple[Imported, Path]:
    """Fit a GPU's profile to its public kernel tables, and write it.

    A file that is there keeps what the tables do not replace: kernels of engines that they don't have, engines' terms,
    the closed loop with its provenance, and the errors of carrying, which need the other GPUs' tables to be measured.

    Args:
        tables: the installed package of tables, or the folder within it that holds a folder a GPU.
        gpu: the tables' name (``h100_sxm``), or any of the GPU's names in the catalog.
        out: the folder to write into.
        hardware_dirs: more folders with descriptions of GPUs.
        fitted: the date to write; today by default.

    Returns:
        What was imported, and the file it was written to.

    Raises:
        NotFoundError: no such folder, tables or GPU.
        InvalidFileError: a table that is not readable.
        UsageError: pyarrow or scipy is not installed.
    """
    name = table_name(tables, gpu, hardware_dirs)
    imported = build_profile(tables, name, load_gpu(name, hardware_dirs), fitted=fitted)
    path = out / f"{imported.profile.name}.yaml"
    profile, lost = with_what_was_there(imported.profile, path)
    imported = replace(imported, profile=profile, refused=(*imported.refused, *([lost] if lost else [])))
    write_profile(imported.profile, out)
    return imported, path


def rebuild(
    tables: Path, out: Path, *, names: Sequence[str] = SHIPPED, fitted: str | None = None
) -> Iterator[Imported]:
    """Build the profiles of several GPUs and what carrying each to the others costs, and write them all."""
    built = [build_profile(tables, name, load_gpu(name), fitted=fitted) for name in names]
    measured = [Measured(one.profile, one.groups) for one in built]
    for one in built:
        profile = replace(one.profile, carried_errors=carried_errors(one.profile, measured))
        write_profile(profile, out)
        yield replace(one, profile=profile)


def table_name(tables: Path, gpu: str, hardware_dirs: Sequence[Path] = ()) -> str:
    """The tables' name of a GPU that is given by that name, or by one of the catalog's.

    Raises:
        NotFoundError: the catalog has no such GPU, or the tables don't.
    """
    known = gpus_of(data_folder(tables))
    name = gpu.strip().lower().replace("-", "_")
    if name in known:
        return name
    wanted = load_gpu(gpu, hardware_dirs)
    names = {alias.replace("-", "_") for alias in (wanted.name, *wanted.aliases)}
    return next((one for one in known if one in names), name)


def build_profile(tables: Path, name: str, gpu: GpuSpec, *, fitted: str | None = None) -> Imported:
    """A GPU's profile from its tables, without the errors of carrying.

    Raises:
        NotFoundError: no tables of that name.
        UnsupportedError: the GPU's description lacks the figures that laws need.
    """
    _need_scipy()
    hardware = rated_hardware(gpu)
    if hardware is None:
        raise UnsupportedError(f"the description of {gpu.name} has no number of multiprocessors", where="--gpu")
    found = list(newest(find_tables(tables, name)))
    groups = [group for table in found for group in groups_of(table)]
    left_out = sum((Counter(table.left_out) for table in found), Counter())
    fits, refused = _fit_all(groups, hardware)
    today = datetime.date.today().isoformat()
    profile = Profile(
        name=gpu.name,
        title=f"Measured kernels of the {gpu.title}",
        aliases=gpu.aliases,
        fitted=fitted or today,
        source=Source(source=f"{tables_title(tables)}, systems/data/{name}", date=fitted or today),
        hardware=hardware,
        notes=_notes(left_out, refused),
        tables=tables_of([fit for some in fits.values() for fit in some]),
    )
    return Imported(profile, tuple(groups), dict(left_out), tuple(refused))


def build_tables(files: Sequence[TableFile], hardware: RatedHardware) -> tuple[list[Group], list[KernelFit]]:
    """The groups of some tables, whatever their version, and the fits of those that have one."""
    groups = [group for file in files for group in groups_of(read_table(file))]
    fits, _ = _fit_all(groups, hardware)
    return groups, [fit for found in fits.values() for fit in found]


def _fit_all(groups: Sequence[Group], hardware: RatedHardware) -> tuple[dict[str, list[KernelFit]], list[str]]:
    fits: dict[str, list[KernelFit]] = {}
    refused = []
    for group in groups:
        try:
            fits.setdefault(group.kind, []).append(fit_group(group, hardware))
        except (FitError, UnsupportedError) as error:
            refused.append(f"{label(group)}: {error.message}")
    return fits, refused


def label(group: Group) -> str:
    """A group in words: its kind and the parts of its key that are not empty."""
    parts = [str(getattr(group.key, name)) for name in KINDS[group.kind].keys]
    return " ".join([group.kind, *(part for part in parts if part not in ("", "0"))])


def tables_title(tables: Path) -> str:
    """The package of tables and its version, as far as the folder tells."""
    folder = data_folder(tables)
    for parent in (folder, *folder.parents):
        for metadata in sorted(parent.glob("aiconfigurator_core-*.dist-info")):
            return f"aiconfigurator-core {metadata.name.split('-')[1].removesuffix('.dist')} (Apache-2.0)"
    return f"kernel tables in {folder.name}"


def _notes(left_out: Counter[str], refused: Sequence[str]) -> str:
    counts = ", ".join(f"{count} {name}" for name, count in sorted(left_out.items()))
    text = f"rows left out: {counts or 'none'}"
    return f"{text}; not fitted: {'; '.join(refused)}"[:1900] if refused else text


def write_profile(profile: Profile, out: Path) -> Path:
    """Write a profile as YAML into a folder, and return its path."""
    path = out / f"{profile.name}.yaml"
    write_whole(path, profile_yaml(profile))
    return path


def profile_yaml(profile: Profile) -> str:
    """A profile as YAML: its heading, what carrying it costs, and a block of text a table."""
    lines = [
        "schema: 1",
        f"name: {profile.name}",
        f"title: {quoted(profile.title)}",
        f"aliases: [{', '.join(profile.aliases)}]",
        f"fitted: {profile.fitted}",
        f"source: {{source: {quoted(profile.source.source)}, date: {profile.source.date}}}",
        *([f"notes: {quoted(profile.notes)}"] if profile.notes else []),
        "",
        *hardware_lines(profile.hardware),
        "",
        *local_lines(profile),
        *_carried_lines(profile),
        "tables:" if profile.tables else "tables: {}",
    ]
    for kind, table in profile.tables.items():
        lines += [f"  {kind}: |", *(f"    {line}" for line in table.splitlines())]
    return "\n".join(lines) + "\n"


def _carried_lines(profile: Profile) -> list[str]:
    if not profile.carried_errors:
        return []
    lines = ["carried_errors:  # of these constants on GPUs that have measurements of their own"]
    for error in profile.carried_errors:
        figures = f"median: {error.median:.3g}, p90: {error.p90:.3g}, low: {error.low:.3g}, high: {error.high:.3g}"
        lines.append(
            f"  - {{kind: {error.kind}, relation: {error.relation}, tried_on: [{', '.join(error.tried_on)}], "
            f"points: {error.points}, {figures}}}"
        )
    return [*lines, ""]


def _need_scipy() -> None:
    try:
        import scipy  # noqa: F401
    except ImportError:
        raise UsageError("fitting needs scipy", where="import-kernels", hint="pip install 'capplan[fit]'") from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Rebuild the profiles that ship; tells on stderr what was left out and refused."""
    parser = argparse.ArgumentParser(prog="python -m calibrate.profiles", description=main.__doc__)
    parser.add_argument("tables", type=Path, help="folder of the installed aiconfigurator-core 0.12.0")
    parser.add_argument("--out", type=Path, default=Path("hardware/profiles"))
    parser.add_argument("--gpu", action="append", choices=SHIPPED, help="one of them, and not its carrying")
    parser.add_argument("--date", help="the date to write, YYYY-MM-DD; today by default")
    options: Any = parser.parse_args(arguments)
    if options.gpu:
        results = [import_kernels(options.tables, name, options.out, fitted=options.date)[0] for name in options.gpu]
    else:
        results = list(rebuild(options.tables, options.out, fitted=options.date))
    for one in results:
        print(f"{one.profile.name}: {one.profile.notes}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
