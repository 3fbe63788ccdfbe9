"""A `ModelSpec` as the YAML file that a person would write: what has its default is left out."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

import yaml

from capplan.describe.files import put_whole, writing
from capplan.describe.model import ModelSpec
from capplan.describe.yaml_file import parse_yaml

_FIRST = ("schema", "name", "aliases", "huggingface_id", "model_type", "dtype", "max_positions", "cache_positions")
_LAST = ("towers", "quantisation", "assumptions", "sources")
_OWN = ("schema", "name", "aliases", "huggingface_id", "assumptions", "sources", "quantisation")
_ALWAYS_OPEN = ("blocks", "towers", "sources", "encoder", "mtp", "quantisation")
_AFTER_A_GAP = ("dtype", "hidden_size", "towers", "assumptions", "sources", "mtp", "encoder", "quantisation")
_MOST_INLINE = 118


def model_data(spec: ModelSpec) -> dict[str, Any]:
    """The description as plain data, without what has its default."""
    data: dict[str, Any] = _plain(spec)
    data = {"schema": 1, **data}
    order = [*_FIRST, *(key for key in data if key not in _FIRST and key not in _LAST), *_LAST]
    return {key: data[key] for key in order if key in data}


def model_yaml(spec: ModelSpec, *, base: ModelSpec | None = None) -> str:
    """The text of the file: small mappings on one line each, blank lines between the parts.

    Args:
        spec: the model.
        base: a description that the file may lean on: what is equal there is left out.
    """
    lines: list[str] = []
    data = model_data(spec)
    if base is not None:
        other = model_data(base)
        kept = {key: value for key, value in data.items() if key in _OWN or value != other.get(key)}
        data = {"schema": 1, "base": base.name, **kept}
    for key, value in data.items():
        if key in _AFTER_A_GAP and lines:
            lines.append("")
        lines += _emit(key, value, 0)
    return "\n".join(lines) + "\n"


def write_model(spec: ModelSpec, path: Path) -> None:
    """Write the file whole or not at all."""
    write_text(path, model_yaml(spec))


def write_text(path: Path, text: str) -> None:
    """Write a text whole or not at all; see `capplan.describe.files.put_whole`.

    Raises:
        UsageError: the folder is missing, read-only or full.
    """
    with writing(path, "--output"):
        put_whole(path, text)


def _plain(part: Any) -> Any:
    if is_dataclass(part) and not isinstance(part, type):
        data = {}
        for field in fields(part):
            value = getattr(part, field.name)
            default = field.default if field.default_factory is MISSING else field.default_factory()
            if field.name != "kind" and value == default:
                continue
            data[field.name] = _plain(value)
        for name in ("mixer", "ffn"):
            if isinstance(data.get(name), list) and len(data[name]) == 1:
                data[name] = data[name][0]
        return data
    if isinstance(part, (list, tuple)):
        return [_plain(item) for item in part]
    if isinstance(part, dict):
        return {key: _plain(item) for key, item in part.items()}
    return part


def _emit(key: str, value: Any, depth: int) -> list[str]:
    """The lines of one key: on one line where it fits and holds no long inner mapping, else indented below."""
    pad = "  " * depth
    head = f"{pad}{_scalar(key)}:"
    inline = f"{head} {_inline(value)}"
    nested = isinstance(value, dict) and any(isinstance(item, (dict, list)) and item for item in value.values())
    keep_open = depth == 0 and isinstance(value, dict) and key in _ALWAYS_OPEN
    if (
        not isinstance(value, (dict, list))
        or not value
        or (len(inline) <= _MOST_INLINE and not nested and not keep_open)
    ):
        return [inline]
    if isinstance(value, list):
        return [head, *(f"{pad}  - {_inline(item)}" for item in value)]
    return [head, *(line for name, item in value.items() for line in _emit(name, item, depth + 1))]


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(key)}: {_inline(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_inline(item) for item in value) + "]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    """A scalar that reads back as itself; text is quoted where it must be."""
    if value is True or value is False:
        return str(value).lower()
    if not isinstance(value, str):
        return "null" if value is None else str(value)
    plain = (
        value.isprintable() and value == value.strip() and value != "" and not set(value) & set("{}[],#&*!|>'\"%@`\\")
    )
    if plain and ": " not in value and not value.endswith(":") and not value.startswith(("- ", "? ", "-", "?")):
        back = parse_yaml(f"a: {value}\n", Path("scalar")).data["a"]
        if back == value and isinstance(back, str):
            return value
    quoted: str = yaml.safe_dump(value, default_style='"', width=10**6, allow_unicode=True)
    return quoted.removesuffix("\n")
