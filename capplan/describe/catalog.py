"""Find the data that ships with capplan, and entries in it by file name, alias or Hugging Face id.

The folders ``models/`` and ``hardware/`` lie in the wheel as ``capplan/_data/...`` and in a checkout beside
the package; `data_folder` is the one function that knows. Users add folders with ``--models-dir`` and
``--hardware-dir``, and with ``$CAPPLAN_PATH``, whose entries may each hold a ``models/`` and a ``hardware/``
folder. What a user adds comes first, so that it can replace what ships.

A lookup parses no YAML but that of the entry it is about to return: file names come from the folder's
listing, and only the top-level keys that hold names are read out of the text of the others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal

from capplan.describe.files import is_folder, suffix_of
from capplan.describe.yaml_file import read_text, read_yaml
from capplan.errors import InvalidFileError, NotFoundError, UsageError, did_you_mean

Kind = Literal["models", "hardware", "profiles", "prices"]

_FOLDERS: dict[str, str] = {
    "models": "models",
    "hardware": "hardware",
    "profiles": "hardware/profiles",
    "prices": "hardware/prices",
}
_ENTRY: dict[str, str] = {"models": "model", "hardware": "GPU", "profiles": "profile", "prices": "price list"}
_SUFFIXES = (".yaml", ".yml")
_NAME_KEYS = ("name", "title", "aliases", "huggingface_id", "huggingface_ids")
_NAME_KEY = rf"(?m)^(?:{'|'.join(_NAME_KEYS)})[ \t]*:"
_NAME_SECTION = re.compile(rf"{_NAME_KEY}(?:.*(?:\n|\Z)(?:[ \t#-].*(?:\n|\Z)|\n)*)")
_MOST_NAME_CHARACTERS = 200
_PATH_VARIABLE = "CAPPLAN_PATH"


def normalise_name(name: str) -> str:
    """A name as it is compared: lower case, with ``_`` and blanks as ``-``."""
    return re.sub(r"[\s_]+", "-", name.strip()).lower()


def data_folder(kind: Kind) -> Path:
    """The folder of one kind of data that ships with capplan: in a wheel, an editable install or a checkout.

    Raises:
        NotFoundError: the installation lacks its data.
    """
    package = Path(__file__).resolve().parent.parent
    installed = package / "_data" / _FOLDERS[kind]
    if installed.is_dir():
        return installed
    checkout = package.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / _FOLDERS[kind]).is_dir():
        return checkout / _FOLDERS[kind]
    raise NotFoundError(
        f"the data folder {_FOLDERS[kind]}/ of capplan is missing",
        where=str(installed),
        hint="reinstall capplan",
    )


def check_folders(kind: Kind, extra: Sequence[Path]) -> None:
    """Refuse folders that are not there.

    Raises:
        NotFoundError: a folder that was given does not exist.
    """
    for folder in extra:
        if not is_folder(folder):
            raise NotFoundError(f"there is no folder {str(folder)[:200]!r}", where=f"--{kind}-dir")


def folders(kind: Kind, extra: Sequence[Path] = ()) -> list[Path]:
    """Every folder of a kind, first come first served: given ones, ``$CAPPLAN_PATH``, what ships.

    Raises:
        NotFoundError: a folder that was given does not exist.
    """
    check_folders(kind, extra)
    roots = [Path(root) for root in os.environ.get(_PATH_VARIABLE, "").split(os.pathsep) if root]
    named = [folder for root in roots if (folder := root / _FOLDERS[kind]).is_dir()]
    return [*extra, *named, data_folder(kind)]


def list_entries(kind: Kind, extra: Sequence[Path] = ()) -> list[Path]:
    """The file of every entry, by name; an entry of an earlier folder hides one of the same name."""
    found: dict[str, Path] = {}
    for folder in folders(kind, extra):
        for name, path in _files(folder).items():
            found.setdefault(name, path)
    return [found[name] for name in sorted(found)]


def find_entry(kind: Kind, name: str, extra: Sequence[Path] = ()) -> Path:
    """The file of the entry with this name: by file name first, then by alias or Hugging Face id.

    Case does not matter, and ``_`` is ``-``. A name is compared with what the folders hold and never joined
    to a path, so that no name reaches a file outside them.

    Raises:
        UsageError: not a name at all.
        NotFoundError: no such entry; the hint has the nearest names.
    """
    wanted = _checked(name, kind)
    searched = folders(kind, extra)
    for folder in searched:
        if path := _files(folder).get(wanted):
            return path
    for folder in searched:
        for path in _files(folder).values():
            if wanted in normalise_name(_name_sections(path)) and wanted in entry_names(path):
                return path
    raise NotFoundError(
        f"there is no {_ENTRY[kind]} named {name!r} in the catalog",
        where=f"--{_command(kind)[:-1]}",
        hint=did_you_mean(wanted, _all_names(searched)) or f"`capplan {_command(kind)} list` shows them all",
    )


def entry_names(path: Path) -> frozenset[str]:
    """Every name that an entry answers to, normalised: its file name, name, title, aliases and ids."""
    data = read_yaml(path).data
    names = {path.stem}
    for key in _NAME_KEYS:
        value = data.get(key)
        names.update(item for item in (value if isinstance(value, list) else [value]) if isinstance(item, str))
    return frozenset(normalise_name(name) for name in names)


def _checked(name: str, kind: Kind) -> str:
    wanted = normalise_name(name)
    if not wanted or len(wanted) > _MOST_NAME_CHARACTERS or not wanted.isprintable():
        raise UsageError(f"{name[:40]!r} is not the name of a {_ENTRY[kind]}", where=f"--{_command(kind)[:-1]}")
    return wanted


def _command(kind: Kind) -> str:
    return "gpus" if kind == "hardware" else kind


def _files(folder: Path) -> dict[str, Path]:
    """The YAML files of a folder by normalised stem, in order; those that ship are listed once."""
    return _shipped_files(folder) if folder in _shipped() else _listed(folder)


@lru_cache(maxsize=1)
def _shipped() -> frozenset[Path]:
    """The folders that ship with capplan and stay as they are."""
    kinds: tuple[Kind, ...] = ("models", "hardware", "profiles", "prices")
    return frozenset(data_folder(kind) for kind in kinds)


@lru_cache(maxsize=8)
def _shipped_files(folder: Path) -> dict[str, Path]:
    return _listed(folder)


def _listed(folder: Path) -> dict[str, Path]:
    try:
        names = sorted(item.name for item in os.scandir(folder) if suffix_of(item.name) in _SUFFIXES and item.is_file())
    except OSError as error:
        raise InvalidFileError(f"the folder cannot be read: {error.strerror}", where=str(folder)) from None
    return {normalise_name(Path(name).stem): folder / name for name in names}


def _name_sections(path: Path) -> str:
    """The raw text of the top-level keys that hold names, without parsing the file."""
    return _shipped_sections(path) if path.parent in _shipped() else _sections(path)


@lru_cache(maxsize=1024)
def _shipped_sections(path: Path) -> str:
    return _sections(path)


def _sections(path: Path) -> str:
    return "\n".join(_NAME_SECTION.findall(read_text(path)))


def _all_names(searched: Sequence[Path]) -> Iterator[str]:
    """Every name in the folders, from their raw text: good enough to suggest from."""
    for folder in searched:
        for name, path in _files(folder).items():
            yield name
            try:
                sections = _name_sections(path)
            except InvalidFileError:
                continue
            for key_less in re.sub(_NAME_KEY, "", sections).splitlines():
                yield from (normalise_name(item) for item in re.findall(r"[\w./+()-]+(?: [\w./+()-]+)*", key_less))
