"""Where a calibration's files go, and writing them so that a half-written one is never left behind."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from capplan.describe.files import part_of, put_whole
from capplan.errors import InvalidFileError, UsageError

FOLDER = Path("calibration")
"""Root of what a run writes where nothing else is said: ``CAPPLAN_PATH=calibration`` then finds it."""

_NAME = re.compile(r"[a-z0-9]+([.-][a-z0-9]+){0,20}")


@dataclass(frozen=True)
class Files:
    """The files of one calibration.

    Args:
        profile: the profile.
        samples: every raw sample.
    """

    profile: Path
    samples: Path

    @property
    def name(self) -> str:
        """The device's name: that of the profile's file."""
        return self.profile.name.removesuffix(".yaml")

    @property
    def device(self) -> Path:
        """The description of the device: a folder up where the profile lies in ``profiles``."""
        folder = self.profile.parent
        if folder.name == "profiles":
            return folder.parent / self.profile.name
        return folder / f"{self.name}.device.yaml"

    @property
    def markdown(self) -> Path:
        """The report for a terminal."""
        return self.profile.with_name(f"{self.name}.report.md")

    @property
    def html(self) -> Path:
        """The report with its plots."""
        return self.profile.with_name(f"{self.name}.report.html")


def files_for(out: Path | None, samples: Path | None, name: str) -> Files:
    """The files of a device's calibration.

    Args:
        out: the profile, as the user wants it.
        samples: the samples, likewise.
        name: of the device.

    Raises:
        UsageError: the profile's name is none that a device may have.
    """
    profile = out or FOLDER / "hardware" / "profiles" / f"{name}.yaml"
    stem = profile.name.removesuffix(".yaml")
    if profile.suffix != ".yaml" or not _NAME.fullmatch(stem):
        raise UsageError(
            f"{profile.name[:60]!r} is not a profile's name", where="--out", hint="lower case, such as my-h200.yaml"
        )
    return Files(profile, samples or profile.with_name(f"{stem}.samples.jsonl"))


def check_writable(path: Path) -> None:
    """Return if a file can be written under a name, which is found out before anything is measured.

    Raises:
        InvalidFileError: it cannot.
    """
    part = part_of(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.touch()
        part.unlink()
    except OSError as error:
        raise _unwritable(path, error, "--out") from None


def write_whole(path: Path, text: str, flag: str = "--out") -> None:
    """Write a text whole or not at all (`capplan.describe.files.put_whole`), into a folder that is made for it.

    Args:
        path: the file.
        text: what it is to hold.
        flag: the option that named it.

    Raises:
        InvalidFileError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        put_whole(path, text)
    except OSError as error:
        raise _unwritable(path, error, flag) from None


def _unwritable(path: Path, error: OSError, flag: str) -> InvalidFileError:
    return InvalidFileError(
        f"{path.name} cannot be written: {error.strerror or error}", where=str(path), hint=f"choose another {flag}"
    )
