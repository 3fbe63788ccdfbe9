"""Write models/*.yaml from the configurations on the Hugging Face hub and from what models.yaml adds to them.

Run: python tools/catalog/write_models.py [--check]     (--check compares and writes nothing)

The configurations lie in tests/data/model_truth/configs and in tools/catalog/configs, named ``owner--model.json``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from capplan.describe.huggingface import parse_json, read_config
from capplan.describe.model import ModelSpec, MtpStack, Source
from capplan.describe.model_file import model_yaml, write_text
from capplan.describe.yaml_file import read_yaml

ROOT = Path(__file__).parents[2]
CONFIG_FOLDERS = (ROOT / "tests" / "data" / "model_truth" / "configs", Path(__file__).parent / "configs")
QUANTISED = Path(__file__).parent / "quantised"
MODELS = ROOT / "models"
READ_ON = "2026-11-30"
CUT = ("-instruct", "-it", "-chat", "-base", "-v0.1", "-preview", "-bf16")


def short_name(huggingface_id: str, names: dict[str, str]) -> str:
    """``meta-llama/Llama-2-70b-hf`` -> ``llama2-70b``."""
    if huggingface_id in names:
        return names[huggingface_id]
    name = huggingface_id.split("/")[-1].lower().removesuffix("-hf").removeprefix("meta-").removeprefix("nvidia-")
    return re.sub(r"^llama-(\d)", r"llama\1", name.replace("_", "-"))


def other_names(huggingface_id: str, name: str) -> Iterator[str]:
    """What else people call it: the id's own spelling, and the name without its trailing labels."""
    yield huggingface_id.split("/")[-1].lower().replace("_", "-")
    yield re.sub(r"^llama(\d)", r"llama-\1", name)
    for suffix in CUT:
        if name.endswith(suffix):
            yield name.removesuffix(suffix)
    match = re.match(r"(llama4-(scout|maverick))-", name)
    if match:
        yield match[1]


def configurations() -> Iterator[tuple[str, Path]]:
    """(Hugging Face id, file) of every configuration; the first folder wins."""
    seen: set[str] = set()
    for folder in CONFIG_FOLDERS:
        for path in sorted(folder.glob("*.json")):
            huggingface_id = path.stem.replace("--", "/", 1)
            if huggingface_id not in seen:
                seen.add(huggingface_id)
                yield huggingface_id, path


def descriptions() -> dict[str, ModelSpec]:
    """Every model by its name."""
    extra = read_yaml(Path(__file__).parent / "models.yaml").data
    specs: dict[str, ModelSpec] = {}
    wanted: dict[str, list[str]] = {}
    for huggingface_id, path in configurations():
        name = short_name(huggingface_id, extra["names"])
        data = parse_json(path.read_text(encoding="utf-8"), path.name)
        spec = read_config(data, where=path.name, name=name)
        known = extra["sources"].get(huggingface_id, {"source": f"config.json of {huggingface_id}", "date": READ_ON})
        sources = {"all": Source(**known)}
        clean_id = re.sub(r"\(.*\)", "", huggingface_id)
        specs[name] = with_facts(
            replace(spec, huggingface_id=clean_id, sources=sources), extra["facts"].get(huggingface_id, {})
        )
        wanted[name] = [*other_names(huggingface_id, name)]
        if clean_id != huggingface_id:
            wanted[name].append(huggingface_id.lower())
        for other in extra["also"].get(huggingface_id, []):
            wanted[name] += [other.lower(), short_name(other, {}), *other_names(other, short_name(other, {}))]
    bases = dict(specs)
    for huggingface_id, base in extra["variants"].items():
        name = short_name(huggingface_id, extra["names"]).replace("-instruct", "")
        quantisation = parse_json((QUANTISED / f"{huggingface_id.replace('/', '--')}.json").read_text(), huggingface_id)
        found = quantisation.get("quantization_config") or quantisation["quantization"]
        sources = {"all": Source(source=f"config.json of {huggingface_id}", date=READ_ON)}
        variant = replace(bases[base], name=name, huggingface_id=huggingface_id, aliases=(), quantisation=found)
        specs[name] = replace(variant, sources=sources)
        wanted[name] = [*other_names(huggingface_id, name)]
    taken = set(specs) | {str(spec.huggingface_id).lower() for spec in specs.values()}
    for name, spec in specs.items():
        aliases = list(dict.fromkeys(alias for alias in wanted[name] if alias not in taken))
        taken.update(aliases)
        specs[name] = replace(spec, aliases=tuple(aliases))
    return specs


def with_facts(spec: ModelSpec, facts: dict[str, Any]) -> ModelSpec:
    """What a configuration does not tell, each with its source: the context, and what the MTP layers bring along.

    A context length that is only the default of a class is not known, and is left out.
    """
    sources = dict(spec.sources)
    if any("max_position_embeddings" in line for line in spec.assumptions):
        spec = replace(spec, max_positions=None)
    spec = replace(spec, assumptions=tuple(line for line in spec.assumptions if "max_position_embeddings" not in line))
    for field, fact in facts.items():
        sources[field] = Source(source=fact["source"], date=fact["date"])
        section, _, key = field.rpartition(".")
        if section == "mtp":
            assert isinstance(spec.mtp, MtpStack), f"{spec.name} has no MTP layers"
            known = tuple(line for line in spec.assumptions if "MTP" not in line)
            spec = replace(spec, mtp=replace(spec.mtp, **{key: fact["value"]}), assumptions=known)
        else:
            spec = replace(spec, **{field: fact["value"]})
    return replace(spec, sources=sources)


def main() -> None:
    """Write or compare all files."""
    check = "--check" in sys.argv
    stale = []
    specs = descriptions()
    bases = read_yaml(Path(__file__).parent / "models.yaml").data["variants"]
    for name, spec in specs.items():
        base = bases.get(spec.huggingface_id)
        path, text = MODELS / f"{name}.yaml", model_yaml(spec, base=specs[base] if base else None)
        if check:
            if not path.is_file() or path.read_text(encoding="utf-8") != text:
                stale.append(path.name)
        else:
            write_text(path, text)
    if stale:
        sys.exit(f"differ from what this script writes: {', '.join(stale)}")


if __name__ == "__main__":
    main()
