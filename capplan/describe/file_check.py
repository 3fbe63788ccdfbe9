"""Whether files are valid descriptions, one verdict a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capplan.errors import CapplanError


@dataclass(frozen=True)
class FileCheck:
    """The verdict on one file; `problem` is None for a valid one, else the error that reading it raises."""

    file: str
    name: str | None
    problem: dict[str, str] | None


def check_files(files: Sequence[Path], read: Callable[[Path], Any]) -> list[FileCheck]:
    """Read each file with `read`, which returns something with a name, and note what is wrong with it."""
    checks = []
    for file in files:
        try:
            checks.append(FileCheck(str(file), read(file).name, None))
        except CapplanError as error:
            checks.append(FileCheck(str(file), None, error.as_dict()))
    return checks
