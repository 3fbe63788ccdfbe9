"""From what a user writes after ``--model`` to a `ModelSpec`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from capplan.describe.catalog import data_folder, find_entry
from capplan.describe.model import ModelSpec
from capplan.describe.yaml_file import read_yaml, validate
from capplan.errors import InvalidFileError, NotFoundError, UnsupportedError

MODEL_FLAG = "--model"


@dataclass(frozen=True)
class ResolvedModel:
    """A model and where its description was found."""

    spec: ModelSpec
    path: Path
    source: str


def resolve_model(
    reference: str, *, models_dirs: Sequence[Path] = (), ignore_keys: Collection[str] = ()
) -> ResolvedModel:
    """The model that a reference names.

    A reference is a YAML description, a ``config.json``, a checkpoint's folder, a catalog name or alias, or a
    Hugging Face id, which is looked for in the catalog and then in the local Hugging Face cache.

    Raises:
        NotFoundError: nothing of that name.
        UnsupportedError: an architecture that is not understood.
        InvalidFileError: a malformed description.
    """
    path = Path(reference)
    if _is_file_reference(reference, path):
        return _from_path(path, ignore_keys)
    try:
        entry = find_entry("models", reference, models_dirs)
    except NotFoundError as error:
        cached = _cached_snapshot(reference)
        if cached is not None:
            return _from_path(cached, ignore_keys, name=reference)
        raise NotFoundError(error.message, where=MODEL_FLAG, hint=error.hint) from None
    return ResolvedModel(load_model(entry), entry, f"catalog: {entry.name}")


def load_model(path: Path) -> ModelSpec:
    """The model of a YAML description; one that ships with capplan is validated by the test suite."""
    document = read_yaml(path)
    if path.parent == data_folder("models"):
        from capplan.describe.parts import hydrated

        try:
            return hydrated(ModelSpec, document.data)
        except ValueError:
            pass
    return validate(ModelSpec, document)


def _is_file_reference(reference: str, path: Path) -> bool:
    """Whether the reference means a file or folder rather than a name."""
    if reference.endswith((".json", ".yaml", ".yml", ".gguf", ".safetensors")) or reference.startswith((".", "/", "~")):
        return True
    try:
        return path.is_dir() and (path / "config.json").is_file()
    except (OSError, ValueError):
        return False


def _from_path(path: Path, ignore_keys: Collection[str], name: str | None = None) -> ResolvedModel:
    from capplan.describe.huggingface import read_config_file

    try:
        path = path.expanduser()
        folder = path.is_dir()
    except (OSError, ValueError, RuntimeError):
        raise NotFoundError(f"there is no file {str(path)[:200]!r}", where=MODEL_FLAG) from None
    if folder:
        path = path / "config.json"
        if not path.is_file():
            raise NotFoundError("the folder has no config.json", where=str(path.parent))
    if path.suffix in (".yaml", ".yml"):
        return ResolvedModel(load_model(path), path, f"file: {path}")
    if path.suffix == ".json":
        return ResolvedModel(read_config_file(path, name=name, ignore_keys=ignore_keys), path, f"file: {path}")
    if path.suffix in (".gguf", ".safetensors"):
        raise UnsupportedError(f"a {path.suffix} file alone does not describe the model", where=str(path))
    raise InvalidFileError("this is not a config.json, a YAML description or a checkpoint's folder", where=str(path))


def _cached_snapshot(reference: str) -> Path | None:
    """The folder of a Hugging Face id in the local cache."""
    if reference.count("/") != 1:
        return None
    from capplan.describe.huggingface_cache import cached_snapshot

    return cached_snapshot(reference)
