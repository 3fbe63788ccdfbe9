"""The catalog from a checkout, a wheel and the user's folders, and names that must not escape it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from capplan.describe import catalog
from capplan.describe.catalog import data_folder, entry_names, find_entry, folders, list_entries, normalise_name
from capplan.errors import InvalidFileError, NotFoundError, UsageError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def no_user_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CAPPLAN_PATH", raising=False)


def test_the_checkout_is_found_from_anywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert data_folder("hardware") == ROOT / "hardware"
    assert data_folder("prices") == ROOT / "hardware" / "prices"
    assert find_entry("hardware", "h100").name == "h100-sxm-80gb.yaml"


def wheel_layout(site: Path) -> None:
    """The package and its data as an installed wheel has them."""
    shutil.copytree(ROOT / "capplan", site / "capplan", ignore=shutil.ignore_patterns("__pycache__", "_data"))
    for kind in ("models", "hardware"):
        shutil.copytree(ROOT / kind, site / "capplan" / "_data" / kind)


def test_a_wheel_finds_its_own_data(tmp_path: Path) -> None:
    site, cwd = tmp_path / "site", tmp_path / "elsewhere"
    wheel_layout(site)
    cwd.mkdir()
    (site / "hardware").mkdir()  # a stranger's package of the same name beside ours
    code = (
        "from capplan.describe.catalog import data_folder, find_entry, list_entries\n"
        "print(data_folder('hardware')); print(find_entry('hardware', 'gb300')); print(len(list_entries('hardware')))"
    )
    environment = {**os.environ, "PYTHONPATH": str(site)}
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env=environment, capture_output=True, text=True, check=True
    )
    folder, entry, count = run.stdout.splitlines()
    assert folder == str(site / "capplan" / "_data" / "hardware")
    assert entry == f"{folder}/gb300-nvl72-279gb.yaml"
    assert count == "63"


def test_an_installation_without_data_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "capplan" / "describe"
    package.mkdir(parents=True)
    (tmp_path / "hardware").mkdir()  # without a pyproject.toml this is not our checkout
    monkeypatch.setattr(catalog, "__file__", str(package / "catalog.py"))
    with pytest.raises(NotFoundError, match="is missing"):
        data_folder("hardware")


@pytest.mark.parametrize(
    ("written", "compared"),
    [("H100_SXM", "h100-sxm"), (" RTX  4090 ", "rtx-4090"), ("meta-llama/Llama-2-70b", "meta-llama/llama-2-70b")],
)
def test_names_are_compared_without_case_and_underscores(written: str, compared: str) -> None:
    assert normalise_name(written) == compared


def write(folder: Path, name: str, text: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text or f"schema: 1\nname: {path.stem}\n", encoding="utf-8")
    return path


def test_aliases_ids_and_titles_are_names(tmp_path: Path) -> None:
    block = write(tmp_path, "one.yaml", "schema: 1\nname: one\naliases:\n- uno\n# a remark\n- The First\n\nother: 1\n")
    flow = write(tmp_path, "two.yml", "name: two\naliases: [dos,\n  'zwei drei']\nhuggingface_id: Org/Model-2B\n")
    for name in ("one", "UNO", "the_first"):
        assert find_entry("models", name, [tmp_path]) == block
    for name in ("two", "dos", "zwei-drei", "org/model-2b", "Org/Model_2B"):
        assert find_entry("models", name, [tmp_path]) == flow
    assert entry_names(flow) == {"two", "dos", "zwei-drei", "org/model-2b"}


def test_a_name_elsewhere_in_the_file_is_no_name(tmp_path: Path) -> None:
    write(tmp_path, "one.yaml", "name: one\nnotes: unobtainium\nnested:\n  aliases: [unobtainium]\n")
    with pytest.raises(NotFoundError):
        find_entry("models", "unobtainium", [tmp_path])
    with pytest.raises(NotFoundError):  # a part of an alias is not the alias
        find_entry("models", "on", [tmp_path])


def test_user_folders_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_flag = write(tmp_path / "flag", "h100-sxm-80gb.yaml")
    by_path = write(tmp_path / "root" / "hardware", "h100-sxm-80gb.yaml")
    own = write(tmp_path / "root" / "hardware", "own-gpu.yaml")
    write(tmp_path / "root" / "models", "own-model.yaml")
    monkeypatch.setenv("CAPPLAN_PATH", os.pathsep.join([str(tmp_path / "missing"), "", str(tmp_path / "root")]))
    assert find_entry("hardware", "h100-sxm-80gb", [tmp_path / "flag"]) == by_flag
    assert find_entry("hardware", "h100-sxm-80gb") == by_path
    assert find_entry("hardware", "own_gpu") == own
    assert find_entry("models", "own-model").stem == "own-model"
    assert len(list_entries("hardware")) == 64
    assert folders("hardware")[-1] == data_folder("hardware")


def test_a_folder_that_was_given_must_exist(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError) as caught:
        list_entries("hardware", [tmp_path / "missing"])
    assert caught.value.where == "--hardware-dir"


@pytest.mark.parametrize(
    "name",
    [
        "../secret",
        "..",
        ".",
        "/etc/passwd",
        "sub/secret",
        "..\\secret",
        "secret/../secret",
        "~/secret",
        "*",
        "secret.yaml",
    ],
)
def test_names_never_leave_the_folder(name: str, tmp_path: Path) -> None:
    write(tmp_path, "secret.yaml")
    inside = tmp_path / "inside"
    write(inside, "entry.yaml")
    write(inside / "sub", "secret.yaml")
    with pytest.raises(NotFoundError):
        find_entry("models", name, [inside])


@pytest.mark.parametrize("name", ["", "   ", "a" * 201, "a\x00b", "tab\x07"])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(UsageError):
        find_entry("hardware", name)


def test_subfolders_and_other_files_are_no_entries() -> None:
    stems = {path.stem for path in list_entries("hardware")}
    assert "accelerators" not in stems
    assert "supplement" not in stems


def test_suggestions_know_aliases(tmp_path: Path) -> None:
    write(tmp_path, "deepseek-v3.yaml", "name: deepseek-v3\naliases: [dsv3]\nhuggingface_id: deepseek-ai/DeepSeek-V3\n")
    with pytest.raises(NotFoundError) as caught:
        find_entry("models", "deepseek-ai/deepseek-v33", [tmp_path])
    assert "deepseek-ai/deepseek-v3" in caught.value.hint


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_bytes(b"aliases: [\xff\xfe]\n")
    with pytest.raises(InvalidFileError) as caught:
        find_entry("models", "some-alias-of-no-one", [tmp_path])
    assert "broken.yaml" in caught.value.where
    assert find_entry("models", "broken", [tmp_path]).name == "broken.yaml"


def test_a_lookup_by_alias_parses_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(150):
        filler = "\n".join(f"key{i}: alias-77" for i in range(100))
        write(tmp_path, f"entry-{number}.yaml", f"name: entry-{number}\naliases: [alias-{number}]\n{filler}\n")
    parsed: list[Path] = []
    real = catalog.read_yaml
    monkeypatch.setattr(catalog, "read_yaml", lambda path: parsed.append(path) or real(path))
    started = time.perf_counter()
    assert find_entry("models", "ALIAS_77", [tmp_path]).stem == "entry-77"
    assert time.perf_counter() - started < 1.0
    assert [path.stem for path in parsed] == ["entry-77"]


def test_every_description_that_ships_is_valid_as_a_user_would_ask() -> None:
    from capplan.questions.models import validate_models

    files = sorted((Path(__file__).parents[2] / "models").glob("*.yaml"))
    assert validate_models(files).exit_code == 0
