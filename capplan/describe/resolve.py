"""From what a user writes after ``--model`` to a `ModelSpec`, and to the files of its weights where there are any."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capplan.describe.catalog import check_folders, data_folder, find_entry
from capplan.describe.files import suffix_of
from capplan.describe.model import ModelSpec
from capplan.describe.yaml_file import Document, read_yaml, validate
from capplan.errors import InvalidFileError, NotFoundError

if TYPE_CHECKING:
    from capplan.describe.checkpoint import CheckpointFiles
    from capplan.describe.gguf import GgufFile

MODEL_FLAG = "--model"

FILE_SUFFIXES = (".json", ".yaml", ".yml", ".gguf", ".safetensors")
"""What a reference ends in that means a file rather than a name."""


@dataclass(frozen=True)
class ResolvedModel:
    """A model, where its description was found, and its files.

    Args:
        spec: the model.
        path: the file or folder.
        source: where it was found, in words.
        checkpoint: the safetensors files that belong to it, if any.
        gguf: the header of its GGUF file, if it is one.
    """

    spec: ModelSpec
    path: Path
    source: str
    checkpoint: CheckpointFiles | None = None
    gguf: GgufFile | None = None


def resolve_model(
    reference: str, *, models_dirs: Sequence[Path] = (), ignore_keys: Collection[str] = (), online: bool = False
) -> ResolvedModel:
    """The model that a reference names.

    A reference is a YAML description, a ``config.json``, a checkpoint's folder, a ``.gguf`` file, a catalog name or
    alias, or a Hugging Face id, which is looked for in the catalog, in the local Hugging Face cache and, when `online`
    is set, on the hub.

    Raises:
        NotFoundError: nothing of that name, or a folder that is not there.
        UnsupportedError: an architecture that is not understood.
        InvalidFileError: a malformed description.
    """
    check_folders("models", models_dirs)
    path = Path(reference)
    if _is_file_reference(reference, path):
        return _from_path(path, ignore_keys)
    try:
        entry = find_entry("models", reference, models_dirs)
    except NotFoundError as error:
        from capplan.describe.huggingface_cache import cached_snapshot

        cached = cached_snapshot(reference)
        if cached is not None:
            return _from_folder(cached, reference, ignore_keys)
        if online and reference.count("/") == 1:
            return _from_hub(reference, ignore_keys)
        hint = error.hint
        if reference.count("/") == 1:
            hint = "; ".join(part for part in (hint, "--online looks the id up on the Hugging Face hub") if part)
        raise NotFoundError(error.message, where=MODEL_FLAG, hint=hint) from None
    return ResolvedModel(load_model(entry), entry, f"catalog: {entry.name}")


def load_model(path: Path) -> ModelSpec:
    """The model of a YAML description; one that ships with capplan is validated by the test suite."""
    document = model_document(path)
    if path.parent == data_folder("models"):
        from capplan.describe.parts import hydrated

        try:
            return hydrated(ModelSpec, document.data)
        except ValueError:
            pass
    return validate(ModelSpec, document)


def model_document(path: Path) -> Document:
    """A description's file, with what its `base` says where it has nothing of its own."""
    document = read_yaml(path)
    return document if document.data.get("base") is None else _with_base(document, path)


def _with_base(document: Document, path: Path) -> Document:
    """A description that names another as its `base` has that one's keys where it has none of its own.

    What belongs to the other's name (aliases, id, assumptions, sources, quantisation) is not taken over.
    """
    base = document.data["base"]
    if not isinstance(base, str):
        raise InvalidFileError("base must be the name of a model", where=document.where(("base",)))
    beside = path.parent / f"{base}.yaml"
    try:
        found = beside if beside.is_file() else find_entry("models", base)
    except NotFoundError as error:
        raise InvalidFileError(error.message, where=document.where(("base",)), hint=error.hint) from None
    other = read_yaml(found).data
    if "base" in other:
        raise InvalidFileError(f"{base} has a base itself; name that one", where=document.where(("base",)))
    own = ("name", "aliases", "huggingface_id", "assumptions", "sources", "quantisation")
    data: dict[str, Any] = {key: value for key, value in other.items() if key not in own}
    data.update({key: value for key, value in document.data.items() if key != "base"})
    return replace(document, data=data)


