"""Settings that a log prints as Python text, or as the command that started the server.

``model='x', dtype=torch.bfloat16, cache=Config(a=1)`` and ``{'model': 'x', 'cache': {'a': 1}}`` both hold the outermost
pairs ``model``, (``dtype``) and ``cache``; what stands inside brackets belongs to the value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

_KEY = re.compile(r"\s*(?:['\"]([\w.-]{1,80})['\"]\s{0,20}:|([\w.-]{1,80})=)")
_OPEN, _CLOSE = "([{", ")]}"


@dataclass(frozen=True, slots=True)
class LogSetting:
    """One setting, and where it stands.

    Args:
        name: the name of vLLM's flag in snake case, as everywhere in capplan.
        value: a number, a word, or whether.
        line: its line in the log.
        text: how the log writes it.
    """

    name: str
    value: int | float | str | bool
    line: int
    text: str


def outermost_pairs(text: str) -> Iterator[tuple[str, str]]:
    """Names and raw values at the outermost level of ``a=1, b=2`` or ``'a': 1, 'b': 2``; ends at a closing bracket."""
    for item in _items(text):
        match = _KEY.match(item)
        if match is not None:
            yield match[1] or match[2], item[match.end() :].strip()


def _items(text: str) -> Iterator[str]:
    depth = start = 0
    quote = ""
    skip = False
    for position, character in enumerate(text):
        if skip:
            skip = False
        elif quote:
            skip = character == "\\"
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in _OPEN:
            depth += 1
        elif character in _CLOSE:
            depth -= 1
            if depth < 0:
                yield text[start:position]
                return
        elif character == "," and depth == 0:
            yield text[start:position]
            start = position + 1
    yield text[start:]


def plain_value(raw: str) -> int | float | str | bool | None:
    """A Python literal as a value: whole numbers, numbers, booleans, strings, and words such as ``torch.bfloat16``.

    None for ``None`` and for what is none of these.
    """
    if raw in ("True", "False"):
        return raw == "True"
    if re.fullmatch(r"-?\d{1,18}", raw):
        return int(raw)
    if re.fullmatch(r"-?\d{1,18}\.\d{0,18}(?:e-?\d{1,3})?", raw):
        return float(raw)
    quoted = re.fullmatch(r"'([^'\n]{1,500})'|\"([^\"\n]{1,500})\"", raw)
    if quoted is not None:
        return quoted[1] or quoted[2]
    word = re.fullmatch(r"(?:torch\.)?([A-Za-z/~.][^\s'\"(){}\[\],]{0,500})", raw)
    return word[1] if word is not None and raw != "None" else None


def known_settings(pairs: Iterable[tuple[str, str]], names: Mapping[str, str], line: int) -> list[LogSetting]:
    """The settings of `pairs` that `names` knows, under the names that it gives them; values of None are left out."""
    found = []
    for key, raw in pairs:
        value = plain_value(raw) if key in names else None
        if value is not None:
            found.append(LogSetting(names[key], value, line, f"{key}={raw[:200]}"))
    return found


def command_settings(text: str, names: Mapping[str, str], line: int) -> list[LogSetting]:
    """The settings of a command line: ``--flag value``, ``--flag=value``, ``--flag``, with ``-`` or ``_`` inside."""
    words = text.split()
    found = []
    for index, word in enumerate(words):
        if not word.startswith("-"):
            continue
        flag, equals, raw = word.partition("=")
        name = names.get(flag.lstrip("-").replace("-", "_"))
        if name is None:
            continue
        if not equals:
            following = words[index + 1] if index + 1 < len(words) else ""
            raw = "True" if not following or following.startswith("-") else following
        value = plain_value(raw.strip("'\"`"))
        if value is not None:
            found.append(LogSetting(name, value, line, f"{flag} {raw[:200]}"))
    return found
