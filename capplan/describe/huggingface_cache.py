"""The local cache of huggingface_hub: models that were downloaded before, found without the network.

Source: the Hugging Face documentation, "Understand caching": ``models--org--name/refs/<revision>`` holds a commit, and
``snapshots/<commit>/`` its files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_COMMIT = re.compile(r"[0-9a-f]{40}")
MAX_SNAPSHOTS = 1000


def home_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """``HF_HOME``, or ``huggingface`` in the user's cache folder."""
    home = environment.get("HF_HOME")
    if home:
        return _expanded(home)
    cache = environment.get("XDG_CACHE_HOME")
    return (_expanded(cache) if cache else _expanded("~/.cache")) / "huggingface"


def hub_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """``HF_HUB_CACHE`` (or its older name), or ``hub`` in `home_folder`."""
    cache = environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE")
    return _expanded(cache) if cache else home_folder(environment) / "hub"


def cached_snapshot(model_id: str, revision: str = "main", environment: Mapping[str, str] = os.environ) -> Path | None:
    """The folder of a downloaded model, or None.

    Args:
        model_id: ``organisation/name``.
        revision: a branch, a tag or a commit. Without a record of the branch ``main``, a lone snapshot is taken.
        environment: where the cache's folder is read from.
    """
    if not _ID.fullmatch(model_id) or ".." in model_id:
        return None
    folder = hub_folder(environment) / ("models--" + model_id.replace("/", "--"))
    snapshots = folder / "snapshots"
    try:
        if not snapshots.is_dir():
            return None
        commit = revision if _COMMIT.fullmatch(revision) else _commit_of(folder, revision)
        if commit:
            found = snapshots / commit
            return found if found.is_dir() else None
        names = [entry.name for entry in os.scandir(snapshots) if entry.is_dir()][:MAX_SNAPSHOTS]
    except (OSError, ValueError):
        return None
    return snapshots / names[0] if revision == "main" and len(names) == 1 else None


def _commit_of(folder: Path, revision: str) -> str:
    """The commit that a branch or tag stood at when it was last downloaded; "" where that isn't recorded."""
    if ".." in Path(revision).parts or Path(revision).is_absolute():
        return ""
    try:
        with open(folder / "refs" / revision, encoding="ascii") as file:
            commit = file.read(100).strip()
    except (OSError, ValueError):
        return ""
    return commit if _COMMIT.fullmatch(commit) else ""


def _expanded(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError:  # no home folder is known
        return Path(path)