def _is_file_reference(reference: str, path: Path) -> bool:
    """Whether the reference means a file or folder rather than a name."""
    if suffix_of(reference) in FILE_SUFFIXES or reference.startswith((".", "/", "~")):
        return True
    try:
        return path.is_dir() and any((path / name).is_file() for name in ("config.json", "model.safetensors"))
    except (OSError, ValueError):
        return False


def _from_path(path: Path, ignore_keys: Collection[str]) -> ResolvedModel:
    from capplan.describe.huggingface import read_config_file

    try:
        path = path.expanduser()
        folder = path.is_dir()
    except (OSError, ValueError, RuntimeError):
        raise NotFoundError(f"there is no file {str(path)[:200]!r}", where=MODEL_FLAG) from None
    if folder:
        return _from_folder(path, path.resolve().name, ignore_keys)
    suffix = suffix_of(path)
    if suffix in (".yaml", ".yml"):
        return ResolvedModel(load_model(path), path, f"file: {path}")
    if suffix == ".json":
        return ResolvedModel(read_config_file(path, ignore_keys=ignore_keys), path, f"file: {path}")
    if suffix == ".gguf":
        from capplan.describe.gguf_model import read_gguf_spec

        spec, file = read_gguf_spec(path)
        return ResolvedModel(spec, path, f"file: {path}", gguf=file)
    if suffix == ".safetensors":
        return _from_folder(path.parent, path.resolve().parent.name, ignore_keys)
    raise InvalidFileError("this is not a config.json, a YAML description or a checkpoint's folder", where=str(path))


def _from_folder(path: Path, name: str, ignore_keys: Collection[str]) -> ResolvedModel:
    from capplan.describe.checkpoint import LocalCheckpoint

    files = LocalCheckpoint(path)
    return ResolvedModel(_checkpoint_spec(files, name, ignore_keys), path, f"folder: {path}", checkpoint=files)


def _from_hub(model_id: str, ignore_keys: Collection[str]) -> ResolvedModel:
    import sys

    from capplan.describe.checkpoint import HubCheckpoint
    from capplan.describe.remote import Hub

    hub = Hub.from_environment()
    print(f"asking {hub.endpoint} for {model_id}", file=sys.stderr)
    files = HubCheckpoint(hub, model_id)
    spec = _checkpoint_spec(files, model_id.split("/")[-1], ignore_keys)
    return ResolvedModel(replace(spec, huggingface_id=model_id), Path(model_id), f"hub: {model_id}", checkpoint=files)


def _checkpoint_spec(files: CheckpointFiles, name: str, ignore_keys: Collection[str]) -> ModelSpec:
    """The model of a checkpoint: its configuration, and its quantisation from whichever file has it."""
    from capplan.describe.checkpoint_config import MAX_CONFIG_BYTES, read_checkpoint_config
    from capplan.describe.huggingface import parse_json, read_config
    from capplan.describe.quantisation_config import HF_QUANT_CONFIG

    config = read_checkpoint_config(files)
    spec = read_config(config, where=f"{files.name}/config.json", name=name or "model", ignore_keys=ignore_keys)
    if spec.quantisation is None:
        text = files.text(HF_QUANT_CONFIG, MAX_CONFIG_BYTES)
        if text is not None:
            separate = parse_json(text, f"{files.name}/{HF_QUANT_CONFIG}").get("quantization")
            if not isinstance(separate, dict):
                raise InvalidFileError("quantization must be a mapping", where=f"{files.name}/{HF_QUANT_CONFIG}")
            spec = replace(spec, quantisation=separate)
    return spec
