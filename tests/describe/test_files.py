"""Files are put in their place whole, or not at all."""

from pathlib import Path

import pytest

from capplan.describe.files import put_whole, whole


def interrupted(path: Path) -> None:
    with whole(path) as part:
        part.write_text("ne")
        raise KeyboardInterrupt


def test_what_breaks_off_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt):
        interrupted(path)
    assert {item.name: item.read_text() for item in tmp_path.iterdir()} == {"rows.csv": "old"}


def test_nothing_is_left_of_a_file_that_was_never_written(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        put_whole(tmp_path / "model.yaml", "a surrogate \udc80")
    assert list(tmp_path.iterdir()) == []


def test_a_link_stays_a_link_and_a_folder_a_folder(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    put_whole(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"
    with pytest.raises(IsADirectoryError):
        put_whole(tmp_path, "text")
    assert sorted(item.name for item in tmp_path.iterdir()) == ["link", "real"]
