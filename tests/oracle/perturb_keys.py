"""Change one key of a small configuration at a time, and see with transformers which keys change a size.

A reader that passes over a key that changes a size is wrong in silence. Here every key that a class declares, and
every key of the first variation of each type, is changed, made null or left out; the count of parameters and of cache
bytes that transformers then makes is frozen. The reader must make the same, or refuse.

    python -m tests.oracle.perturb_keys --output tests/data/oracle_perturbations.jsonl
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import transformers

from tests.oracle.count_parameters import (
    ENCODER_TYPES,
    TEXT_ONLY_TYPES,
    configuration,
    count,
    forward,
    identity_expert_parameters,
    layer_bytes,
    on_meta,
)
from tests.oracle.variations import VARIATIONS

LENGTH = 48
ABSENT = "(absent)"
# Values to try for a key that is null: as a size, as a switch and as a list, until one of them builds.
FOR_NULL: tuple[Any, ...] = (4, 3, True, [1], 0.5)


def declared_keys(
    document: dict[str, Any], model_type: str, config: dict[str, Any]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Paths of the keys that a type's classes declare, nested ones too, with the value that holds now."""
    values = {**document["defaults"].get(model_type, {}), **config}
    for key, value in sorted(values.items()):
        nested = document["sub_configs"].get(model_type, {}).get(key)
        if nested is not None and isinstance(value, dict):
            inner = value.get("model_type", nested["model_type"])
            yield from (((key, *path), held) for path, held in declared_keys(document, inner, value))
        elif key != "model_type" and nested is None:
            yield (key,), value


def changed(value: Any) -> list[Any]:
    """Other values of the same kind, the likelier to build first."""
    match value:
        case bool():
            return [not value]
        case int():
            return [value * 2, value + 1, value * 3, max(value // 2, 1)]
        case float():
            return [value * 2]
        case None:
            return list(FOR_NULL)
        case list() if value and all(isinstance(item, (int, float)) for item in value):
            return [[*value[:-1], value[-1] + 1], value[:-1]]
        case list() if value:
            return [[*value[:-1], value[0]], [value[-1], *value[1:]]]
    return []


def altered(config: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """A copy of the configuration with one key set, or left out."""
    copied = copy.deepcopy(config)
    level = copied
    for key in path[:-1]:
        level = level.setdefault(key, {})
    if isinstance(value, str) and value == ABSENT:
        level.pop(path[-1], None)
    else:
        level[path[-1]] = value
    return copied


def sizes(model_type: str, config: dict[str, Any]) -> tuple[int, int, int]:
    """Parameters, active parameters and cache bytes at `LENGTH` tokens."""
    built = configuration(model_type, config)
    model = on_meta(built)
    parameters = count(model, built, model_type in TEXT_ONLY_TYPES)
    total = parameters.total
    if model_type == "longcat_flash":
        total -= identity_expert_parameters(built, dict(model.named_parameters()))
    if model_type in ENCODER_TYPES:
        return total, parameters.active, 0
    kept = [layer_bytes(tensors, built, LENGTH, LENGTH) for tensors in forward(model, built, LENGTH)]
    return total, parameters.active, sum(counted + states for counted, _, states in kept)


def attempts(config: dict[str, Any], path: tuple[str, ...], value: Any) -> list[list[Any]]:
    """Values to try for one key: groups of which the first that builds is kept."""
    level: Any = config
    for key in path[:-1]:
        level = level.get(key, {})
    groups = [changed(value)]
    if path[-1] in level:
        groups += [[ABSENT], [None]] if value is not None else [[ABSENT]]
    return groups


def perturbations(document: dict[str, Any], model_type: str) -> dict[str, Any]:
    """One type's base, and `[key, value, sizes]` of each change that builds and runs; sizes are null where equal."""
    config = VARIATIONS[model_type][0]
    base = sizes(model_type, config)
    rows: list[list[Any]] = []
    for path, value in declared_keys(document, model_type, config):
        for group in attempts(config, path, value):
            for candidate in group:
                try:
                    found = sizes(model_type, altered(config, path, candidate))
                except Exception:
                    continue
                rows.append([".".join(path), candidate, None if found == base else list(found)])
                break
    return {"model_type": model_type, "config": config, "sizes": list(base), "changes": rows}


def main() -> None:
    """Write the rows, of all types or of those that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("types", nargs="*")
    options = parser.parse_args()
    transformers.logging.set_verbosity(50)
    defaults = Path(__file__).parents[2] / "capplan" / "describe" / "class_defaults.json"
    document = json.loads(defaults.read_text(encoding="utf-8"))
    with options.output.open("w", encoding="utf-8") as output:
        for model_type in options.types or VARIATIONS:
            row = perturbations(document, model_type)
            print(json.dumps(row, separators=(",", ":")), file=output, flush=True)


if __name__ == "__main__":
    main()
