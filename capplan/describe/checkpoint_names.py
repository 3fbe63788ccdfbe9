"""Find the model of a checkpoint whose own name the catalog lacks: its publisher and its format set aside.

``nvidia/Qwen3-32B-NVFP4`` has the architecture of ``Qwen/Qwen3-32B``, and its name says how its weights are stored.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from capplan.describe.catalog import entry_names, list_entries, normalise_name
from capplan.describe.model import ModelSpec
from capplan.describe.resolve import load_model, resolve_model
from capplan.describe.yaml_file import read_text
from capplan.errors import NotFoundError

_SUFFIXES: tuple[tuple[str, str], ...] = (
    ("(?:nv|mx)?fp4(?:-v[0-9]+)?(?:-preview)?", "fp4"),
    ("fp8(?:-(?:dynamic|block|static|static-pertensor|pertensor))?(?:-kv)?", "fp8"),
    ("(?:awq-|gptq-)?int4", "int4"),
    ("(?:w4a16|awq|gptq|autoround)(?:-g[0-9]+)?", "int4"),
    ("(?:gptq-)?int8", "int8"),
    ("(?:quantized\\.)?w8a8", "int8"),
    ("bf16", "bf16"),
    ("kv-?fp8", ""),
    ("hf", ""),
    ("gguf", ""),
)
"""Ends of names that tell a format and nothing else, and the precision that they mean."""

_ENDING = re.compile(f"[-_.](?:{'|'.join(f'(?P<s{number}>{text})' for number, (text, _) in enumerate(_SUFFIXES))})$")


@dataclass(frozen=True)
class NamedCheckpoint:
    """A model, and what its checkpoint's name says beside it.

    Args:
        spec: the model.
        precision: that the name tells; empty: none.
        assumption: in words, where the catalog has another checkpoint of the same model; empty: it has this one.
    """

    spec: ModelSpec
    precision: str = ""
    assumption: str = ""


def find_checkpoint(
    reference: str, *, models_dirs: Sequence[Path] = (), ignore_keys: Collection[str] = ()
) -> NamedCheckpoint:
    """The model of a reference as for ``--model``, else of the checkpoint that it is another format of.

    Raises:
        CapplanError: no such model, or a description that is wrong.
    """
    try:
        return NamedCheckpoint(resolve_model(reference, models_dirs=models_dirs, ignore_keys=ignore_keys).spec)
    except NotFoundError:
        base, precision = without_format(normalise_name(reference).rpartition("/")[2])
        path = _entry(base, models_dirs)
        if path is None:
            raise
        spec = load_model(path)
        assumption = f"{reference} has the architecture of {spec.huggingface_id or spec.name}"
        return NamedCheckpoint(spec, precision, assumption)


def without_format(name: str) -> tuple[str, str]:
    """A name without the ends that tell its format, and the precision that they mean."""
    precision = ""
    while (found := _ENDING.search(name)) is not None and found.start():
        number = int(str(found.lastgroup)[1:])
        precision = precision or _SUFFIXES[number][1]
        name = name[: found.start()]
    return name, precision


def _entry(base: str, models_dirs: Sequence[Path]) -> Path | None:
    """The entry one of whose names, without a publisher, is `base`."""
    paths = list_entries("models", models_dirs)
    for path in paths:
        if normalise_name(path.stem) == base:
            return path
    for path in paths:
        if base in read_text(path).lower() and base in {name.rpartition("/")[2] for name in entry_names(path)}:
            return path
    return None
