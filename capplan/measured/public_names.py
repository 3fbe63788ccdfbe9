"""What public tables call things, and what they are called here: data in ``public_names.yaml``.

A name is compared in lower case, with blanks, ``_`` and ``-`` alike, and without what it has in brackets. Names that
the file lacks are given back as they are: the catalog may know them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from capplan.describe.yaml_file import read_yaml
from capplan.errors import UsageError

_FILE = Path(__file__).parent / "public_names.yaml"
_BRACKETS = re.compile(r"\s*[\[(][^()\[\]]*[\])]")
_GGML = re.compile(r"\b(I?Q[1-8]_(?:K(?:_(?:S|M|L|XL))?|[01]|[A-Z0-9]{1,4}))\b", re.IGNORECASE)
_TUNED = re.compile(
    r"[-_. ](?:instruct|chat|it|base|sft|dpo|qat|thinking|exp|preview|hf|gguf|"
    r"q[1-8][-_](?:[01]|k(?:[-_][sml])?)|v?[0-9]{4})$",
    re.IGNORECASE,
)
_PUBLISHER = re.compile(r"^[\w.-]{1,80}/")

KINDS = ("models", "engines", "gpus", "precisions")


@lru_cache(maxsize=1)
def public_names() -> dict[str, dict[str, str]]:
    """The file's names, as they are compared: kind: theirs: ours."""
    data = read_yaml(_FILE).data
    return {kind: {_plain(theirs): str(ours) for theirs, ours in data[kind].items()} for kind in KINDS}


def engine_named(name: str) -> str:
    """The engine of a table's name.

    Raises:
        UsageError: one that is not described.
    """
    known = public_names()["engines"]
    for text in (name, without_brackets(name)):
        found = known.get(_plain(text))
        if found is not None:
            return found
    raise UsageError(f"{name[:60]} is not an engine that capplan describes", where="engine")


def gpu_named(name: str) -> str:
    """The GPU of a table's name, without what stands in brackets where the catalog lacks that."""
    return public_names()["gpus"].get(_plain(name), name)


def models_named(name: str) -> tuple[str, ...]:
    """What a table's model may be called in the catalog, the nearest first: as it is, without its tuning's name."""
    known: Mapping[str, str] = public_names()["models"]
    tried = [name]
    base = name
    while (shorter := _TUNED.sub("", base)) != base:
        base = shorter
        tried.append(base)
    found: list[str] = []
    for text in tried:
        plain = _plain(_PUBLISHER.sub("", text))
        found += [known[plain]] if plain in known else [text]
    return tuple(dict.fromkeys(found))


def precision_named(text: str, engine: str = "") -> str | None:
    """The precision or weight dtype of a table's text; None: as the checkpoint has it.

    Raises:
        UsageError: no such format.
    """
    if not text.strip():
        return None
    ggml = _GGML.search(text)
    if ggml is not None:
        return f"gguf:{ggml[1].upper()}"
    known = public_names()["precisions"]
    for candidate in (text, without_brackets(text), _inside(text), text.rpartition(" ")[2]):
        if candidate and _plain(candidate) in known:
            found = known[_plain(candidate)]
            return "fp8-tensor-static" if found == "fp8" and engine == "trtllm" else found or None
    if "mxfp4" in text.lower():
        return "fp4"
    return text.strip()


def without_brackets(text: str) -> str:
    """A name without what it has in brackets."""
    return _BRACKETS.sub("", text).strip()


def _inside(text: str) -> str:
    found = re.search(r"\(([^()]{1,60})\)", text)
    return found[1] if found else ""


def _plain(text: str) -> str:
    return re.sub(r"[\s_-]+", " ", text.strip()).lower()
