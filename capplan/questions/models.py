"""Which models does capplan know, and what are they made of?"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from capplan.describe.catalog import list_entries
from capplan.describe.file_check import check_files
from capplan.describe.model import ModelSpec, Stack
from capplan.describe.model_file import model_data, model_yaml, write_model
from capplan.describe.resolve import load_model, model_document, resolve_model
from capplan.describe.yaml_file import validate
from capplan.errors import UsageError
from capplan.memory.sequence_memory import Lengths, block_kind, sequence_memory
from capplan.memory.weights import count_parameters
from capplan.questions.answer import Answer
from capplan.questions.checks import FileChecks, check_answer


@dataclass(frozen=True)
class ModelRow:
    """One model of the catalog in a line.

    Args:
        name: its name in the catalog.
        huggingface_id: its id on the hub.
        params_total: parameters with towers and without MTP layers.
        params_active: parameters that one token of text uses.
        layers: layers of its own stack.
        bytes_per_token: KV bytes that one more token adds in a short context, bf16.
        state_bytes: bytes of the fixed states of one sequence.
        max_positions: the context that it was made for.
    """

    name: str
    huggingface_id: str | None
    params_total: int
    params_active: int
    layers: int
    bytes_per_token: int | float
    state_bytes: int
    max_positions: int | None


@dataclass(frozen=True)
class ModelList:
    """The catalog."""

    models: tuple[ModelRow, ...]


@dataclass(frozen=True)
class BlockRow:
    """One kind of layer of a stack."""

    stack: str
    name: str
    layers: int
    mixer: str
    ffn: str


@dataclass(frozen=True)
class ModelDetail:
    """One model: its line, its layers, and the whole description."""

    summary: ModelRow
    order: str
    blocks: tuple[BlockRow, ...]
    description: dict[str, Any]
    yaml: str
    path: str


def list_models(*, models_dirs: Sequence[Path] = ()) -> Answer[ModelList]:
    """Every model of the catalog, by name."""
    rows = tuple(summarise(load_model(path)) for path in list_entries("models", models_dirs))
    return Answer("models list", {"models_dirs": list(models_dirs)}, ModelList(rows), provenance={"models": "exact"})


def show_model(
    name: str, *, models_dirs: Sequence[Path] = (), ignore_keys: Collection[str] = ()
) -> Answer[ModelDetail]:
    """One model in full; `name` may be anything that ``--model`` takes."""
    found = resolve_model(name, models_dirs=models_dirs, ignore_keys=ignore_keys)
    return _detail("models show", found.spec, str(found.path), found.source)


def import_model(
    config: Path,
    *,
    name: str | None = None,
    huggingface_id: str | None = None,
    output: Path | None = None,
    ignore_keys: Collection[str] = (),
) -> Answer[ModelDetail]:
    """Turn a ``config.json``, or the folder of a checkpoint, into a YAML description, and write it where told.

    Args:
        config: the file or folder.
        name: the name of the description; None: that of the folder or file.
        huggingface_id: the id on the hub, as a second name.
        output: the file to write; None: nothing is written.
        ignore_keys: keys that are known to change no size.
    """
    reference = str(config) if config.is_absolute() or str(config).startswith(".") else f"./{config}"
    found = resolve_model(reference, ignore_keys=ignore_keys)
    spec = replace(found.spec, name=name or found.spec.name, huggingface_id=huggingface_id or found.spec.huggingface_id)
    if not spec.name or not spec.name.isprintable():
        raise UsageError("the name must be printable text", where="--name")
    if output is not None:
        write_model(spec, output)
    return _detail("models import", spec, str(output) if output else "", found.source)


def validate_models(files: Sequence[Path]) -> Answer[FileChecks]:
    """Check YAML descriptions: syntax, keys, kinds of values, and that the sizes agree."""
    return check_answer("models validate", files, check_files(files, _read_strictly))


def _read_strictly(path: Path) -> ModelSpec:
    spec = validate(ModelSpec, model_document(path))
    count_parameters(spec)
    return spec


def summarise(spec: ModelSpec) -> ModelRow:
    """The line of one model."""
    count = count_parameters(spec)
    memory = sequence_memory(spec, Lengths(1, 1))
    marginal = memory.bytes_per_token
    return ModelRow(
        spec.name,
        spec.huggingface_id,
        count.total,
        count.active,
        spec.depth,
        int(marginal) if marginal.denominator == 1 else float(marginal),
        memory.state_bytes,
        spec.max_positions,
    )


def _detail(command: str, spec: ModelSpec, path: str, source: str) -> Answer[ModelDetail]:
    stacks: list[tuple[str, Stack]] = [("model", spec)]
    stacks += [("encoder", spec.encoder)] if spec.encoder else []
    stacks += [("mtp", spec.mtp)] if spec.mtp else []
    stacks += list(spec.towers.items())
    blocks = tuple(
        BlockRow(label, name, layers, block_kind(block), " + ".join(_ffn(ffn) for ffn in block.ffn) or "none")
        for label, stack in stacks
        for name, layers, block in stack.each_block()
    )
    detail = ModelDetail(summarise(spec), spec.layers, blocks, model_data(spec), model_yaml(spec), path)
    sources = (source, *(f"{field}: {item.source} {item.date}".rstrip() for field, item in spec.sources.items()))
    return Answer(
        command,
        {"model": spec.name},
        detail,
        assumptions=spec.assumptions,
        sources=sources,
        provenance={"summary": "exact"},
    )


def _ffn(ffn: Any) -> str:
    if ffn.kind == "dense":
        return f"dense {ffn.intermediate_size}"
    shared = f" + shared {ffn.shared.intermediate_size}" if ffn.shared else ""
    return f"{ffn.top_k} of {ffn.experts} experts {ffn.intermediate_size}{shared}"
