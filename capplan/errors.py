"""The one error type for the user's mistakes, and its exit codes.

Every mistake that a user can make ends as a `CapplanError`: what is wrong, where
(a flag or ``file:line:column``), how to mend it, and the exit code of the process.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CapplanError(Exception):
    """A mistake of the user's, told in one block.

    Args:
        message: what is wrong, with what was expected.
        where: the flag, or ``file:line:column``, or a dotted path inside a document.
        hint: the nearest valid name, or the change that mends it.
    """

    kind = "error"
    exit_code = 2

    def __init__(self, message: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    def as_dict(self) -> dict[str, str]:
        """The error as the object that stands under ``error`` in JSON output."""
        return {"kind": self.kind, "message": self.message, "hint": self.hint, "where": self.where}


class UsageError(CapplanError):
    """A flag, an argument or a combination of them that cannot be obeyed (exit 2)."""

    kind = "usage"
    exit_code = 2


class InvalidFileError(CapplanError):
    """A file whose content is malformed or contradicts itself (exit 2)."""

    kind = "invalid_file"
    exit_code = 2


class NotFoundError(CapplanError):
    """A model, GPU, price, file or network resource that is not there (exit 3)."""

    kind = "not_found"
    exit_code = 3


class UnsupportedError(CapplanError):
    """An architecture or format that capplan does not understand and will not guess (exit 4)."""

    kind = "unsupported"
    exit_code = 4


def did_you_mean(name: str, valid: Iterable[str], *, most: int = 3) -> str:
    """A hint that names the valid names nearest to `name`, or nothing when none is near."""
    near = difflib.get_close_matches(name.lower(), sorted(set(valid)), n=most, cutoff=0.5)
    return f"did you mean {', '.join(near)}?" if near else ""
