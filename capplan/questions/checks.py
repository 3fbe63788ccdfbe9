"""The answer of every ``validate`` command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from capplan.describe.file_check import FileCheck
from capplan.errors import InvalidFileError
from capplan.questions.answer import Answer


@dataclass(frozen=True)
class FileChecks:
    """One verdict a file."""

    files: tuple[FileCheck, ...]


def check_answer(command: str, files: Sequence[Path], checks: Sequence[FileCheck]) -> Answer[FileChecks]:
    """The verdicts; the exit code says that a file is invalid."""
    invalid = any(check.problem for check in checks)
    return Answer(
        command,
        {"files": [str(file) for file in files]},
        FileChecks(tuple(checks)),
        exit_code=InvalidFileError.exit_code if invalid else 0,
    )
