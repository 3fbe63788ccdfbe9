"""Standard output and error: any text on any encoding; a reader that leaves is no mistake, a full disk is told."""

from __future__ import annotations

import codecs
import contextlib
import errno
import os
import sys
from typing import TextIO

from capplan.errors import UsageError

PLAIN = {
    "×": "x", "·": "*", "–": "-", "—": "-", "−": "-", "…": "...", "≤": "<=", "≥": ">=", "≈": "~", "±": "+-", "←": "<-",
    "→": "->", "√": "sqrt ", "∛": "cbrt ", "∞": "inf", "∫": "integral ", "∂": "d", "∩": "&", "‖": "||", "½": "1/2",
    "⌈": "ceil(", "⌉": ")", "⌊": "floor(", "⌋": ")", "²": "^2", "³": "^3", "ᵀ": "^T", "Σ": "sum", "µ": "u", "μ": "u",
    "Δ": "d", "⠤": "-", "█": "#", "│": "|", "└": "+", "─": "-", "‘": "'", "’": "'", "“": '"', "”": '"',
}  # fmt: skip
"""Characters of the answers in ASCII, for encodings that lack them."""

NO_ROOM = {getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EFBIG", "EIO") if hasattr(errno, name)}
"""What a machine says that cannot keep what is written."""

_HANDLER = "capplan.plain"


class UnwritableError(UsageError):
    """Standard output, or the file that an error names, cannot be written (exit 2)."""

    def __init__(self, error: OSError) -> None:
        reason = (error.strerror or str(error)).lower()
        where = str(error.filename or "standard output")
        super().__init__(f"the answer cannot be written: {reason}", where=where, hint="write it where there is room")


def take_any_text() -> None:
    """Let standard output and error take every text: what their encoding lacks is written in ASCII."""
    codecs.register_error(_HANDLER, _plainly)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed before the program began
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - stays open to the end
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=_HANDLER)


def write(text: str) -> None:
    """Print an answer to standard output, whole.

    Raises:
        UnwritableError: the disk behind it is full; a reader that has gone away is no mistake, and not told.
    """
    try:
        print(text, flush=True)
    except OSError as error:
        silence(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            raise UnwritableError(error) from None


def tell(text: str) -> None:
    """Print what is no answer to standard error; where that cannot be written nobody is there to be told."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        silence(sys.stderr)


def silence(stream: TextIO) -> None:
    """Let the rest of a stream fall into nothing, the interpreter's last flush included."""
    with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), stream.fileno())


def _plainly(error: UnicodeError) -> tuple[str, int]:
    """The handler of what an encoding lacks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_ascii, error.object[error.start : error.end])), error.end


def _ascii(character: str) -> str:
    """A character in ASCII: as people write it, a Greek letter's name, a letter without its accent, or its number."""
    import unicodedata

    if character in PLAIN:
        return PLAIN[character]
    name = unicodedata.name(character, "")
    if name.startswith("GREEK ") and " LETTER " in name:
        return name.split(" LETTER ")[1].split()[0].lower()
    bare = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode("ascii")
    return bare or character.encode("ascii", "backslashreplace").decode("ascii")
