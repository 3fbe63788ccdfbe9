"""``config.json`` -> `ModelSpec`: the table of architectures, and the way through it."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from capplan.describe.config import Config
from capplan.describe.families import FAMILIES, reader
from capplan.describe.model import ModelSpec
from capplan.describe.yaml_file import read_text
from capplan.errors import InvalidFileError, UnsupportedError, did_you_mean

MAX_JSON_DEPTH = 40


def read_config_file(path: Path, *, name: str | None = None, ignore_keys: Collection[str] = ()) -> ModelSpec:
    """The model that a ``config.json`` describes; its name is the folder's or the file's unless told."""
    data = parse_json(read_text(path), str(path))
    stem = path.resolve().parent.name if path.name == "config.json" else path.stem
    return read_config(data, where=str(path), name=name or stem or "model", ignore_keys=ignore_keys)


def read_config(data: dict[str, Any], *, where: str, name: str, ignore_keys: Collection[str] = ()) -> ModelSpec:
    """The model that a parsed configuration describes.

    Raises:
        UnsupportedError: a model type or a key that is not understood, or a size that is missing.
        InvalidFileError: a value that contradicts its key.
    """
    model_type = data.get("model_type")
    if not isinstance(model_type, str):
        raise UnsupportedError("the configuration has no model_type", where=where)
    if model_type not in FAMILIES:
        raise UnsupportedError(
            f"the model type {model_type!r} is not supported",
            where=f"{where}: model_type",
            hint=did_you_mean(model_type, FAMILIES),
        )
    config = Config(data, model_type, where)
    config.ignore(*ignore_keys)
    fields = reader(model_type)(config)
    config.finish()
    dtype, note = published_dtype(data)
    fields.setdefault("dtype", dtype)
    fields["assumptions"] = (*config.all_assumptions(), *([note] if note else []))
    fields.setdefault("name", name)
    fields.setdefault("model_type", model_type)
    fields.setdefault("quantisation", own_quantisation(data, where))
    return build(fields, where)


def own_quantisation(data: dict[str, Any], where: str) -> dict[str, Any] | None:
    """The ``quantization_config`` of a configuration, or of its text part, with DeepSeek-V4's ``expert_dtype``.

    Raises:
        InvalidFileError: it is no mapping.
    """
    nested = data.get("text_config")
    for level in (data, nested if isinstance(nested, dict) else {}):
        found = level.get("quantization_config")
        if found is None:
            continue
        if not isinstance(found, dict):
            raise InvalidFileError("quantization_config must be a mapping", where=f"{where}: quantization_config")
        expert_dtype = level.get("expert_dtype")
        return {**found, "expert_dtype": expert_dtype} if isinstance(expert_dtype, str) else dict(found)
    return None


def published_dtype(data: dict[str, Any]) -> tuple[str, str]:
    """The 16-bit dtype that an engine loads the weights in, and a note where the file names another.

    Engines' ``--dtype auto`` takes 16 bits for weights that are published in 32.
    Source: vLLM, vllm/config/model.py (`_resolve_auto_dtype`), read 2026-11-30.
    """
    nested = data.get("text_config")
    for part in (data, nested if isinstance(nested, dict) else {}):
        for key in ("dtype", "torch_dtype"):
            name = part.get(key)
            if name == "float16":
                return "fp16", ""
            if name == "float32":
                return "bf16", "weights published in float32 are loaded in 16 bits, as engines do"
    return "bf16", ""


def build(fields: dict[str, Any], where: str) -> ModelSpec:
    """Validate what a reader put together; a contradiction is the file's mistake."""
    from pydantic import ValidationError

    from capplan.describe.parts import validated

    try:
        return validated(ModelSpec, fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join(str(part) for part in first["loc"])
        detail = str(first["msg"]).removeprefix("Value error, ")
        raise InvalidFileError(f"the sizes contradict each other: {detail} ({path})", where=where) from None


def parse_json(text: str, where: str) -> dict[str, Any]:
    """A JSON object, strictly: no duplicate keys, no deep nesting.

    Python's own ``Infinity`` and ``NaN`` are let through, since real configurations have them (Mamba-2's
    ``time_step_limit``); no size is ever taken from them.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            names = [key for key, _ in pairs]
            twice = next(key for key in names if names.count(key) > 1)
            raise InvalidFileError(f"the key {twice!r} stands twice in one object", where=where)
        return result

    depth = most = 0
    for character in text:
        depth += (character in "[{") - (character in "]}")
        most = max(most, depth)
    if most > MAX_JSON_DEPTH:
        raise InvalidFileError(f"values are nested more than {MAX_JSON_DEPTH} deep", where=where)
    try:
        data = json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise InvalidFileError(
            f"this is not valid JSON: {error.msg}", where=f"{where}:{error.lineno}:{error.colno}"
        ) from None
    except ValueError as error:
        raise InvalidFileError(f"this is not valid JSON: {error}", where=where) from None
    if not isinstance(data, dict):
        raise InvalidFileError("the file must hold one JSON object", where=where)
    return data
