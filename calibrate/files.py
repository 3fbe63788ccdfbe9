"""Where a calibration's files go, and writing them so that a half-written one is never left behind."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

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
    part = _part(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.touch()
        part.unlink()
    except OSError as error:
        raise _unwritable(path, error, "--out") from None


def write_whole(path: Path, text: str, flag: str = "--out") -> None:
    """Write a text under its name only once all of it is on disk.

    What is no plain file, a device, a pipe or a link, is written to as it is, and never replaced by a file.

    Args:
        path: the file.
        text: what it is to hold.
        flag: the option that named it.

    Raises:
        InvalidFileError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink() or (path.exists() and not path.is_file()):
            path.write_text(text, encoding="utf-8")
        else:
            _replace(path, text)
    except OSError as error:
        raise _unwritable(path, error, flag) from None


def _replace(path: Path, text: str) -> None:
    """Put a file in the place of another that may be there, whole or not at all."""
    part = _part(path)
    try:
        with part.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def _part(path: Path) -> Path:
    """Where a file lies until it is whole."""
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def _unwritable(path: Path, error: OSError, flag: str) -> InvalidFileError:
    return InvalidFileError(
        f"{path.name} cannot be written: {error.strerror or error}", where=str(path), hint=f"choose another {flag}"
    )
